"""The catalogue: methods, datasets, partitions, splits, backbones and suites of the package, as two generated files.

`catalogue.json` has the facts of each name, from classes and suite files. `cells.json` has the cells of each suite:
names, rounds and patience, and keys. `make catalogue` writes both, and a test compares them. Commands that list names,
dry runs of the package's suites (`request.py`) and the report read these files, because the classes import torch.

`published.json` has costs, a fit (`runner/job.py`), and the tasks of the tuned node boards with the mean scores of each
method over seeds; `tools/published.py` writes it from results/. `properties.csv` has a line for each task of the node
boards; `fglbench data describe` writes it, so that a report needs no datasets.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ...files import write_atomically
from ..store.schema import PARTS

FILE = Path(__file__).with_name("catalogue.json")
CELLS = Path(__file__).with_name("cells.json")
KINDS = (*PARTS, "suite")
OTHER = "other"  # the family of a plug-in's method, the kind of data of a user's own dataset
FAMILIES = {
    "shared model": "one model, averaged, that every client uses",
    "personal": "models of the clients' own that share some or all weights",
    "prototypes": "class means instead of weights",
    "distillation": "small models exchanged, and taught by and teaching the clients' own",
    "generation": "missing neighbours generated",
    "graph repair": "edges or labels added by the server",
    "alone": "nothing shared",
    "graph sets": "graph-level codes without labels",
    "reference": "not a federated method",
}

Entry = dict[str, Any]


@cache
def catalogue() -> dict[str, dict[str, Entry]]:
    """Return kind -> name -> facts. Kind "display": display names and links of methods. Kind "training": parameters of
    the training configuration, and former names."""
    content: dict[str, dict[str, Entry]] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def entry(kind: str, name: str) -> Entry:
    """Return the facts of a name of the package; empty for a name of a plug-in."""
    return catalogue()[kind].get(name, {})


@cache
def listed_cells() -> dict[str, dict[str, dict[str, dict[str, str]]]]:
    """Return suite -> rounds, patience and epochs (JSON) -> names of a cell without its seed -> seed -> keys."""
    cells: dict[str, dict[str, dict[str, dict[str, str]]]] = json.loads(CELLS.read_text(encoding="utf-8"))
    return cells


def cell_keys(suite: str) -> list[str]:
    """Return the keys of the cells of a suite of the package."""
    lines = (seeds for ends in listed_cells().get(suite, {}).values() for seeds in ends.values())
    return [key for seeds in lines for keys in seeds.values() for key in keys.split()]


def untuned_pairs(suite: str) -> list[tuple[str, str]]:
    """Return the pairs (method, dataset) that must be tuned before a suite of the package can run."""
    return pairs_of(entry("suite", suite)["untuned"])


def pairs_of(untuned: Sequence[tuple[str, Sequence[str]]]) -> list[tuple[str, str]]:
    """Return the pairs (method, dataset) of the field `untuned` of a suite's entry."""
    return [(method, dataset) for method, datasets in untuned for dataset in datasets]


def is_board(suite: str) -> bool:
    """Return whether a suite is one of the benchmark's boards."""
    return entry("suite", suite).get("order") is not None


def board_order(suite: str) -> tuple[bool, bool, int, str]:
    """Return the sort key of suites: by the `order` of their file, then suites without one by name, `quick` last."""
    return suite == "quick", not is_board(suite), entry("suite", suite).get("order") or 0, suite


def board_title(suite: str) -> str:
    """Return the title of a board; the name of a suite without one."""
    return (entry("suite", suite).get("title") or suite) if is_board(suite) else suite


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


PUBLISHED = Path(__file__).with_name("published.json")
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
    content: dict[str, Any] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return content


def published_tasks(suite: str | None = None) -> list[PublishedTask]:
    """Return the tasks of the tuned node boards, or of one of them."""
    return [PublishedTask(**task) for task in published()["tasks"] if suite in (None, task["suite"])]
