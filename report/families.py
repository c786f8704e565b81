"""What kind of method each is: the part of it that it shares, or what it makes up for, what it uploads, and whether its
clients' models may differ. Data: families.csv, and the table of uploads."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from ..benchmark.suites.uploads import stored

UNKNOWN = "other"  # a plug-in's method
MEANING = {
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


MIXED = {"alike": "all alike", "any": "may differ"}  # the clients' models, by the column `models`


@cache
def _lines() -> dict[str, dict[str, str]]:
    with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as stream:
        return {line["method"]: line for line in csv.DictReader(stream)}


def families() -> dict[str, str]:
    """Family of each registered method."""
    return {method: line["family"] for method, line in _lines().items()}


def family(method: str) -> str:
    return families().get(method, UNKNOWN)


def deed(method: str) -> str:
    """What a method does, in a few words; empty for one of a plug-in."""
    return _lines().get(method, {}).get("what") or ""


def models(method: str) -> str:
    """Whether the clients of a method may have models of different architectures."""
    found = _lines().get(method)
    return MIXED[found.get("models") or "alike"] if found else UNKNOWN


def uploads(method: str) -> list[str]:
    """What the clients of a method send to the server; empty for one of a plug-in."""
    return [what for what in stored().get(method, "").split(", ") if what]
