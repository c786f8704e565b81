"""A fleet: runs that differ in their seed, and so in their federation, train side by side as one program.

The clients of all runs are one cohort while they train. All else is each run's own: the server and what it draws, who
takes part, messages and their bytes, privacy, evaluation, the best round, patience. Since a client's training does not
depend on who else is in its cohort, each run comes out as it would alone, but for the rounding of float32.

That holds for client halves that look at their own clients' rows alone: data, models, state, streams, and what each of
them has received. Who takes one client's download for everybody's, or the run's seed, trains alone (see the runner).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch

from ...datasets.federation import Federation
from . import ledger
from .backbones import Backbone
from .capture import capturing
from .cohort import Cohort
from .config import TrainConfig
from .device import HOST, on, settle
from .evaluate import Evaluator, Models
from .exchange import Half
from .messages import ABSENT, Tree, walk
from .method import METHODS, Method, Phase
from .network import Network
from .optim import StackedOptimiser
from .random import Streams
from .timing import section
from .train import Outcome, Underway

OnRoundOf = Callable[[int, int, dict[str, float]], None]  # of which run, the round's number, its figures
OnBestOf = Callable[[int, Evaluator, Models], None]
KEPT = 8  # compositions of the joint cohort, as of `Cohort.select`


class Apart(Exception):
    """These cohorts do not fit together; each trains by itself."""


def train_together(
    runs: Sequence[tuple[Federation, int]],
    method: Method,
    backbones: Sequence[Backbone],
    config: TrainConfig,
    *,
    on_round: OnRoundOf | None = None,
    on_best: OnBestOf | None = None,
    device: torch.device = HOST,
) -> list[Outcome]:
    """Train a method on several federations, each with its seed; an outcome for each, in order.

    What `train` says of its arguments and errors holds; an error of one run ends them all. on_round and on_best are
    told first which run it is, counted from 0. Seconds are shares: what runs spend together counts to equal parts.
    """
    with on(device), capturing(device, METHODS.is_own(type(method))):
        fleet = Fleet(runs, method, backbones, config, on_round)
        for phase in method.phases(fleet.runs[0].exchange.config):
            fleet.carry_out(phase)
        outcomes = fleet.outcomes()
        for number, run in enumerate(fleet.runs):
            if on_best is not None:
                on_best(number, run.evaluator, run.selection.best.models)
    return outcomes


class Fleet:
    """Runs in step: all are in the same round of the same phase, those that are done with a phase wait for the next."""

    def __init__(
        self,
        runs: Sequence[tuple[Federation, int]],
        method: Method,
        backbones: Sequence[Backbone],
        config: TrainConfig,
        on_round: OnRoundOf | None,
    ) -> None:
        start = time.perf_counter()
        self.ledgers = [ledger.Ledger() for _ in runs]
        self.runs = list[Underway]()
        for (federation, seed), own in zip(runs, self.ledgers, strict=True):
            with ledger.counting(own):
                self.runs.append(Underway(federation, method, backbones, config, seed))
        self.seconds = [(time.perf_counter() - start) / len(runs)] * len(runs)
        self.on_round = on_round
        self._joints: dict[tuple[tuple[int, ...], ...], Joint] = {}

    def carry_out(self, phase: Phase) -> None:
        """All rounds of a phase."""
        going = {number: phase.length(run.exchange.server) for number, run in enumerate(self.runs)}
        number = 0
        while going := {own: length for own, length in going.items() if length > number}:
            number += 1
            start = time.perf_counter()
            self._round(list(going), phase, number)
            settle()
            share = (time.perf_counter() - start) / len(going)
            for own in going:
                self.runs[own].exchange.seconds += share
            stopped = [own for own in going if phase.scored and self._scored(own)]
            share = (time.perf_counter() - start) / len(going)
            for own in going:
                self.seconds[own] += share
            for own in stopped:
                del going[own]

    def _scored(self, number: int) -> bool:
        def tell(*of_round: Any) -> None:
            if self.on_round is not None:
                self.on_round(number, *of_round)

        return self.runs[number].scored(tell)

    def outcomes(self) -> list[Outcome]:
        found = []
        for run, steps, seconds in zip(self.runs, self.ledgers, self.seconds, strict=True):
            start = time.perf_counter()
            found.append(run.outcome(steps))
            found[-1].total_seconds = seconds + time.perf_counter() - start
        return found

    def _round(self, going: Sequence[int], phase: Phase, number: int) -> None:
        """A round of some runs. Their client halves of the same place are taken as one."""
        halves = {own: self.runs[own].exchange.halves(phase, number) for own in going}
        due = self._next(halves)
        while due:
            place = min(half.place for half in due.values())
            now = {own: half for own, half in due.items() if half.place == place}
            self._take(now)
            due = {own: half for own, half in due.items() if own not in now} | self._next(
                {own: halves[own] for own in now}
            )

    def _next(self, halves: dict[int, Iterator[Half]]) -> dict[int, Half]:
        """The next client half of each run that has one; what happens until then is the run's own."""
        found = {}
        for own, coming in halves.items():
            with ledger.counting(self.ledgers[own]):
                half = next(coming, None)
            if half is not None:
                found[own] = half
        return found

    def _take(self, now: dict[int, Half]) -> None:
        cohorts = [half.cohort for half in now.values()]
        together = len(now) > 1 and all(cohort.shared is None for cohort in cohorts)
        if together:
            joint = self._joint(now)
            try:
                joint.gather(cohorts)
            except Apart:
                together = False
        if not together:
            for own, half in now.items():
                with ledger.counting(self.ledgers[own]):
                    half.take()
            return
        step = next(iter(now.values())).step
        with ledger.counting() as steps, section("client half"):
            uploads = joint.part(step.client(joint.cohort))
            joint.hand_back(cohorts)
        for (own, half), upload in zip(now.items(), uploads, strict=True):
            half.upload = upload
            steps.share(joint.firsts[own], joint.stride, self.ledgers[own])

    def _joint(self, now: dict[int, Half]) -> Joint:
        composition = tuple((own, *half.cohort.clients) for own, half in now.items())
        if composition not in self._joints:
            if len(self._joints) >= KEPT:
                del self._joints[next(iter(self._joints))]
            self._joints[composition] = Joint({own: half.cohort for own, half in now.items()})
        return self._joints[composition]


class Joint:
    """The cohort of the clients of several runs, one run after the other. firsts: of each run, the number that its
    client 0 has; those of a run are `stride` at most, and keep their architecture."""

    def __init__(self, cohorts: dict[int, Cohort]) -> None:
        own = list(cohorts.values())
        kinds = len(own[0].network.backbones)
        self.stride = kinds * (1 + max(max(cohort.clients) for cohort in own) // kinds)
        self.firsts = {run: place * self.stride for place, run in enumerate(cohorts)}
        clients = [self.firsts[run] + client for run, cohort in cohorts.items() for client in cohort.clients]
        self.cohort = type(own[0])(
            [member for cohort in own for member in cohort.members], Network(own[0].network.backbones, clients),
            own[0].config, JointStreams([cohort.streams for cohort in own]), own[0].classes, own[0].features,
        )  # fmt: skip
        every = [group.kind for group in self.cohort.network.groups]
        self.sizes: dict[int | None, list[int]] = {None: list(map(len, own))}
        for kind in every:
            held = [{group.kind: len(group.positions) for group in cohort.network.groups} for cohort in own]
            self.sizes[kind] = [sizes.get(kind, 0) for sizes in held]

    def gather(self, cohorts: Sequence[Cohort]) -> None:
        """Take the runs' models, state, optimisers and downloads. Apart where they are not of one form."""
        joint = self.cohort
        joint.round = cohorts[0].round
        params, state, received = (
            self._joined([getattr(cohort, name) for cohort in cohorts]) for name in ("params", "state", "received")
        )
        optimisers = self._joined([
            {name: {"state": own.state, "steps": own.steps} for name, own in cohort._optimisers.items()}
            for cohort in cohorts
        ])  # fmt: skip
        joint.params, joint.state, joint.received = params, state, received
        joint._optimisers = {
            name: StackedOptimiser(joint.config, clients=joint.clients, **own) for name, own in optimisers.items()
        }

    def hand_back(self, cohorts: Sequence[Cohort]) -> None:
        """Give the runs what their clients have now."""
        joint = self.cohort
        params, states = self.part(joint.params), self.part(joint.state)
        kept = self.part({
            name: {"state": own.state, "steps": own.steps} for name, own in joint._optimisers.items()
        })  # fmt: skip
        for cohort, own_params, own_state, optimisers in zip(cohorts, params, states, kept, strict=True):
            cohort.params, cohort.state = own_params, own_state
            for name, own in optimisers.items():
                mine = cohort.optimiser(name)
                mine.state, mine.steps = own["state"], own["steps"]
        joint.params, joint.state, joint.received, joint._optimisers = {}, {}, {}, {}

    def _joined(self, trees: Sequence[Tree]) -> Tree:
        """One tree of the runs' trees, whose leaves have the rows of one run after those of the other."""

        def joined(kind: int | None, *leaves: Any) -> Any:
            sizes = self.sizes[kind]
            found = [leaf for leaf, size in zip(leaves, sizes, strict=True) if size]
            forms = [_form(leaf, size) for leaf, size in zip(found, filter(None, sizes), strict=True)]
            if None in forms or forms.count(forms[0]) < len(forms):
                raise Apart
            return [entry for leaf in found for entry in leaf] if isinstance(found[0], list) else torch.cat(found)

        tree: Tree = walk(joined, *trees)
        return tree

    def part(self, tree: Tree) -> list[Tree]:
        """The inverse: a tree for each run, of views."""
        ends = {kind: list(accumulate(sizes, initial=0)) for kind, sizes in self.sizes.items()}

        def own(run: int, kind: int | None, leaf: Any) -> Any:
            first, last = ends[kind][run : run + 2]
            return leaf[first:last] if first < last else ABSENT

        count = len(self.sizes[None])
        return [walk(lambda kind, leaf, run=run: own(run, kind, leaf), tree) for run in range(count)]


def _form(leaf: Any, clients: int) -> tuple[Any, ...] | None:
    """What leaves have in common that can be one; None of what has no value for each of so many clients."""
    if isinstance(leaf, list) and len(leaf) == clients:
        return (list,)
    if isinstance(leaf, torch.Tensor) and leaf.dim() and len(leaf) == clients:
        return leaf.dtype, leaf.device, leaf.shape[1:]
    return None


class JointStreams(Streams):
    """The streams of the clients of several runs. There is no seed: each run has its own."""

    def __init__(self, parts: Sequence[Streams]) -> None:
        self.parts = list(parts)
        self.clients = tuple(client for part in parts for client in part.clients)

    def select(self, positions: Sequence[int]) -> JointStreams:
        ends = list(accumulate((len(part.clients) for part in self.parts), initial=0))
        within = [
            [position - first for position in positions if first <= position < last] for first, last in pairwise(ends)
        ]
        assert sorted(positions) == list(positions), "clients of several runs are selected in order"
        return JointStreams([part.select(own) for part, own in zip(self.parts, within, strict=True) if own])

    def __call__(self, purpose: str) -> list[Any]:
        return [generator for part in self.parts for generator in part(purpose)]
