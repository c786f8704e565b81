"""Runs whose curves are the same for a reason that is known, so that none of them need be a copy of another.

Which methods these are is said here and nowhere else. A pull request with rows changes no code and is judged by that of
its base, so that no row brings an excuse of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..suites.cell import Cell
from ..suites.identity import TRAINING

FEW, HARDLY = 33, 0.005  # rounds, of the first rungs of a search; share of a step


def _alone(cell: Cell) -> bool:
    return round(cell.training.participation * cell.clients) <= 1


def _slight(cell: Cell) -> bool:
    """Whether FedProx's pull, mu times the way since the download, is far below the gradients that made that way."""
    given, mu = cell.training, cell.method.params.get("mu")
    plain = given.optimiser == "sgd" and not given.momentum and given.rounds <= FEW
    return plain and isinstance(mu, int | float) and mu * given.lr * given.local_epochs <= HARDLY


class Becomes(NamedTuple):
    """A method that is another one, to the bit. when: in which cells, also those in which it may be."""

    method: str
    other: str
    why: str
    when: Callable[[Cell], bool]
    single: bool = False  # only of rows that tell of one step a client and round


BECOMES = [  # of several for one method the first that applies is said
    Becomes("gcfl", "fedavg", "no cluster was cut", lambda cell: True),
    Becomes("gcfl+", "fedavg", "no cluster was cut", lambda cell: True),
    Becomes("fedgta", "local", "one client takes part in a round, and nobody is averaged with it", _alone),
    Becomes(
        "fedprox", "fedavg", "a client takes one step a round, at which the proximal term is zero", lambda cell: True,
        single=True,
    ),
    Becomes("fedprox", "fedavg", "in few rounds of SGD, the proximal term hardly changes a step", _slight),
    Becomes(
        "fedprox", "fedavg", "the noise of privacy is far above the proximal term",
        lambda cell: bool(cell.training.dp_noise),
    ),
]  # fmt: skip
CHOOSING = {"fedgta": {"moments", "orders", "similarity"}}  # settings that say who is averaged with whom, no more
BLIND = {"fedmlp", "fedprox-mlp", "scaffold-mlp"}  # methods that look at no edge
EDGES = ("edge_noise", "dropped_edges")


def reason(cell: Cell, other: Cell, single: bool = False) -> str:
    """Why runs of two cells may have the same curves; empty where they may not.

    single: both rows tell of one step a client and round.
    The cells are equal but for the method, one of which becomes the other where nothing happens in it; or but for
    edges, at which their method does not look; or but for a patience that stops neither; or but for settings by which
    clients are chosen, perhaps the same.
    """
    ours, theirs = (_becomes(each, single) for each in (cell, other))
    plain = {ours.other if ours else cell.method.name, theirs.other if theirs else other.method.name}
    known = ours or theirs
    if known and len(plain) == 1 and _without(cell, "method") == _without(other, "method"):
        return known.why
    if _without(cell, "patience") == _without(other, "patience"):
        return "no patience stops the run"
    if cell.method.name in BLIND and _without_edges(cell) == _without_edges(other):
        return "the method looks at no edge"
    if cell.method.name in CHOOSING and _without_choosing(cell) == _without_choosing(other):
        return "both settings let the same clients be averaged"
    return ""


def _becomes(cell: Cell, single: bool) -> Becomes | None:
    """What the cell's method is there."""
    own = (one for one in BECOMES if one.method == cell.method.name and one.single <= single)
    return next((one for one in own if one.when(cell)), None)


def _without_choosing(cell: Cell) -> dict[str, object]:
    """The same but for the settings that choose clients."""
    found, method = _without(cell, "method"), cell.identity["method"]
    own = {name: value for name, value in method["params"].items() if name not in CHOOSING.get(cell.method.name, ())}
    return found | {"method": method["name"], "params": own}


def _without(cell: Cell, *names: str) -> dict[str, object]:
    """The identity of a cell but for some of its parts, or settings of its training."""
    training = {name: value for name, value in cell.identity[TRAINING].items() if name not in names}
    return {name: value for name, value in (cell.identity | {TRAINING: training}).items() if name not in names}


def _without_edges(cell: Cell) -> dict[str, object]:
    """The same but for what decides which nodes are joined, and nothing else; of a generated graph its homophily."""
    found, data = _without(cell, *EDGES), cell.identity["dataset"]
    if data["name"] == "csbm":
        found["dataset"] = {name: value for name, value in data["params"].items() if name != "homophily"}
    return found
