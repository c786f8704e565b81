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

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ...datasets import DATASETS, PARTITIONS, SPLITS
from ...methods import METHODS
from ...registry import Registry, UserError, first_error
from ..engine.backbones import BACKBONES
from ..engine.config import TrainConfig
from .cell import Cell, Choice

T = TypeVar("T")


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _as_entry(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _as_backbones(value: Any) -> Any:
    if isinstance(value, str):
        value = value.split("+")
    return [_as_entry(entry) for entry in _as_list(value)]


def _as_seeds(value: Any) -> Any:
    return list(range(value)) if isinstance(value, int) else value


def _first(*axes: list[T] | None) -> list[T]:
    """The first axis that is given; an empty one is given."""
    return next(axis for axis in axes if axis is not None)


class Named(Protocol):
    """Anything with a name and parameters: an `Entry` of a suite, a `Choice` of a cell."""

    @property
    def name(self) -> str: ...
    @property
    def params(self) -> dict[str, Any]: ...


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Entry(_Part):
    """A name and the parameters that differ from their defaults."""

    name: str
    params: dict[str, Any] = {}


def _known(registry: Registry[Any]) -> AfterValidator:
    """Check an entry against a registry, so that a wrong name or parameter is reported with its line."""

    def check(entry: Any) -> Any:
        try:
            registry.build(entry.name, entry.params)
        except UserError as error:
            raise ValueError(str(error)) from None
        return entry

    return AfterValidator(check)


def _known_training(values: dict[str, Any]) -> dict[str, Any]:
    try:
        train_config(values)
    except UserError as error:
        raise ValueError(str(error)) from None
    return values


Several = Annotated[list[T], BeforeValidator(_as_list), Field(min_length=1)]
Partition = Annotated[Entry, BeforeValidator(_as_entry), _known(PARTITIONS)]
Split = Annotated[Entry, BeforeValidator(_as_entry), _known(SPLITS)]
Backbones = Annotated[list[Annotated[Entry, _known(BACKBONES)]], BeforeValidator(_as_backbones), Field(min_length=1)]
Count = Annotated[int, Field(ge=1, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**31, strict=True)]
Training = Annotated[dict[str, Any], AfterValidator(_known_training)]


class DatasetEntry(Entry):
    partitions: Several[Partition] | None = None
    clients: Several[Count] | None = None
    splits: Several[Split] | None = None
    backbones: Several[Backbones] | None = None
    training: Training = {}


class MethodEntry(Entry):
    backbones: Several[Backbones] | None = None
    training: Training = {}


Dataset = Annotated[DatasetEntry, BeforeValidator(_as_entry), _known(DATASETS)]
Method = Annotated[MethodEntry, BeforeValidator(_as_entry), _known(METHODS)]


class Block(_Part):
    """Axes that are crossed."""

    datasets: Several[Dataset]
    partitions: Several[Partition]
    clients: Several[Count]
    splits: Several[Split]
    backbones: Several[Backbones]
    methods: Several[Method]
    seeds: Annotated[list[Seed], BeforeValidator(_as_seeds), Field(min_length=1)] = [0]
    training: Training = {}

    def cells(self, training: dict[str, Any]) -> Iterator[Cell]:
        """Every combination, neighbours sharing their data. UserError for an unknown name or parameter."""
        for dataset in self.datasets:
            axes = product(
                _first(dataset.partitions, self.partitions),
                _first(dataset.clients, self.clients),
                _first(dataset.splits, self.splits),
                self.seeds,
                self.methods,
            )
            for partition, clients, split, seed, method in axes:
                for backbones in _first(method.backbones, dataset.backbones, self.backbones):
                    yield make_cell(
                        dataset, partition, clients, split, backbones, method, seed,
                        train_config({**training, **self.training, **dataset.training, **method.training}),
                    )  # fmt: skip


def make_cell(
    dataset: Named,
    partition: Named,
    clients: int,
    split: Named,
    backbones: Sequence[Named],
    method: Named,
    seed: int,
    training: TrainConfig,
) -> Cell:
    """A cell from names and parameters, checked, defaults filled in; training and backbones as the method has them."""
    chosen = METHODS.build(method.name, method.params)
    given = [BACKBONES.build(entry.name, entry.params) for entry in backbones]
    # An encoder of the method's own is not in the registry: it takes width and depth from the cell's backbone.
    architecture = [own if own.name else cell for own, cell in zip(chosen.architecture(given), given, strict=True)]
    return Cell(
        dataset=Choice.of(DATASETS, dataset.name, dataset.params),
        partition=Choice.of(PARTITIONS, partition.name, partition.params),
        clients=clients,
        split=Choice.of(SPLITS, split.name, split.params),
        backbones=tuple(Choice(name=backbone.name, params=backbone.params()) for backbone in architecture),
        method=Choice(name=method.name, params=chosen.params()),
        training=chosen.protocol(training),
        seed=seed,
    )


class Suite(_Part):
    """A named set of cells. `cells()` gives them in running order, each once."""

    name: str
    description: str
    leaderboard: bool = False
    order: int | None = None
    title: str = ""
    training: Training = {}
    cross: Several[Block]

    def cells(self) -> list[Cell]:
        found = (cell for block in self.cross for cell in block.cells(self.training))
        return list({cell.key: cell for cell in found}.values())


def train_config(values: dict[str, Any]) -> TrainConfig:
    try:
        return TrainConfig(**values)
    except (ValidationError, TypeError) as error:
        if isinstance(error, ValidationError):
            raise first_error(error, TrainConfig, "training") from None
        raise UserError(f"training: settings have names, got {list(values)!r}") from None
