"""Suites: named sets of cells. All names and parameters are checked before anything runs.

A suite has a `description`, `leaderboard` (whether `fglbench run --all` includes it), `order` and `title` (of the board
in the report), a `training` section for all of it, and `cross`: one block or a list of blocks. A block crosses its
axes (`datasets`, `partitions`, `clients`, `splits`, `backbones`, `methods`, `seeds`); an axis with one value need not
be a list, so a block of single values lists one cell.

    cross:
      datasets: [cora, {name: pubmed, training: {rounds: 50}}]
      partitions: louvain
      clients: [5, 10]
      splits: {name: ratio, params: {train: 0.2, val: 0.4, test: 0.4}}
      backbones: [gcn, [gcn, gat]]                       # the second: heterogeneous clients
      methods: [fedavg, {name: fedprox, params: {mu: 0.1}}]
      seeds: 3                                           # 0, 1, 2

`params: tuned` of a method: the settings that `fglbench tune` chose for it on each dataset. `tuned` of the suite names
the file of these settings, if it does not have the name of the suite (`tuned.py`). `tune` has the rounds of a full
trial and the tuning seeds: `tune: {rounds: 100, seeds: [100], datasets: {citeseer: [100, 101]}}`.

A dataset may override `partitions`, `clients`, `splits`, `backbones` and `training` of its block; a method may override
`backbones` and `training`. Training settings are merged key by key: suite, block, dataset, method; the last one wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails

from ... import yamltext
from ...datasets import DATASETS, PARTITIONS, SPLITS
from ...methods import METHODS
from ...registry import SEED_BOUND, Registry, UserError, did_you_mean, seed_range
from ..engine.backbones import BACKBONES
from ..store.row_file import NAME, RESERVED
from .cell import Cell, Choice, Part, settled, train_config
from .tuned import Table, Tuned, read_tuned, tuned_file, without_settings

T = TypeVar("T")
B = TypeVar("B", bound=Part)

TASK_AXES = ("partitions", "clients", "splits", "backbones")
TUNING_SEED = 100  # the first tuning seed; suites score lower seeds
TUNED = "tuned"  # `params` of a method with tuned settings


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _as_entry(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _as_method(value: Any) -> Any:
    value = _as_entry(value)
    tuned = isinstance(value, dict) and value.get("params") == TUNED
    return {**value, "params": {}, "tuned": True} if tuned else value


def _as_backbones(value: Any) -> Any:
    if isinstance(value, str):
        value = value.split("+")
    return [_as_entry(entry) for entry in _as_list(value)]


def _as_seeds(value: Any) -> Any:
    return seed_range(0, value - 1) if isinstance(value, int) and not isinstance(value, bool) else value


def _first(*axes: list[T] | None) -> list[T]:
    return next(axis for axis in axes if axis is not None)


def _checked(check: Callable[[Any], object]) -> AfterValidator:
    """Report a UserError of `check` (a wrong name or parameter) with its line."""

    def checked(value: Any) -> Any:
        try:
            check(value)
        except UserError as error:
            raise ValueError(str(error)) from None
        return value

    return AfterValidator(checked)


def _known(registry: Registry[Any]) -> AfterValidator:
    return _checked(lambda entry: entry.build(registry))


Several = Annotated[list[T], BeforeValidator(_as_list), Field(min_length=1)]
Partition = Annotated[Choice, BeforeValidator(_as_entry), _known(PARTITIONS)]
Split = Annotated[Choice, BeforeValidator(_as_entry), _known(SPLITS)]
Backbones = Annotated[list[Annotated[Choice, _known(BACKBONES)]], BeforeValidator(_as_backbones), Field(min_length=1)]
Count = Annotated[int, Field(ge=1, lt=SEED_BOUND, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=SEED_BOUND, strict=True)]
Training = Annotated[dict[str, Any], _checked(train_config)]


class DatasetEntry(Choice):
    partitions: Several[Partition] | None = None
    clients: Several[Count] | None = None
    splits: Several[Split] | None = None
    backbones: Several[Backbones] | None = None
    training: Training = Field({})


class MethodEntry(Choice):
    backbones: Several[Backbones] | None = None
    training: Training = Field({})
    tuned: bool = False  # written as `params: tuned`


Dataset = Annotated[DatasetEntry, BeforeValidator(_as_entry), _known(DATASETS)]
Method = Annotated[MethodEntry, BeforeValidator(_as_method), _known(METHODS)]


class Block(Part):
    """Axes that are crossed."""

    datasets: Several[Dataset]
    partitions: Several[Partition]
    clients: Several[Count]
    splits: Several[Split]
    backbones: Several[Backbones]
    methods: Several[Method]
    seeds: Annotated[list[Seed], BeforeValidator(_as_seeds), Field(min_length=1)] = Field([0])
    training: Training = Field({})

    def cells(self, training: dict[str, Any], table: Table) -> Iterator[Cell]:
        """Every combination; cells with the same data are next to each other. Cells without their tuned settings in the
        table are left out.

        UserError for an unknown name or parameter, and for a seed that the method was tuned on.
        """
        for dataset in self.datasets:
            axes: dict[str, list[Any]] = {
                "dataset": [dataset.filled(DATASETS)],
                "partition": [p.filled(PARTITIONS) for p in _first(dataset.partitions, self.partitions)],
                "clients": _first(dataset.clients, self.clients),
                "split": [split.filled(SPLITS) for split in _first(dataset.splits, self.splits)],
            }
            for values in product(*axes.values()):
                task = dict(zip(axes, values, strict=True), seed=self.seeds[0])
                cells = [pair for m in self.methods for pair in self._of_method(m, dataset, task, training, table)]
                for seed, (cell, tuned) in product(self.seeds, cells):
                    seeded = cell.at(seed)
                    if tuned is not None:
                        tuned.unseen(seeded)
                    yield seeded

    def _of_method(
        self, method: MethodEntry, dataset: DatasetEntry, task: dict[str, Any], training: dict[str, Any], table: Table
    ) -> Iterator[tuple[Cell, Tuned | None]]:
        """The cells of a method on a task, one per backbone, and their tuned settings."""
        config = train_config({**training, **self.training, **dataset.training, **method.training})
        for backbones in _first(method.backbones, dataset.backbones, self.backbones):
            cell = settled(Cell(**task, method=method, backbones=tuple(backbones), training=config), filled=True)
            if not method.tuned:
                yield cell, None
            elif (tuned := table.get(method.name, {}).get(dataset.name)) is not None:
                yield tuned.scored(cell), tuned

    def at_own_settings(self) -> Block:
        """See `Suite.at_own_settings`."""
        return self.model_copy(update={"methods": [m.model_copy(update={"tuned": False}) for m in self.methods]})

    def base(self, tuned: bool) -> Block:
        """See `Suite.base`. tuned: only methods with `params: tuned`."""
        wanted = self.model_copy(update={"methods": [m for m in self.methods if m.tuned or not tuned]})
        block = _with_firsts(wanted.at_own_settings())
        entries = {axis: [*map(_with_firsts, getattr(block, axis))] for axis in ("methods", "datasets")}
        return block.model_copy(update=entries)


def _with_firsts(owner: B) -> B:
    axes = {name: values[:1] for name in TASK_AXES if (values := getattr(owner, name, None))}
    return owner.model_copy(update=axes)


Sampler = Literal["table", "random"]


class TuningPlan(Part):
    """How `fglbench tune` tunes a suite. rounds: of a full trial; None: those of the suite. trials: None: those of the
    protocol. sampler: see `benchmark.tune.design.Design`. datasets: tuning seeds of datasets that do not have
    `seeds`."""

    rounds: Count | None = None
    trials: Count | None = None
    sampler: Sampler = "table"
    seeds: Annotated[list[Seed], Field(min_length=1)] = Field([TUNING_SEED])
    datasets: dict[str, Annotated[list[Seed], Field(min_length=1)]] = Field({})


class Suite(Part):
    """A named set of cells. `cells()` lists them in running order, each once."""

    name: str
    description: str
    leaderboard: bool = False
    order: int | None = None
    title: str = ""
    tuned: str = ""
    tune: TuningPlan = Field(TuningPlan())
    training: Training = Field({})
    cross: Several[Block]

    @property
    def tuned_file(self) -> Path:
        """The file with the settings of its tuned methods."""
        return tuned_file(self.tuned or self.name)

    def cells(self) -> list[Cell]:
        """All cells except those of `untuned`. UserError as for `Block.cells`, and for an invalid file of settings."""
        table = read_tuned(self.tuned_file) if self._tuned() else {}
        listed = (cell for block in self.cross for cell in block.cells(self.training, table))
        return list({cell.key: cell for cell in listed}.values())

    def untuned(self) -> list[tuple[str, str]]:
        """The pairs (method, dataset) that must be tuned before they can run."""
        wanted = self._tuned()
        table = read_tuned(self.tuned_file) if wanted else {}
        return without_settings(wanted, table)

    def lists(self, method: str) -> bool:
        """Whether a method is named in the suite. If another method is requested, it runs on all tasks."""
        return any(entry.name == method for block in self.cross for entry in block.methods)

    @property
    def tuned_methods(self) -> set[str]:
        """The methods with `params: tuned`."""
        return {method for method, _ in self._tuned()}

    def at_defaults(self, cells: Iterable[Cell]) -> list[str]:
        """The methods of cells that run with defaults; empty if no method of the suite has tuned settings."""
        if not self.tuned_methods:
            return []
        methods = (cell.method.name for cell in cells if not cell.tuning and METHODS.cls(cell.method.name).trains)
        return list(dict.fromkeys(methods))

    def base(self) -> Suite:
        """The suite that is tuned: the first partition, number of clients, split and backbones of each dataset; the
        methods with `params: tuned`, or all if there are none, with the settings in the suite."""
        return self.model_copy(update={"cross": [block.base(bool(self.tuned_methods)) for block in self.cross]})

    def at_own_settings(self) -> Suite:
        """The suite with its settings instead of tuned ones; it has all cells, tuned or not."""
        return self.model_copy(update={"cross": [block.at_own_settings() for block in self.cross]})

    def _tuned(self) -> list[tuple[str, str]]:
        pairs = (product(block.methods, block.datasets) for block in self.cross)
        tuned = ((method, dataset) for block in pairs for method, dataset in block if method.tuned)
        return list(dict.fromkeys((method.name, dataset.name) for method, dataset in tuned))


FOLDER = Path(__file__).parent
CUSTOM = "custom"  # the suite of rows with changed settings
LARGEST, LONGEST = 2**18, 100  # limits: bytes of a file, characters of the name of a suite


def suite_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_suite(name: str) -> Suite:
    """The suite of the package with this name, or of the YAML file with this path.

    Raises UserError with file and line for a wrong key, name, parameter or value.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    try:
        if path.stat().st_size > LARGEST:
            raise UserError(f"{name!r} is larger than {LARGEST >> 10} KiB, which no suite is")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if path.parent == FOLDER:
            raise did_you_mean(name, suite_names(), "suite") from None
        raise UserError(f"no suite file {name!r}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read suite file {name!r:.200}: {reason}") from None
    if path.resolve().parent != FOLDER.resolve():
        stem = path.stem.casefold()  # the name of the suite and of the folder of its rows
        if stem in suite_names():
            raise UserError(f"{path}: the benchmark has a suite {path.stem!r}; rename the file")
        if stem in {*RESERVED, CUSTOM} or not re.fullmatch(NAME, path.stem) or len(stem) > LONGEST:
            where = f"rows cannot be filed under {path.stem!r:.80}"
            raise UserError(f"{path}: {where}; rename the file, as in my-suite.yaml")
        suite = parse_suite(text, path)  # its tuned settings are next to the file, not in the package
        return suite if suite.tuned else suite.model_copy(update={"tuned": str(path.with_suffix(".tuned.yaml"))})
    return parse_suite(text, path)


@cache
def parse_suite(text: str, path: Path) -> Suite:
    """A suite from YAML text. path: for its name and for messages."""
    tree, values = yamltext.parse(text, str(path))
    if not isinstance(values, dict):
        raise UserError(f"{path}: a suite is a mapping with `description` and `cross`")
    if "name" in values:
        raise UserError(f"{path}: a suite is named after its file; remove `name`")
    try:
        return Suite.model_validate({**values, "name": path.stem})
    except ValidationError as error:
        raise _located(error, tree, path) from None


def _located(error: ValidationError, tree: yaml.Node | None, path: Path) -> UserError:
    """The first problem of a suite file with its line and keys; for a wrong key also the most similar valid key."""
    problem = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")  # its correct form is missing too
    line, keys = 1, [""]
    model: type[BaseModel] = Suite
    for part in problem["loc"]:
        if isinstance(part, str):
            model = _MODELS.get(keys[-1], model)
            keys.append(part)
        mark, tree = yamltext.child(tree, part)
        line = mark.start_mark.line + 1 if mark else line
    if problem["type"] == "extra_forbidden":
        known = model.model_fields.keys() - ({"name"} if model is Suite else set())  # a suite is named after its file
        return UserError(f"{path}:{line}: {did_you_mean(keys[-1], known, 'key')}")
    return UserError(f"{path}:{line}: {'.'.join(keys[1:])}: {worded(problem)}")


def worded(problem: ErrorDetails) -> str:
    """The message of a problem that pydantic found."""
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] in ("missing", "value_error"):
        return message
    return f"{message[:1].lower()}{message[1:]}, got {problem['input']!r}"


_MODELS: dict[str, type[BaseModel]] = {  # key -> model of its value
    "cross": Block, "datasets": DatasetEntry, "methods": MethodEntry, "partitions": Choice, "splits": Choice,
    "backbones": Choice,
}  # fmt: skip
