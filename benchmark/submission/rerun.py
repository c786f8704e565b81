"""Run a random sample of rows again, with all seeds of their cells, and compare them by `bars`."""

from __future__ import annotations

import hashlib
import random
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...registry import UserError
from ..runner.job import Job, Options
from ..runner.supervisor import Observer
from ..store import Store, provenance, verified
from ..store.schema import Row
from ..store.verified import Verified
from ..suites.cell import Cell
from .bars import Comparison, Run, compare, deviations, smaller, spreads, task, together, usual
from .cells import problems as cell_problems
from .sides import load


@dataclass(frozen=True)
class Verification:
    """Rows and their second runs. whole: what `together` says. machines: that ran them, by the hash in our rows."""

    found: list[Comparison]
    whole: tuple[float, float] | None
    machines: dict[str, dict[str, Any]]

    @property
    def sound(self) -> bool:
        """Whether the sample as such passed, whatever its single rows did."""
        return self.whole is None or self.whole[0] >= -self.whole[1]

    @property
    def passed(self) -> bool:
        return self.sound and all(each.passed for each in self.found)


def seed_of(path: Path) -> tuple[int, str]:
    """(seed of the draw, where it is from): the commit that has the rows, or chance where there is none.

    The commit is made after the rows: by whoever merges them, so that it cannot be chosen with the draw in mind.
    """
    folder = path if path.is_dir() else path.parent
    tracked = provenance.git_output("ls-files", "--", "." if path.is_dir() else path.name, folder=folder)
    commit = provenance.git_output("rev-parse", "--verify", "-q", "HEAD", folder=folder) if tracked else None
    if not commit:
        return secrets.randbelow(10**6), "chance"
    sha = commit.decode().strip()
    return int(hashlib.sha256(sha.encode()).hexdigest()[:8], 16), f"commit {sha[:12]}"


def draw(store: Store, only: Mapping[str, Sequence[str]], number: int, seed: int, called: str) -> list[Row]:
    """Standing rows that have one of the values of each column in `only` (no values: any will do), as `sample`.

    UserError as `sample`, and when there is no such row in the store, which the user has `called` so.
    """
    wanted = {column: some for column, some in only.items() if some}
    chosen = [r for r in store.rows(latest_only=True) if all(getattr(r, column) in wanted[column] for column in wanted)]
    if not chosen:
        raise UserError(f"no rows under {called!r}" + (" for these options" if wanted else ""))
    return sample(chosen, number, seed)


def sample(rows: Sequence[Row], number: int, seed: int) -> list[Row]:
    """All seeds of `number` cells, drawn without replacement; the same for the same rows in any order.

    Before these, as many cells that lack a score for a seed: first those that have one for another. UserError when no
    row has a score, and for a row whose cell could not be run here.
    """
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=_identity):
        cells.setdefault((row.suite, place(row)), []).append(row)
    lacking = [where for where, own in cells.items() if any(row.status != "ok" for row in own)]
    lacking.sort(key=lambda where: all(row.status != "ok" for row in cells[where]))  # which keeps the order otherwise
    scored = [where for where, own in cells.items() if where not in lacking]
    if not any(row.score is not None for row in rows):
        raise UserError("no row has a score, so there is nothing to run again")
    drawn = [*lacking[:number], *random.Random(seed).sample(scored, min(number, len(scored)))]
    found = [row for where in drawn for row in cells[where]]
    for row in found:
        problem = next(cell_problems(row), None)
        if problem is not None:
            raise UserError(f"the row with key {row.key}: {problem[0]}; look with `fglbench validate` first")
    return found


def run_again(
    store: Store,
    drawn: Sequence[Row],
    options: Options,
    tell: Callable[[str], object],
    observer: Observer,
    base: Store | None = None,
) -> Verification:
    """Run rows of a store again, in one that is thrown away, and compare. Raises what the steps of a `Job` raise.

    base: where other methods' rows stand, if not in the store itself.
    """
    with tempfile.TemporaryDirectory() as folder:
        again = Store(folder)
        job = Job([(row.suite, Cell.of(row)) for row in drawn], again, options)
        made = job.run(job.load(job.plan(), tell), observer).rows.values()
        ours = {_identity(row): Run(row, load(again, row)) for row in made}
        machines = {row.environment: again.environment(row.environment) or {} for row in made}
    others = [*store.rows(latest_only=True), *(base.rows(latest_only=True) if base else ())]
    known, versions, found = spreads(others), store.versions(), []
    for row in drawn:
        cell = [run.row for run in ours.values() if run.row.suite == row.suite and place(run.row) == place(row)]
        spread = smaller(deviations(cell), usual(known, task(row), row.method))
        version = versions.of(row.method, row.method_version, row.git_sha)
        theirs = Run(row, load(store, row) if row.status == "ok" else None)
        found.append(compare(theirs, ours.get(_identity(row)), spread, version))
    return Verification(found, together(found), machines)


def may_record(results: Path, by: str, dirty: bool | None) -> None:
    """UserError unless verdicts on a results folder can be recorded. dirty: the state of the checkout."""
    if not results.is_dir():
        raise UserError(f"no results folder at {str(results)!r}; --record takes the one whose rows are verified")
    if not by:
        raise UserError("--record needs --by NAME (or FGLBENCH_SUBMITTER): who verifies")
    if dirty is not False:
        raise UserError("--record needs a clean checkout, so that the commit says what code ran; commit first")


def record(run: Verification, results: Path, by: str) -> None:
    """Write the verdicts to the results folder's `verified.csv`, and the machines that computed beside them.

    The commit is that of this checkout: nodes of a cluster that have other source are refused when they start.
    """
    stamp = {"date": provenance.now(), "git_sha": provenance.git_state()[0], "by": by}
    verdicts = [found for each in run.found if (found := verdict(each, whole=run.sound, **stamp))]
    for digest in sorted({each.environment for each in verdicts}):
        Store(results).write_environment(digest, run.machines[digest])
    verified.add(results, verdicts)


def _identity(row: Row) -> tuple[str, str]:
    return row.suite, row.key


def place(row: Row) -> str:
    """The cell of a row without its seed."""
    return Cell.of(row).seedless


def verdict(found: Comparison, *, whole: bool, **stamp: str) -> Verified | None:
    """What is recorded of a comparison; None where the row could not be run. `whole`: the sample as such passed.

    stamp: date, git_sha and by of `Verified`.
    """
    row, ours = found.theirs, found.ours
    if ours is None or row.score is None:
        return None
    passed = found.passed and whole
    same = row.model_dump(include={"suite", "key", "method", "method_version", "score"})
    said = {"verdict": "passed" if passed else "failed", "environment": ours.environment}
    return Verified(**same, ours=ours.score, bar=found.bar, **said, **stamp)
