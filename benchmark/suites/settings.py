"""`--set key=value`: change a parameter in every cell that has it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ... import yamltext
from ...registry import UserError, did_you_mean
from ..engine.config import FORMER, TrainConfig
from .cell import SINGLE, Cell, Choice, settled, train_config
from .plugins import REGISTRIES


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
