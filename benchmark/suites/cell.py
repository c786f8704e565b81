"""A cell: one experiment, down to the last parameter."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict

from ...datasets import DATASETS
from ...methods import METHODS
from ...registry import Registry, UserError
from ..engine.config import TrainConfig
from ..plugins import REGISTRIES
from ..store.provenance import canonical
from ..store.schema import Row
from ..store.versions import source_version
from .identity import TRAINING, identity

PARTS = tuple(REGISTRIES)  # a row has a name and parameters for each
FEDERATION = ("dataset", "partition", "clients", "split", "seed")  # what decides a federation


class Choice(BaseModel):
    """A registered name with all of its parameters, defaults filled in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    params: dict[str, Any] = {}

    @classmethod
    def of(cls, registry: Registry[Any], name: str, params: dict[str, Any]) -> Choice:
        """Checked against the registry; UserError for an unknown name or a wrong parameter."""
        return cls(name=name, params=registry.build(name, params).params())

    def build(self, registry: Registry[Any]) -> Any:
        return registry.build(self.name, self.params)


def _identity(kind: str, choice: Choice) -> dict[str, Any]:
    try:
        cls = REGISTRIES[kind].cls(choice.name)
    except UserError:
        cls = None
    return identity(cls, kind, choice.name, choice.params)


class Cell(BaseModel):
    """Everything that decides a run's numbers, except the code. Two cells are the same when their keys are.

    backbones: one for all clients, or several: client k then has entry k mod length. seed: drives the partition, the
    split, the initialisation and every draw in training, so cells that differ in the method only are paired.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: Choice
    partition: Choice
    clients: int
    split: Choice
    backbones: tuple[Choice, ...]
    method: Choice
    training: TrainConfig
    seed: int

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The cell as rows and keys have it: without parameters that were added later and are at their defaults."""
        found = self.model_dump(mode="json")
        for kind in REGISTRIES.keys() - {"backbone"}:
            found[kind]["params"] = _identity(kind, getattr(self, kind))
        for own, choice in zip(found["backbones"], self.backbones, strict=True):
            own["params"] = _identity("backbone", choice)
        found[TRAINING] = identity(TrainConfig, TRAINING, "", found[TRAINING])
        return found

    @cached_property
    def key(self) -> str:
        """First 16 hex digits of the sha256 of the canonical JSON of the cell's identity."""
        return hashlib.sha256(canonical(self.identity).encode()).hexdigest()[:16]

    @cached_property
    def federation_key(self) -> str:
        """What the data of two cells have in common: equal keys, equal federations."""
        return canonical({name: self.identity[name] for name in FEDERATION})

    @cached_property
    def seedless(self) -> str:
        """Everything of the cell's identity but its seed."""
        return canonical({name: value for name, value in self.identity.items() if name != "seed"})

    @classmethod
    def of(cls, row: Row) -> Cell:
        """The cell that a row's columns name, as they stand there: no name is looked up and nothing is filled in.

        Raises ValueError when they name none (not JSON, parameters of training that do not exist, ...).
        """
        try:
            values = {name: json.loads(getattr(row, f"{name}_params")) for name in PARTS}
            training = TrainConfig(**json.loads(row.training))
            names = row.backbone.split("+")
            each = values["backbone"] if len(names) > 1 else [values["backbone"]]
            return cls(
                **{name: Choice(name=getattr(row, name), params=values[name]) for name in PARTS if name != "backbone"},
                backbones=tuple(Choice(name=name, params=own) for name, own in zip(names, each, strict=True)),
                clients=row.clients,
                training=training,
                seed=row.seed,
            )
        except (TypeError, RecursionError) as error:
            raise ValueError(str(error)) from None

    @property
    def backbone(self) -> str:
        return "+".join(choice.name for choice in self.backbones)

    def __str__(self) -> str:
        data = f"{self.dataset.name} {self.partition.name} x{self.clients}"
        return f"{data} {self.backbone} {self.method.name} seed {self.seed}"

    def row(self, suite: str, **values: Any) -> Row:
        """A result row with the columns that name the cell filled in. `values`: status, started, environment, ..."""
        own = self.identity
        several = [choice["params"] for choice in own["backbones"]]
        return Row(
            key=self.key,
            suite=suite,
            task=DATASETS.cls(self.dataset.name).task,
            dataset=self.dataset.name,
            dataset_params=canonical(own["dataset"]["params"]),
            partition=self.partition.name,
            partition_params=canonical(own["partition"]["params"]),
            clients=self.clients,
            split=self.split.name,
            split_params=canonical(own["split"]["params"]),
            backbone=self.backbone,
            backbone_params=canonical(several[0] if len(several) == 1 else several),
            method=self.method.name,
            method_version=source_version(METHODS.cls(self.method.name)),
            method_params=canonical(own["method"]["params"]),
            training=canonical(own[TRAINING]),
            seed=self.seed,
            **values,
        )
