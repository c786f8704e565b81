"""From what a user asks for (suites, names, settings) to the list of runs, each with the suite that it is filed under.

Names choose among what a suite has; a method or dataset that it lacks is added to it, under the suite's protocol, so
that a new method runs on the leaderboard's tasks without an edit of the suite. Anything that departs from the protocol
(`--set`, a partition, client count, split or backbone that the suite lacks, or data of the user's own) is filed under
`custom`."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from ... import yamltext
from ...arguments import SEED_BOUND
from ...datasets import DATASETS, PARTITIONS, SPLITS
from ...datasets.own_data import OWN
from ...methods import METHODS
from ...registry import UserError, did_you_mean, listed
from ..engine.config import FORMER, TrainConfig
from .cell import SINGLE, Cell, Choice, settled, train_config
from .plugins import REGISTRIES
from .suite import Backbones, Block, Count, Dataset, Method, Partition, Split, Suite
from .suitefile import CUSTOM as CUSTOM, leaderboard_suites, load_suite
from .tuned import Table, read_tuned


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
    if dot and section not in (*REGISTRIES, "training"):
        raise did_you_mean(section, (*REGISTRIES, "training"), "section of --set")
    if section == "training":
        name = FORMER.get(name, name)
    try:
        return Setting(section or None, name, yamltext.parse(value, "")[1])
    except UserError as error:
        raise UserError(f"--set {key:.60}: {value!r:.60} is not a value: {str(error).rpartition(': ')[2]}") from None


def check_settings(texts: Iterable[str]) -> None:
    """UserError for a setting of no form, of an unknown section, or an unknown name of `training`: before data is read,
    by which the other names are known."""
    for setting in map(parse_setting, texts):
        if setting.section == "training" and setting.name not in TrainConfig.model_fields:
            raise did_you_mean(setting.name, TrainConfig.model_fields, "training parameter of --set")


def apply_settings(cells: Sequence[Cell], settings: Sequence[Setting]) -> list[Cell]:
    """The cells with the settings applied to every part that has such a parameter; UserError when none has."""
    located = [_locate(setting, cells) for setting in settings]
    return [_changed(cell, located) for cell in cells]


def _locate(setting: Setting, cells: Sequence[Cell]) -> Setting:
    """The setting with its section filled in."""
    fields = {"training": set(TrainConfig.model_fields)}
    for section in REGISTRIES:
        fields[section] = {name for cell in cells for choice in _choices(cell, section) for name in choice.params}
    within = {setting.section: fields[setting.section]} if setting.section else fields
    sections = [section for section, names in within.items() if setting.name in names]
    if not sections:
        known, kind = set().union(*within.values()), f"{setting.section or ''} parameter of --set".strip()
        raise did_you_mean(setting.name, known, kind)
    if len(sections) > 1:
        options = " or ".join(f"{section}.{setting.name}" for section in sections)
        raise UserError(f"--set {setting.name}: ambiguous; say {options}")
    return Setting(sections[0], setting.name, setting.value)


def _choices(cell: Cell, section: str) -> tuple[Choice, ...]:
    return cell.backbones if section == "backbone" else (getattr(cell, section),)


def _changed(cell: Cell, settings: Sequence[Setting]) -> Cell:
    def values(section: str, old: Mapping[str, Any]) -> dict[str, Any]:
        return {**old, **{s.name: s.value for s in settings if s.section == section and s.name in old}}

    def choices(section: str) -> tuple[Choice, ...]:
        return tuple(Choice(name=own.name, params=values(section, own.params)) for own in _choices(cell, section))

    wanted = train_config(values("training", dict(cell.training)))
    single = {kind: choices(kind)[0] for kind in SINGLE}
    made = settled(Cell(**single, backbones=choices("backbone"), clients=cell.clients, seed=cell.seed, training=wanted))
    for name, value in wanted:
        if getattr(made.training, name) != value and ("training", name) in {(s.section, s.name) for s in settings}:
            what = f"--set training.{name} has no effect on {cell.method.name}, which sets its own"
            warnings.warn(what, stacklevel=2)
    return made


B = TypeVar("B", bound=BaseModel)
NAMED = 3  # names that a line about many has
PROTOCOL = ("partitions", "clients", "splits", "backbones")
AXES: dict[str, Any] = {
    "methods": Method,
    "datasets": Dataset,
    "partitions": Partition,
    "clients": Count,
    "splits": Split,
    "backbones": Backbones,
}


@dataclass(frozen=True)
class Request:
    """What to run. Empty tuples mean "as the suite says". settings: "key=value" strings. own: a dataset
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
    own: str | None = None
    tuned: Path | None = None


def select(request: Request) -> list[tuple[str, Cell]]:
    """(suite, cell) for everything asked for, each once; a warning for cells that cannot run, which are left out.

    UserError for anything unknown, or when nothing is left.
    """
    found, left = parted(request)
    for told in left:
        warnings.warn(told, stacklevel=2)
    return found


def parted(request: Request) -> tuple[list[tuple[str, Cell]], list[str]]:
    """What `select` finds, and what it says of these cells and those that are left out. UserError as `select`."""
    settings = [parse_setting(text) for text in request.settings]
    request = with_own(request, request.own) if request.own else request
    table = read_settings(request.tuned) if request.tuned else None
    found: list[tuple[str, Cell]] = []
    untuned: list[str] = []
    refused: list[str] = []
    defaults: list[str] = []
    for suite in _suites(request):
        narrowed, departs = narrow(suite, request)
        untuned += untuned_of(narrowed)
        cells = apply_settings(narrowed.cells(), settings) if settings else narrowed.cells()
        cells = cells if table is None else at_settings(cells, table)
        because = {cut: impossible(cell) for cut, cell in {_cut(cell): cell for cell in cells}.items()}
        reasons = [because[_cut(cell)] for cell in cells]
        refused += [f"suite {suite.name!r}: {why}" for why in dict.fromkeys(reasons) if why]
        possible = [cell for cell, why in zip(cells, reasons, strict=True) if not why]
        if not (departs or settings or request.tuned):
            defaults += at_defaults(suite, possible)
        found += [(CUSTOM if departs or settings or request.tuned else suite.name, cell) for cell in possible]
    left = untuned + refused
    if left and not found:
        raise UserError(left[0])
    if not found:
        raise UserError("nothing matches: the chosen suites have no run with this combination of methods and datasets")
    each = {(name, cell.key): (name, cell) for name, cell in found}
    return list(each.values()), [*(f"{told}; their runs are left out" for told in left), *defaults]


def at_defaults(suite: Suite, cells: Sequence[Cell]) -> list[str]:
    """What is said of methods that would run with their defaults in a suite whose methods have tuned settings."""
    names = dict.fromkeys(
        cell.method.name for cell in cells if not cell.tuning and METHODS.cls(cell.method.name).trains
    )
    if not names or not suite.has_tuned_settings:
        return []
    return [
        f"suite {suite.name!r}: {listed(list(names), NAMED)} run{'s' * (len(names) == 1)} untuned beside methods with "
        "tuned settings, and tables say so; `fglbench compete FILE` tunes a method first"
    ]


def read_settings(path: Path) -> Table:
    """The settings that `fglbench tune` wrote to a file. UserError where there is none."""
    table = read_tuned(path)
    if not table:
        raise UserError(f"no tuned settings in {str(path)!r}; `fglbench tune --data FOLDER` writes them")
    return table


def at_settings(cells: Sequence[Cell], table: Table) -> list[Cell]:
    """The cells whose method has settings for their dataset, with them. UserError where none has."""
    pairs = [(cell, table.get(cell.method.name, {}).get(cell.dataset.name)) for cell in cells]
    found = [chosen.scored(cell) for cell, chosen in pairs if chosen is not None]
    if cells and not found:
        known = sorted({f"{method} on {dataset}" for method, own in table.items() for dataset in own})
        raise UserError(f"the tuned settings are of other methods and datasets: {listed(known, NAMED)}")
    return found


def with_own(request: Request, name: str) -> Request:
    """The request with a dataset of the user's own, and its clients and split where no others are named."""
    data = DATASETS.build(name).load()
    owner, split = getattr(data, "owner", None), getattr(data, "fixed_split", None)
    chosen = replace(request, datasets=(*request.datasets, name))
    if owner is not None:
        chosen = replace(chosen, partitions=chosen.partitions or ("own",))
        if chosen.partitions == ("own",):
            chosen = replace(chosen, clients=chosen.clients or (int(owner.max()) + 1,))
    return replace(chosen, splits=chosen.splits or ("fixed",)) if split else chosen


def _suites(request: Request) -> list[Suite]:
    if request.quick and request.suites:
        raise UserError("--quick is the suite 'quick'; give either --quick or -s, not both")
    if request.all_suites and request.suites:
        raise UserError("--all is every leaderboard suite; give either --all or -s, not both")
    if request.quick:
        return [load_suite("quick")]
    if request.all_suites:
        return leaderboard_suites()
    if not (request.suites or request.methods or request.datasets):
        raise UserError("say what to run: --all, -s SUITE, or -m METHOD and -d DATASET (with --quick for a short run)")
    files = {Path(name).resolve() for name in request.suites if name.endswith((".yaml", ".yml"))}
    for stem, number in Counter(path.stem for path in files).items():
        if number > 1:
            raise UserError(f"{number} suite files are named {stem!r}: their rows would lie together; rename one")
    return [load_suite(name) for name in request.suites or ("leaderboard",)]


def untuned_of(suite: Suite) -> list[str]:
    """What is said of the cells that are left out until they are tuned, on one line; nothing where there are none."""
    missing = suite.untuned()
    if not missing:
        return []
    methods, datasets = (list(dict.fromkeys(names)) for names in zip(*missing, strict=True))
    narrow = "".join(
        f" {option} {','.join(names)}" for option, names in (("-m", methods), ("-d", datasets)) if len(names) <= NAMED
    )
    told = f"suite {suite.name!r}: no tuned settings of {listed(methods, NAMED)} on {listed(datasets, NAMED)}"
    return [f"{told}; `fglbench tune -s {suite.name}{narrow}` makes them"]


def _cut(cell: Cell) -> tuple[str, ...]:
    """All that `impossible` looks at."""
    return cell.dataset.name, cell.texts["partition"], cell.texts["split"]


def impossible(cell: Cell) -> str:
    """Why no data can be cut as a cell wants it; empty where they can."""
    dataset = DATASETS.cls(cell.dataset.name)
    for verb, choice, registry in (("cuts", cell.partition, PARTITIONS), ("is for", cell.split, SPLITS)):
        try:
            choice.build(registry).check_task(dataset, verb, registry)
        except UserError as error:
            return str(error)
    return ""


def narrow(suite: Suite, request: Request) -> tuple[Suite, bool]:
    """The suite with the wanted values on each axis, and whether it departs from the suite's protocol."""
    departs = False
    blocks = list(suite.cross)
    for axis in AXES:
        wanted, present = _values(axis, getattr(request, axis)), _labels(blocks, axis)
        new = [value for label, value in wanted.items() if label not in present]
        departs |= bool(new) and (axis in PROTOCOL or any(str(_label(value)).startswith(OWN) for value in new))
        if wanted:
            blocks = [_with_axis(block, axis, wanted, new) for block in blocks]
            blocks = [block for block in blocks if block.methods and block.datasets]
    if request.seeds:
        if wrong := [seed for seed in request.seeds if not 0 <= seed < SEED_BOUND]:
            raise UserError(f"a seed is a whole number from 0 to {SEED_BOUND - 1}, got {wrong[0]!r:.60}")
        blocks = [block.model_copy(update={"seeds": list(dict.fromkeys(request.seeds))}) for block in blocks]
    return suite.model_copy(update={"cross": blocks}), departs


def _values(axis: str, typed: Iterable[Any]) -> dict[Any, Any]:
    """Values of an axis, by label, from what the user typed, checked."""
    found = {}
    for given in typed:
        try:
            value = TypeAdapter(AXES[axis]).validate_python(given)
        except ValidationError as error:
            problem = error.errors()[0]
            if problem["type"] == "value_error":  # the registry's own answer
                raise UserError(problem["msg"].removeprefix("Value error, ")) from None
            raise UserError(f"{axis}: {problem['msg'][:1].lower()}{problem['msg'][1:]}, got {given!r}") from None
        found[_label(value)] = value
    return found


def _label(value: Any) -> Any:
    """What tells two values of an axis apart on the command line: the name, with any parameters."""
    if isinstance(value, list):
        return "+".join(entry.name for entry in value)
    return value.name if isinstance(value, Choice) else value


def _labels(blocks: Iterable[Block], axis: str) -> set[Any]:
    """All values that an axis takes in blocks, those of datasets and methods that override it included."""
    owners = [owner for block in blocks for owner in (block, *block.datasets, *block.methods)]
    return {_label(value) for owner in owners for value in (getattr(owner, axis, None) or ())}


def _with_axis(block: Block, axis: str, labels: Container[Any], new: list[Any]) -> Block:
    """The block with only the labelled values on an axis, and the new ones; an axis may end up empty."""

    def keep(owner: B) -> B:
        values = getattr(owner, axis, None)
        if values is None:
            return owner
        return owner.model_copy(update={axis: [value for value in values if _label(value) in labels] + new})

    if axis not in PROTOCOL:
        return keep(block)
    entries = {owner: [keep(entry) for entry in getattr(block, owner)] for owner in ("datasets", "methods")}
    return keep(block).model_copy(update=entries)
