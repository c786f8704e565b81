"""Tuning a suite: its studies, dataset by dataset, and the file of what they choose."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import optuna
from filelock import FileLock
from optuna.storages.journal import JournalFileBackend

from ...methods import METHODS
from ...registry import UserError
from ..engine.method import in_words
from ..runner.job import Job, Options, Store
from ..runner.supervisor import Observer
from ..store.places import APART, LOCKS, safe_name
from ..store.provenance import git_state
from ..store.schema import Row
from ..suites.apart import begin
from ..suites.cell import Cell
from ..suites.request import Request, parse_setting
from ..suites.select import apply_settings, impossible, narrow, with_own
from ..suites.suite import TUNING_SEED, Suite
from ..suites.suitefile import load_suite
from ..suites.tuned import Tuned, Values, read_tuned, write_tuned
from .study import Study

STUDIES = ".studies"  # below the folder of trials


@dataclass(frozen=True)
class Wanted:
    """What to tune. Empty tuples: all that the suite has. trials, seeds, rounds (of a full trial): None for what the
    protocol and the suite say. own_dataset: a dataset of the user's, on its own clients. settings: as of `Request`."""

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
    asked = with_own(asked, wanted.own_dataset) if wanted.own_dataset else asked
    base, _ = narrow(suite.base(), asked)
    changed = [parse_setting(text) for text in wanted.settings]
    rounds = wanted.rounds or suite.tune.rounds
    cells: dict[tuple[str, str], Cell] = {}
    for cell in apply_settings(base.cells(), changed) if changed else base.cells():
        _check_cell(cell)
        if rounds is not None:
            cell = Values(training={"rounds": rounds}).applied(cell)
        cells.setdefault((cell.dataset.name, cell.method.name), cell)
    if not cells:
        raise UserError(f"nothing matches: suite {suite.name!r} has none of these methods and datasets")
    by_dataset: dict[str, list[Study]] = {}
    for (dataset, _), cell in cells.items():
        seeds = wanted.seeds or suite.tune.seeds_of(dataset)
        _check_seeds(suite, seeds)
        by_dataset.setdefault(dataset, []).append(
            Study(suite.name, cell, wanted.trials or suite.tune.trials, seeds, suite.tune.sampler)
        )
    return by_dataset


def own_settings(results: Path, dataset: str, metric: str | None) -> Path:
    """Where settings of a dataset of the user's own go: a file for each metric."""
    return results / f"{dataset.partition(':')[2]}.{metric or 'accuracy'}.tuned.yaml"


def _check_cell(cell: Cell) -> None:
    if why := impossible(cell):
        raise UserError(why)
    if cell.task == "graph":
        raise UserError(f"{cell.dataset.name} is clustered without validation: there is nothing to tune on")
    if not METHODS.cls(cell.method.name).is_for(cell.task):
        raise UserError(f"{cell.method.name} is not defined for {in_words(cell.task)}: there is nothing to tune")


def _check_seeds(suite: Suite, seeds: Iterable[int]) -> None:
    scored = {seed for block in suite.cross for seed in block.seeds}
    for seed in seeds:
        if seed in scored or seed < TUNING_SEED:
            why = f"suite {suite.name!r} scores it" if seed in scored else f"seeds below {TUNING_SEED} are for scores"
            raise UserError(f"seed {seed} cannot be tuned on: {why}; tuning seeds are {TUNING_SEED} and up")


@dataclass(frozen=True)
class Tuner:
    """Runs studies in `results`/tuning and writes what they choose to `out`. The rest as in `Job`."""

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
        """Carry out studies of one dataset, all of a rung together; return what was chosen and stored in the file.

        A study whose trials all failed is complained of and left out. UserError as `Job.load` and `Job.run`; what is
        interrupted resumes when it is called again.
        """
        while cells := [(study.suite, cell) for study in studies for cell in study.cells()]:
            rows = self._rows(cells, complain, observer)
            for study in studies:
                study.tell(rows)
        results = []
        for study in studies:
            self._keep(study)
            try:
                results.append((study, study.chosen(git_state()[0])))
            except UserError as error:
                complain(str(error))
        self._write(results)
        return [chosen for _, chosen in results]

    def left(self, studies: Iterable[Study]) -> list[list[tuple[Cell, int]]]:
        """What studies without results still have to run, as `planned`; without those that are done.

        They get the rungs that the results folder has, all of a rung together, so that it is read once per rung.
        """
        due, runs = list(studies), []
        while cells := [(study.suite, cell) for study in due for cell in study.cells()]:
            plan = Job(cells, self.store, self.options, self.rerun).plan()
            missing, standing = {item.cell.key for item in plan.todo}, list[Study]()
            rows = {item.row.key: item.row for item in plan.items if item.row is not None}
            for study in due:
                if todo := [(cell, 1) for cell in study.cells() if cell.key in missing]:
                    runs.append([*todo, *study.planned()[study.rung + 1 :]])
                else:
                    study.tell(rows)
                    standing.append(study)
            due = standing
        return runs

    def _rows(
        self, cells: Sequence[tuple[str, Cell]], complain: Callable[[str], object], observer: Callable[[], Observer]
    ) -> dict[str, Row]:
        job = Job(cells, self.store, self.options, self.rerun)
        plan = job.plan()
        job.run(job.load(plan, complain), observer())
        return {row.key: row for row in job.rows(plan)}

    def _write(self, results: Iterable[tuple[Study, Tuned]]) -> None:
        with FileLock(self.store.root / LOCKS / "tuned.lock"):
            table = read_tuned(self.out)
            for study, chosen in results:
                table.setdefault(study.cell.method.name, {})[study.cell.dataset.name] = chosen
            write_tuned(self.out, table)

    def _keep(self, study: Study) -> None:
        """The study as Optuna stores it, for its own tools. Nothing is read from there: rows are what counts."""
        name = f"{safe_name(study.cell.method.name)}.{safe_name(study.cell.dataset.name)}.log"
        path = self.store.root / STUDIES / study.suite / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent) as folder:
            new = str(Path(folder) / path.name)
            storage = optuna.storages.JournalStorage(JournalFileBackend(new))
            optuna.copy_study(from_study_name=study.id, from_storage=study.storage, to_storage=storage)
            os.replace(new, path)
