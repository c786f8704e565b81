"""How much can be tried in the time there is: methods, trials, rounds and seeds, the same for every method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...registry import UserError

ROUNDS = (10, 15, 20, 30, 40, 60, 80, 100)
TRIALS = (2, 3, 4, 6, 8)
SEEDS = (3, 4, 5, 8, 10)
FEWEST = 3  # methods: local training, FedAvg and another
SHARE = 0.85  # of the time that is planned; the rest is for reading data and starting workers

Cost = Callable[[str, int], float]  # (method, rounds) -> seconds of a cell


@dataclass(frozen=True)
class Plan:
    """methods are tuned with `trials` settings each, of `rounds` rounds, and run with `seeds` seeds. seconds: expected
    on all workers."""

    methods: tuple[str, ...]
    trials: int
    rounds: int
    seeds: int
    seconds: float = 0.0

    def cells(self, rounds: int) -> int:
        """Cells of a method that run for this number of rounds."""
        first, last = self.first, self.rounds
        long = max(2, self.trials // 4) + self.seeds
        return self.trials if rounds == first != last else long if rounds == last else 0

    @property
    def first(self) -> int:
        """Rounds of a trial's first stage."""
        return max(1, self.rounds // 3)

    def cost(self, cost: Cost, workers: int) -> float:
        """Seconds on this number of workers."""
        spent = sum(cost(name, rounds) * self.cells(rounds) for name in self.methods
                    for rounds in (self.first, self.rounds))  # fmt: skip
        return spent / workers

    def as_data(self) -> dict[str, object]:
        return {**asdict(self), "methods": list(self.methods)}


def planned(candidates: Sequence[str], cost: Cost, budget: float, workers: int) -> Plan:
    """The largest plan that fits: rounds, methods, trials and seeds grow in turn. candidates: in order of preference.

    UserError where even the smallest does not fit.
    """
    room = SHARE * budget
    plan = Plan(tuple(candidates[:FEWEST]), TRIALS[0], ROUNDS[0], SEEDS[0])
    least = plan.cost(cost, workers)
    if least > room:
        raise UserError(
            f"--budget {budget:.0f}s is too short: the smallest comparison takes about {least / SHARE:.0f} s here "
            f"on {workers} worker{'s' * (workers > 1)}; give --budget {least / SHARE / 60 + 1:.0f}m"
        )
    growing = True
    while growing:
        growing = False
        for larger in _larger(plan, candidates):
            if larger.cost(cost, workers) <= room:
                plan, growing = larger, True
                break
    return replace(plan, seconds=plan.cost(cost, workers))


def _larger(plan: Plan, candidates: Sequence[str]) -> list[Plan]:
    """The plan with one more of each thing, that which is furthest behind first."""
    found = []
    for name, steps in (("rounds", ROUNDS), ("trials", TRIALS), ("seeds", SEEDS)):
        place = steps.index(getattr(plan, name))
        if place + 1 < len(steps):
            more: dict[str, Any] = {name: steps[place + 1]}
            found.append(((place + 1) / len(steps), replace(plan, **more)))
    count = len(plan.methods)
    if count < len(candidates):
        wider = replace(plan, methods=tuple(candidates[: count + 1]))
        found.append(((count - FEWEST + 1) / (len(candidates) - FEWEST + 1), wider))
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


def seconds_of(text: str) -> float:
    """Seconds of "90s", "10m", "1.5h" or plain minutes. UserError for anything else."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 60.0)
    try:
        found = float(number) * unit
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise UserError(f"--budget is a time, as 90s, 10m or 1.5h; got {text!r:.60}")
    return found
