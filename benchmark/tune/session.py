"""Tuning of a suite: its studies by dataset, and the file of the chosen settings.

A study is one method on one dataset. Its trials are the points of a design; its state is the rows of the results
folder.

All trials are fixed before anything runs, the suite's own setting first. They are trained in two rungs: all trials for
a third of the rounds, then a quarter of them for all rounds. Each rung trains from the start, and the best are selected
after all its runs. A study is thus a function of rows, independent of the number of workers and of interruptions, and
methods with the same number of trials train for the same number of rounds.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import optuna
from filelock import FileLock
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from ...metrics import sign
from ...registry import UserError
from ..runner.backend import Observer
from ..runner.job import Job, Options, Store
from ..store.provenance import canonical, git_state
from ..store.row_file import APART, LOCKS, safe_name
from ..store.schema import TRIAL, Row
from ..suites.apart import begin
from ..suites.cell import Cell
from ..suites.request import Request
from ..suites.select import apply_settings, check_not_chosen, impossible, located, narrow, with_own
from ..suites.suite import TUNING_SEED, Sampler, load_suite
from ..suites.tuned import Tuned, own_content, read_tuned, with_rounds, write_tuned
from .design import Design, applied, values

FIRST, KEPT = 3, 4  # the first rung has a third of the rounds; a quarter of its trials continues
LEAST = 2  # fewest trials of the last rung: the suite's own setting and another one
DEFAULT = 0  # the trial with the suite's own setting; it is never pruned
NO_VALIDATION = "no validation figure: no node or graph is for validation; give the split a share of validation"
optuna.logging.set_verbosity(optuna.logging.WARNING)


class Tried(NamedTuple):
    """A trial. params: dimension name -> choice. values: its validation figures, one per finished rung; negated if
    lower is better."""

    number: int
    params: dict[str, str]
    values: list[float]


def rungs_of(rounds: int, trials: int) -> dict[int, int]:
    """Rounds of each rung -> the number of its trials."""
    first = max(1, rounds // FIRST)
    return {first: trials} | ({rounds: max(min(LEAST, trials), trials // KEPT)} if rounds > first else {})


class Study:
    """A study of one method on one dataset. cell: the suite's, with any seed. trials: their number; None: the
    protocol's. seeds: validation is averaged over them. sampler: see `Design`.

    For each rung, run `cells` and give their rows to `tell`, until there are no cells. UserError as `Design`, and if
    there are fewer settings than trials.
    """

    def __init__(
        self, suite: str, cell: Cell, trials: int | None, seeds: Sequence[int], sampler: Sampler = "table"
    ) -> None:
        self.suite, self.cell, self.seeds = suite, cell, tuple(seeds)
        self.design = Design(cell, sampler)
        self.points = points = self.design.points(trials)
        rungs = rungs_of(cell.training.rounds, len(points))
        self.rungs, self.sizes = list(rungs), list(rungs.values())
        self.trials = tuple(Tried(number, point, []) for number, point in enumerate(points))
        self.alive, self.failed = list(self.trials), set[int]()  # trials of the current rung; numbers
        self.rung, self.ran, self.reasons = 0, 0, list[str]()
        self._made: dict[tuple[int, int], list[Cell]] = {}  # (rung, trial) -> its cells

    @cached_property
    def id(self) -> str:
        """suite/method/dataset/digest; the digest is of everything that defines the study."""
        definition = {"cell": self.cell.seedless, "points": self.points, "sizes": self.sizes, "seeds": self.seeds}
        digest = hashlib.sha256(canonical(definition).encode()).hexdigest()[:8]
        return f"{self.suite}/{self.cell.method.name}/{self.cell.dataset.name}/{digest}"

    @property
    def size(self) -> int:
        """The number of cells of all rungs."""
        return sum(self.sizes) * len(self.seeds)

    @property
    def rounds(self) -> int:
        """The largest number of rounds of all trials together, on all seeds."""
        return sum(size * rounds for size, rounds in zip(self.sizes, self.rungs, strict=True)) * len(self.seeds)

    def planned(self) -> list[tuple[Cell, int]]:
        """Per rung, a cell with the suite's own setting, and the number of the rung's cells."""
        rungs = zip(self.rungs, self.sizes, strict=True)
        return [(with_rounds(self.cell, rounds), size * len(self.seeds)) for rounds, size in rungs]

    def cells(self) -> list[Cell]:
        """The cells of the current rung; empty after the last."""
        return [cell for trial in self.alive for cell in self._cells(trial)]

    def _cells(self, trial: Tried) -> list[Cell]:
        if (which := (self.rung, trial.number)) not in self._made:
            short = with_rounds(applied(self.cell, trial.params), self.rungs[self.rung])
            self._made[which] = [Cell(**{**dict(short), "seed": seed, "tuning": TRIAL}) for seed in self.seeds]
        return self._made[which]

    def tell(self, rows: Mapping[str, Row]) -> None:
        """Take the rows of this rung, by key; the best trials continue. A trial without validation has failed."""
        scored = []
        for trial in self.alive:
            trial_rows = [rows[cell.key] for cell in self._cells(trial)]
            self.ran += sum(row.rounds or 0 for row in trial_rows)
            reasons = [
                f"{row.status}: {row.error}" if row.status != "ok" else NO_VALIDATION
                for row in trial_rows
                if row.val is None or row.status != "ok"
            ]
            if reasons:
                self.reasons += reasons
                self.failed.add(trial.number)
            else:
                figures = [sign(row.score_metric) * (row.val or 0) for row in trial_rows]
                trial.values.append(sum(figures) / len(trial_rows))
                scored.append(trial)
        self.rung += 1
        size = self.sizes[self.rung] if self.rung < len(self.rungs) else 0
        order = sorted(scored, key=lambda trial: (trial.number != DEFAULT, -trial.values[-1], trial.number))
        self.alive = sorted(order[:size], key=lambda trial: trial.number)

    def for_optuna(self) -> list[FrozenTrial]:
        """The trials in Optuna's form."""
        distributions: dict[str, BaseDistribution] = {
            dimension.name: CategoricalDistribution(dimension.choices) for dimension in self.design.dimensions
        }
        frozen = []
        for number, params, figures in self.trials:
            ended = TrialState.COMPLETE if len(figures) == len(self.rungs) else TrialState.PRUNED
            state, value = (TrialState.FAIL, None) if number in self.failed else (ended, figures[-1])
            by_rounds = dict(zip(self.rungs, figures, strict=False))
            frozen.append(create_trial(state=state, value=value, params=params, distributions=distributions,
                                       intermediate_values=by_rounds))  # fmt: skip
        return frozen

    def chosen(self, commit: str) -> Tuned:
        """The best of the trials that ran for all rounds, the first if equal. UserError if there is none."""
        full = {trial.number: trial.values for trial in self.trials if len(trial.values) == len(self.rungs)}
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
            data=own_content(self.cell),
        )


STUDIES = ".studies"  # below the folder of trials


@dataclass(frozen=True)
class Wanted:
    """What to tune. Empty tuples: all of the suite. trials, seeds, rounds (of a full trial): None: those of the
    protocol and the suite. own_dataset: a dataset of the user, with its own clients. settings: as in `Request`."""

    suite: str
    methods: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    trials: int | None = None
    seeds: tuple[int, ...] | None = None
    rounds: int | None = None
    own_dataset: str | None = None
    settings: tuple[str, ...] = ()


def studies(wanted: Wanted) -> dict[str, list[Study]]:
    """The studies of a suite, by dataset. UserError for anything that cannot be tuned."""
    begin()
    suite = load_suite(wanted.suite)
    asked = Request(methods=wanted.methods, datasets=wanted.datasets, seeds=(wanted.seeds or (TUNING_SEED,))[:1])
    asked = with_own(asked, wanted.own_dataset)
    base, _ = narrow(suite.base(), asked)
    listed = base.cells()
    settings = located(wanted.settings, listed)
    rounds = wanted.rounds or suite.tune.rounds
    cells: dict[tuple[str, str], Cell] = {}
    for cell in apply_settings(listed, settings):
        if why := impossible(cell):
            raise UserError(why)
        if cell.task == "graph":
            raise UserError(f"{cell.dataset.name} is clustered without validation: there is nothing to tune on")
        if rounds is not None:
            cell = with_rounds(cell, rounds)
        cells.setdefault((cell.dataset.name, cell.method.name), cell)
    if not cells:
        raise UserError(f"nothing matches: suite {suite.name!r} has none of these methods and datasets")
    scored = {seed for block in suite.cross for seed in block.seeds}
    by_dataset: dict[str, list[Study]] = {}
    for (dataset, _), cell in cells.items():
        seeds = wanted.seeds or suite.tune.datasets.get(dataset, suite.tune.seeds)
        for seed in seeds:
            if seed in scored or seed < TUNING_SEED:
                why = (
                    f"suite {suite.name!r} scores it" if seed in scored else f"seeds below {TUNING_SEED} are for scores"
                )
                raise UserError(f"seed {seed} cannot be tuned on: {why}; tuning seeds are {TUNING_SEED} and up")
        study = Study(suite.name, cell, wanted.trials or suite.tune.trials, seeds, suite.tune.sampler)
        check_not_chosen(settings, values(study.points[0]), cell)
        by_dataset.setdefault(dataset, []).append(study)
    return by_dataset


def own_settings(results: Path, dataset: str, metric: str | None) -> Path:
    """The file of settings of one of the user's own datasets: one per metric."""
    return results / f"{dataset.partition(':')[2]}.{metric or 'accuracy'}.tuned.yaml"


@dataclass(frozen=True)
class Tuner:
    """Runs studies in `results`/tuning and writes the chosen settings to `out`. Other fields as in `Job`."""

    results: Path
    out: Path
    options: Options
    rerun: tuple[str, ...] = ()

    @property
    def store(self) -> Store:
        return Store(self.results / APART)

    def run(
        self, studies: Sequence[Study], complain: Callable[[str], object], observer: Callable[[], Observer]
    ) -> list[Tuned]:
        """Run studies of one dataset, rung by rung, and write the chosen settings to the file; return them.

        `complain` gets a message for each study without results, which is left out. UserError as `Job.load` and
        `Job.run`. After an interruption, the same call continues.
        """
        while cells := [(study.suite, cell) for study in studies for cell in study.cells()]:
            job = Job(cells, self.store, self.options, self.rerun)
            rows = {row.key: row for row in job.carry_out(complain, observer())}
            for study in studies:
                study.tell(rows)
        results = []
        for study in studies:
            self._keep(study)
            try:
                results.append((study, study.chosen(git_state()[0])))
            except UserError as error:
                complain(str(error))
        with FileLock(self.store.root / LOCKS / "tuned.lock"):
            table = read_tuned(self.out)
            for study, chosen in results:
                table.setdefault(study.cell.method.name, {})[study.cell.dataset.name] = chosen
            write_tuned(self.out, table)
        return [chosen for _, chosen in results]

    def left(self, studies: Iterable[Study]) -> list[list[tuple[Cell, int]]]:
        """The cells that unfinished studies still have to run, one list per study, in the form of `planned`.

        `studies` get the rows that the results folder already has; it is read once per rung.
        """
        current, runs = list(studies), []
        while cells := [(study.suite, cell) for study in current for cell in study.cells()]:
            plan = Job(cells, self.store, self.options, self.rerun).plan()
            missing, finished = {item.cell.key for item in plan.todo}, list[Study]()
            rows = {item.row.key: item.row for item in plan.items if item.row is not None}
            for study in current:
                if todo := [(cell, 1) for cell in study.cells() if cell.key in missing]:
                    runs.append([*todo, *study.planned()[study.rung + 1 :]])
                else:
                    study.tell(rows)
                    finished.append(study)
            current = finished
        return runs

    def _keep(self, study: Study) -> None:
        """Store the study in Optuna's format, for Optuna's tools. Nothing is read from there."""
        name = f"{safe_name(study.cell.method.name)}.{safe_name(study.cell.dataset.name)}.log"
        path = self.store.root / STUDIES / study.suite / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent) as folder:
            new = str(Path(folder) / path.name)
            storage = optuna.storages.JournalStorage(JournalFileBackend(new))
            kept = optuna.create_study(storage=storage, study_name=study.id, direction="maximize")
            kept.add_trials(study.for_optuna())
            os.replace(new, path)
