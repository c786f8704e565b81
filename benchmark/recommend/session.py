"""The runs of a recommendation: time a few rounds, plan methods, trials, rounds and seeds for the budget, tune and run.

Trials, rounds and seeds are the same for every method. If it is stopped, the same call continues.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from ...datasets.own_data import metric_setting
from ...files import write_atomically
from ...registry import UserError
from ..runner.backend import Observer
from ..runner.job import Job, Options, Request, Store, published_costs
from ..store.schema import Row
from ..suites.cell import Cell
from ..suites.select import CUSTOM, select
from ..suites.suite import TUNING_SEED
from ..suites.tuned import with_rounds
from ..tune.session import Study, Tuner, own_settings, rungs_of
from .answer import ALONE, BASELINE

ROUNDS = (10, 15, 20, 30, 40, 60, 80, 100)
TRIALS = (2, 3, 4, 6, 8)
SEEDS = (3, 4, 5, 8, 10)
FEWEST = 3  # methods: local training, FedAvg and another
STARTING = 12.0  # seconds for starting workers
SHARE = 0.85  # the planned share of the time; the rest is for reading data and starting workers

Cost = Callable[[str, int], float]  # (method, rounds) -> seconds of a cell


@dataclass(frozen=True)
class Plan:
    """Each of `methods` is tuned with `trials` settings of `rounds` rounds, and run with `seeds` seeds. seconds:
    expected wall time."""

    methods: tuple[str, ...]
    trials: int
    rounds: int
    seeds: int
    seconds: float = 0.0

    def cost(self, cost: Cost, workers: int) -> float:
        """Expected seconds on this number of workers."""
        runs = rungs_of(self.rounds, self.trials)
        runs[self.rounds] += self.seeds
        return sum(cost(name, rounds) * n for name in self.methods for rounds, n in runs.items()) / workers


def planned(candidates: Sequence[str], cost: Cost, budget: float, workers: int) -> Plan:
    """The largest plan that fits: rounds, methods, trials and seeds grow in turn. candidates: in order of preference.
    budget: seconds, with STARTING.

    UserError if the smallest plan does not fit.
    """
    available = SHARE * (budget - STARTING)
    plan = Plan(tuple(candidates[:FEWEST]), TRIALS[0], ROUNDS[0], SEEDS[0])
    least = plan.cost(cost, workers)
    if least > available:
        needed = least / SHARE + STARTING
        raise UserError(
            f"--budget {budget:.0f}s is too short: the smallest comparison takes about {needed:.0f} s here "
            f"on {workers} worker{'s' * (workers > 1)}; give --budget {needed / 60 + 1:.0f}m"
        )
    while fitting := [larger for larger in _larger(plan, candidates) if larger.cost(cost, workers) <= available]:
        plan = fitting[0]
    return replace(plan, seconds=plan.cost(cost, workers))


def _larger(plan: Plan, candidates: Sequence[str]) -> list[Plan]:
    """Plans with one step more of rounds, trials, seeds or methods; first the one that has the smallest share of its
    steps."""
    plans = []
    for name, steps in (("rounds", ROUNDS), ("trials", TRIALS), ("seeds", SEEDS)):
        place = steps.index(getattr(plan, name))
        if place + 1 < len(steps):
            more: dict[str, Any] = {name: steps[place + 1]}
            plans.append(((place + 1) / len(steps), replace(plan, **more)))
    count = len(plan.methods)
    if count < len(candidates):
        wider = replace(plan, methods=tuple(candidates[: count + 1]))
        plans.append(((count - FEWEST + 1) / (len(candidates) - FEWEST + 1), wider))
    return [plan for _, plan in sorted(plans, key=lambda pair: pair[0])]


def seconds_of(text: str) -> float:
    """Seconds of "90s", "10m", "1.5h" or plain minutes. UserError for anything else."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 60.0)
    try:
        seconds = float(number.replace("_", "?")) * unit  # float also reads 1_0
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UserError(f"--budget is a time, as 90s, 10m or 1.5h; got {text!r:.60}")
    return seconds


TIMED = (2, 4, 16)  # rounds of the timed runs; the first one warms up the worker
SUITE = "recommend"  # the suite of its studies
LEAST = 3  # seeds that run even if the budget is spent
DEARER = 1.5  # assumed seconds per round, relative to FedAvg, of a method without published rows


@dataclass(frozen=True)
class Asked:
    """The request. budget: seconds. methods: candidates in order of preference. splits, partitions: instead of the
    data's own. settings: of these, as in split.train=0.6. seeds: None: as many as fit. begun: the start of the budget;
    finished runs cost nothing."""

    dataset: str
    metric: str
    budget: float
    methods: tuple[str, ...]
    results: Path
    options: Options
    splits: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    clients: tuple[int, ...] = ()
    settings: tuple[str, ...] = ()
    seeds: int | None = None
    begun: float = field(default_factory=time.monotonic)

    @property
    def store(self) -> Store:
        return Store(self.results)

    def cells(self) -> dict[str, Cell]:
        """One cell per candidate, with a tuning seed."""
        request = Request(
            methods=self.methods, seeds=(TUNING_SEED,), own_dataset=self.dataset,
            settings=(*metric_setting(self.metric, self.dataset), *self.settings),
            splits=self.splits, partitions=self.partitions, clients=self.clients,
        )  # fmt: skip
        selected = [cell for _, cell in select(request)]
        if len({cell.federation_key for cell in selected}) > 1:
            raise UserError("a recommendation is for one partition, number of clients and split: give one of each")
        by_method = {cell.method.name: cell for cell in selected}
        return {name: by_method[name] for name in self.methods if name in by_method}


def plan_of(asked: Asked, cells: Mapping[str, Cell], tell: Callable[[str], object]) -> Plan:
    """The stored plan of the same request, else a new plan that fits the budget, which is stored next to the rows."""
    path = asked.results / f"{asked.dataset.partition(':')[2]}.recommend.json"
    first = next(iter(cells.values()))
    workers = asked.options.workers(len(cells))
    key = {
        "data": first.federation_key, "budget": asked.budget, "methods": list(cells), "seeds": asked.seeds,
        "workers": workers,
    }  # fmt: skip
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["asked"] == key:
            return Plan(**{**stored["plan"], "methods": tuple(stored["plan"]["methods"])})
    except (OSError, ValueError, KeyError, TypeError):
        pass
    plan = planned(tuple(cells), _cost(asked, cells[BASELINE]), asked.budget, workers)
    if asked.seeds:
        plan = replace(plan, seeds=asked.seeds)
    asked.store.prepare([CUSTOM])
    write_atomically(path, json.dumps({"asked": key, "plan": asdict(plan)}, indent=1).encode())
    tell(f"plan kept in {path}")
    return plan


def _cost(asked: Asked, cell: Cell) -> Callable[[str, int], float]:
    """(method, rounds) -> seconds of a cell: FedAvg is measured here; other methods are relative to it by the rows of
    the leaderboard."""
    store = Store(asked.results / "timing")
    options = Options(1, asked.options.threads, asked.budget, asked.options.memory_limit, plugins=asked.options.plugins,
                      device=asked.options.device)  # fmt: skip
    job = Job([(CUSTOM, with_rounds(cell, rounds)) for rounds in TIMED], store, options, ("all",))
    rows = job.carry_out(lambda line: None)
    taken = [row.total_seconds or 0.0 for row in rows if row.status == "ok"]
    if any(row.status == "timeout" for row in rows):
        raise UserError(f"--budget {asked.budget:g}s is too short to time FedAvg; give --budget 1m or more")
    if len(taken) < len(TIMED):
        raise UserError(f"FedAvg fails on {asked.dataset}: {rows[0].error}")
    rate = max((taken[2] - taken[1]) / (TIMED[2] - TIMED[1]), 1e-3)
    fixed = max(taken[1] - TIMED[1] * rate, 0.0) + 0.2
    costs = published_costs()
    return lambda name, rounds: fixed + rate * rounds * (costs.relative(name, BASELINE) or DEARER)


def carry_out(
    asked: Asked, plan: Plan, cells: Mapping[str, Cell], complain: Callable[[str], object],
    observer: Callable[[], Observer],
) -> pd.DataFrame:  # fmt: skip
    """Tune the methods of a plan and run them with the chosen settings; return the rows of these runs."""
    of_plan = [with_rounds(cells[name], plan.rounds) for name in plan.methods]
    studies = [Study(SUITE, cell, plan.trials, (TUNING_SEED,)) for cell in of_plan]
    tuner = Tuner(asked.results, own_settings(asked.results, asked.dataset, asked.metric), asked.options)
    known = {choice.study: choice for choice in tuner.run(studies, complain, observer)}
    scored = [(CUSTOM, known[study.id].scored(study.cell.at(seed)))
              for study in studies if study.id in known for seed in range(plan.seeds)]  # fmt: skip
    if not any(cell.method.name == ALONE for _, cell in scored):
        raise UserError("local training failed, and methods are compared with it; see the lines above")
    rows = list[Row]()
    for seeds in (range(LEAST), *([seed] for seed in range(LEAST, plan.seeds))):
        job = Job([pair for pair in scored if pair[1].seed in seeds], asked.store, asked.options)
        late = time.monotonic() - asked.begun > asked.budget and asked.seeds is None
        if late and seeds != range(LEAST) and job.plan().todo:
            complain(f"the budget is spent after {len({row.seed for row in rows})} of {plan.seeds} seeds")
            break
        rows += job.carry_out(complain, observer())
    return pd.DataFrame([row.model_dump() for row in rows])
