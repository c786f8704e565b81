"""Whether rows were made on the registered data, cut as everyone else's: fingerprints and partition hashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

from ...datasets import DATASETS
from ...datasets.sources import cache_file
from ...registry import UserError
from ..runner.execute import FederationCache
from ..store.schema import Row
from ..suites.cell import Cell
from .inbox import Findings, Line

FIX = "get the registered data (fglbench data fetch NAME) and run the cells again"
Known = dict[str, str]  # what is compared -> its value in rows that count already


def check(
    lines: Sequence[Line], fresh: set[Line], claimed: set[Line], known: Iterable[Row], findings: Findings
) -> None:
    """Findings about the data of rows; those of rows that are not fresh are warnings.

    known: rows that count already. For claimed rows a partition hash that none of these has is computed from the data,
    where they lie in the cache or are generated; nothing is downloaded. Without either it is told that the hash could
    only be compared with that of other claimed rows.
    """
    trusted = list(known)
    prints = _values((_dataset(row), row.dataset_fingerprint) for row in trusted)
    hashes = _values((_federation(row), row.partition_hash) for row in trusted)
    own_prints = _values((_dataset(line.row), line.row.dataset_fingerprint) for line in lines)
    own = _values((_federation(line.row), line.row.partition_hash) for line in lines)
    unchecked: dict[str, list[Line]] = {}
    for line in lines:
        row, old = line.row, line not in fresh
        expected = _registered(row.dataset) or prints.get(_dataset(row)) or own_prints.get(_dataset(row))
        if row.dataset_fingerprint and expected and row.dataset_fingerprint != expected:
            what = f"data fingerprint {row.dataset_fingerprint[:16]}… of {row.dataset}; it must be"
            findings.add(line.place, f"{what} {expected[:16]}…", FIX, warning=old)
        federation = _federation(row)
        if not row.partition_hash or not federation:
            continue
        expected = hashes.get(federation) or (recomputed(federation, row) if line in claimed else None)
        if expected is None and line in claimed:
            unchecked.setdefault(row.dataset, []).append(line)
        expected = expected or own[federation]
        if row.partition_hash != expected:
            what = f"partition hash {row.partition_hash[:16]}… of {row.dataset}, seed {row.seed}; others have"
            fix = "methods are compared on equal partitions: run the cells again with the registered data and versions"
            findings.add(line.place, f"{what} {expected[:16]}…", fix, warning=old)
    for dataset, found in unchecked.items():
        what = f"partition hashes of {dataset} ({len(found)} rows) were compared with each other only"
        findings.add(found[0].place, what, f"get the data first (fglbench data fetch {dataset})", warning=True)


def _values(pairs: Iterable[tuple[str, str]]) -> Known:
    """For each name the value that most rows have."""
    votes: dict[str, Counter[str]] = {}
    for name, value in pairs:
        if name and value:
            votes.setdefault(name, Counter())[value] += 1
    return {name: min(count, key=lambda value: (-count[value], value)) for name, count in votes.items()}


def _dataset(row: Row) -> str:
    """What has one fingerprint: a dataset whatever its options, for these work on its content; one that is generated
    has another for every choice of them."""
    return f"{row.dataset} {row.dataset_params}" if row.synthetic else row.dataset


def _federation(row: Row) -> str:
    try:
        return Cell.of(row).federation_key
    except ValueError:
        return ""


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


def recomputed(federation: str, row: Row) -> str | None:
    """The partition hash of a row's cell from the data, if these are at hand and the cell can be cut."""
    if federation not in _HASHES:
        _HASHES[federation] = None
        try:
            if DATASETS.cls(row.dataset).synthetic or cache_file(row.dataset).is_file():
                _HASHES[federation] = _FEDERATIONS.get(Cell.of(row)).partition_hash
        except (UserError, ValueError):
            pass
    return _HASHES[federation]
