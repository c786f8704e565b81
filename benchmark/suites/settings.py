"""`--set key=value`: change a parameter in every cell that has it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from ...registry import UserError, did_you_mean
from ..engine.config import FORMER, TrainConfig
from .cell import Cell, Choice
from .plugins import REGISTRIES
from .suite import make_cell, train_config


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
        return Setting(section or None, name, yaml.safe_load(value))
    except yaml.YAMLError:
        raise UserError(f"--set {text}: {value!r} is not a value") from None


def apply_settings(cells: Sequence[Cell], settings: Sequence[Setting]) -> list[Cell]:
    """The cells with the settings applied to every part that has such a parameter; UserError when none has."""
    located = [_locate(setting, cells) for setting in settings]
    return [_changed(cell, located) for cell in cells]


def _locate(setting: Setting, cells: Sequence[Cell]) -> Setting:
    """The setting with its section filled in."""
    fields: dict[str, set[str]] = {"training": set(TrainConfig.model_fields)}
    for section in REGISTRIES:
        fields[section] = {name for cell in cells for choice in _choices(cell, section) for name in choice.params}
    sections = [setting.section] if setting.section else [s for s, names in fields.items() if setting.name in names]
    if len(sections) > 1:
        options = " or ".join(f"{section}.{setting.name}" for section in sections)
        raise UserError(f"--set {setting.name}: ambiguous; say {options}")
    known = fields[setting.section] if setting.section else set().union(*fields.values())
    if setting.name not in known:
        raise did_you_mean(setting.name, known, f"{setting.section or ''} parameter of --set".strip())
    return Setting(sections[0], setting.name, setting.value)


def _choices(cell: Cell, section: str) -> tuple[Choice, ...]:
    return cell.backbones if section == "backbone" else (getattr(cell, section),)


def _changed(cell: Cell, settings: Sequence[Setting]) -> Cell:
    def choice(section: str, old: Choice) -> Choice:
        new = {s.name: s.value for s in settings if s.section == section and s.name in old.params}
        return Choice(name=old.name, params={**old.params, **new})

    training = {s.name: s.value for s in settings if s.section == "training"}
    wanted = train_config({**dict(cell.training), **training})
    made = make_cell(
        choice("dataset", cell.dataset),
        choice("partition", cell.partition),
        cell.clients,
        choice("split", cell.split),
        [choice("backbone", backbone) for backbone in cell.backbones],
        choice("method", cell.method),
        cell.seed,
        wanted,
    )
    for name in training:
        if getattr(made.training, name) != getattr(wanted, name):
            warnings.warn(
                f"--set training.{name} has no effect on {cell.method.name}, which sets its own", stacklevel=2
            )
    return made
