"""Suites: named sets of cells, checked to the last name and parameter before anything runs.

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

A dataset may override `partitions`, `clients`, `splits`, `backbones` and `training` of its block; a method may override
`backbones` and `training`. Training settings are merged key by key: suite, block, dataset, method; the last one wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from ...datasets import DATASETS, PARTITIONS, SPLITS
from ...methods import METHODS
from ...registry import Registry, UserError, first_error
from ..engine.backbones import BACKBONES
from ..engine.config import TrainConfig
from .cell import Cell, Choice, Part

T = TypeVar("T")

MOST_SEEDS = 10_000
SEED_BOUND = 2**31

def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _as_entry(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _as_backbones(value: Any) -> Any:
    if isinstance(value, str):
        value = value.split("+")
    return [_as_entry(entry) for entry in _as_list(value)]


def seed_range(first: int, last: int) -> list[int]:
    """The seeds from first to last. ValueError for more than anybody can run."""
    if last - first >= MOST_SEEDS:
        raise ValueError(f"more than {MOST_SEEDS} seeds")
    return list(range(first, last + 1))


def _as_seeds(value: Any) -> Any:
    return seed_range(0, value - 1) if isinstance(value, int) else value


def _first(*axes: list[T] | None) -> list[T]:
    """The first axis that is given; an empty one is given."""
    return next(axis for axis in axes if axis is not None)


def _checked(check: Callable[[Any], object]) -> AfterValidator:
    """So that what `check` raises, a wrong name or parameter, is reported with its line."""

    def checked(value: Any) -> Any:
        try:
            check(value)
        except UserError as error:
            raise ValueError(str(error)) from None
        return value

    return AfterValidator(checked)


def _known(registry: Registry[Any]) -> AfterValidator:
    return _checked(lambda entry: entry.build(registry))


def train_config(values: dict[str, Any]) -> TrainConfig:
    try:
        return TrainConfig(**values)
    except ValidationError as error:
        raise first_error(error, TrainConfig, "training") from None


Several = Annotated[list[T], BeforeValidator(_as_list), Field(min_length=1)]
Partition = Annotated[Choice, BeforeValidator(_as_entry), _known(PARTITIONS)]
Split = Annotated[Choice, BeforeValidator(_as_entry), _known(SPLITS)]
Backbones = Annotated[list[Annotated[Choice, _known(BACKBONES)]], BeforeValidator(_as_backbones), Field(min_length=1)]
Count = Annotated[int, Field(ge=1, strict=True)]
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


Dataset = Annotated[DatasetEntry, BeforeValidator(_as_entry), _known(DATASETS)]
Method = Annotated[MethodEntry, BeforeValidator(_as_entry), _known(METHODS)]


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

    def cells(self, training: dict[str, Any]) -> Iterator[Cell]:
        """Every combination, neighbours sharing their data. UserError for an unknown name or parameter."""
        for dataset in self.datasets:
            axes: dict[str, list[Any]] = {
                "partition": _first(dataset.partitions, self.partitions),
                "clients": _first(dataset.clients, self.clients),
                "split": _first(dataset.splits, self.splits),
                "seed": self.seeds,
                "method": self.methods,
            }
            for values in product(*axes.values()):
                own = dict(zip(axes, values, strict=True), dataset=dataset)
                method = own["method"]
                merged = {**training, **self.training, **dataset.training, **method.training}
                for backbones in _first(method.backbones, dataset.backbones, self.backbones):
                    yield settled(Cell(**own, backbones=tuple(backbones), training=train_config(merged)))


def settled(cell: Cell) -> Cell:
    """A cell checked, with its defaults filled in, and training and backbones as its method has them.

    UserError for an unknown name or a wrong parameter.
    """
    method = cell.method.build(METHODS)
    given = [entry.build(BACKBONES) for entry in cell.backbones]
    # An encoder of the method's own is not in the registry: it takes width and depth from the cell's backbone.
    architecture = [own if own.name else other for own, other in zip(method.architecture(given), given, strict=True)]
    return Cell(
        dataset=cell.dataset.filled(DATASETS),
        partition=cell.partition.filled(PARTITIONS),
        clients=cell.clients,
        split=cell.split.filled(SPLITS),
        backbones=tuple(Choice(name=backbone.name, params=backbone.params()) for backbone in architecture),
        method=Choice(name=cell.method.name, params=method.params()),
        training=method.protocol(cell.training),
        seed=cell.seed,
    )


class Suite(Part):
    """A named set of cells. `cells()` gives them in running order, each once."""

    name: str
    description: str
    leaderboard: bool = False
    order: int | None = None
    title: str = ""
    training: Training = Field({})
    cross: Several[Block]

    def cells(self) -> list[Cell]:
        found = (cell for block in self.cross for cell in block.cells(self.training))
        return list({cell.key: cell for cell in found}.values())
