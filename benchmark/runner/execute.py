"""Run one cell in this process and say how it went, whatever happens, as a result row."""

from __future__ import annotations

import math
import random
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from ...datasets import DATASETS, PARTITIONS, SPLITS, build_federation, label_counts, parts_of
from ...datasets.federation import Data, Federation
from ...methods import METHODS
from ...metrics import METRICS
from ...registry import UserError
from ..engine import Diverged, Method, Outcome, Skip, TrainConfig, train
from ..engine.backbones import BACKBONES, Backbone
from ..engine.device import HOST
from ..engine.evaluate import Evaluator, Models
from ..engine.fleet import OnBestOf, OnRoundOf, train_together
from ..engine.train import OnBest, OnRound
from ..store.attachments import SideFiles
from ..store.provenance import now
from ..store.schema import Row
from ..suites.cell import Cell
from ..suites.registered import check_clients
from .gpus import peak, reset_peak
from .memory import peak_memory, reset_peak_memory
from .offspring import cpu_seconds, ended_with
from .sealed import sealed
from .snapshot import collect

T = TypeVar("T")
KEPT = 2  # datasets and federations
ALLOCATION = ("out of memory", "can't allocate memory", "cannot allocate memory", "bad_alloc", "std::length_error")


class FederationCache:
    """The datasets and federations used last, so that neighbouring cells do not load and cut them again."""

    def __init__(self) -> None:
        self._data: dict[str, Data] = {}
        self._federations: dict[str, Federation] = {}

    def get(self, cell: Cell) -> Federation:
        return _recall(self._federations, cell.federation_key, partial(self._build, cell))

    def _build(self, cell: Cell) -> Federation:
        data = _recall(self._data, str(cell.dataset), cell.dataset.build(DATASETS).load)
        partition, split = cell.partition.build(PARTITIONS), cell.split.build(SPLITS)
        federation = build_federation(data, partition, split, cell.clients, cell.seed)
        check_clients(cell, federation.partition_hash)
        return federation


def _recall(cache: dict[str, T], key: str, make: Callable[[], T]) -> T:
    if key not in cache and len(cache) >= KEPT:
        del cache[next(iter(cache))]  # before the new one is made: two large federations need not fit
    cache[key] = cache.pop(key) if key in cache else make()  # the one used last stands last
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
) -> Row:
    """Run `cell` and return its row; its side files are in the store before the row exists.

    stamp: the columns that are the same for a whole run (environment, git_sha, submitter, ...). embeddings: keep those
    of the best round (see `snapshot.collect`). device: where it trains. Nothing a cell does raises: a skip, an error
    and a lack of memory are rows. KeyboardInterrupt and a full results folder do get out.
    """
    begun = {**stamp, "started": now()}
    about, kept = dict[str, Any](), dict[str, np.ndarray]()
    _reset_peaks(device)
    try:
        federation = federations.get(cell)
        about, spent = _describe(federation), cpu_seconds()
        with sealed(), ended_with():
            keep = partial(_keep, kept, cell.seed) if embeddings else None
            outcome = _train(cell, federation, on_round, keep, device)
        figures = _figures(outcome) | _budget(cell, outcome) | {"cpu_seconds": round(cpu_seconds() - spent, 3)}
    except (Skip, UserError, Diverged) as error:
        status = "skipped" if isinstance(error, Skip) else "failed"
        return cell.row(suite, status=status, error=_one_line(error), **begun, **about)
    except Exception as error:
        status = "oom" if _lacks_memory(error) else "failed"
        store.write_log(cell.key, traceback.format_exc())
        return cell.row(suite, status=status, error=explain(error), **begun, **about)
    _write_side_files(cell, suite, store, federation, outcome, kept)
    notes = "; ".join(dict.fromkeys([*federation.notes, *outcome.notes]))
    return cell.row(suite, status="ok", notes=notes, **_peaks(device), **begun, **about, **figures)


def execute_all(
    cells: Sequence[Cell],
    suite: str,
    stores: Sequence[SideFiles],
    federations: FederationCache,
    stamp: dict[str, Any],
    on_round: OnRoundOf,
    embeddings: bool,
    device: torch.device,
) -> list[Row] | str:
    """As `execute_together` of several cells, as `execute` of one."""
    if len(cells) > 1:
        return execute_together(cells, suite, stores, federations, stamp, on_round, embeddings, device)
    return [execute(cells[0], suite, stores[0], federations, stamp, partial(on_round, 0), embeddings, device)]


def execute_together(
    cells: Sequence[Cell],
    suite: str,
    stores: Sequence[SideFiles],
    federations: FederationCache,
    stamp: dict[str, Any],
    on_round: OnRoundOf | None = None,
    embeddings: bool = False,
    device: torch.device = HOST,
) -> list[Row] | str:
    """Run cells that differ in their seed only as one program; a row for each, or why there are none.

    stores: for each cell's side files. The rest as of `execute`; on_round is told first which cell it is. Each cell
    has its share of the time that all took, and the peak of memory is that of all; the rows' notes say so.
    """
    begun = {**stamp, "started": now()}
    kept = [dict[str, np.ndarray]() for _ in cells]
    _reset_peaks(device)

    def keep(number: int, *best: Any) -> None:
        _keep(kept[number], cells[number].seed, *best)

    try:
        worlds, spent = [federations.get(cell) for cell in cells], cpu_seconds()
        with sealed(), ended_with():
            outcomes = _train_together(cells, worlds, on_round, keep if embeddings else None, device)
        figures = _shared_figures(cells, outcomes, cpu_seconds() - spent)
    except Exception as error:
        return explain(error)
    seeds, peaks, rows = ", ".join(str(cell.seed) for cell in cells), _peaks(device), []
    told = f"one program with seeds {seeds}: times are this run's share, memory is that of all"
    for number, (cell, world, own) in enumerate(zip(cells, worlds, outcomes, strict=True)):
        _write_side_files(cell, suite, stores[number], world, own, kept[number])
        notes = "; ".join(dict.fromkeys([*world.notes, *own.notes, told]))
        rows.append(cell.row(suite, status="ok", notes=notes, **peaks, **begun, **_describe(world), **figures[number]))
    return rows


def _write_side_files(
    cell: Cell, suite: str, store: SideFiles, federation: Federation, outcome: Outcome, kept: dict[str, np.ndarray]
) -> None:
    """Curves, and embeddings where they were kept."""
    curves = {"history": _finite(outcome.history), "per_client": _finite(outcome.per_client)}
    labels = label_counts(federation.whole, parts_of(federation)).tolist()
    store.write_history(suite, cell.key, {**curves, "label_counts": labels})
    if kept:
        store.write_embeddings(suite, cell.key, kept)


def _reset_peaks(device: torch.device) -> None:
    reset_peak_memory()
    reset_peak(device)


def _peaks(device: torch.device) -> dict[str, float | None]:
    return {"peak_memory_mb": peak_memory(), "peak_device_memory_mb": peak(device)}


def _keep(kept: dict[str, np.ndarray], seed: int, evaluator: Evaluator, models: Models) -> None:
    kept.update(collect(evaluator, models, seed))


def _train(
    cell: Cell, federation: Federation, on_round: OnRound | None, on_best: OnBest | None, device: torch.device
) -> Outcome:
    how, seed = _prepared(cell), cell.seed
    return train(federation, *how, seed, on_round=on_round, on_best=on_best, device=device)


def _train_together(
    cells: Sequence[Cell],
    federations: Sequence[Federation],
    on_round: OnRoundOf | None,
    on_best: OnBestOf | None,
    device: torch.device,
) -> list[Outcome]:
    runs = [(federation, cell.seed) for federation, cell in zip(federations, cells, strict=True)]
    return train_together(runs, *_prepared(cells[0]), on_round=on_round, on_best=on_best, device=device)


def _prepared(cell: Cell) -> tuple[Method, list[Backbone], TrainConfig]:
    """What trains, and how; the generators that nobody should use begin from the cell's seed."""
    random.seed(cell.seed)
    np.random.seed(cell.seed % 2**32)
    torch.manual_seed(cell.seed)
    return cell.method.build(METHODS), [choice.build(BACKBONES) for choice in cell.backbones], cell.training


def _describe(federation: Federation) -> dict[str, Any]:
    whole = federation.whole
    data = {"dataset_fingerprint": whole.fingerprint, "synthetic": whole.synthetic, "source": whole.source}
    return {**data, "partition_hash": federation.partition_hash}


def _figures(outcome: Outcome) -> dict[str, Any]:
    figures = {name: getattr(outcome, name) for name in METRICS}
    wild = [name for name, value in figures.items() if isinstance(value, float) and not math.isfinite(value)]
    if wild:
        raise UserError(f"training diverged: {', '.join(wild)} is not finite")
    return figures


def _shared_figures(cells: Sequence[Cell], outcomes: Sequence[Outcome], spent: float) -> list[dict[str, Any]]:
    """Of runs that took so many seconds of the CPU together: each has its share, as of the time on the wall."""
    shares = [outcome.total_seconds or 0.0 for outcome in outcomes]
    return [
        _figures(own) | _budget(cell, own) | {"cpu_seconds": round(spent * share / sum(shares), 3)}
        for cell, own, share in zip(cells, outcomes, shares, strict=True)
    ]


def _budget(cell: Cell, outcome: Outcome) -> dict[str, Any]:
    """What the run took beside what its cell gives."""
    ran = cell.model_copy(update={"training": outcome.training}).training_json
    own = "" if ran == cell.training_json else ran
    steps = {name: getattr(outcome, name) for name in ("optimiser_steps", "model_steps", "budget_steps")}
    delta = None if outcome.dp_epsilon is None else outcome.training.dp_delta
    return {"effective_training": own, **steps, "dp_epsilon": outcome.dp_epsilon, "dp_delta": delta}


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
