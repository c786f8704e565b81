"""What is tuned of a cell: the ranges that stand on the fields of its method, its training and its backbone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...methods import METHODS
from ...registry import Spec, UserError, searched
from ..engine.backbones import Backbone
from ..engine.config import TrainConfig
from ..store.provenance import canonical
from ..suites.cell import Cell
from ..suites.tuned import Values

OWN = 2  # parameters of its own that a method may have tuned: nobody wins by a larger space


class Dimension(NamedTuple):
    """name: as `--set` has it, training.optimiser. default: what the cell has. choices: all, the default among them;
    each is canonical JSON of the fields that it sets."""

    name: str
    default: str
    choices: tuple[str, ...]


def space(cell: Cell) -> list[Dimension]:
    """The dimensions of a cell, those that all methods share first.

    A dimension without effect on the cell is left out: a rate where the method brings its own. UserError for a choice
    out of its field's bounds, for more than `OWN` of the method's own, and for a cell with nothing to tune.
    """
    backbone, method = cell.backbones[0].params, METHODS.cls(cell.method.name)
    found = [
        *_dimensions(cell, "training", TrainConfig, dict(cell.training)),
        *_dimensions(cell, "backbone", Backbone, backbone),
        *(own := _dimensions(cell, "method", method, cell.method.params)),
    ]
    if len(own) > OWN:
        raise UserError(f"{cell.method.name} tunes {len(own)} parameters of its own; at most {OWN} are allowed")
    if not found:
        raise UserError(f"{cell.method.name} has nothing to tune: no field has a range that changes {cell}")
    return found


def _dimensions(cell: Cell, section: str, spec: type[Spec], given: Mapping[str, Any]) -> list[Dimension]:
    found = []
    for field, settings in searched(spec).items():
        default = canonical({name: given[name] for name in settings[0]})
        choices = tuple(dict.fromkeys([*map(canonical, settings), default]))
        name = f"{section}.{field}"
        if len({applied(cell, {name: choice}).key for choice in choices}) > 1:
            found.append(Dimension(name, default, choices))
    return found


def values(params: Mapping[str, str]) -> Values:
    """One choice of each dimension, by name, as values of a cell."""
    found: dict[str, dict[str, Any]] = {}
    for name, choice in params.items():
        found.setdefault(name.partition(".")[0], {}).update(json.loads(choice))
    return Values(**found)


def applied(cell: Cell, params: Mapping[str, str]) -> Cell:
    """The cell with these choices. UserError for one that its field does not admit."""
    return values(params).applied(cell)
