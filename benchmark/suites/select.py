"""From a request (suites, names, settings) to the list of runs, each with its suite.

Names select among those of a suite. A method or dataset that the suite lacks is added with the protocol of the suite,
so that a new method runs on the tasks of a board without a change of the suite. Runs that depart from the protocol
(`--set`, another partition, number of clients, split or backbone, or own data) have the suite `custom`."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from ...datasets import DATASETS, PARTITIONS, SPLITS
from ...datasets.corruptions import for_nodes_only
from ...datasets.own_data import OwnData, OwnPartition
from ...methods import METHODS
from ...registry import OWN, SEED_BOUND, UserError, did_you_mean, listed
from ..engine.config import TrainConfig
from ..engine.method import in_words
from ..store.provenance import canonical
from .cell import Cell, Choice, settled, train_config
from .plugins import REGISTRIES
from .request import (
    NAMED,
    Request as Request,
    Setting,
    parse_setting,
    suites_of,
    told_defaults,
    told_left,
    told_untuned,
    told_without,
)
from .suite import (
    CUSTOM as CUSTOM,
    TASK_AXES,
    Backbones,
    Block,
    Count,
    Dataset,
    DatasetEntry,
    Method,
    Partition,
    Split,
    Suite,
    load_suite,
    worded,
)
from .tuned import Table, Values, read_tuned, without_settings


def apply_settings(cells: Sequence[Cell], settings: Sequence[Setting]) -> list[Cell]:
    """Apply settings, from `located`, to every part of the cells that has such a parameter."""
    return [_changed(cell, settings) for cell in cells] if settings else list(cells)


def located(texts: Iterable[str], cells: Sequence[Cell]) -> list[Setting]:
    """The settings of `--set`, with their sections. UserError if no cell has the parameter, and for one given twice."""
    settings = [_locate(parse_setting(text), cells) for text in texts]
    for name, number in Counter(f"{setting.section}.{setting.name}" for setting in settings).items():
        if number > 1:
            raise UserError(f"--set {name} is given {number} times; give it once")
    return settings


def check_not_chosen(settings: Iterable[Setting], chosen: Values, cell: Cell) -> None:
    """UserError if a setting has a parameter that tuning chooses for the cell."""
    for setting in settings:
        if setting.name in getattr(chosen, setting.section or "", {}):
            name, what = f"{setting.section}.{setting.name}", f"{cell.method.name} on {cell.dataset.name}"
            raise UserError(f"--set {name}: tuning chooses this parameter of {what}; leave it out")


def _locate(setting: Setting, cells: Sequence[Cell]) -> Setting:
    fields = {"training": set(TrainConfig.model_fields)} | {kind: set[str]() for kind in REGISTRIES}
    for kind, choice in (pair for cell in cells for pair in cell.choices()):
        fields[kind].update(choice.params)
    within = {setting.section: fields[setting.section]} if setting.section else fields
    sections = [section for section, names in within.items() if setting.name in names]
    if not sections:
        what = f"{setting.section or ''} parameter of --set".strip()
        raise did_you_mean(setting.name, set().union(*within.values()), what)
    if len(sections) > 1:
        options = " or ".join(f"{section}.{setting.name}" for section in sections)
        raise UserError(f"--set {setting.name}: ambiguous; say {options}")
    return Setting(sections[0], setting.name, setting.value)


def _changed(cell: Cell, settings: Sequence[Setting]) -> Cell:
    def values(section: str, old: Mapping[str, Any]) -> dict[str, Any]:
        return {**old, **{s.name: s.value for s in settings if s.section == section and s.name in old}}

    pairs = [(kind, Choice(name=old.name, params=values(kind, old.params))) for kind, old in cell.choices()]
    backbones = tuple(choice for kind, choice in pairs if kind == "backbone")
    single = {kind: choice for kind, choice in pairs if kind != "backbone"}
    wanted = train_config(values("training", dict(cell.training)))
    made = settled(Cell(**single, backbones=backbones, clients=cell.clients, seed=cell.seed, training=wanted))
    for name, value in wanted:
        if getattr(made.training, name) != value and ("training", name) in {(s.section, s.name) for s in settings}:
            what = f"--set training.{name} has no effect on {cell.method.name}, which sets its own"
            warnings.warn(what, stacklevel=2)
    return made


B = TypeVar("B", bound=BaseModel)
AXES: dict[str, Any] = {
    "methods": Method,
    "datasets": Dataset,
    "partitions": Partition,
    "clients": Count,
    "splits": Split,
    "backbones": Backbones,
}


def select(request: Request) -> list[tuple[str, Cell]]:
    """(suite, cell) of the requested runs, each once. Cells that cannot run are left out with a warning.

    UserError for anything unknown, or if no cell is left.
    """
    cells, messages = parted(request)
    for message in messages:
        warnings.warn(message, stacklevel=2)
    return cells


def _task(name: str) -> str:
    return DATASETS.cls(name).task


def parted(request: Request) -> tuple[list[tuple[str, Cell]], list[str]]:
    """The result of `select`, and its warnings. UserError as for `select`."""
    request = with_own(request, request.own_dataset)
    table = read_tuned(request.tuned) if request.tuned else None
    if table == {}:
        raise UserError(f"no tuned settings in {str(request.tuned)!r}; `fglbench tune --data FOLDER` writes them")
    chosen: list[tuple[str, Cell]] = []
    untuned, refused, defaults = list[str](), list[str](), list[str]()
    for suite, part in [(load_suite(name), part) for name, part in suites_of(request, _task)]:
        narrowed, departs = narrow(suite if table is None else suite.at_own_settings(), part)
        untuned += told_untuned(suite.name, narrowed.untuned())
        cells = narrowed.cells()
        settings = located(request.settings, cells)
        cells = apply_settings(cells, settings)
        if table is not None:
            pairs = dict.fromkeys((cell.method.name, cell.dataset.name) for cell in cells)
            untuned += told_without(request.tuned, without_settings(pairs, table))
            cells = at_settings(cells, table, settings)
        keys = list(map(_checked, cells))
        reason_of = {key: impossible(cell) for key, cell in dict(zip(keys, cells, strict=True)).items()}
        reasons = [reason_of[key] for key in keys]
        if not request.all_suites:  # where a method of `--all` does not apply, it is not run
            refused += [f"suite {suite.name!r}: {why}" for why in dict.fromkeys(reasons) if why]
        possible = [cell for cell, why in zip(cells, reasons, strict=True) if not why]
        name = CUSTOM if departs or settings or request.tuned else suite.name
        defaults += told_defaults(name, suite.at_defaults(possible)) if name == suite.name else []
        chosen += [(name, cell) for cell in possible]
    left = untuned + refused
    if left and not chosen:
        raise UserError(left[0])
    if not chosen:
        raise UserError("nothing matches: the chosen suites have no run with this combination of methods and datasets")
    distinct = {(name, cell.key): (name, cell) for name, cell in chosen}
    return list(distinct.values()), told_left(left, defaults)


def at_settings(cells: Sequence[Cell], table: Table, settings: Sequence[Setting] = ()) -> list[Cell]:
    """The cells whose method has tuned settings for their dataset, with these. settings: those of `--set`.

    UserError if no cell has, as for `Tuned.scored`, and as for `check_not_chosen`."""
    tuned = []
    for cell in cells:
        if (chosen := table.get(cell.method.name, {}).get(cell.dataset.name)) is not None:
            check_not_chosen(settings, chosen, cell)
            tuned.append(chosen.scored(cell))
    if cells and not tuned:
        known = sorted({f"{method} on {dataset}" for method, by_dataset in table.items() for dataset in by_dataset})
        raise UserError(f"the tuned settings are of other methods and datasets: {listed(known, NAMED)}")
    return tuned


def with_own(request: Request, name: str | None) -> Request:
    """The request with a dataset of the user, if there is one."""
    return replace(request, datasets=(*request.datasets, name)) if name else request


def _checked(cell: Cell) -> tuple[str, ...]:
    """The parts of a cell on which `impossible` depends."""
    data = canonical([cell.identity[name] for name in ("dataset", "partition", "split")])
    unfit = cell.training.unfit(cell.clients)
    return data, str(cell.clients), str(len(cell.backbones)), cell.method.name, unfit, *cell.training.present


def impossible(cell: Cell) -> str:
    """Why the data of a cell cannot be made, or its method is not for their task or its architectures; empty if it can
    run."""
    dataset, method = cell.dataset.build(DATASETS), METHODS.cls(cell.method.name)
    try:
        cell.partition.build(PARTITIONS).check(dataset, cell.clients)
        split = cell.split.build(SPLITS)
        split.check(dataset)
    except UserError as error:
        return str(error)
    if split.goal and isinstance(dataset, OwnData) and dataset.metric != "accuracy":
        return f"split {split.name!r} has its own measure, not {dataset.metric}: leave out --metric"
    if cell.task != "node" and (conditions := cell.training.present):
        task = f"{cell.dataset.name} with split {cell.split.name} is for {in_words(cell.task)}"
        return for_nodes_only(conditions, task)
    if why := cell.training.unfit(cell.clients):
        return why
    return method.cannot_mix(len(cell.backbones)) if method.is_for(cell.task) else method.only_for(cell.task)


def narrow(suite: Suite, request: Request) -> tuple[Suite, bool]:
    """The suite with the wanted values on each axis, and whether it departs from the suite's protocol."""
    departs = False
    blocks = list(suite.cross)
    for axis in AXES:
        wanted = _values(axis, getattr(request, axis))
        owners = [owner for block in blocks for owner in (block, *block.datasets, *block.methods)]  # may override it
        present = {_label(value) for owner in owners for value in (getattr(owner, axis, None) or ())}
        new = [value for label, value in wanted.items() if label not in present]
        new = [] if axis == "datasets" and request.all_suites else new
        departs |= bool(new) and (axis in TASK_AXES or any(str(_label(value)).startswith(OWN) for value in new))
        if wanted:
            blocks = [_with_axis(block, axis, wanted, new) for block in blocks]
            blocks = [block for block in blocks if block.methods and block.datasets]
    blocks = [_as_the_data_come(block, request) for block in blocks]
    if request.seeds:
        if wrong := [seed for seed in request.seeds if not 0 <= seed < SEED_BOUND]:
            raise UserError(f"a seed is a whole number from 0 to {SEED_BOUND - 1}, got {wrong[0]!r:.60}")
        blocks = [block.model_copy(update={"seeds": list(dict.fromkeys(request.seeds))}) for block in blocks]
    return suite.model_copy(update={"cross": blocks}), departs


def _as_the_data_come(block: Block, request: Request) -> Block:
    """The block in which the request leaves what it does not name to the data: the clients and the split of a graph of
    the user, and the number of clients of every dataset that comes with clients."""
    return block.model_copy(
        update={"datasets": [each for entry in block.datasets for each in _parts(entry, block, request)]}
    )


def _parts(entry: DatasetEntry, block: Block, request: Request) -> Iterator[DatasetEntry]:
    """The entry, divided into that of the partition by own clients and that of all other partitions."""
    dataset = entry.build(DATASETS)
    partitions = entry.partitions or block.partitions
    if isinstance(dataset, OwnData):
        if dataset.own_clients() and not request.partitions:
            partitions = [Choice(name="own")]
        own_task = any(split.build(SPLITS).goal for split in entry.splits or block.splits)
        if dataset.has_split() and not request.splits and not own_task:
            entry = entry.model_copy(update={"splits": [Choice(name="fixed")]})
    own = [choice for choice in partitions if isinstance(choice.build(PARTITIONS), OwnPartition)]
    count = dataset.own_clients() if own and not request.clients else None
    if not count:
        yield entry.model_copy(update={"partitions": partitions})
        return
    yield entry.model_copy(update={"partitions": own, "clients": [count]})
    if others := [choice for choice in partitions if choice not in own]:
        yield entry.model_copy(update={"partitions": others})


def _values(axis: str, typed: Iterable[Any]) -> dict[Any, Any]:
    """Label -> checked value of an axis, from the input of the user."""
    values = {}
    for given in typed:
        try:
            value = TypeAdapter(AXES[axis]).validate_python(given)
        except ValidationError as error:
            problem = error.errors()[0]
            where = "" if problem["type"] == "value_error" else f"{axis}: "  # a message of the registry has no axis
            raise UserError(f"{where}{worded(problem)}") from None
        values[_label(value)] = value
    return values


def _label(value: Any) -> Any:
    if isinstance(value, list):
        return "+".join(entry.name for entry in value)
    return value.name if isinstance(value, Choice) else value


def _with_axis(block: Block, axis: str, labels: Container[Any], new: list[Any]) -> Block:
    """The block with the values of an axis that have these labels, and the new values. The axis may become empty."""

    def keep(owner: B) -> B:
        values = getattr(owner, axis, None)
        if values is None:
            return owner
        return owner.model_copy(update={axis: [value for value in values if _label(value) in labels] + new})

    if axis not in TASK_AXES:
        return keep(block)
    entries = {owner: [keep(entry) for entry in getattr(block, owner)] for owner in ("datasets", "methods")}
    return keep(block).model_copy(update=entries)
