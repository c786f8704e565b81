"""From what a user asks for (suites, names, settings) to the list of cells, each with the suite it is filed under.

Names choose among what a suite has; a method or dataset that it lacks is added to it, under the suite's protocol, so
that a new method runs on the leaderboard's cells without an edit of the suite. Anything that departs from the protocol
(`settings`, or a partition, client count, split or backbone that the suite lacks) is filed under `custom`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from ...registry import UserError
from .cell import Cell, Choice
from .settings import apply_settings, parse_setting
from .suite import Backbones, Block, Count, Dataset, Method, Partition, Split, Suite
from .suitefile import leaderboard_suites, load_suite

B = TypeVar("B", bound=BaseModel)
CUSTOM = "custom"
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
    """What to run. Empty tuples mean "as the suite says". settings: "key=value" strings."""

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


def select(request: Request) -> list[tuple[str, Cell]]:
    """(suite, cell) for everything asked for, each once. UserError for anything unknown, or when nothing is left."""
    settings = [parse_setting(text) for text in request.settings]
    found: list[tuple[str, Cell]] = []
    for suite in _suites(request):
        narrowed, departs = _narrow(suite, request)
        cells = apply_settings(narrowed.cells(), settings) if settings else narrowed.cells()
        found += [(CUSTOM if departs or settings else suite.name, cell) for cell in cells]
    if not found:
        raise UserError("nothing matches: the chosen suites have no cell with this combination of methods and datasets")
    return list({(name, cell.key): (name, cell) for name, cell in found}.values())


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
    return [load_suite(name) for name in request.suites or ("leaderboard",)]


def _narrow(suite: Suite, request: Request) -> tuple[Suite, bool]:
    """The suite with the wanted values on each axis, and whether it departs from the suite's protocol."""
    departs = False
    blocks = list(suite.cross)
    for axis in AXES:
        wanted, present = _values(axis, getattr(request, axis)), _labels(blocks, axis)
        new = [value for label, value in wanted.items() if label not in present]
        departs |= bool(new) and axis in PROTOCOL
        if wanted:
            blocks = [_with_axis(block, axis, wanted, new) for block in blocks]
            blocks = [block for block in blocks if block.methods and block.datasets]
    if request.seeds:
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
    """What tells two values of an axis apart on the command line: the name, whatever its parameters."""
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
