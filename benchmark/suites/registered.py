"""The clients of the committed rows, registered: whoever runs such a cell must meet the same ones."""

from __future__ import annotations

import csv
import hashlib
from functools import cache
from pathlib import Path

from ...registry import UserError
from .cell import Cell

FILE = Path(__file__).parent / "federations.csv"
DIGITS = 16  # hex digits that are kept of both hashes


@cache
def _registered() -> dict[str, str]:
    with FILE.open(newline="", encoding="utf-8") as stream:
        return {row["federation"]: row["partition_hash"] for row in csv.DictReader(stream)}


def registered_hash(cell: Cell) -> str | None:
    """How the partition hash of a cell's federation begins, or None where it is not registered."""
    return _registered().get(hashlib.sha256(cell.federation_key.encode()).hexdigest()[:DIGITS])


def check_clients(cell: Cell, partition_hash: str) -> None:
    """UserError when a federation that is registered was cut otherwise here."""
    wanted = registered_hash(cell)
    if wanted is not None and not partition_hash.startswith(wanted):
        fix = "use the versions of NumPy and scikit-network that results/environments names"
        if cell.partition.name == "louvain":
            fix += ", or --set partition.ordering=size, which is the same everywhere"
        where = f"{cell.dataset.name} {cell.partition.name} x{cell.clients} seed {cell.seed}"
        raise UserError(
            f"{where} gives other clients here (partition hash {partition_hash[:DIGITS]}) than the rows of the boards "
            f"have ({wanted}): {fix}"
        )
