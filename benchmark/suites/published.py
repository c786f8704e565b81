"""Tables of the package: summaries of the rows of boards, and properties of their tasks.

`published.json` has costs, a fit (`runner/job.py`), and the tasks of the tuned node boards with the mean scores of each
method over seeds; `tools/published.py` writes it from results/. `properties.csv` has a line for each task of the node
boards; `fglbench data describe` writes it, so that a report needs no datasets.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ...files import write_atomically

PROPERTIES = Path(__file__).parent / "properties.csv"
BOARDS = ("node-3", "node")  # tuned node boards; for a task of both, the rows of the first count
TASK = ("dataset", "dataset_params", "partition", "partition_params", "clients")  # columns of a row

Task = tuple[str, ...]


def read_properties(path: Path = PROPERTIES) -> dict[Task, dict[str, float]]:
    """Task (texts of `TASK`) -> property -> value, mean over seeds; for the properties see `datasets.describe`."""
    with path.open(newline="", encoding="utf-8") as stream:
        return {
            tuple(line.pop(name) for name in TASK): {name: float(value) for name, value in line.items()}
            for line in csv.DictReader(stream)
        }


def write_properties(table: Mapping[Task, Mapping[str, float]], path: Path = PROPERTIES) -> None:
    """Replace the table; values have 4 decimals. Raises OSError."""
    names = list(next(iter(table.values()), {}))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*TASK, *names])
    for task, figures in table.items():
        writer.writerow([*task, *(f"{figures[name]:.4f}".rstrip("0").rstrip(".") for name in names)])
    write_atomically(path, text.getvalue().encode())


FILE = Path(__file__).with_name("published.json")
# dataset -> training share of its published split; other datasets have the split `ratio` with its parameter
TRAINED = dict.fromkeys(("chameleon-filtered", "squirrel-filtered", "minesweeper", "tolokers"), 0.5) | {"actor": 0.48}


@dataclass(frozen=True)
class PublishedTask:
    """A task of a tuned node board. suite: the board. properties: `adjusted_homophily`, `label_skew`, `majority`,
    `labels` (training nodes per class and client), `nodes` (per client). methods: name -> "score", "macro_f1"
    (fractions)."""

    suite: str
    dataset: str
    partition: str
    clients: int
    metric: str
    properties: Mapping[str, float]
    methods: Mapping[str, Mapping[str, float]]

    def __str__(self) -> str:
        return f"{self.dataset} ({self.partition}, {self.clients} clients)"


@cache
def published() -> dict[str, Any]:
    """Return the content of the file."""
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def published_tasks(suite: str | None = None) -> list[PublishedTask]:
    """Return the tasks of the tuned node boards, or of one of them."""
    return [PublishedTask(**task) for task in published()["tasks"] if suite in (None, task["suite"])]
