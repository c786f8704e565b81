"""What a user asks for, what is said of it, and the cells that the catalogue has of it: enough to say what a run would
do, without torch. No class of the package is imported.

A dry run that only narrows suites of the package takes the cells from here. All else (`--set`, own data, suite files,
plug-ins, names or seeds that a suite lacks) asks the classes (`select`), and so does every run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ... import yamltext
from ...registry import UserError, did_you_mean, listed
from .catalogue import CLASSES, catalogue, entry, listed_cells, untuned_pairs

NAMED = 3  # names that a line about many has


@dataclass(frozen=True)
class Setting:
    """One `--set`: `section` (dataset, partition, split, backbone, method, training) is None for a bare name."""

    section: str | None
    name: str
    value: Any


def parse_setting(text: str) -> Setting:
    """`training.lr=0.1`, `method.mu=0.1` or, where only one section has such a parameter, `mu=0.1`."""
    key, equals, value = text.partition("=")
    section, dot, name = key.strip().rpartition(".")
    if not equals or not name:
        raise UserError(f"--set wants key=value, as in training.lr=0.1, got {text!r}")
    if dot and section not in (*CLASSES, "training"):
        raise did_you_mean(section, (*CLASSES, "training"), "section of --set")
    if section == "training":
        name = catalogue()["training"]["former"].get(name, name)
    try:
        return Setting(section or None, name, yamltext.parse(value, "")[1])
    except UserError as error:
        raise UserError(f"--set {key:.60}: {value!r:.60} is not a value: {str(error).rpartition(': ')[2]}") from None


def check_settings(texts: Iterable[str]) -> None:
    """UserError for a setting of no form, of an unknown section, or an unknown name of `training`; the other names are
    known when the cells are."""
    known = catalogue()["training"]["parameters"]
    for setting in map(parse_setting, texts):
        if setting.section == "training" and setting.name not in known:
            raise did_you_mean(setting.name, known, "training parameter of --set")


@dataclass(frozen=True)
class Request:
    """What to run. Empty tuples mean "as the suite says". settings: "key=value" strings. own_dataset: a dataset
    of the user's own (`own:NAME`), with its clients and its split where no others are named. tuned: a file that
    `fglbench tune` wrote; only what has settings there is run, with them."""

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


def suites_of(request: Request) -> list[str]:
    """The names of the suites that are asked for. UserError where they are said in two ways, or not at all."""
    if request.quick and request.suites:
        raise UserError("--quick is the suite 'quick'; give either --quick or -s, not both")
    if request.all_suites and request.suites:
        raise UserError("--all is every leaderboard suite; give either --all or -s, not both")
    if request.quick:
        return ["quick"]
    if request.all_suites:
        return [name for name, facts in catalogue()["suite"].items() if facts["leaderboard"]]
    if not (request.suites or request.methods or request.datasets):
        raise UserError("say what to run: --all, -s SUITE, or -m METHOD and -d DATASET (with --quick for a short run)")
    files = {Path(name).resolve() for name in request.suites if name.endswith((".yaml", ".yml"))}
    for stem, number in Counter(path.stem for path in files).items():
        if number > 1:
            raise UserError(f"{number} suite files are named {stem!r}: their rows would lie together; rename one")
    return list(request.suites or ("leaderboard",))


def told_untuned(suite: str, missing: Sequence[tuple[str, str]]) -> list[str]:
    """What is said of the (method, dataset) pairs that are left out until they are tuned: one line, or none."""
    if not missing:
        return []
    methods, datasets = (list(dict.fromkeys(names)) for names in zip(*missing, strict=True))
    narrow = "".join(
        f" {option} {','.join(names)}" for option, names in (("-m", methods), ("-d", datasets)) if len(names) <= NAMED
    )
    told = f"suite {suite!r}: no tuned settings of {listed(methods, NAMED)} on {listed(datasets, NAMED)}"
    return [f"{told}; `fglbench tune -s {suite}{narrow}` makes them"]


def told_defaults(suite: str, methods: Sequence[str]) -> list[str]:
    """What is said of methods that run with their defaults in a suite whose methods have tuned settings."""
    if not methods:
        return []
    return [
        f"suite {suite!r}: {listed(methods, NAMED)} run{'s' * (len(methods) == 1)} untuned beside methods with "
        "tuned settings, and tables say so; `fglbench compete FILE` tunes a method first"
    ]


def told_left(untuned: Sequence[str], defaults: Sequence[str]) -> list[str]:
    """What is said of cells that are left out, and of those that run with defaults."""
    return [*(f"{told}; their runs are left out" for told in untuned), *defaults]


@dataclass(frozen=True)
class ListedCell:
    """A cell by its names. line: "cora louvain x10 gcn fedavg", its text without the seed. ends: `Cell.ends`."""

    line: str
    ends: dict[str, int | None]
    seed: int
    key: str

    @cached_property
    def names(self) -> dict[str, str]:
        """The name of each kind; of "clients" their number."""
        return dict(zip(("dataset", "partition", "clients", "backbone", "method"), self.line.split(), strict=True))

    def __str__(self) -> str:
        return f"{self.line} seed {self.seed}"


def select_listed(request: Request) -> tuple[list[tuple[str, ListedCell]], list[str]] | None:
    """What `select.parted` finds, from the catalogue; None where only the classes know. UserError as `suites_of`."""
    if request.settings or request.own_dataset or request.tuned or request.splits or request.backbones:
        return None
    suites = suites_of(request)
    if not all(name in catalogue()["suite"] for name in suites):
        return None
    chosen: list[tuple[str, ListedCell]] = []
    left: list[str] = []
    defaults: list[str] = []
    for suite in suites:
        cells = _narrowed([*_cells(suite)], request)
        if cells is None:
            return None
        chosen += [(suite, cell) for cell in cells]
        pairs = [(m, d) for m, d in untuned_pairs(suite) if _among(m, request.methods) and _among(d, request.datasets)]
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
    """Those with the wanted names and seeds; None where the suite lacks one of them."""
    axes = {"method": request.methods, "dataset": request.datasets, "partition": request.partitions}
    axes["clients"] = tuple(f"x{number}" for number in request.clients)
    for kind, wanted in axes.items():
        if not {*wanted} <= {cell.names[kind] for cell in cells}:
            return None
    chosen = [cell for cell in cells if all(_among(cell.names[kind], wanted) for kind, wanted in axes.items())]
    if not request.seeds:
        return chosen
    of_seed = {seed: Counter(cell.line for cell in chosen if cell.seed == seed) for seed in request.seeds}
    most = Counter[str]()
    for seed in {cell.seed for cell in chosen}:
        most |= Counter(cell.line for cell in chosen if cell.seed == seed)
    if any(lines != most for lines in of_seed.values()):
        return None  # a seed that the suite lacks somewhere
    return [cell for cell in chosen if cell.seed in of_seed]
