"""Which clients the cells of the committed rows have."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ...files import write_atomically
from ...registry import UserError
from ..store.schema import Row
from .cell import Cell

CLIENTS = Path(__file__).parent / "federations.csv"
DIGITS = 16  # hex digits that are kept of both hashes


@cache
def _registered() -> dict[str, str]:
    with CLIENTS.open(newline="", encoding="utf-8") as stream:
        return {row["federation"]: row["partition_hash"] for row in csv.DictReader(stream)}


def registered_hash(cell: Cell) -> str | None:
    """How the partition hash of a cell's federation begins, or None where it is not registered."""
    return _registered().get(_federation(cell))


def _federation(cell: Cell) -> str:
    return hashlib.sha256(cell.federation_key.encode()).hexdigest()[:DIGITS]


def check_clients(cell: Cell, partition_hash: str) -> None:
    """UserError when a federation that is registered was cut otherwise here."""
    wanted = registered_hash(cell)
    if wanted is not None and not partition_hash.startswith(wanted):
        raise UserError(
            f"{_what(cell)} gives other clients here (partition hash {partition_hash[:DIGITS]}) than the rows of the "
            f"boards have ({wanted}): use the versions of NumPy and scikit-network that results/environments names"
        )


def _what(cell: Cell) -> str:
    return f"{cell.dataset.name} {cell.partition.name} x{cell.clients} {cell.split.name} seed {cell.seed}"


def register(rows: Iterable[Row]) -> list[str]:
    """Enter the clients that rows have and federations.csv lacks. What is new.

    An entry that is there is never changed. Raises OSError where the package cannot be written.
    """
    clients, new = dict(_registered()), list[str]()
    lines = CLIENTS.read_text(encoding="utf-8").splitlines()
    for row in rows:
        cell = Cell.of(row)
        if row.partition_hash and _federation(cell) not in clients:
            clients[_federation(cell)] = row.partition_hash[:DIGITS]
            lines.append(f"{_federation(cell)},{row.partition_hash[:DIGITS]},{_what(cell)}")
            new.append(f"clients of {_what(cell)}")
    if new:
        write_atomically(CLIENTS, ("\n".join(lines) + "\n").encode())
        _registered.cache_clear()
    return new
