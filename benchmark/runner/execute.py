"""Run one cell in this process and say how it went, whatever happens, as a result row."""

from __future__ import annotations

import math
import random
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from ...datasets import DATASETS, PARTITIONS, SPLITS, build_federation, label_counts, parts_of
from ...datasets.federation import Data, Federation
from ...methods import METHODS
from ...metrics import METRICS
from ...registry import UserError
from ..engine import Diverged, Outcome, Skip, train
from ..engine.backbones import BACKBONES
from ..engine.evaluate import Evaluator, Models
from ..store import Store
from ..store.provenance import now
from ..store.schema import Row
from ..suites.cell import Cell
from ..suites.registered import check_clients
from .snapshot import collect

T = TypeVar("T")
OnRound = Callable[[int, dict[str, Any]], None]
ALLOCATION = ("out of memory", "can't allocate memory", "cannot allocate memory", "bad_alloc", "std::length_error")


class FederationCache:
    """The datasets and federations used last, so that neighbouring cells do not load and cut them again."""

    def __init__(self, datasets: int = 2, federations: int = 2) -> None:
        self._sizes = datasets, federations
        self._data: OrderedDict[str, Data] = OrderedDict()
        self._federations: OrderedDict[str, Federation] = OrderedDict()

    def get(self, cell: Cell) -> Federation:
        return _recall(self._federations, cell.federation_key, self._sizes[1], lambda: self._build(cell))

    def _build(self, cell: Cell) -> Federation:
        data = _recall(self._data, str(cell.dataset), self._sizes[0], lambda: cell.dataset.build(DATASETS).load())
        partition, split = cell.partition.build(PARTITIONS), cell.split.build(SPLITS)
        federation = build_federation(data, partition, split, cell.clients, cell.seed)
        check_clients(cell, federation.partition_hash)
        return federation


def _recall(cache: OrderedDict[str, T], key: str, size: int, make: Callable[[], T]) -> T:
    if key not in cache:
        while len(cache) >= size:
            cache.popitem(last=False)  # before the new one is made: two large federations need not fit
        cache[key] = make()
    cache.move_to_end(key)
    return cache[key]


def execute(
    cell: Cell,
    suite: str,
    store: Store,
    federations: FederationCache,
    stamp: dict[str, Any],
    on_round: OnRound | None = None,
    embeddings: bool = False,
) -> Row:
    """Run `cell` and return its row; its side files are in the store before the row exists.

    stamp: the columns that are the same for a whole run (environment, git_sha, submitter, ...). embeddings: keep those
    of the best round (see `snapshot.collect`). Nothing a cell does raises: a skip, an error and a lack of memory are
    rows. KeyboardInterrupt and a full results folder do get out.
    """
    begun = {**stamp, "started": now()}
    about: dict[str, Any] = {}
    kept: dict[str, np.ndarray] | None = {} if embeddings else None
    reset_peak_memory()
    try:
        federation = federations.get(cell)
        about = _describe(federation)
        outcome = _train(cell, federation, on_round, kept)
        figures = _figures(outcome)
    except Skip as skip:
        return cell.row(suite, status="skipped", error=_one_line(skip), **begun, **about)
    except (UserError, Diverged) as error:
        return cell.row(suite, status="failed", error=_one_line(error), **begun, **about)
    except Exception as error:
        status = "oom" if _lacks_memory(error) else "failed"
        store.write_log(cell.key, traceback.format_exc())
        return cell.row(suite, status=status, error=explain(error), **begun, **about)
    curves = {"history": _finite(outcome.history), "per_client": _finite(outcome.per_client)}
    labels = label_counts(federation.whole, parts_of(federation)).tolist()
    store.write_history(suite, cell.key, {**curves, "label_counts": labels})
    if kept is not None:
        store.write_embeddings(suite, cell.key, kept)
    notes = "; ".join(dict.fromkeys([*federation.notes, *outcome.notes]))
    memory = peak_memory()
    return cell.row(suite, status="ok", notes=notes, peak_memory_mb=memory, **begun, **about, **figures)


def _train(cell: Cell, federation: Federation, on_round: OnRound | None, kept: dict[str, np.ndarray] | None) -> Outcome:
    """kept: filled with the best round's embeddings, unless it is None."""

    def keep(evaluator: Evaluator, models: Models) -> None:
        assert kept is not None
        kept.update(collect(evaluator, models, cell.seed))

    random.seed(cell.seed)
    np.random.seed(cell.seed % 2**32)
    torch.manual_seed(cell.seed)
    method = cell.method.build(METHODS)
    backbones = [choice.build(BACKBONES) for choice in cell.backbones]
    on_best = None if kept is None else keep
    return train(federation, method, backbones, cell.training, cell.seed, on_round=on_round, on_best=on_best)


def _describe(federation: Federation) -> dict[str, Any]:
    whole = federation.whole
    return {
        "dataset_fingerprint": whole.fingerprint,
        "synthetic": whole.synthetic,
        "source": whole.source,
        "partition_hash": federation.partition_hash,
    }


def _figures(outcome: Outcome) -> dict[str, Any]:
    figures = {name: getattr(outcome, name) for name in METRICS}
    wild = [name for name, value in figures.items() if isinstance(value, float) and not math.isfinite(value)]
    if wild:
        raise UserError(f"training diverged: {', '.join(wild)} is not finite")
    return figures


def _finite(columns: dict[str, list[float]]) -> dict[str, list[float | None]]:
    """JSON has no NaN: None stands for it."""
    return {name: [v if math.isfinite(v) else None for v in values] for name, values in columns.items()}


def _lacks_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or (
        isinstance(error, RuntimeError | OSError) and any(sign in str(error).lower() for sign in ALLOCATION)
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]


def explain(error: Exception) -> str:
    """Type, message and place of an error on one line."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {_one_line(error) or 'no message'} ({Path(last.filename).name}:{last.lineno})"


def reset_peak_memory() -> None:
    if sys.platform == "linux":
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return  # some containers forbid it: the peak is then that of the process's whole life


def peak_memory() -> float | None:
    """Peak resident memory in MiB, since the last reset where the system can reset it."""
    if sys.platform == "win32":
        return None
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024, 1)
    import resource

    unit = 2**20 if sys.platform == "darwin" else 2**10
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)
