"""The request of a user, messages about it, and its cells from the catalogue. It needs no torch and no class of the
package.

A dry run that only narrows suites of the package takes the cells from here. For everything else (`--set`, own data,
suite files, plug-ins, names or seeds that a suite lacks), and for every run, `select` takes them from the classes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ... import yamltext
from ...registry import DOMAINS, OWN, UserError, did_you_mean, listed
from ..store.schema import PARTS
from .catalogue import catalogue, entry, listed_cells, untuned_pairs

NAMED = 3  # names in a message about many
TASK_SUITES = {"node classification": "leaderboard", "graph classification": "graph", "sets of graphs": "clustering"}
GRAPH_SUITES = ("graph", "regression", "molecules")  # suites of datasets of graphs, in the order of preference


@dataclass(frozen=True)
class Setting:
    """One `--set`: `section` (dataset, partition, split, backbone, method, training) is None for a bare name."""

    section: str | None
    name: str
    value: Any


def parse_setting(text: str) -> Setting:
    """Parse `training.lr=0.1`, `method.mu=0.1` or, if only one section has the parameter, `mu=0.1`."""
    key, equals, value = text.partition("=")
    section, dot, name = key.strip().rpartition(".")
    if not equals or not name:
        raise UserError(f"--set wants key=value, as in training.lr=0.1, got {text!r}")
    if dot and section not in (*PARTS, "training"):
        raise did_you_mean(section, (*PARTS, "training"), "section of --set")
    if section == "training":
        name = catalogue()["training"]["former"].get(name, name)
    try:
        return Setting(section or None, name, yamltext.parse(value, "")[1])
    except UserError as error:
        raise UserError(f"--set {key:.60}: {value!r:.60} is not a value: {str(error).rpartition(': ')[2]}") from None


def check_settings(texts: Iterable[str]) -> None:
    """Raise UserError for an invalid setting, an unknown section, or an unknown training parameter. Other names are
    checked with the cells."""
    known = catalogue()["training"]["parameters"]
    for setting in map(parse_setting, texts):
        if setting.section == "training" and setting.name not in known:
            raise did_you_mean(setting.name, known, "training parameter of --set")


@dataclass(frozen=True)
class Request:
    """What to run. An empty tuple: as in the suite. settings: "key=value" texts. own_dataset: a dataset of the user
    (`own:NAME`), with its clients and split unless others are named. tuned: a file of `fglbench tune`; only methods and
    datasets with settings in it are run."""

    suites: tuple[str, ...] = ()
    all_suites: bool = False
    quick: bool = False
    methods: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    clients: tuple[int, ...] = ()
    splits: tuple[str, ...] = ()
    backbones: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    settings: tuple[str, ...] = ()
    own_dataset: str | None = None
    tuned: Path | None = None


def suites_of(request: Request, task_of: Callable[[str], str] = lambda name: "node") -> list[tuple[str, Request]]:
    """The names of the requested suites, each with the part of the request that is for it. task_of: the task of a
    dataset that is not in the catalogue. UserError for contradicting options, or if nothing is requested."""
    if request.quick and request.all_suites:
        raise UserError("--quick is the suite 'quick', --all is every leaderboard suite; give one of them")
    if request.quick and request.suites:
        raise UserError("--quick is the suite 'quick'; give either --quick or -s, not both")
    if request.all_suites and request.suites:
        raise UserError("--all is every leaderboard suite; give either --all or -s, not both")
    if request.quick:
        return [("quick", request)]
    if request.all_suites:
        return [(name, request) for name, facts in catalogue()["suite"].items() if facts["leaderboard"]]
    if not (request.suites or request.methods or request.datasets):
        raise UserError("say what to run: --all, -s SUITE, or -m METHOD and -d DATASET (with --quick for a short run)")
    files = {Path(name).resolve() for name in request.suites if name.endswith((".yaml", ".yml"))}
    for stem, number in Counter(path.stem for path in files).items():
        if number > 1:
            raise UserError(f"{number} suite files are named {stem!r}: their rows would be in one folder; rename one")
    if request.suites:
        return [(name, request) for name in request.suites]
    if not request.datasets:
        return [(_suite_of_methods(request.methods), request)]
    of_suite: dict[str, list[str]] = {}
    for name in request.datasets:
        of_suite.setdefault(_suite_of_dataset(name, task_of), []).append(name)
    return [(suite, replace(request, datasets=tuple(names))) for suite, names in of_suite.items()]


def _suite_of_methods(methods: Sequence[str]) -> str:
    """The suite for methods without a dataset: that of a task for which all are."""
    kinds = [known["facts"]["for"] if (known := catalogue()["method"].get(name)) else "" for name in methods]
    return next((suite for kind, suite in TASK_SUITES.items() if all(kind in each for each in kinds)), "leaderboard")


def _suite_of_dataset(name: str, task_of: Callable[[str], str]) -> str:
    """The suite for a dataset: "leaderboard", or for a set of graphs the first of `GRAPH_SUITES` that has it."""
    if name.startswith(DOMAINS):
        return "natural-graphs"
    known = catalogue()["dataset"].get(name)
    task = known["facts"]["task"] if known else "graph" if name.startswith("tu:") else task_of(name)
    if task != "graph":
        return "leaderboard"
    return next((s for s in GRAPH_SUITES if name in entry("suite", s)["facts"]["datasets"].split(", ")), "graph")


def told_untuned(suite: str, missing: Sequence[tuple[str, str]]) -> list[str]:
    """The message about (method, dataset) pairs that are left out until they are tuned: one line, or none."""
    if not missing:
        return []
    methods, datasets = (list(dict.fromkeys(names)) for names in zip(*missing, strict=True))
    own = any(name.startswith(OWN) for name in datasets)
    narrow = f" -m {','.join(methods)}" * (len(methods) <= NAMED)
    narrow += " --data FOLDER" if own else f" -d {','.join(datasets)}" * (len(datasets) <= NAMED)
    problem = f"suite {suite!r}: no tuned settings of {listed(methods, NAMED)} on {listed(datasets, NAMED)}"
    return [f"{problem}; `fglbench tune -s {suite}{narrow}` makes them"]


def told_without(file: object, missing: Sequence[tuple[str, str]]) -> list[str]:
    """The message about (method, dataset) pairs without settings in a file of `--tuned`: one line, or none."""
    if not missing:
        return []
    methods, datasets = (listed(list(dict.fromkeys(names)), NAMED) for names in zip(*missing, strict=True))
    return [f"{str(file)!r} has no settings of {methods} on {datasets}; `fglbench tune` chooses them"]


def told_defaults(suite: str, methods: Sequence[str]) -> list[str]:
    """The message about methods with default settings in a suite with tuned settings: one line, or none."""
    if not methods:
        return []
    return [
        f"suite {suite!r}: {listed(methods, NAMED)} run{'s' * (len(methods) == 1)} untuned, but other methods have "
        "tuned settings, and tables say so; `fglbench compete FILE` tunes a method first"
    ]


def told_left(untuned: Sequence[str], defaults: Sequence[str]) -> list[str]:
    """The messages about cells that are left out, and about cells with default settings."""
    return [*(f"{line}; their runs are left out" for line in untuned), *defaults]


@dataclass(frozen=True)
class ListedCell:
    """A cell by its names. line: "cora louvain x10 gcn fedavg", its text without the seed. ends: `Cell.ends`."""

    outside: ClassVar[dict[str, str]] = {}  # see `Cell.outside`; the catalogue has parts of the package alone
    line: str
    ends: dict[str, int | None]
    seed: int
    key: str

    @cached_property
    def names(self) -> dict[str, str]:
        """See `Cell.names`."""
        return dict(zip(("dataset", "partition", "clients", "backbone", "method"), self.line.split(), strict=True))

    def __str__(self) -> str:
        return f"{self.line} seed {self.seed}"


def select_listed(request: Request) -> tuple[list[tuple[str, ListedCell]], list[str]] | None:
    """The result of `select.parted` from the catalogue; None if it needs the classes. UserError as for `suites_of`."""
    if request.settings or request.own_dataset or request.tuned or request.splits or request.backbones:
        return None
    suites = suites_of(request)
    if not all(name in catalogue()["suite"] for name, _ in suites):
        return None
    chosen: list[tuple[str, ListedCell]] = []
    left: list[str] = []
    defaults: list[str] = []
    for suite, part in suites:
        cells = _narrowed([*_cells(suite)], part)
        if cells is None:
            return None
        chosen += [(suite, cell) for cell in cells]
        pairs = [(m, d) for m, d in untuned_pairs(suite) if _among(m, part.methods) and _among(d, part.datasets)]
        left += told_untuned(suite, pairs)
        here = {cell.names["method"] for cell in cells}
        defaults += told_defaults(suite, [name for name in entry("suite", suite)["defaults"] if name in here])
    return (chosen, told_left(left, defaults)) if chosen else None


def _cells(suite: str) -> Iterator[ListedCell]:
    for ends, lines in listed_cells()[suite].items():
        ending = json.loads(ends)
        for line, seeds in lines.items():
            yield from (
                ListedCell(line, ending, int(seed), key) for seed, keys in seeds.items() for key in keys.split()
            )


def _among(name: str, wanted: tuple[str, ...]) -> bool:
    return not wanted or name in wanted


def _narrowed(cells: list[ListedCell], request: Request) -> list[ListedCell] | None:
    """The cells with the wanted names and seeds; None if the suite lacks one of them."""
    axes = {"method": request.methods, "dataset": request.datasets, "partition": request.partitions}
    axes["clients"] = tuple(f"x{number}" for number in request.clients)
    for kind, wanted in axes.items():
        if not {*wanted} <= {cell.names[kind] for cell in cells}:
            return None
    chosen = [cell for cell in cells if all(_among(cell.names[kind], wanted) for kind, wanted in axes.items())]
    if not request.seeds:
        return chosen
    of_seed = {seed: Counter(cell.line for cell in chosen if cell.seed == seed) for seed in request.seeds}
    every_line = Counter[str]()
    for seed in {cell.seed for cell in chosen}:
        every_line |= Counter(cell.line for cell in chosen if cell.seed == seed)
    if any(lines != every_line for lines in of_seed.values()):
        return None  # the suite lacks a seed for some cells
    return [cell for cell in chosen if cell.seed in of_seed]
