"""Run one cell in this process and return a result row, also if it fails; load the models that a run saved.

`in_child` calls a function in a new process that has imported plug-ins.
"""

from __future__ import annotations

import json
import math
import os
import random
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from ...datasets import DATASETS, PARTITIONS, SPLITS, build_federation, label_counts, parts_of
from ...datasets.build import check_data
from ...datasets.federation import Data, Federation, NodeClient
from ...methods import METHODS
from ...processes import start
from ...registry import UserError
from ..engine import BACKBONES, Diverged, Evaluator, Models, Skip
from ..engine.device import HOST, give_back
from ..engine.outcome import Outcome
from ..engine.train import OnRound, set_up, train
from ..store import Store
from ..store.provenance import now
from ..store.row_file import WRITTEN
from ..store.schema import Row
from ..store.side_files import SideFiles
from ..suites.cell import Cell, check_clients
from ..suites.plugins import load_plugins
from .best_round import collect, packed_models, unpacked_models
from .system import cpu_seconds, ended_with, peak, peak_memory, reset_peak, reset_peak_memory

T = TypeVar("T")
KEPT = 2  # datasets and federations
OF_NODES = ("node", "node-regression")  # tasks whose outputs are one row per node
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
ALLOCATION = ("out of memory", "can't allocate memory", "cannot allocate memory", "bad_alloc", "std::length_error")


class FederationCache:
    """The datasets and federations that were used last, which the next cells often need again."""

    def __init__(self) -> None:
        self._data: dict[str, Data] = {}
        self._federations: dict[str, Federation] = {}

    def get(self, cell: Cell) -> Federation:
        return _recall(self._federations, cell.federation_key, partial(self._build, cell))

    def _build(self, cell: Cell) -> Federation:
        data = _recall(self._data, str(cell.dataset), lambda: check_data(cell.dataset.build(DATASETS).load()))
        partition, split = cell.partition.build(PARTITIONS), cell.split.build(SPLITS)
        federation = build_federation(data, partition, split, cell.clients, cell.seed)
        check_clients(cell, federation.partition_hash)
        return federation


def _recall(cache: dict[str, T], key: str, make: Callable[[], T]) -> T:
    if key not in cache and len(cache) >= KEPT:
        del cache[next(iter(cache))]  # before the new one is made, because memory may be too small for both
    cache[key] = cache.pop(key) if key in cache else make()  # in the order of use
    return cache[key]


def execute(
    cell: Cell,
    suite: str,
    store: SideFiles,
    federations: FederationCache,
    stamp: dict[str, Any],
    on_round: OnRound | None = None,
    embeddings: bool = False,
    device: torch.device = HOST,
    models: bool = False,
) -> Row:
    """Run `cell` and return its row. Its side files are stored before.

    stamp: the columns that are the same for all rows of a worker (environment, git_sha, submitter, ...). embeddings,
    models: store those of the best round (`best_round`). device: for training. A skip, an error and a lack of memory
    become rows; KeyboardInterrupt and the error of a full results folder are raised.
    """
    begun = {**stamp, "started": now()}
    about, embedded, weights = dict[str, Any](), dict[str, np.ndarray](), list[bytes]()
    give_back()  # memory of earlier runs
    reset_peak_memory()
    reset_peak(device)

    def keep(evaluator: Evaluator, best: Models) -> None:
        if embeddings:
            embedded.update(collect(evaluator, best, cell.seed))
        if models:
            weights.append(packed_models(best))

    try:
        federation = federations.get(cell)
        about, spent = _describe(federation), cpu_seconds()
        with ended_with():
            _seed_generators(cell.seed)
            outcome = train(
                federation, cell.method.build(METHODS), [choice.build(BACKBONES) for choice in cell.backbones],
                cell.training, cell.seed, on_round=on_round, on_best=keep if embeddings or models else None,
                device=device,
            )  # fmt: skip
        if outcome.score is None:
            raise UserError(_no_score(federation))
        seconds = round(cpu_seconds() - spent, 3)
        figures = outcome.columns() | {"effective_training": _changed_training(cell, outcome), "cpu_seconds": seconds}
    except (Skip, UserError, Diverged) as error:
        status = "skipped" if isinstance(error, Skip) else "failed"
        return cell.row(suite, status=status, error=_one_line(error), **begun, **about)
    except Exception as error:
        status = "oom" if _lacks_memory(error) else "failed"
        store.write_log(cell.key, traceback.format_exc())
        return cell.row(suite, status=status, error=explain(error), **begun, **about)
    history = {name: values for name, values in outcome.history.items() if name != "seconds"}
    curves = {"history": _finite(history), "per_client": _finite(outcome.per_client)}
    labels = label_counts(federation.whole, parts_of(federation)).tolist()
    store.write_history(suite, cell.key, {**curves, "label_counts": labels})
    if embedded:
        store.write_embeddings(suite, cell.key, embedded)
    for data in weights:
        store.put(store.model_file(suite, cell.key), data)
    notes = "; ".join(dict.fromkeys([*federation.notes, *outcome.notes]))
    peaks = {"peak_memory_mb": peak_memory(), "peak_device_memory_mb": peak(device)}
    return cell.row(suite, status="ok", notes=notes, **peaks, **begun, **about, **figures)


def _seed_generators(seed: int) -> None:
    """Seed the global generators, so that a run is repeatable even if its method uses them, which it should not."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _describe(federation: Federation) -> dict[str, Any]:
    whole = federation.whole
    data = {"dataset_fingerprint": whole.fingerprint, "synthetic": whole.synthetic, "source": whole.source}
    return {**data, "partition_hash": federation.partition_hash}


def _no_score(federation: Federation) -> str:
    unit, masks = federation.whole.task, federation.masks
    if masks and not masks["test"].any():
        return f"no score: no {unit} is a test {unit}; give the split a larger test share"
    return (
        "no score: a client has no test labels, or all of one class, and the measure is not defined on them; use fewer "
        "clients or a larger test share"
    )


def _changed_training(cell: Cell, outcome: Outcome) -> str:
    """Return the training configuration that ran, as JSON; empty if it is the cell's."""
    ran = cell.model_copy(update={"training": outcome.training}).training_json
    return "" if ran == cell.training_json else ran


def _finite(columns: dict[str, list[float]]) -> dict[str, list[float | None]]:
    """Replace NaN and infinity by None, because JSON does not have them."""
    return {name: [v if math.isfinite(v) else None for v in values] for name, values in columns.items()}


def _lacks_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or (
        isinstance(error, RuntimeError | OSError) and any(sign in str(error).lower() for sign in ALLOCATION)
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]


def explain(error: Exception) -> str:
    """Type, message and place of an error on one line. The place is in no library, if there is one."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(("<", *LIBRARIES))]
    last = (own or frames)[-1]
    return f"{type(error).__name__}: {_one_line(error) or 'no message'} ({Path(last.filename).name}:{last.lineno})"


_FEDERATIONS = FederationCache()


@dataclass(frozen=True)
class SavedModel:
    """The models of a row's best round. federation: that of the run. models: `server`, tensors by name, or None;
    `personal`, per client batch, tensors (K, ...) by name, or None. scored: the model of the row's score, "global" or
    "personal"."""

    federation: Federation
    models: Models
    scored: str
    _evaluator: Evaluator

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The server's model, tensors by name. UserError if the method has none."""
        if self.models.server is None:
            raise UserError("the method keeps a model at every client and none at the server: see .models.personal")
        return dict(self.models.server)

    @torch.no_grad()
    def predict(self, model: str | None = None) -> list[torch.Tensor]:
        """Class scores of each client's own nodes, (nodes, classes) float32, in the order of `federation.clients`; for
        regression the predicted targets, (nodes, targets).

        model: "global" (the server's) or "personal"; None: that of the row's score. The predicted class is the
        `argmax`. UserError if there is no such model.
        """
        kind = model or self.scored
        if kind not in ("global", "personal"):
            raise UserError(f'model is "global" or "personal", got {kind!r:.40}')
        if (self.models.server if kind == "global" else self.models.personal) is None:
            raise UserError(f"the method has no {kind} model")
        method, scores = self._evaluator.method, []
        for place, batch in enumerate(self._evaluator.client_batches):
            models = self.models.expanded(len(batch)) if kind == "global" else (self.models.personal or [])[place]
            held = [self.federation.clients[client] for client in batch.network.clients]
            nodes = [client.graph.num_nodes() for client in held if isinstance(client, NodeClient)]
            scores += list(torch.split(method.predict_own(models, batch), nodes))
        return scores


def load_model(row: Mapping[str, Any] | Any, results: str | os.PathLike[str] = WRITTEN) -> SavedModel:
    """Load the models that `run(save_models=True)` or `fglbench run --save-models` saved for a row.

    row: a line of the data frame of `run` or `load_results` (`rows.iloc[0]`), not expanded. results: its folder.
    UserError if nothing was saved or data are unavailable; for sets of graphs and links; and for methods that train on
    other graphs than the clients' own or predict with exchanged values.
    """
    if getattr(row, "ndim", 1) != 1:
        raise UserError("give one row, as in rows.iloc[0], not a data frame")
    try:
        known = {name: value for name, value in dict(row).items() if name in Row.model_fields and value == value}
        cell = Cell.of(Row.model_validate(known))
    except (ValueError, TypeError) as error:
        reason = f"{str(error).splitlines()[0]}; give rows.iloc[0], with rows loaded without expand=True"
        raise UserError(f"this is no row of `run` or `load_results`: {reason}") from None
    models = unpacked_models(Store(results).model_file(str(known["suite"]), str(known["key"])))
    federation = _FEDERATIONS.get(cell)
    method, backbones = cell.method.build(METHODS), [choice.build(BACKBONES) for choice in cell.backbones]
    simulation, evaluator = set_up(federation, method, backbones, cell.training, cell.seed)
    beyond = method.edges_between_clients or method.predicts_by_state
    if cell.task not in OF_NODES or evaluator.arrangement.scored is not None or beyond:
        raise UserError(
            f"{cell.method.name} on {cell.dataset.name}: models are loaded for classification and regression of nodes, "
            "and only of methods that predict each client's nodes from the model and its own graph"
        )
    personal = known["score_metric"] == evaluator.describe("personal", simulation.config.score_on)
    return SavedModel(federation, models, "personal" if personal else "global", evaluator)


def in_child(function: Callable[..., Iterable[Any]], plugins: Iterable[str], *arguments: Any) -> Iterator[Any]:
    """Yield the values, as JSON, that a module-level function yields in a new process that has imported plug-ins.

    UserError for an error of the function, and if the process ends before the function.
    """
    pipe, child_end = Pipe(duplex=False)
    process = start(_call, child_end, function, tuple(plugins), arguments)
    child_end.close()
    try:
        while "value" in (message := json.loads(pipe.recv_bytes())):
            yield message["value"]
    except EOFError:
        process.join()
        message = {"error": f"the process that imports the plug-ins ended with exit code {process.exitcode}"}
    if message:
        raise UserError(message["error"])


def _call(pipe: Connection, function: Callable[..., Iterable[Any]], plugins: tuple[str, ...], arguments: Any) -> None:
    os.dup2(2, 1)  # what a plug-in prints is no output of the command
    try:
        load_plugins(plugins)
        for value in function(*arguments):
            pipe.send_bytes(json.dumps({"value": value}).encode())
        last = {}
    except Exception as error:
        last = {"error": str(error) if isinstance(error, UserError) else explain(error)}
    pipe.send_bytes(json.dumps(last).encode())
