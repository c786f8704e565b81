"""Scores of predictions that were made elsewhere, on the clients and test nodes of a suite's cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..datasets.federation import Federation, NodeClient
from ..registry import UserError
from .engine.evaluate import Evaluator, Scored, own_rows
from .runner.execute import FederationCache
from .suites.selection import Request, select

if TYPE_CHECKING:
    import pandas as pd

_CACHE = FederationCache()


@dataclass(frozen=True)
class Scores:
    """What the suites report of a run, of one set of predictions. Fractions; None where a figure does not exist.

    score, val: mean over the clients that have test (validation) nodes. metric: what they are, in words. clients: a
    line each, with its nodes in both parts and its own figures.
    """

    score: float | None
    val: float | None
    macro_f1: float | None
    roc_auc: float | None
    metric: str
    clients: pd.DataFrame


def federation(
    dataset: str,
    *,
    suite: str = "leaderboard",
    seed: int = 0,
    partition: str | None = None,
    clients: int | None = None,
    split: str | None = None,
) -> Federation:
    """The clients that every method of a suite meets on a dataset with a seed: graphs, features, labels and masks.

    partition, clients and split choose among the suite's, or take their place. Raises UserError for an unknown name,
    for data that cannot be had, and where the suite cuts the dataset in several ways and none is chosen.
    """
    request = Request(
        suites=(suite,), datasets=(dataset,), seeds=(seed,), partitions=(partition,) if partition else (),
        clients=(clients,) if clients else (), splits=(split,) if split else (),
    )  # fmt: skip
    found = {cell.federation_key: cell for _, cell in select(request)}
    if len(found) > 1:
        ways = sorted({f"{cell.partition.name} x{cell.clients} {cell.split.name}" for cell in found.values()})
        raise UserError(f"suite {suite!r} cuts {dataset!r} in several ways ({', '.join(ways)}); give partition, "
                        "clients or split, or another suite")  # fmt: skip
    return _CACHE.get(next(iter(found.values())))


def evaluate(predictions: Any, federation: Federation) -> Scores:
    """Score predictions as the suites score runs: on each client's own test nodes, mean over clients.

    predictions: an array or tensor over the nodes of the whole graph, (N,) classes or (N, C) a number for each class,
    of which the largest counts; or a list with such an array for each client, over its own nodes in the order of
    `federation.clients[k].graph.ndata["global_id"]`. Where ROC AUC is the score, the numbers are needed.

    Raises UserError for another shape, a class that there is not, a number that is not finite, and graph sets.
    """
    clients = [client for client in federation.clients if isinstance(client, NodeClient)]
    if federation.task != "node":
        raise UserError(f"{federation.whole.name!r} is a set of graphs: only predictions of nodes are scored here")
    whole = not isinstance(predictions, list | tuple) or not all(hasattr(own, "__len__") for own in predictions)
    if whole:
        every = _numbers(predictions, len(federation.whole.label), federation, "the whole graph")
        each = [every[client.graph.ndata["global_id"]] for client in clients]
    else:
        each = _of_clients(predictions, clients, federation)
    found = torch.cat(each)
    scored = Scored.of(found if found.dim() == 1 else found.argmax(1), own_rows(clients))
    if found.dim() == 2 and federation.num_classes == 2:
        scored.margin = found[:, 1] - found[:, 0]
    if federation.scored_by == "roc_auc":
        if scored.margin is None:
            raise UserError(f"{federation.whole.name!r} is scored by ROC AUC: give a number for each class, (N, 2)")
        scored = scored.by_roc_auc()
    return _scores(scored, Evaluator.phrase(federation.scored_by, "global" if whole else "personal", "local"))


def _scores(scored: Scored, metric: str) -> Scores:
    import pandas as pd

    target = scored.target
    nodes = {f"{part}_nodes": target.count(part).tolist() for part in ("val", "test")}
    lines = pd.DataFrame({**nodes, "val": scored.val.tolist(), "score": scored.test.tolist()})
    area = None if scored.margin is None else _mean(target.roc_auc(scored.margin, "test"))
    assert scored.predicted is not None
    f1 = target.macro_f1(scored.predicted, "test")
    return Scores(_mean(scored.test), _mean(scored.val), f1 if f1 == f1 else None, area, metric, lines)


def _mean(values: torch.Tensor) -> float | None:
    """Over the clients that have a value, as a run's is."""
    mean = float(values.nanmean())
    return mean if mean == mean else None


def _of_clients(given: Sequence[Any], clients: Sequence[NodeClient], federation: Federation) -> list[torch.Tensor]:
    if len(given) != len(clients):
        raise UserError(f"predictions of {len(given)} clients, where the federation has {len(clients)}")
    each = [
        _numbers(own, client.graph.num_nodes(), federation, f"client {number}")
        for number, (own, client) in enumerate(zip(given, clients, strict=True))
    ]
    if len({own.dim() for own in each}) > 1:
        raise UserError("predictions are classes of some clients and numbers of others; give one kind")
    return each


def _numbers(given: Any, rows: int, federation: Federation, where: str) -> torch.Tensor:
    """int64 (rows,) classes or float (rows, C); UserError for anything else."""
    try:
        found = torch.as_tensor(given).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"predictions for {where} are no array of numbers: {error}") from None
    classes, shape = federation.num_classes, tuple(found.shape)
    if shape == (rows,) and not found.is_floating_point():
        if rows and not 0 <= int(found.min()) <= int(found.max()) < classes:
            raise UserError(f"predictions for {where}: classes are 0 to {classes - 1}")
        return found.long()
    if shape == (rows, classes) and found.is_floating_point() and bool(torch.isfinite(found).all()):
        return found
    wanted = f"{rows} whole numbers, or ({rows}, {classes}) finite numbers"
    raise UserError(f"predictions for {where} are {found.dtype} of shape {shape}, not {wanted}")
