"""Whether rows were made on the registered data, cut as everyone else's: fingerprints and partition hashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import suppress
from functools import cache
from multiprocessing import get_context

from ...datasets import DATASETS
from ...datasets.sources import cache_file
from ...registry import UserError
from ...standins import left_out
from ..runner.execute import FederationCache
from ..store.schema import Row
from ..suites.cell import Cell
from .inbox import Findings, Line, grouped

FIX = "get the registered data (fglbench data fetch NAME) and run the cells again"


def check(
    lines: Sequence[Line], fresh: set[Line], claimed: set[Line], known: Sequence[Line], findings: Findings
) -> None:
    """Findings about the data of rows; those of rows that are not fresh are warnings.

    known: rows that count already. For claimed rows a partition hash that none of these has is computed from the data,
    where they lie in the cache or are generated; nothing is downloaded. Without either it is told that the hash could
    only be compared with that of other claimed rows.
    """
    own, prints = (_values((_dataset(own.row), own.row.dataset_fingerprint) for own in each) for each in (lines, known))
    for line in lines:
        row, dataset = line.row, _dataset(line.row)
        expected = _registered(row.dataset) or prints.get(dataset) or own.get(dataset)
        if row.dataset_fingerprint and expected and row.dataset_fingerprint != expected:
            what = f"data fingerprint {row.dataset_fingerprint[:16]}… of {row.dataset}; it must be"
            findings.add(line.place, f"{what} {expected[:16]}…", FIX, warning=line not in fresh)
    unchecked = list(_partitions(lines, fresh, claimed, known, findings))
    for name, found in grouped(unchecked, lambda line: line.row.dataset).items():
        what = f"partition hashes of {name} ({len(found)} rows) were compared with each other only"
        findings.add(found[0].place, what, f"get the data first (fglbench data fetch {name})", warning=True)


def _partitions(
    lines: Sequence[Line], fresh: set[Line], claimed: set[Line], known: Sequence[Line], findings: Findings
) -> Iterator[Line]:
    """Findings about partitions; yields the claimed lines that were compared with each other only."""
    own, hashes = (_values((_federation(line), line.row.partition_hash) for line in each) for each in (lines, known))
    for line in lines:
        row, cell = line.row, line.cell
        if not row.partition_hash or not cell:
            continue
        expected = hashes.get(cell.federation_key)
        if expected is None and line in claimed:
            expected = recomputed(cell)
            if expected is None:
                yield line
        expected = expected or own[cell.federation_key]
        if row.partition_hash != expected:
            what = f"partition hash {row.partition_hash[:16]}… of {row.dataset}, seed {row.seed}; others have"
            fix = "methods are compared on equal partitions: run the cells again with the registered data and versions"
            findings.add(line.place, f"{what} {expected[:16]}…", fix, warning=line not in fresh)


def _values(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """For each name the value that most rows have."""
    votes = Counter(pair for pair in pairs if all(pair))
    return dict(sorted(votes, key=lambda pair: (-votes[pair], pair[1]), reverse=True))  # the last of a name stays


def _dataset(row: Row) -> str:
    """What has one fingerprint: a dataset whatever its options, for these work on its content; one that is generated
    has another for every choice of them."""
    return f"{row.dataset} {row.dataset_params}" if row.synthetic else row.dataset


def _federation(line: Line) -> str:
    return line.cell.federation_key if line.cell else ""


@cache
def _registered(dataset: str) -> str | None:
    """The fingerprint that rows on a dataset must have, where one is registered for all of its content."""
    try:
        cls = DATASETS.cls(dataset)
    except UserError:
        return None
    return None if cls.unverified else cls.fingerprint


_FEDERATIONS = FederationCache()
_HASHES: dict[str, str | None] = {}


def recomputed(cell: Cell) -> str | None:
    """The partition hash of a cell from the data, if these are at hand and the cell can be cut."""
    key, dataset = cell.federation_key, cell.dataset.name
    if key not in _HASHES:
        _HASHES[key] = None
        with suppress(UserError, ValueError, BrokenExecutor):
            if DATASETS.cls(dataset).synthetic or cache_file(dataset).is_file():
                _HASHES[key] = _other_process().submit(_hash, cell).result() if left_out() else _hash(cell)
    return _HASHES[key]


def _hash(cell: Cell) -> str:
    return _FEDERATIONS.get(cell).partition_hash


@cache
def _other_process() -> ProcessPoolExecutor:
    """A process that has the packages that compute, where this one leaves them out."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))
