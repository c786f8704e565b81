"""Run a random sample of rows again and compare.

On the same type of machine, with the same versions of what computes, a run repeats itself: scores must be equal to
float32 rounding, the best round and the bytes exactly. Elsewhere the order of summation differs in the last bits, and
over the rounds such a difference may grow until single test nodes change sides, or another round is the best. A new
seed changes partition, split and initialisation as well, so the deviation over seeds, s, bounds what rounding can do.
Hence the bars there, which a row with an honest score keeps:

* one row: |ours - theirs| <= 3 s, or 0.01 if that is more, for score and validation; for macro-F1 with its own s, or
  0.03, for one node of a rare class moves it far;
* all n rows of a sample together: |mean difference of scores| <= 3 sqrt(sum s^2) / n, or 0.005 if that is more. It
  finds a small gain on every row, which no single row gives away;
* bytes a round: within 2%, for methods that choose what they send by what they have computed.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...metrics import METRICS
from ...registry import UserError
from ..runner.job import Job, Options
from ..runner.supervisor import Observer
from ..store import Store, provenance, verified
from ..store.schema import Row
from ..store.verified import Verified
from ..suites.cell import Cell
from .cells import problems as cell_problems

EXACT = 1e-6  # rounding of float32 in a mean over clients
FLOORS = {name: column.floor for name, column in METRICS.items() if column.floor}
TOGETHER, TRAFFIC, DEVIATIONS = 0.005, 0.02, 3.0
COMPUTING = ("torch", "dgl", "numpy", "scipy", "scikit-network", "networkx")  # packages on which numbers depend
COUNTS = [name for name, column in METRICS.items() if column.exact]
Deviations = Mapping[str, float]  # of a cell's figures over seeds


@dataclass(frozen=True)
class Comparison:
    """A row run again. bar: what the difference of scores may be. problems: what does not agree; none: it passes."""

    theirs: Row
    ours: Row | None
    bar: float
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.problems

    def difference(self, figure: str) -> float | None:
        """Ours minus theirs, where both exist."""
        ours, theirs = (getattr(row, figure, None) for row in (self.ours, self.theirs))
        return None if ours is None or theirs is None else float(ours - theirs)


@dataclass(frozen=True)
class Verification:
    """Rows and their second runs. whole: what `together` says. environment: (hash, description) of this machine."""

    found: list[Comparison]
    whole: tuple[float, float] | None
    environment: tuple[str, dict[str, Any]]

    @property
    def sound(self) -> bool:
        """Whether the sample as such passed, whatever its single rows did."""
        return self.whole is None or abs(self.whole[0]) <= self.whole[1]

    @property
    def passed(self) -> bool:
        return self.sound and all(each.passed for each in self.found)


def draw(store: Store, only: Mapping[str, Sequence[str]], number: int, seed: int, called: str) -> list[Row]:
    """A sample of the standing rows that have one of the values of each column in `only`; no values: any will do.

    UserError as `sample`, and when there is no such row in the store, which the user has `called` so.
    """
    wanted = {column: some for column, some in only.items() if some}
    chosen = [r for r in store.rows(latest_only=True) if all(getattr(r, column) in wanted[column] for column in wanted)]
    if not chosen:
        raise UserError(f"no rows under {called!r}" + (" for these options" if wanted else ""))
    return sample(chosen, number, seed)


def run_again(
    store: Store, drawn: Sequence[Row], options: Options, tell: Callable[[str], object], observer: Observer
) -> Verification:
    """Run rows of a store again, in one that is thrown away, and compare. Raises what the steps of a `Job` raise."""
    environment = provenance.environment(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        job = Job([(row.suite, Cell.of(row)) for row in drawn], Store(folder), options)
        made = job.run(job.load(job.plan(), tell), observer).rows
    spread, versions, found = deviations(store.rows(latest_only=True)), store.versions(), []
    for row in drawn:
        exact = same_machine(environment[1], store.environment(row.environment))
        version = versions.of(row.method, row.method_version, row.git_sha)
        ours = made.get(_identity(row))
        found.append(compare(row, ours, spread.get(place(row), {}), exact=exact, version=version))
    return Verification(found, together(found, spread), environment)


def may_record(results: Path, by: str, dirty: bool | None) -> None:
    """UserError unless verdicts on a results folder can be recorded. dirty: the state of the checkout."""
    if not results.is_dir():
        raise UserError(f"no results folder at {str(results)!r}; --record takes the one whose rows are verified")
    if not by:
        raise UserError("--record needs --by NAME (or FGLBENCH_SUBMITTER): who verifies")
    if dirty is not False:
        raise UserError("--record needs a clean checkout, so that the commit says what code ran; commit first")


def record(run: Verification, results: Path, by: str) -> None:
    """Write the verdicts to the results folder's `verified.csv`, and this machine beside them."""
    digest, about = run.environment
    stamp = {"date": provenance.now(), "git_sha": provenance.git_state()[0], "environment": digest, "by": by}
    verified.add(results, filter(None, [verdict(each, whole=run.sound, **stamp) for each in run.found]))
    Store(results).write_environment(digest, about)


def sample(rows: Sequence[Row], number: int, seed: int) -> list[Row]:
    """`number` of the rows that have a score, drawn without replacement; the same for the same rows in any order.

    UserError when there is none, and for a row whose cell could not be run here.
    """
    scored = sorted((row for row in rows if row.status == "ok" and row.score is not None), key=_identity)
    if not scored:
        raise UserError("no row has a score, so there is nothing to run again")
    drawn = random.Random(seed).sample(scored, min(number, len(scored)))
    for row in drawn:
        problem = next(cell_problems(row), None)
        if problem is not None:
            raise UserError(f"the row with key {row.key}: {problem[0]}; look with `fglbench validate` first")
    return drawn


def _identity(row: Row) -> tuple[str, str]:
    return row.suite, row.key


def place(row: Row) -> str:
    """The cell of a row without its seed."""
    return Cell.of(row).seedless


def same_machine(ours: Mapping[str, Any] | None, theirs: Mapping[str, Any] | None) -> bool:
    """Whether two environments are of one type: processor, system, threads and the packages that compute."""
    if not ours or not theirs:
        return False

    def kind(about: Mapping[str, Any]) -> list[Any]:
        packages = about.get("packages")
        versions = [packages.get(name) if isinstance(packages, Mapping) else None for name in COMPUTING]
        system = str(about.get("system", "")).split(" ")[0]
        return [about.get("machine"), about.get("cpu"), system, about.get("threads"), *versions]

    return kind(ours) == kind(theirs)


def deviations(rows: Sequence[Row]) -> dict[str, Deviations]:
    """For the cell of each row without its seed: the deviation over seeds of each figure that two of them have."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for figure in FLOORS:
            if (value := getattr(row, figure)) is not None:
                values.setdefault(place(row), {}).setdefault(figure, []).append(value)
    return {
        where: {figure: float(np.std(found, ddof=1)) for figure, found in figures.items() if len(found) > 1}
        for where, figures in values.items()
    }


def compare(
    theirs: Row, ours: Row | None, spread: Deviations, *, exact: bool, version: str | None = None
) -> Comparison:
    """Hold a row against its second run.

    exact: both were made on the same type of machine. version: the one that the row's stands for, if not its own.
    """
    bars = {name: EXACT if exact else max(DEVIATIONS * spread.get(name, 0.0), floor) for name, floor in FLOORS.items()}
    if ours is None:
        problems = ["not run: its data cannot be had"]
    elif ours.status != "ok":
        problems = [f"{ours.status}: {ours.error}"]
    else:
        wanted = theirs.model_copy(update={"method_version": version or theirs.method_version})
        problems = [*_others(ours, wanted, exact), *_wide(ours, theirs, bars)]
        ways = () if exact else ("upload", "download")
        problems += [f"{way} bytes a round differ" for way in ways if not _alike(ours, theirs, way)]
    return Comparison(theirs, ours, bars["score"], tuple(problems))


def _others(ours: Row, theirs: Row, exact: bool) -> Iterator[str]:
    """What must be equal in two runs and is not."""
    counts = filter(theirs.has, COUNTS) if exact else ()
    for name in ("dataset_fingerprint", "partition_hash", *counts, "method_version"):
        if getattr(ours, name) != getattr(theirs, name):
            yield f"another {name.replace('_', ' ')}"


def _wide(ours: Row, theirs: Row, bars: Mapping[str, float]) -> Iterator[str]:
    """Figures that differ by more than they may, or that one of the two has alone."""
    for figure in filter(theirs.has, bars):
        one, other = getattr(ours, figure), getattr(theirs, figure)
        if one != other and (one is None or other is None or not abs(one - other) <= bars[figure]):  # also for NaN
            yield f"{figure} differs by more than {bars[figure]:.2g}"


def _alike(ours: Row, theirs: Row, way: str) -> bool:
    one, other = ((getattr(row, f"{way}_bytes") or 0) / (row.rounds or 1) for row in (ours, theirs))
    return math.isclose(one, other, rel_tol=TRAFFIC)


def together(found: Sequence[Comparison], spread: Mapping[str, Deviations]) -> tuple[float, float] | None:
    """(mean difference of scores, its bar) over the cells with a score from another type of machine; None without."""
    pairs = [(each.difference("score"), place(each.theirs)) for each in found if each.bar > EXACT]
    known = [(value, spread.get(where, {}).get("score", 0.0)) for value, where in pairs if value is not None]
    if not known:
        return None
    mean = sum(value for value, _ in known) / len(known)
    return mean, max(DEVIATIONS * math.sqrt(sum(s**2 for _, s in known)) / len(known), TOGETHER)


def verdict(found: Comparison, *, whole: bool, **stamp: str) -> Verified | None:
    """What is recorded of a comparison; None where the row could not be run. `whole`: the sample as such passed.

    stamp: date, git_sha, environment and by of `Verified`.
    """
    row, ours = found.theirs, found.ours
    if ours is None or row.score is None:
        return None
    passed = found.passed and (whole or found.bar <= EXACT)
    same = row.model_dump(include={"suite", "key", "method", "method_version", "score"})
    return Verified(**same, ours=ours.score, bar=found.bar, verdict="passed" if passed else "failed", **stamp)
