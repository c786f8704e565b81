"""One study: a method on a dataset. Its trials are the points of a design; rows of the results folder are its memory.

All trials are fixed before anything runs, the suite's own setting first. They are trained in two rungs: all for a third
of the rounds, a quarter of them for all rounds. A rung is a whole run of its own, and is done before anything is
decided on it. So a study is a function of rows: the same however many workers there are, however often it was
interrupted, and methods with as many trials train for as many rounds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from ...metrics import sign
from ...registry import UserError
from ..store.provenance import canonical
from ..store.schema import TRIAL, Row
from ..suites.cell import Cell
from ..suites.suite import Sampler
from ..suites.tuned import Tuned, Values
from .design import Design, applied, values

FIRST, KEPT = 3, 4  # the first rung takes a third of the rounds; a quarter of its trials continues
LEAST = 2  # trials of the last rung: the suite's own setting and another
DEFAULT = 0  # the trial with the suite's own setting; it is never pruned
optuna.logging.set_verbosity(optuna.logging.WARNING)


class Halving(optuna.pruners.BasePruner):
    """Keeps the best of a whole rung, and trial 0.

    Optuna's SuccessiveHalvingPruner decides on a trial when it reports, by those that came before it: how many go on
    depends on their order. This one is asked when all trials of the rung have reported, and keeps a fixed number.
    """

    def __init__(self, room: Mapping[int, int]) -> None:
        self.room = room  # rounds of a rung -> how many go on

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        step = trial.last_step
        assert step is not None
        reports = {t.number: t.intermediate_values for t in study.get_trials(deepcopy=False)}
        seen = {number: scores[step] for number, scores in reports.items() if step in scores}
        order = sorted(seen, key=lambda number: (number != DEFAULT, -seen[number], number))
        return trial.number not in order[: self.room[step]]


class Study:
    """cell: what is tuned, of any seed. trials: how many; None for the protocol's number. seeds: over whose runs
    validation is averaged. sampler: as of `Design`.

    Its rungs: `cells` of one are run, `tell` takes their rows, and the next one has what is left. UserError as
    `Design`, and where there are fewer settings than trials.
    """

    def __init__(
        self, suite: str, cell: Cell, trials: int | None, seeds: Sequence[int], sampler: Sampler = "table"
    ) -> None:
        self.suite, self.cell, self.seeds = suite, cell, tuple(seeds)
        self.design = Design(cell, sampler)
        self.dimensions = self.design.dimensions
        self.points = points = self.design.points(self.design.trials if trials is None else trials)
        rounds = cell.training.rounds
        self.rungs: list[int] = sorted({max(1, rounds // FIRST), rounds})
        self.sizes: list[int] = [len(points), max(min(LEAST, len(points)), len(points) // KEPT)][: len(self.rungs)]
        pruner = Halving(dict(zip(self.rungs, self.sizes[1:], strict=False)))
        self.storage = optuna.storages.InMemoryStorage()
        self.optuna = optuna.create_study(storage=self.storage, study_name=self.id, direction="maximize", pruner=pruner)
        distributions: dict[str, BaseDistribution] = {
            dimension.name: CategoricalDistribution(dimension.choices) for dimension in self.dimensions
        }
        for point in points:
            self.optuna.enqueue_trial(point)
        self.alive = [self.optuna.ask(distributions) for _ in points]
        self.trials = tuple(self.alive)
        self.rung, self.ran, self.reasons = 0, 0, list[str]()

    @cached_property
    def id(self) -> str:
        """suite/method/dataset/digest, the digest of all that defines the study."""
        what = {"cell": self.cell.seedless, "points": self.points, "sizes": self.sizes, "seeds": self.seeds}
        digest = hashlib.sha256(canonical(what).encode()).hexdigest()[:8]
        return f"{self.suite}/{self.cell.method.name}/{self.cell.dataset.name}/{digest}"

    @property
    def size(self) -> int:
        """Cells of all rungs."""
        return sum(self.sizes) * len(self.seeds)

    @property
    def rounds(self) -> int:
        """Rounds that all trials may take together, on all seeds."""
        return sum(size * rounds for size, rounds in zip(self.sizes, self.rungs, strict=True)) * len(self.seeds)

    def planned(self) -> list[tuple[Cell, int]]:
        """A cell of each rung, at the suite's own setting, and how many of such the rung has."""
        rungs = zip(self.rungs, self.sizes, strict=True)
        return [(_short(self.cell, rounds), size * len(self.seeds)) for rounds, size in rungs]

    def cells(self) -> list[Cell]:
        """What the rung that is due has to run; nothing in the end."""
        return [cell for trial in self.alive for cell in self._cells(trial)]

    def _cells(self, trial: optuna.Trial) -> list[Cell]:
        changed, rounds = applied(self.cell, trial.params), self.rungs[self.rung]
        short = _short(changed, rounds)
        return [Cell(**{**dict(short), "seed": seed, "tuning": TRIAL}) for seed in self.seeds]

    def tell(self, rows: Mapping[str, Row]) -> None:
        """Take the rows of this rung, by key; the best trials continue. A trial without validation has failed."""
        standing = []
        for trial in self.alive:
            trial_rows = [rows[cell.key] for cell in self._cells(trial)]
            self.ran += sum(row.rounds or 0 for row in trial_rows)
            if reasons := [_lacking(row) for row in trial_rows if row.val is None or row.status != "ok"]:
                self.reasons += reasons
                self.optuna.tell(trial, state=TrialState.FAIL)
            else:
                values = [sign(row.score_metric) * (row.val or 0) for row in trial_rows]
                trial.report(sum(values) / len(trial_rows), self.rungs[self.rung])
                standing.append(trial)
        last = self.rung == len(self.rungs) - 1
        pruned = [] if last else [trial for trial in standing if trial.should_prune()]
        for trial in pruned:
            self.optuna.tell(trial, state=TrialState.PRUNED)
        for trial in standing if last else ():
            self.optuna.tell(trial, self.values(trial)[-1])
        self.alive = [] if last else [trial for trial in standing if trial not in pruned]
        self.rung += 1

    def values(self, trial: optuna.Trial) -> list[float]:
        """Its validation figures, rung by rung, as far as it came; of errors negative ones."""
        frozen = self.optuna.trials[trial.number]
        return list(frozen.intermediate_values.values())

    def chosen(self, commit: str) -> Tuned:
        """The best of the trials that ran for all rounds, the first of equal ones. UserError where none did."""
        full = {
            n: scores for n, trial in enumerate(self.trials) if len(scores := self.values(trial)) == len(self.rungs)
        }
        if not full:
            reason = self.reasons[0] if self.reasons else "no trial has run"
            raise UserError(f"{self.id}: all trials failed, the first with {reason}; nothing was chosen")
        best = max(full, key=lambda number: (full[number][-1], -number))
        return Tuned(
            **dict(values(self.trials[best].params)),
            study=self.id,
            trials=len(self.trials),
            rounds=self.rounds,
            seeds=list(self.seeds),
            rungs=self.rungs,
            trial=best,
            val=full[best][-1],
            default=full[DEFAULT][-1] if DEFAULT in full else None,
            commit=commit,
        )


def _short(cell: Cell, rounds: int) -> Cell:
    return Values(training={"rounds": rounds}).applied(cell)


def _lacking(row: Row) -> str:
    """Why a row has no validation figure."""
    if row.status != "ok":
        return f"{row.status}: {row.error}"
    return "no validation figure: no node or graph is for validation; give the split a share of validation"
