"""What crosses from a method's clients to the server: derived from its messages, by a dry run on a tiny federation.

Names and shapes describe a message; KINDS gives the kind of a name. A name that is not in
it is shown as it is, so that nothing crosses unseen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .contract.recording import record
from .contract.verdicts import Inapplicable, fitting
from .engine import ClientBatch, Method, Step, Tree
from .engine.payload import leaves
from .engine.simulation import Simulation
from .engine.transforms import KINDS, kind_of


@dataclass(frozen=True)
class Crossing:
    """One upload: the phase it belongs to, its name, its kind, shapes of one client's values."""

    phase: str
    name: str
    kind: str
    shapes: tuple[tuple[int, ...], ...]


def crossings(method: Method) -> list[Crossing]:
    """All that a method's clients upload, in the order of its steps. Inapplicable where it fits no trial."""
    trial = fitting(method)[0]
    found: dict[tuple[str, str], Crossing] = {}

    def watched(simulation: Simulation, step: Step) -> Step:
        def client(cohort: ClientBatch) -> Tree:
            upload = step.client(cohort)
            for name, value in upload.items():
                shapes = tuple(tuple(leaf[0].shape) for leaf in leaves({name: value}) if len(leaf))
                where = _phase(method, simulation, step)
                found.setdefault((where, name), Crossing(where, name, kind_of(name), shapes))
            return upload

        return replace(step, client=client)

    record(method, trial, wrap=watched)
    return list(found.values())


def _phase(method: Method, simulation: Simulation, step: Step) -> str:
    """The name of the phase that a step belongs to."""
    names = [p.name for p in method.phases(simulation.config) if any(s.client == step.client for s in p.steps)]
    return names[0] if names else "training"


def kinds(method: Method) -> list[str]:
    """What its clients upload, in the order of KINDS; empty: nothing, or not to be seen."""
    try:
        seen = {own.kind for own in crossings(method)}
    except Inapplicable:
        return []
    known = list(dict.fromkeys(KINDS.values()))
    return sorted(seen, key=lambda kind: (known.index(kind) if kind in known else len(known), kind))
