"""A row by itself: its key, its names and parameters, its text, and figures that can be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from operator import attrgetter

from ...datasets import DATASETS
from ...datasets.owndata import OWN
from ...methods import METHODS
from ...metrics import Column
from ...registry import UserError
from ..engine.exchange import TASKS
from ..store.jsoncolumn import mapping
from ..store.provenance import canonical, code_version, known_commits, origin
from ..store.schema import FORMULA, RULES, Row
from ..store.versions import Versions
from ..suites.cell import Cell
from .inbox import RERUN
from .kin import Kin
from .limits import LARGE

EARLIEST = datetime(2023, 1, 1, tzinfo=timezone.utc)  # before there was an fglbench
LONGEST = 30 * 24 * 3600.0  # seconds of a cell
BRIEFEST = 1e-5  # seconds of a round: a thousandth of what the smallest takes
HIGH_F1, HIGH_WHOLE = 0.1, 0.25  # of the board's rows the most are 0.03 and 0.13
LEAST_MEMORY, MEMORY = 50, 1e8  # MiB of a process; one with torch and DGL has 300
COMMIT = "commit the code, then run the cells again with --rerun all"
FIXES = {"git_sha": COMMIT}  # of columns that another run alone does not mend
NEEDED = [name for name, rule in RULES.items() if rule.needed]
Problem = tuple[str, str]  # what is wrong, and the fix


def problems(row: Row, kin: Kin | None = None) -> Iterator[Problem]:
    """All that is wrong with a row by itself. kin: what it has in common with others, where these are at hand."""
    yield from _columns(row)
    yield from _date(row)
    yield from _figures(row)
    yield from _checkout(row)
    try:
        kin = kin or Kin(row)
        cell = kin.at(row.seed)
    except ValueError as error:
        yield f"its columns name no cell: {str(error).splitlines()[0]}", RERUN
        return
    if cell.key != row.key:
        yield f"key {row.key} is not that of its cell, which is {cell.key}", RERUN
        return
    wrong = list(_names(row, cell, kin))
    yield from wrong
    if row.status == "ok" and not wrong:
        yield from _matrix(row, cell)
        yield from _budget(row, cell, kin)
        yield from _privacy(row, cell)


def oddities(row: Row) -> Iterator[Problem]:
    """What a sound row may say, and hardly one does: worth a look."""
    look = "look for the cause; `fglbench verify` runs it again"
    if row.score is None or row.status != "ok":
        return
    if row.score >= 1:
        yield "a score of 1.0", look
    if row.macro_f1 is not None and "accuracy" in row.score_metric and row.macro_f1 > row.score + HIGH_F1:
        yield f"macro-F1 {row.macro_f1:.4f} far above the score, {row.score:.4f}", look
    for model in ("global", "personal"):
        whole, local = (getattr(row, f"{model}_on_{data}") for data in ("global", "local"))
        if whole is not None and local is not None and whole > local + HIGH_WHOLE:
            yield f"{model}_on_global {whole:.4f} far above {model}_on_local, {local:.4f}", look


def foreign(row: Row) -> str | None:
    """What a row of a method from outside does not say as the code that is here; None where nothing is to be told."""
    try:
        here = origin(METHODS.cls(row.method))
    except UserError:
        return None
    if not here or not row.has("origin"):
        return "its origin says that the method is from outside the package" if row.origin and not here else None
    theirs = mapping(row.origin).get("source")
    if theirs == json.loads(here).get("source"):
        return None
    return f"made by other source code of a method from outside ({theirs!r:.40}) than there is here"


def stale(row: Row, versions: Versions) -> bool:
    """Whether the row was made by other source code of its method than there is here."""
    try:
        return versions.stale(row, METHODS.cls(row.method))
    except UserError:
        return False


def _columns(row: Row) -> Iterator[Problem]:
    """Every value has the form, the length and the range that its column asks for."""
    for (name, rule), value in zip(RULES.items(), _values(row), strict=True):
        if isinstance(value, str):
            yield from _text(name, value)
        elif value is not None and not rule.least <= value < LARGE:
            yield f"column {name!r}: {value!r} is out of range", RERUN


_values = attrgetter(*RULES)


@lru_cache(maxsize=100_000)  # most texts stand in many rows
def _text(name: str, value: str) -> tuple[Problem, ...]:
    return tuple(_wrong(name, value, RULES[name]))


def _wrong(name: str, value: str, rule: Column) -> Iterator[Problem]:
    if len(value) > rule.longest:
        yield f"column {name!r} has {len(value)} characters; at most {rule.longest} are read", "shorten it"
    if value.startswith(FORMULA):
        yield f"column {name!r}: {value!r:.40} begins as a formula does", RERUN
    if not value.isprintable():
        yield f"column {name!r} holds control or invisible characters", "remove them"
    if rule.pattern and not re.fullmatch(rule.pattern, value):
        yield f"column {name!r}: {value!r:.80} is not of the form {rule.pattern}", FIXES.get(name, RERUN)
    if rule.json and value and not _canonical(value):
        yield f"column {name!r} is not canonical JSON", RERUN


def _canonical(text: str) -> bool:
    try:
        return canonical(json.loads(text)) == text
    except (ValueError, RecursionError):
        return False


def _date(row: Row) -> Iterator[Problem]:
    try:
        started = datetime.fromisoformat(row.started.removesuffix("Z")).replace(tzinfo=timezone.utc)
        if started > datetime.now(timezone.utc) + timedelta(days=1):
            yield f"started in the future ({row.started})", "set the clock and run the cell again"
        if started < EARLIEST:
            yield f"started before there was an fglbench ({row.started})", "set the clock and run the cell again"
    except ValueError:
        yield f"column 'started': {row.started!r:.40} is no date", RERUN


def _figures(row: Row) -> Iterator[Problem]:
    """Figures there are where the cell went well, and only there; rounds and bytes are in order."""
    missing = [name for name in NEEDED if getattr(row, name) in (None, "") and row.has(name)]
    if row.status != "ok":
        wrong = {f"a score although the cell is {row.status}": row.score is not None}
        wrong[f"no error although the cell is {row.status}"] = not row.error
    elif missing:
        wrong = {f"status ok without {', '.join(missing)}": True}
    else:
        wrong = {"status ok with an error": bool(row.error)}
        wrong[f"best round {row.best_round} of {row.rounds}"] = not row.in_time
        wrong |= _costs(row)
        for way in ("upload", "download"):
            best, total = getattr(row, f"{way}_bytes_best"), getattr(row, f"{way}_bytes")
            wrong[f"more bytes to the best round ({best}) than in all ({total}), {way}"] = best > total
    yield from ((what, RERUN) for what, found in wrong.items() if found)


def _costs(row: Row) -> dict[str, bool]:
    """Time and memory that a run can have taken."""
    train, total, memory = row.train_seconds or 0.0, row.total_seconds or 0.0, row.peak_memory_mb
    return {
        f"trained for {train:g} seconds in all of {total:g}": not train <= total,
        f"{train:g} seconds for {row.rounds} rounds": not train >= BRIEFEST * (row.rounds or 1),
        f"{total:g} seconds, more than {LONGEST:g}": not total <= LONGEST,
        f"a peak memory of {memory} MiB": memory is not None and not LEAST_MEMORY < memory <= MEMORY,
        "no processor time (cpu_seconds)": row.has("cpu_seconds") and not row.cpu_seconds,
    }


def _matrix(row: Row, cell: Cell) -> Iterator[Problem]:
    """`score_metric` is the engine's phrase for what the training asks for, and what it names is the score."""
    config, measure = cell.training, DATASETS.cls(row.dataset).scored_by
    columns = {
        TASKS[row.task].evaluator.phrase(measure, model, config.score_on): f"{model}_on_{config.score_on}"
        for model in ("global", "personal")
        if (model, config.score_model) != ("global", "personal")
    }
    column = columns.get(row.score_metric)
    if column is None:
        yield f"score_metric {row.score_metric!r:.80} is not {' or '.join(map(repr, columns))}", RERUN
        return
    named = getattr(row, column) if column in RULES else row.score  # the union of the clients has no column
    if named != row.score:
        yield f"score is {row.score}, but {column}, which it is, {named}", RERUN
    many = column.startswith("personal") and config.score_on != "local"  # models beside each other, on the same nodes
    for name in ("macro_f1", "score_weighted"):
        if getattr(row, name) is None and not many:
            yield f"status ok without {name}", RERUN
    if row.task == "node" and (row.global_on_local is None) != (row.global_on_global is None):
        yield "one of global_on_local and global_on_global alone", RERUN
    if row.personal_on_local is None and row.personal_on_global is not None and row.task == "node":
        yield "personal_on_global without personal_on_local", RERUN


def _budget(row: Row, cell: Cell, kin: Kin) -> Iterator[Problem]:
    """What the row says that it was given, and took, is what the method and the cell say."""
    if not row.has("effective_training"):
        return
    if row.effective_training != ("" if kin.ran == kin.given else kin.ran):
        told = f"effective_training is {row.effective_training!r:.80}"
        yield f"{told}; by the method's protocol it is {kin.ran!r:.80}", RERUN
    given, config = row.budget_steps or 0, cell.training
    epochs = config.rounds * config.local_epochs
    if given % epochs or given < epochs or (row.task == "node" and given != epochs):
        yield f"budget_steps is {row.budget_steps}; {config.rounds} rounds of {config.local_epochs} epochs", RERUN
    if not 0 <= (row.model_steps or 0) <= (row.optimiser_steps or 0):
        yield f"{row.model_steps} steps on one parameter of {row.optimiser_steps} in all", RERUN


def _privacy(row: Row, cell: Cell) -> Iterator[Problem]:
    """Only a run with noise has an epsilon, for the delta that it asked for."""
    wanted = cell.training.dp_delta if cell.training.dp_noise else None
    if row.dp_delta != wanted or (row.dp_epsilon is None) != (wanted is None):
        yield f"dp_epsilon {row.dp_epsilon} and dp_delta {row.dp_delta} for dp_noise {cell.training.dp_noise:g}", RERUN


def _checkout(row: Row) -> Iterator[Problem]:
    """What code made the row must be known and public: a commit, or an installed package with the code that is here."""
    if row.git_dirty:
        yield "made from a checkout with uncommitted changes (git_dirty)", COMMIT
    elif row.git_dirty is not None:
        if not row.git_sha.strip("0"):
            yield f"column 'git_sha': {row.git_sha!r} is not of the form [0-9a-f]{40}", COMMIT
    elif row.git_sha or not row.code:
        yield "not made from a git checkout (git_dirty is empty)", f"`pip install -e .` in a clone; {COMMIT}"
    elif row.code != code_version():
        what = f"made by an installed package whose code is {row.code}; here it is {code_version()}"
        yield what, "validate with the version of fglbench that made it, or run the cells again with this one"
    about = json.loads(row.origin) if row.origin and _canonical(row.origin) else {}
    if not isinstance(about, dict):
        yield f"column 'origin': {row.origin!r:.80} is no JSON object", RERUN
    elif about.get("dirty"):
        yield "the method comes from a repository with uncommitted changes (origin)", COMMIT


def unknown_commits(rows: Iterable[Row]) -> set[str] | None:
    """The commits of rows that this repository does not have; None where that cannot be looked up (no checkout)."""
    wanted = {row.git_sha for row in rows if re.fullmatch("[0-9a-f]{40}", row.git_sha)}
    known = known_commits(wanted) if wanted else set()
    return None if known is None else wanted - known


def _names(row: Row, cell: Cell, kin: Kin) -> Iterator[Problem]:
    """Every name is known, every parameter is there with a value that it may have."""
    if row.dataset.startswith(OWN):
        yield f"{row.dataset} is the user's own data, no registered dataset", "leave its rows out: nobody else has it"
        return
    try:
        made = kin.settled
    except UserError as error:
        yield str(error), "give --plugin FILE for a method or dataset outside the package, or run the cell again"
        return
    if made.seedless != cell.seedless:
        ours, theirs = made.identity, cell.identity
        parts = [name for name in ours if name != "seed" and ours[name] != theirs[name]]
        yield f"its {', '.join(parts)} is not as this version fills in the parameters", "run the cell again"
    cls = DATASETS.cls(row.dataset)
    if row.task != cell.task:
        yield f"task {row.task!r}, but {row.dataset} under split {row.split} is for {cell.task!r}", RERUN
    if row.has("reference") and row.reference != METHODS.cls(row.method).reference:
        yield f"reference is {row.reference}, which {row.method} is{' not' * row.reference}", RERUN
    if row.status == "ok" and row.synthetic != cls.synthetic:
        yield f"synthetic is {row.synthetic}, but for {row.dataset} it is {cls.synthetic}", RERUN
