"""The catalogue: methods, datasets, partitions, splits, backbones and suites of the package, as two generated files.

`catalogue.json` has what the classes and suite files say of each name, `cells.json` the cells of each suite: names,
what ends a run, and keys. `make catalogue` writes both and a test compares them. Commands that only name things, a dry
run of the package's suites (`listed.py`) and the report read them instead of the classes, whose modules import torch.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("catalogue.json")
CELLS = Path(__file__).with_name("cells.json")
CLASSES = ("method", "dataset", "partition", "split", "backbone")  # what cells are made of
KINDS = (*CLASSES, "suite")
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
    """Return kind -> name -> what is known of it; of "display": display names and links of methods; of "training":
    the parameters of the training configuration, and the former names of some."""
    content: dict[str, dict[str, Entry]] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def entry(kind: str, name: str) -> Entry:
    """Return what is known of a name of the package; empty for one of a plug-in."""
    return catalogue()[kind].get(name, {})


@cache
def listed_cells() -> dict[str, dict[str, dict[str, dict[str, str]]]]:
    """Return suite -> what ends a run (JSON) -> a line that names a cell without its seed -> seed -> keys."""
    cells: dict[str, dict[str, dict[str, dict[str, str]]]] = json.loads(CELLS.read_text(encoding="utf-8"))
    return cells


def cell_keys(suite: str) -> list[str]:
    """Return the keys of the cells of a suite of the package."""
    lines = (seeds for ends in listed_cells().get(suite, {}).values() for seeds in ends.values())
    return [key for seeds in lines for keys in seeds.values() for key in keys.split()]


def untuned_pairs(suite: str) -> list[tuple[str, str]]:
    """Return (method, dataset) of what has to be tuned before a suite of the package can run."""
    return [(method, dataset) for method, datasets in entry("suite", suite)["untuned"] for dataset in datasets]


def is_board(suite: str) -> bool:
    """Return whether a suite is one of the benchmark's boards."""
    return entry("suite", suite).get("order") is not None


def board_order(suite: str) -> tuple[bool, bool, int, str]:
    """Return what suites are sorted by: the `order` of their file, then by name if they have none, `quick` last."""
    return suite == "quick", not is_board(suite), entry("suite", suite).get("order") or 0, suite


def board_title(suite: str) -> str:
    """Return the title of a board; the name of a suite without one."""
    return (entry("suite", suite).get("title") or suite) if is_board(suite) else suite
