"""What one thing is that has a name: method, dataset, partition, split, backbone or suite."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ..datasets.partitioning import CuttingSpec
from ..datasets.spec import DatasetSpec
from ..registry import Parameter, did_you_mean, listed, parameters
from ..report.families import MEANING, deed, family
from .engine.method import WHAT
from .suites.cell import Cell
from .suites.plugins import REGISTRIES, installed
from .suites.suitefile import load_suite, suite_names

SHOWN = 12  # names on one line


@dataclass(frozen=True)
class Known:
    """What is known of a name. kind: method, dataset, ...; text: what its source says of it; facts: short, by heading;
    parameters: with types and defaults."""

    kind: str
    name: str
    text: str
    facts: dict[str, str] = field(default_factory=dict)
    parameters: list[Parameter] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.kind} {self.name}", "", self.text, ""]
        lines += [f"{fact}: {value}" for fact, value in self.facts.items()]
        lines += [f"{own.name} = {own.default} ({own.type}) {own.meaning}".rstrip() for own in self.parameters]
        return "\n".join(lines)


def look_up(name: str) -> Known:
    """What a name stands for. A suite comes last, where several kinds of things have the name. UserError if nothing."""
    known = {name: kind for kind, one in reversed(REGISTRIES.items()) for name in (*one.names(), *installed(one))}
    kind = known.get(name, "dataset" if ":" in name else None)  # datasets made on demand, as tu:NAME
    if kind is None and (name in suite_names() or name.endswith((".yaml", ".yml"))):
        return _suite(name)
    if kind is None:
        raise did_you_mean(name, {*known, *suite_names()}, "method, dataset, partition, split, backbone or suite")
    cls = REGISTRIES[kind].cls(name)
    return Known(kind, name, inspect.getdoc(cls) or "", _facts(kind, cls), parameters(cls))


def _facts(kind: str, cls: type[Any]) -> dict[str, str]:
    if issubclass(cls, DatasetSpec):
        return _of_dataset(cls)
    if issubclass(cls, CuttingSpec):
        return {"for": f"{' and '.join(cls.tasks)} datasets"}
    if kind != "method":
        return {}
    own = family(cls.name)
    meaning = f" ({MEANING[own]})" if own in MEANING else ""
    facts = {
        "in short": deed(cls.name),
        "family": f"{own}{meaning}",
        "for": " and ".join(WHAT[task] for task in cls.tasks()),
    }
    return {key: value for key, value in facts.items() if value}


def _of_dataset(cls: type[DatasetSpec]) -> dict[str, str]:
    """Of a dataset, without getting it."""
    sources = ", ".join(dict.fromkeys(route.kind for route in cls.routes)) or "generated"
    facts = {"task": cls.task, "citation": "", "licence": "", "home": "", "note": "", "sources": sources}
    if about := getattr(cls, "about", None):
        facts |= vars(about)
    facts |= {"scored by": cls.scored_by.replace("_", " ")} if cls.task == "node" else {}
    facts |= {"fingerprint": cls.fingerprint or "none registered"} if cls.routes else {}
    facts |= {"synthetic": "yes: not a real dataset"} if cls.synthetic else {}
    return {key: value for key, value in facts.items() if value}


def _suite(name: str) -> Known:
    suite = load_suite(name)
    cells = suite.cells()
    facts = {"title": suite.title or suite.name, "cells": str(len(cells))}
    facts |= {"leaderboard": "yes: `fglbench run --all` includes it"} if suite.leaderboard else {}
    axes = {
        "datasets": (cell.dataset.name for cell in cells),
        "partitions": (cell.partition.name for cell in cells),
        "clients": (str(cell.clients) for cell in cells),
        "splits": (cell.split.name for cell in cells),
        "backbones": (_mixed(cell) for cell in cells),
        "methods": (cell.method.name for cell in cells),
        "seeds": (str(cell.seed) for cell in cells),
        "rounds": (str(cell.training.rounds) for cell in cells),
    }
    facts |= {axis: listed(own, SHOWN) for axis, own in axes.items()}
    return Known("suite", suite.name, suite.description, facts)


def _mixed(cell: Cell) -> str:
    """The backbones of a cell, each with the number of its turns where there are several."""
    turns = Counter(choice.name for choice in cell.backbones)
    return "+".join(f"{name} x{number}" if number > 1 else name for name, number in turns.items())
