"""A cell: one experiment with all its parameters. Also the registered clients of the cells of committed rows."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ...datasets import DATASETS, PARTITIONS, SPLITS
from ...datasets.federation import Goal
from ...files import write_atomically
from ...methods import METHODS
from ...registry import Registry, UserError, first_error, identity, one_line
from ..engine import BACKBONES, TrainConfig
from ..engine.method import answer, effective_training
from ..store.provenance import canonical, method_version, origin, outside_source
from ..store.schema import EXPERIMENT, RULES, Row, mapping
from .plugins import REGISTRIES

SINGLE = tuple(kind for kind in REGISTRIES if kind != "backbone")  # a cell has one of each, but several backbones
NAMING = (*EXPERIMENT, "tuning")  # columns of a cell without its seed
FEDERATION = ("dataset", "partition", "clients", "split", "seed")  # parts of a cell on which its federation depends


class Part(BaseModel):
    """The base of cells, suites and their parts: frozen, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Choice(Part):
    """A registered name and its parameters: in a suite those that differ from their defaults, in a cell all of them."""

    name: str
    params: dict[str, Any] = {}

    def build(self, registry: Registry[Any]) -> Any:
        """Make the registered object. UserError for an unknown name or a wrong parameter."""
        return registry.build(self.name, self.params)

    def filled(self, registry: Registry[Any]) -> Choice:
        """The choice with all defaults filled in. UserError as for `build`."""
        params = self.build(registry).params()
        # compared as texts, because 1 == 1.0 but their keys differ
        filled, present = (repr(sorted(values.items())) for values in (params, self.params))
        return self if type(self) is Choice and filled == present else Choice(name=self.name, params=params)

    def part(self, kind: str) -> dict[str, Any]:
        """The choice in the form of rows and keys: without later parameters at their defaults."""
        params = self.params
        with suppress(UserError):  # an unknown name
            params = identity(REGISTRIES[kind].cls(self.name), params)
        return {"name": self.name, "params": params}


class Cell(Part):
    """Everything on which the results of a run depend, except the code. Cells with equal keys are equal.

    backbones: one for all clients, or several: client k has entry k mod length. seed: of the partition, the split, the
    initialisation and all random draws, so cells that differ only in the method are paired. tuning: the study that
    chose the settings, as in the column of rows; it is no part of the key.
    """

    dataset: Choice
    partition: Choice
    clients: int
    split: Choice
    backbones: tuple[Choice, ...]
    method: Choice
    training: TrainConfig
    seed: int
    tuning: str = ""

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Name -> value of the parts on which the key depends, in the form of rows."""
        return {
            **{kind: getattr(self, kind).part(kind) for kind in SINGLE},
            "training": identity(TrainConfig, self.training.model_dump(mode="json")),
            "backbones": [choice.part("backbone") for choice in self.backbones],
            "clients": self.clients,
            "seed": self.seed,
        }

    def choices(self) -> list[tuple[str, Choice]]:
        """All choices as (kind, choice)."""
        return [*((kind, getattr(self, kind)) for kind in SINGLE), *(("backbone", choice) for choice in self.backbones)]

    @cached_property
    def key(self) -> str:
        """First 16 hex digits of the sha256 of the canonical JSON of the cell's identity."""
        return hashlib.sha256(canonical(self.identity).encode()).hexdigest()[:16]

    @cached_property
    def federation_key(self) -> str:
        """Canonical JSON of `FEDERATION`; cells with equal keys have equal federations."""
        return canonical({name: self.identity[name] for name in FEDERATION})

    @cached_property
    def seedless(self) -> str:
        """Canonical JSON of the identity without the seed."""
        return canonical({name: value for name, value in self.identity.items() if name != "seed"})

    def at(self, seed: int) -> Cell:
        """The cell with another seed."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_construct(**fields | {"seed": seed})

    @classmethod
    def of(cls, row: Row, choices: dict[tuple[str, str], Choice] | None = None) -> Cell:
        """The cell of a row. Names are not looked up, and defaults are not filled in.

        choices: a cache of choices by name and parameters. Raises ValueError if the columns are no cell (no JSON,
        unknown training parameters, ...).
        """
        known = {} if choices is None else choices
        try:
            for name, params in ((getattr(row, kind), getattr(row, f"{kind}_params")) for kind in SINGLE):
                if (name, params) not in known:
                    known[name, params] = Choice(name=name, params=json.loads(params))
            names, params = row.backbone.split("+"), json.loads(row.backbone_params)
            each = params if len(names) > 1 else [params]
            return cls(
                **{kind: known[getattr(row, kind), getattr(row, f"{kind}_params")] for kind in SINGLE},
                backbones=tuple(Choice(name=name, params=values) for name, values in zip(names, each, strict=True)),
                clients=row.clients,
                training=TrainConfig(**json.loads(row.training)),
                seed=row.seed,
                tuning=row.tuning,
            )
        except (TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None

    @property
    def task(self) -> Goal:
        """The task of the cell. UserError for an unknown name."""
        return SPLITS.cls(self.split.name).task(DATASETS.cls(self.dataset.name))

    @property
    def training_json(self) -> str:
        """The training configuration in the form of rows."""
        return canonical(self.identity["training"])

    @property
    def backbone(self) -> str:
        return "+".join(choice.name for choice in self.backbones)

    @property
    def names(self) -> dict[str, str]:
        """Kind -> name; "clients" is their number, as "x10"."""
        task = {"dataset": self.dataset.name, "partition": self.partition.name, "clients": f"x{self.clients}"}
        return {**task, "backbone": self.backbone, "method": self.method.name}

    @property
    def ends(self) -> dict[str, int | None]:
        """Rounds, patience and local epochs of the training."""
        return {name: getattr(self.training, name) for name in ("rounds", "patience", "local_epochs")}

    @property
    def outside(self) -> dict[str, str]:
        """Hash of the source, by "dataset NAME", ..., of the parts except the method that a plug-in registers."""
        sources = dict[str, str]()
        for kind, choice in self.choices():
            with suppress(UserError):  # an unknown name
                if kind != "method" and (source := outside_source(REGISTRIES[kind].cls(choice.name))):
                    sources[f"{kind} {choice.name}"] = source
        return sources

    def __str__(self) -> str:
        return f"{' '.join(self.names.values())} seed {self.seed}"

    def row(self, suite: str, **values: Any) -> Row:
        """A result row of the cell. values: the other columns: status, started, environment, ...

        `error` and `notes` are shortened to one printable line.
        """
        texts = {name: one_line(values[name])[: RULES[name].longest] for name in ("error", "notes") if name in values}
        identity, method = self.identity, METHODS.cls(self.method.name)
        several = [choice["params"] for choice in identity["backbones"]]
        params = {"backbone": several[0] if len(several) == 1 else several}
        params |= {kind: identity[kind]["params"] for kind in SINGLE}
        return Row(
            key=self.key,
            suite=suite,
            task=self.task,
            **{kind: getattr(self, kind).name for kind in SINGLE},
            **{f"{kind}_params": canonical(value) for kind, value in params.items()},
            clients=self.clients,
            backbone=self.backbone,
            method_version=method_version(method),
            training=self.training_json,
            seed=self.seed,
            tuning=self.tuning,
            reference=method.reference,
            origin=self._origin(method),
            **values | texts,
        )

    def _origin(self, method: type) -> str:
        """The column `origin`: that of the method, and `outside`."""
        about, parts = origin(method), self.outside
        return canonical({**mapping(about), "parts": parts}) if parts else about


def train_config(values: dict[str, Any]) -> TrainConfig:
    try:
        return TrainConfig(**values)
    except ValidationError as error:
        raise first_error(error, TrainConfig, "training") from None


def settled(cell: Cell, *, filled: bool = False) -> Cell:
    """Check a cell, fill in its defaults, and change training and backbones as its method requires.

    filled: dataset, partition and split have their defaults. UserError for an unknown name or a wrong parameter.
    """
    method = cell.method.build(METHODS)
    given = [entry.build(BACKBONES) for entry in cell.backbones]
    # A method's model may be unregistered: then the row has the architecture that it extends, or that of the cell.
    answered = answer(method, "architecture", given)
    if not isinstance(answered, list | tuple) or len(answered) != len(given):
        raise UserError(
            f"{cell.method.name}: `architecture` returns {answered!r:.60}, not as many backbones as it is given"
        )
    architecture = [mine.registered() or other for mine, other in zip(answered, given, strict=True)]
    return Cell(
        dataset=cell.dataset if filled else cell.dataset.filled(DATASETS),
        partition=cell.partition if filled else cell.partition.filled(PARTITIONS),
        clients=cell.clients,
        split=cell.split if filled else cell.split.filled(SPLITS),
        backbones=tuple(Choice(name=backbone.name, params=backbone.params()) for backbone in architecture),
        method=Choice(name=cell.method.name, params=method.params()),
        training=effective_training(method, cell.training),
        seed=cell.seed,
        tuning=cell.tuning,
    )


CLIENTS = Path(__file__).parent / "federations.csv"
DIGITS = 16  # hex digits of both hashes


@cache
def _registered() -> dict[str, str]:
    with CLIENTS.open(newline="", encoding="utf-8") as stream:
        return {row["federation"]: row["partition_hash"] for row in csv.DictReader(stream)}


def registered_hash(cell: Cell) -> str | None:
    """The first DIGITS of the partition hash of a cell's federation; None if it is not registered."""
    return _registered().get(_federation(cell))


def _federation(cell: Cell) -> str:
    return hashlib.sha256(cell.federation_key.encode()).hexdigest()[:DIGITS]


def check_clients(cell: Cell, partition_hash: str) -> None:
    """Raise UserError if the clients of a registered federation differ here."""
    wanted = registered_hash(cell)
    if wanted is not None and not partition_hash.startswith(wanted):
        raise UserError(
            f"{_data_name(cell)} gives other clients here (partition hash {partition_hash[:DIGITS]}) than the rows of "
            f"the boards have ({wanted}): use the versions of NumPy and scikit-network in results/environments"
        )


def _data_name(cell: Cell) -> str:
    return f"{cell.dataset.name} {cell.partition.name} x{cell.clients} {cell.split.name} seed {cell.seed}"


def register_clients(rows: Iterable[Row]) -> list[str]:
    """Add the clients of rows that federations.csv lacks. Return a line for each new entry.

    Entries are never changed. Raises OSError if the package cannot be written.
    """
    clients, new = dict(_registered()), list[str]()
    lines = CLIENTS.read_text(encoding="utf-8").splitlines()
    for row in rows:
        cell = Cell.of(row)
        if row.partition_hash and _federation(cell) not in clients:
            clients[_federation(cell)] = row.partition_hash[:DIGITS]
            lines.append(f"{_federation(cell)},{row.partition_hash[:DIGITS]},{_data_name(cell)}")
            new.append(f"clients of {_data_name(cell)}")
    if new:
        write_atomically(CLIENTS, ("\n".join(lines) + "\n").encode())
        _registered.cache_clear()
    return new
