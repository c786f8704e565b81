"""Score predictions of other code on the clients and test nodes of a suite's cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dgl
import torch

from ..datasets.federation import PARTS, Federation, GraphClient, NodeClient
from ..registry import UserError, text_argument, whole_argument
from .engine.evaluate import MEASURES, Evaluator, Scored, own_rows
from .engine.graphs.classification import GraphEvaluator, sets_of
from .engine.method import in_words
from .runner.execute import FederationCache
from .suites.select import Request, parted

if TYPE_CHECKING:
    import pandas as pd

_CACHE = FederationCache()


@dataclass(frozen=True)
class Scores:
    """The scores of predictions, as for a run. Fractions; None for a missing value.

    score, val: mean over the clients with test (validation) nodes. metric: `score_metric` in words. clients: one line
    per client: val_nodes, test_nodes, val, score.
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
    """The clients of a suite on a dataset with a seed: graphs, features, labels and masks.

    partition, clients, split: select one of the suite, or replace it. Raises UserError for an unknown name, for
    unavailable data, and if the suite has several partitions of the dataset and none is selected.
    """
    request = Request(
        suites=(text_argument("suite", suite),),
        datasets=(text_argument("dataset", dataset),),
        seeds=(whole_argument("seed", seed),),
        partitions=() if partition is None else (text_argument("partition", partition),),
        clients=() if clients is None else (whole_argument("clients", clients),),
        splits=() if split is None else (text_argument("split", split),),
    )
    cells = {cell.federation_key: cell for _, cell in parted(request)[0]}  # what it warns of is about methods
    if len(cells) > 1:
        ways = sorted({f"{cell.partition.name} x{cell.clients} {cell.split.name}" for cell in cells.values()})
        raise UserError(f"suite {suite!r} divides {dataset!r} in several ways ({', '.join(ways)}); give partition, "
                        "clients or split, or another suite")  # fmt: skip
    return _CACHE.get(next(iter(cells.values())))


@dataclass(frozen=True)
class OneClient:
    """The data of one client as plain PyTorch and DGL, for other code.

    graph: DGLGraph, both directions of every edge, no self-loops; for a set of graphs one batched graph. feat: (nodes,
    d) float32. label: (nodes,) int64, or (graphs,); numbers to predict: float32, with a second axis. train_mask,
    val_mask, test_mask: bool, one per label. number: of the client, from 0. global_id: the ids of its nodes (graphs) in
    the dataset. classes: number in the dataset.
    """

    number: int
    graph: dgl.DGLGraph
    feat: torch.Tensor
    label: torch.Tensor
    train_mask: torch.Tensor
    val_mask: torch.Tensor
    test_mask: torch.Tensor
    global_id: torch.Tensor
    classes: int

    def to_pyg(self) -> Any:
        """Return a `torch_geometric.data.Data`. UserError if PyG is not installed."""
        try:
            from torch_geometric.data import Data
        except ImportError:
            raise UserError("to_pyg needs PyG: pip install torch_geometric") from None
        masks = {name: getattr(self, name) for name in ("train_mask", "val_mask", "test_mask")}
        of_graphs = (
            {}
            if len(self.label) == len(self.feat)
            else {"batch": torch.repeat_interleave(torch.arange(self.graph.batch_size), self.graph.batch_num_nodes())}
        )
        edges = torch.stack(self.graph.edges(order="eid"))
        return Data(x=self.feat, edge_index=edges, y=self.label, **masks, **of_graphs)


def clients(dataset: str, *, dense: bool = True, **which: Any) -> list[OneClient]:
    """Return the clients of runs as plain data for other code.

    which: suite, seed, partition, clients and split, as for `federation`. dense: features as a dense tensor; if not, in
    the form of the dataset (sparse CSR for bags of words). Sets of graphs need a split with labels. UserError as for
    `federation`.
    """
    made = federation(dataset, **which)
    if not made.masks:
        clustered = "is clustered without labels in this suite: name one for graph classification"
        rows = f"is for {in_words(made.task)} in this suite: take the clients from `federation`"
        raise UserError(f"{dataset!r} {clustered if made.task == 'graph' else rows}")
    members: list[Any] = [*made.clients]
    return [_one_client(number, client, dense, made.num_classes) for number, client in enumerate(members)]


def _one_client(number: int, client: NodeClient | GraphClient, dense: bool, classes: int) -> OneClient:
    if isinstance(client, NodeClient):
        graph, feat, of = client.graph.local_var(), client.feat, client.graph.ndata
        label, ids = of["label"], of["global_id"]
        masks = {part: of[f"{part}_mask"].bool() for part in PARTS}
    else:
        graph = dgl.batch(client.graphs)
        feat, label, ids = graph.ndata["feat"].float(), client.label, client.global_id
        masks = {part: client.masks[part] for part in PARTS}
    feat = feat.to_dense() if dense else feat
    return OneClient(number, graph, feat, label, masks["train"], masks["val"], masks["test"], ids, classes)


def evaluate(predictions: Any, federation: Federation) -> Scores:
    """Score predictions as the suites score runs: on the test nodes of each client, mean over clients.

    predictions: an array or tensor over the nodes of the whole graph (graphs of the whole set): (N,) classes, or (N, C)
    a number per class, of which the largest counts. Or a list with such an array per client, over its nodes in the
    order of `federation.clients[k].graph.ndata["global_id"]` (for a set: `.global_id`). ROC AUC and average precision
    need (N, C).

    Raises UserError for another shape, an unknown class, a number that is not finite, sets of graphs without common
    classes, and tasks other than classification.
    """
    if not isinstance(federation, Federation):
        raise UserError(f"give the predictions, then what `federation` returned; got {type(federation).__name__}")
    clients = federation.clients
    if federation.task not in ("node", "graph", "graph-classification"):
        task = in_words(federation.task)
        raise UserError(f"{federation.whole.name!r} is for {task}: score it with `run`, of a suite or a method")
    if federation.task == "graph" or federation.domains:
        raise UserError(f"{federation.whole.name!r} is a set of graphs without common classes: nothing to score")
    nested = isinstance(predictions, list | tuple) and all(hasattr(part, "__len__") for part in predictions)
    whole = not nested or (len(predictions) == len(federation.whole.label) != len(clients))
    if whole:
        checked = _numbers(predictions, len(federation.whole.label), federation, "the whole graph")
        parts = [checked[_ids(client)] for client in clients]
    else:
        parts = _of_clients(predictions, clients, federation)
    joined = torch.cat(parts)
    nodes = [client for client in clients if isinstance(client, NodeClient)]
    sets = [client for client in clients if isinstance(client, GraphClient)]
    target = own_rows(nodes) if nodes else sets_of(sets)
    scored = Scored.of(joined if joined.dim() == 1 else joined.argmax(1), target)
    if joined.dim() == 2 and federation.num_classes == 2:
        scored.margin = joined[:, 1] - joined[:, 0]
    if joined.dim() == 1 and federation.scored_by in ("roc_auc", "average_precision"):
        words = f"is scored by {MEASURES[federation.scored_by]}: give a number for each class"
        raise UserError(f"{federation.whole.name!r} {words}, (N, {federation.num_classes})")
    scored = scored.by(federation.scored_by, joined if joined.dim() == 2 else None)
    phrase = Evaluator.phrase if federation.task == "node" else GraphEvaluator.phrase
    return _scores(scored, phrase(federation.scored_by, "global" if whole else "personal", "local"))


def _ids(client: NodeClient | GraphClient) -> torch.Tensor:
    ids: torch.Tensor = client.graph.ndata["global_id"] if isinstance(client, NodeClient) else client.global_id
    return ids


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
    mean = float(values.nanmean())
    return mean if mean == mean else None


def _of_clients(
    given: Sequence[Any], clients: Sequence[NodeClient | GraphClient], federation: Federation
) -> list[torch.Tensor]:
    if len(given) != len(clients):
        raise UserError(f"predictions are of {len(given)} of the {len(clients)} clients; give an array per client")
    parts = [
        _numbers(part, len(_ids(client)), federation, f"client {number}")
        for number, (part, client) in enumerate(zip(given, clients, strict=True))
    ]
    if len({part.dim() for part in parts}) > 1:
        raise UserError("predictions are classes of some clients and numbers of others; give one kind")
    return parts


def _numbers(given: Any, rows: int, federation: Federation, where: str) -> torch.Tensor:
    """int64 (rows,) classes or float (rows, C); UserError for anything else."""
    try:
        given = given.to_numpy(copy=True) if hasattr(given, "to_numpy") else given  # pandas
        numbers = torch.as_tensor(given).detach().cpu()
        numbers = numbers.to_dense() if numbers.layout != torch.strided else numbers
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"predictions for {where} are no array of numbers: {error}") from None
    classes, shape = federation.num_classes, tuple(numbers.shape)
    whole = not (numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool)
    if shape == (rows,) and whole:
        numbers = numbers.long()  # PyTorch has no minimum of uint16 to uint64
        if rows and not 0 <= int(numbers.min()) <= int(numbers.max()) < classes:
            raise UserError(f"predictions for {where}: classes are 0 to {classes - 1}")
        return numbers
    if shape == (rows, classes) and numbers.is_floating_point() and bool(torch.isfinite(numbers).all()):
        return numbers
    wanted = f"{rows} whole numbers, or ({rows}, {classes}) finite numbers"
    raise UserError(f"predictions for {where} are {numbers.dtype} of shape {shape}, not {wanted}")
