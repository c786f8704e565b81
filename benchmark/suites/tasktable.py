"""The table of what makes tasks unlike: a line for each task of the node boards, written by `fglbench data describe`.

It is checked in, so that a report can set scores beside properties and needs no dataset for it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from ...files import write_atomically

FILE = Path(__file__).parent / "properties.csv"
TASK = ("dataset", "dataset_params", "partition", "partition_params", "clients")  # as the columns of a row

Task = tuple[str, ...]


def read_properties(path: Path = FILE) -> dict[Task, dict[str, float]]:
    """Task, as the texts of `TASK`, -> property -> value: means over the seeds, as `datasets.properties` has them."""
    with path.open(newline="", encoding="utf-8") as stream:
        return {
            tuple(line.pop(name) for name in TASK): {name: float(value) for name, value in line.items()}
            for line in csv.DictReader(stream)
        }


def write_properties(table: Mapping[Task, Mapping[str, float]], path: Path = FILE) -> None:
    """Replace the table; figures to 4 decimals. Raises OSError."""
    names = list(next(iter(table.values()), {}))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*TASK, *names])
    for task, own in table.items():
        writer.writerow([*task, *(f"{own[name]:.4f}".rstrip("0").rstrip(".") for name in names)])
    write_atomically(path, text.getvalue().encode())
