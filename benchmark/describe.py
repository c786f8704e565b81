"""Make the entries of the catalogue from classes and suite files. Uploads of a method are recorded in a small run."""

from __future__ import annotations

import inspect
import json
import warnings
from collections import Counter
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from ..datasets.own_data import OwnData
from ..datasets.partitioning import CuttingSpec
from ..datasets.spec import DatasetSpec
from ..registry import parameters
from .contract.recording import Inapplicable, fitting, record
from .engine import ClientBatch, Step, TrainConfig, Tree
from .engine.config import FORMER
from .engine.method import WHAT, Method
from .engine.payload import leaves
from .engine.simulation import Simulation
from .engine.transforms import KINDS, kind_of
from .suites.catalogue import FAMILIES, Entry
from .suites.cell import Cell
from .suites.plugins import REGISTRIES, built_in
from .suites.suite import Suite, load_suite, suite_names


def uploads(method: Method) -> dict[str, tuple[tuple[int, ...], ...]]:
    """The uploads of a method's clients in the order of its steps: name -> shapes of the values of one client. Raises
    Inapplicable if the method fits no trial."""
    trial = fitting(method)[0]
    trial = replace(trial, config=trial.config.model_copy(update={"local_epochs": 1}))
    shapes: dict[str, tuple[tuple[int, ...], ...]] = {}

    def watched(simulation: Simulation, step: Step) -> Step:
        def client(clients: ClientBatch) -> Tree:
            upload = step.client(clients)
            for name, value in upload.items():
                shapes.setdefault(name, tuple(tuple(leaf[0].shape) for leaf in leaves({name: value}) if len(leaf)))
            return upload

        return replace(step, client=client)

    record(method, trial, wrap=watched)
    return shapes


def kinds(method: Method) -> list[str]:
    """The kinds of uploads of a method, in the order of KINDS; empty if there are none, or if it fits no trial."""
    try:
        seen = set(map(kind_of, uploads(method)))
    except Inapplicable:
        return []
    known = list(dict.fromkeys(KINDS.values()))
    return sorted(seen, key=lambda kind: (known.index(kind) if kind in known else len(known), kind))


def described(kind: str, cls: type[Any]) -> Entry:
    """Return the entry of a registered class."""
    entry: Entry = {"text": inspect.getdoc(cls) or "", "facts": {}, "parameters": parameters(cls)}
    if issubclass(cls, Method):
        meaning = f" ({FAMILIES[cls.family]})" if cls.family in FAMILIES else ""
        summary = vars(cls).get("summary", "")  # not inherited
        facts = {
            "in short": summary,
            "family": f"{cls.family}{meaning}",
            "for": " and ".join(WHAT[task] for task in cls.tasks),
            "edges between clients": "each client knows those of its nodes" if cls.edges_between_clients else "",
        }
        entry |= {
            "facts": {key: value for key, value in facts.items() if value},
            "family": cls.family,
            "summary": summary or _first(cls),
            "tasks": cls.tasks,
            "reference": cls.reference,
            "heterogeneous": cls.heterogeneous,
            "uploads": _uploads(cls),
            "revision": cls.revision,
        }
    elif issubclass(cls, DatasetSpec):
        entry |= {"facts": _of_dataset(cls), "kind": cls.kind, "task": cls.task, "summary": _first(cls)}
    else:
        tasks = f"{' and '.join(cls.tasks)} datasets" if issubclass(cls, CuttingSpec) else ""
        entry |= {"facts": {"for": tasks} if tasks else {}, "summary": _first(cls)}
    return entry


def _first(cls: type) -> str:
    return " ".join((inspect.getdoc(cls) or "").split("\n\n", 1)[0].split())


def _uploads(cls: type[Method]) -> str:
    """The kinds of uploads in words, from a small run; a plug-in's method may fail in any way."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ", ".join(kinds(cls())) or "nothing"
    except Exception as error:
        return f"not known ({type(error).__name__}; see `fglbench check`)"


def _of_dataset(cls: type[DatasetSpec]) -> dict[str, str]:
    """The facts of a dataset; its data are not loaded."""
    sources = ", ".join(dict.fromkeys(route.kind for route in cls.routes))
    sources = sources or ("your folder" if issubclass(cls, OwnData) else "generated")
    facts = {"task": cls.task, "citation": "", "licence": "", "home": "", "note": "", "sources": sources}
    if about := getattr(cls, "about", None):
        facts |= vars(about)
    facts |= {"scored by": cls.scored_by.replace("_", " ")} if cls.task == "node" or cls.scored_by != "accuracy" else {}
    facts |= {"fingerprint": cls.fingerprint or "none registered"} if cls.routes else {}
    facts |= {"synthetic": "yes: not a real dataset"} if cls.synthetic else {}
    return {key: value for key, value in facts.items() if value}


def described_suite(suite: Suite, cells: list[Cell]) -> Entry:
    """Return the entry of a suite with these cells."""
    facts = {"title": suite.title or suite.name, "runs": str(len(cells))}
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
    facts |= {axis: ", ".join(dict.fromkeys(names)) for axis, names in axes.items()}
    return {
        "text": suite.description,
        "facts": facts,
        "parameters": [],
        "summary": f"{suite.description} ({len(cells)} runs{', leaderboard' * suite.leaderboard})",
        "title": suite.title,
        "order": suite.order,
        "untuned": [
            [method, [dataset for _, dataset in pairs]] for method, pairs in groupby(suite.untuned(), itemgetter(0))
        ],
        "defaults": suite.at_defaults(cells),
        "tuned": bool(suite.tuned_methods),
        "leaderboard": suite.leaderboard,
    }


def _mixed(cell: Cell) -> str:
    turns = Counter(choice.name for choice in cell.backbones)
    return "+".join(f"{name} x{number}" if number > 1 else name for name, number in turns.items())


def catalogued() -> tuple[str, str]:
    """Return the texts of catalogue.json and cells.json, for the package without plug-ins."""
    entries: dict[str, dict[str, Entry]] = {}
    for kind, registry in REGISTRIES.items():
        classes = {name: registry.cls(name) for name in registry.names()}
        entries[kind] = {name: described(kind, cls) for name, cls in classes.items() if built_in(kind, name)}
    suites = {name: load_suite(name) for name in suite_names()}
    cells = {name: suite.cells() for name, suite in suites.items()}
    entries["suite"] = {name: described_suite(suite, cells[name]) for name, suite in suites.items()}
    methods = {name: REGISTRIES["method"].cls(name) for name in entries["method"]}
    entries["display"] = {  # none of these is inherited
        name: {field: vars(cls).get(field, "") for field in ("title", "venue", "paper_url", "code_url")}
        for name, cls in methods.items() if vars(cls).get("title")
    }  # fmt: skip
    training: Entry = {"parameters": list(TrainConfig.model_fields), "former": FORMER}
    listed = {name: _listed(each) for name, each in cells.items()}
    return f"{_text(entries | {'training': training}, 2)}\n", f"{_text(listed, 3)}\n"


def _listed(cells: list[Cell]) -> dict[str, dict[str, dict[str, str]]]:
    """Rounds, patience and epochs (JSON) -> names of a cell -> seed -> keys, as `catalogue.listed_cells` reads it."""
    table: dict[str, dict[str, dict[str, str]]] = {}
    for cell in cells:
        seeds = table.setdefault(json.dumps(cell.ends), {}).setdefault(str(cell).rsplit(" seed ", 1)[0], {})
        seeds[str(cell.seed)] = f"{seeds.get(str(cell.seed), '')} {cell.key}".strip()
    return table


def _text(tree: Any, depth: int) -> str:
    """JSON with one line per entry at this depth."""
    if depth == 0:
        return json.dumps(tree, ensure_ascii=False)
    lines = (f"{json.dumps(name)}: {_text(branch, depth - 1)}" for name, branch in tree.items())
    return "{\n" + ",\n".join(lines) + "\n}"
