"""Run a random sample of rows again, with all seeds of their cells, and compare the scores.

Plug-ins are imported in the workers and in the process of `apart`, so they cannot change the comparison. A value of a
row may be above ours by at most 2.5 s, but at least 0.01 and at most 0.05 (other processors round differently); s is
the deviation of our runs over the seeds of the cell. It may be below ours by any amount.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...registry import UserError
from ..runner.backend import Observer
from ..runner.job import Job, Options
from ..store import Store, provenance, verified
from ..store.schema import Row, mapping
from ..store.verified import Verified
from ..suites.cell import Cell

DEVIATIONS, MOST, FLOORS = 2.5, 0.05, {"score": 0.01, "val": 0.01, "macro_f1": 0.03}
EQUAL = ("dataset_fingerprint", "partition_hash")


@dataclass(frozen=True)
class Comparison:
    """A row and its second run. bar: the score may exceed ours by this much. problems: none if it passes."""

    theirs: Row
    ours: Row | None
    bar: float
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.problems

    def difference(self, figure: str) -> float | None:
        """Ours minus theirs, if both exist."""
        ours, theirs = (getattr(row, figure, None) for row in (self.ours, self.theirs))
        return None if ours is None or theirs is None else float(ours - theirs)


def compare(theirs: Row, ours: Row | None, seeds: Sequence[Row]) -> Comparison:
    """Compare a row with its second run (None: it was not run). seeds: our runs of all seeds of the cell."""
    bars = {}
    for name, floor in FLOORS.items():
        values = [value for row in seeds if (value := getattr(row, name)) is not None]
        spread = DEVIATIONS * statistics.stdev(values) if len(values) > 1 else 0.0
        bars[name] = max(floor, min(spread, MOST))
    problems = list[str]()
    if ours is None:
        problems.append("not run: its data is unavailable")
    elif ours.status != theirs.status:
        why = ours.error or f"it has a score of {ours.score:.4f}"
        problems.append(f"{theirs.status} in the row, but {ours.status} here: {why}")
    elif ours.status == "ok":
        # if training stops by validation, rounding can change the number of rounds
        same = EQUAL if mapping(theirs.training).get("patience") else (*EQUAL, "rounds")
        problems += [
            f"another {name.replace('_', ' ')}" for name in same if getattr(ours, name) != getattr(theirs, name)
        ]
        for name, bar in bars.items():
            one, other = getattr(ours, name), getattr(theirs, name)
            if one != other and (one is None or other is None or not other - one <= bar):  # also for NaN
                problems.append(f"{name} is more than {bar:.2g} above ours")
    return Comparison(theirs, ours, bars["score"], tuple(problems))


def draw(store: Store, only: Mapping[str, Sequence[str]], number: int, seed: int, called: str) -> list[Row]:
    """The rows of all seeds of `number` cells of a store, drawn at random without replacement.

    only: column -> allowed values (none: any). called: the name of the store in messages. UserError if there is no such
    row, if none has a score, or if a row has no cell.
    """
    wanted = {column: values for column, values in only.items() if values}
    chosen = [r for r in store.rows(latest_only=True) if all(getattr(r, column) in wanted[column] for column in wanted)]
    if not chosen:
        raise UserError(f"no rows under {called!r}" + (" for these options" if wanted else ""))
    if not any(row.score is not None for row in chosen):
        raise UserError("no row has a score, so there is nothing to run again")
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(chosen, key=lambda row: (row.suite, row.key)):
        cells.setdefault(_place(row), []).append(row)
    drawn = random.Random(seed).sample(list(cells), min(number, len(cells)))
    return [row for where in drawn for row in cells[where]]


def _place(row: Row) -> tuple[str, str]:
    """(suite, cell without its seed) of a row. UserError if it has no cell."""
    try:
        cell = Cell.of(row)
        if cell.key == row.key:
            return row.suite, cell.seedless
        what = f"its experiment has the key {cell.key}"
    except ValueError as error:
        what = str(error)
    raise UserError(f"the row with key {row.key}: {what:.200}; look with `fglbench validate` first")


def run_again(
    drawn: Sequence[Row], options: Options, tell: Callable[[str], object], observer: Observer
) -> tuple[list[Comparison], dict[str, dict[str, Any]]]:
    """Run rows again in a temporary store. Return (comparisons, environments by hash). UserError as for `Job`.

    options: the plug-ins must be those of `apart.use`.
    """
    with tempfile.TemporaryDirectory() as folder:
        again = Store(folder)
        rows = Job([(row.suite, Cell.of(row)) for row in drawn], again, options).carry_out(tell, observer)
        ours = {(row.suite, row.key): row for row in rows}
        machines = {row.environment: again.environment(row.environment) or {} for row in ours.values()}
    comparisons, places = [], {pair: _place(row) for pair, row in ours.items()}
    for row in drawn:
        seeds = [ours[pair] for pair, where in places.items() if where == _place(row)]
        comparisons.append(compare(row, ours.get((row.suite, row.key)), seeds))
    return comparisons, machines


def may_record(results: Path, by: str, dirty: bool | None) -> None:
    """Raise UserError unless verdicts on a results folder can be recorded. dirty: of the checkout."""
    if not results.is_dir():
        raise UserError(f"no results folder at {str(results)!r}; --record needs the folder of the verified rows")
    if not by:
        raise UserError("--record needs --by NAME (or FGLBENCH_SUBMITTER), the person who verifies")
    if dirty is not False:
        raise UserError("--record needs a clean checkout, so that the commit identifies the code; commit first")


def record(comparisons: Iterable[Comparison], machines: Mapping[str, dict[str, Any]], results: Path, by: str) -> None:
    """Add the verdicts to `verified.csv` of a results folder, and write the environments of the runs."""
    stamp = {"date": provenance.now(), "git_sha": provenance.git_state()[0], "by": by}
    verdicts = []
    for comparison in comparisons:
        if comparison.ours is not None and comparison.theirs.score is not None:
            row = comparison.theirs.model_dump(include={"suite", "key", "method", "method_version", "score"})
            outcome = {"verdict": "passed" if comparison.passed else "failed"}
            outcome["environment"] = comparison.ours.environment
            verdicts.append(Verified(**row, ours=comparison.ours.score, bar=comparison.bar, **outcome, **stamp))
    for digest in sorted({comparison.environment for comparison in verdicts}):
        Store(results).write_environment(digest, machines[digest])
    verified.add(results, verdicts)
