"""Jobs: what to run, with which options, and an estimate of the cost. The command line, the Python interface, `verify`
and `reproduce` use them.

Costs are estimated from the rows of a store: seconds of one core of the machines that made those rows. A dry run of the
package's suites must not import torch or the classes, so some imports are inside functions.
"""

from __future__ import annotations

import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...processes import warm_up
from ...registry import UserError
from ..store import Store
from ..store.schema import Row, mapping
from ..suites.catalogue import published
from ..suites.request import ListedCell, Request, select_listed
from .plan import Plan, listed_version, make_plan, with_data
from .process import Options

if TYPE_CHECKING:
    from ..suites.cell import Cell
    from .backend import Observer, Summary

__all__ = ["Job", "Options", "Request", "Store"]  # a job and its parts


@dataclass(frozen=True)
class Job:
    """What to run: a request, or (suite, cell) pairs. Its steps: `plan`, `load`, `run`, `rows`.

    rerun: kinds of rows that are made again (`plan.Rerun`). missing_rows: a cell without available data gets a row.
    in_process: run without workers, for methods of a notebook and for debuggers, without limits of time and memory.
    """

    what: Request | Sequence[tuple[str, Cell]]
    store: Store
    options: Options
    rerun: tuple[str, ...] = ()
    missing_rows: bool = False
    in_process: bool = False

    def prepare(self) -> None:
        """Let the server of workers import torch while this process does. Optional."""
        if not self.in_process and self.options.backend == "processes":
            warm_up(self.options.threads)

    def plan(self) -> Plan:
        """What there is to do. Nothing is written. UserError for unknown names, and if no cell is selected."""
        from ..suites.apart import begin
        from ..suites.select import select

        if not self.in_process:
            begin()
        cells = select(self.what) if isinstance(self.what, Request) else self.what
        return make_plan(cells, self.store, self.rerun, self.options.embeddings, self.options.models)

    def outlook(self) -> Plan[ListedCell] | None:
        """The plan from the catalogue alone, for a dry run; None if the classes are needed."""
        known = select_listed(self.what) if isinstance(self.what, Request) and not self.options.plugins else None
        if known is None:
            return None
        cells, messages = known
        for line in messages:
            warnings.warn(line, stacklevel=2)
        kept = self.options.embeddings, self.options.models
        return make_plan(cells, self.store, self.rerun, *kept, version=listed_version)

    def load(self, plan: Plan, tell: Callable[[str], object]) -> Plan:
        """Get the data of a plan. Return the plan without cells whose data is unavailable; `tell` gets a message per
        unavailable dataset.

        UserError if the results folder cannot be written (before any data are fetched), and if no cell is left.
        """
        if not plan.todo:
            return plan
        self.store.prepare(item.suite for item in plan.todo)
        from .supervisor import keep_sites, record_missing

        left, missing = with_data(plan)
        keep_sites(left, self.store)
        for dataset in missing:
            tell(str(dataset))
        if missing and self.missing_rows:
            record_missing(missing, self.store, self.options)
        if not left.todo:
            raise UserError("nothing could be run: none of the datasets could be loaded (see above)")
        return left

    def run(self, plan: Plan, observer: Observer | None = None) -> Summary:
        """Run the cells of a plan that are to do. Raises the errors of `run_plan`."""
        from .supervisor import run_in_process, run_plan

        if self.in_process:
            return run_in_process(plan, self.store, self.options, observer)
        return run_plan(plan, self.store, self.options, observer)

    def carry_out(self, tell: Callable[[str], object], observer: Observer | None = None) -> list[Row]:
        """Plan, load and run. Return the current rows of all cells of the plan. Errors as of these steps."""
        self.prepare()
        plan = self.plan()
        if stale := plan.stale():
            runs = f"{stale} of {len(plan.items)} runs"
            tell(f"{runs} have an earlier revision of their method or plug-in; rerun the stale ones")
        self.run(self.load(plan, tell), observer)
        return self.rows(plan)

    def rows(self, plan: Plan) -> list[Row]:
        """The current rows of the cells of a plan, in its order."""
        now = make_plan([(item.suite, item.cell) for item in plan.items], self.store)
        return [item.row for item in now.items if item.row is not None]


HOUR = 3600.0
Facts = Mapping[str, str]  # name -> value of everything that the cost of a round depends on


@dataclass(frozen=True)
class Estimate:
    """hours: core-hours of the cells with a known cost. unknown: e.g. "dataset actor" -> number of cells without it."""

    hours: float
    unknown: Mapping[str, int]


class Costs:
    """Seconds per round, fitted to rows as a product of factors for method, dataset, backbone and local epochs.

    The fit is least squares on logarithms. A pair of method and dataset that has rows is corrected by their mean
    residual; other pairs have the product alone. The number of rounds of a run is the median of the method's rows with
    the same cap and patience, else 1 for a method whose rows all have one round, else the median of all rows with the
    cap and patience, else the cap. The time of phases before training is spread over the rounds, so a method with such
    phases is estimated too high for more rounds than its rows have.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        known = [(row, spent) for row in rows if row.rounds and (spent := _seconds(row))]
        facts = [_of_row(row) for row, _ in known]
        rates = np.log([spent / (row.rounds or 1) for row, spent in known])
        self.levels = {
            level: n for n, level in enumerate(dict.fromkeys(pair for row_facts in facts for pair in row_facts.items()))
        }
        self.factors = np.zeros(0)
        if facts:
            self.factors = np.linalg.lstsq(np.array([self._coded(row_facts) for row_facts in facts]), rates)[0]
        left = defaultdict[tuple[str, str], list[float]](list)
        taken = defaultdict[tuple[str, ...], list[int]](list)
        for (row, _), row_facts, rate in zip(known, facts, rates, strict=True):
            left[row_facts["method"], row_facts["dataset"]].append(rate - float(self._coded(row_facts) @ self.factors))
            ends = _ends(mapping(row.training))
            for key in (ends, (*ends, row.method)):
                taken[key].append(row.rounds or 0)
        self.left = {pair: statistics.fmean(values) for pair, values in left.items()}
        self.taken = {key: statistics.median(rounds) for key, rounds in taken.items()}
        several = {row.method for row, _ in known if row.rounds != 1}
        self.taken |= {(row.method,): 1 for row, _ in known if row.method not in several}

    def as_data(self) -> dict[str, Any]:
        """Return the fit as JSON values with four digits, sorted, so that new rows change few lines of a file."""
        return {
            "factors": [[*level, round(float(self.factors[n]), 4)] for level, n in sorted(self.levels.items())],
            "left": [[*pair, round(value, 4)] for pair, value in sorted(self.left.items())],
            "taken": [[list(key), value] for key, value in sorted(self.taken.items())],
        }

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Costs:
        """The fit from the values of `as_data`."""
        costs = cls(())
        costs.levels = {(kind, name): n for n, (kind, name, _) in enumerate(data["factors"])}
        costs.factors = np.array([value for *_, value in data["factors"]])
        costs.left = {(method, dataset): value for method, dataset, value in data["left"]}
        costs.taken = {tuple(key): value for key, value in data["taken"]}
        return costs

    def relative(self, method: str, other: str) -> float | None:
        """Seconds per round of `method` divided by those of `other`; None if one of them has no row."""
        places = [self.levels.get(("method", name)) for name in (method, other)]
        if None in places:
            return None
        return float(np.exp(self.factors[places[0]] - self.factors[places[1]]))

    def _coded(self, facts: Facts) -> np.ndarray:
        """(levels,) one for each known level of these facts, else zero."""
        coded = np.zeros(len(self.levels))
        coded[[self.levels[level] for level in facts.items() if level in self.levels]] = 1.0
        return coded

    def seconds(self, cell: Cell | ListedCell) -> float | str:
        """Seconds of a cell, or what is unknown of it, as "dataset actor"."""
        names = cell.names
        facts = _facts(names["method"], names["dataset"], names["backbone"], cell.ends["local_epochs"])
        for kind in ("method", "dataset"):
            if (kind, facts[kind]) not in self.levels:
                return f"{kind} {facts[kind]}"
        rate = float(self._coded(facts) @ self.factors) + self.left.get((facts["method"], facts["dataset"]), 0.0)
        return float(np.exp(rate)) * self.rounds(cell)

    def rounds(self, cell: Cell | ListedCell) -> float:
        """The expected number of rounds of a cell."""
        ends, method = _ends(cell.ends), cell.names["method"]
        keys = (*ends, method), (method,), ends
        return next((self.taken[key] for key in keys if key in self.taken), float(cell.ends["rounds"] or 0))

    def of(self, cells: Iterable[tuple[Cell | ListedCell, int]]) -> Estimate:
        """The estimate for pairs of a cell and the number of its runs."""
        total, unknown = 0.0, defaultdict[str, int](int)
        for cell, times in cells:
            seconds = self.seconds(cell)
            if isinstance(seconds, str):
                unknown[seconds] += times
            else:
                total += seconds * times
        return Estimate(total / HOUR, unknown)


def amount(hours: float) -> str:
    """Return core-hours in words: "3.2 core-hours", or "2.5 core-minutes", at least 0.1."""
    return f"{hours:.1f} core-hours" if hours >= 0.05 else f"{max(0.1, 60 * hours):.1f} core-minutes"


def span_of(hours: float) -> str:
    """Return a time in words: "18 min", or "40 s", at least 1."""
    return f"{60 * hours:.0f} min" if 60 * hours >= 1 else f"{max(1.0, 3600 * hours):.0f} s"


def told(estimate: Estimate) -> str:
    """An estimate in words: "about 3.2 core-hours, judged by the rows here; 12 runs cannot be judged: no row of dataset
    actor"."""
    unknown = sum(estimate.unknown.values())
    known = [f"about {amount(estimate.hours)}, judged by the rows here"] if estimate.hours or not unknown else []
    lacking = f"{unknown} runs cannot be judged: no row of {', '.join(estimate.unknown)}"
    return "; ".join([*known, lacking] if unknown else known)


def told_runs(cells: Sequence[Cell | ListedCell], rows: Sequence[Row], options: Options) -> tuple[str, float]:
    """A line as "130 runs, about 0.6 core-hours, 18 min on 2 workers (by the rows here)", and the core-hours.

    They are estimated from `rows` if these have every method and dataset, else from the rows of the leaderboard.
    """
    if not cells:
        return "", 0.0
    planned = [(cell, 1) for cell in cells]
    estimate, source = Costs(rows).of(planned) if rows else None, "the rows here"
    if estimate is None or estimate.unknown:
        estimate, source = published_costs().of(planned), "published timings"
    runs, known = f"{len(cells)} run{'s' * (len(cells) > 1)}", len(cells) - sum(estimate.unknown.values())
    unknown = f"no timing of {', '.join(list(estimate.unknown)[:3])}"
    if not known:
        return f"{runs}; the cost is not known: {unknown}", 0.0
    workers = options.workers(len(cells))
    span = span_of(estimate.hours / workers)
    cost = f"{amount(estimate.hours)}, " if 60 * estimate.hours >= 0.05 else ""
    line = f"{runs}, about {cost}{span} on {workers} worker{'s' * (workers > 1)} (by {source})"
    more = f"{len(cells) - known} more {'is' if len(cells) - known == 1 else 'are'} not judged: {unknown}"
    return line + (f"; {more}" if estimate.unknown else ""), estimate.hours


@cache
def published_costs() -> Costs:
    """Costs by the rows of the leaderboard, which come with the package."""
    return Costs.of_data(published()["costs"])


def _seconds(row: Row) -> float | None:
    """CPU time of a row; of older rows the wall time of training, which used one thread."""
    return (row.cpu_seconds or row.train_seconds) if row.status == "ok" else None


def _of_row(row: Row) -> Facts:
    asked = mapping(row.training)
    return _facts(row.method, row.dataset, row.backbone, asked.get("local_epochs"))


def _facts(method: str, dataset: str, backbone: str, epochs: object) -> Facts:
    return {"method": method, "dataset": dataset, "backbone": backbone, "local_epochs": str(epochs)}


def _ends(training: Mapping[str, object]) -> tuple[str, str]:
    return str(training.get("rounds")), str(training.get("patience"))
