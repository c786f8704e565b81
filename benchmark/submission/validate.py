"""Check a results folder or a submission: every row alone, and against its suite, data and side files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from ...datasets import DATASETS
from ...methods import METHODS
from ...registry import UserError
from ..store.row_file import SUBMISSIONS, safe_name
from ..store.schema import TRIAL
from ..suites.cell import Cell, registered_hash
from ..suites.select import CUSTOM, Request, at_settings, parted
from ..suites.suite import TUNING_SEED, load_suite, suite_names
from ..suites.tuned import BACKBONE, TRAINING, Table, read_tuned
from . import base as bases, curves
from .listing import METADATA, SETTINGS, Findings, Folder, Verdict, check_environments, check_rows
from .read import RERUN, Line, grouped, lines_of, located, problems, read, standing
from .submit import metadata, read_fields

CUSTOM_FIX = "submit rows that were run as a suite says: fglbench run -s SUITE -m METHOD"
DATA_FIX = "get the registered data (fglbench data fetch NAME) and run again with the versions that made it"


Expected = dict[str, dict[int, Cell]]  # cell without seed -> seed -> cell


def validate(
    root: Path, name: str, base: str | None = None, *, maintainer: bool = False, submission: bool | None = None
) -> Verdict:
    """Check the folder at `root`. name: in messages.

    base: a folder or a commit; rows may only be added to it, and problems of its rows are warnings. maintainer: whether
    rows may be added to a results folder. Every problem is a finding. UserError for a base that cannot be read.
    """
    findings = Findings()
    with bases.opened(base, root) if base else nullcontext() as before:
        if before and submission is None and not Path(base or "").is_dir() and any(before.iterdir()):
            submission = (before / METADATA).is_file()  # a new metadata file does not turn results into a submission
        folder, lines = read(root, name, findings, submission=submission)
        fresh = set(lines)
        if before and ((before / METADATA).is_file() or not folder.submission):  # a submission is added to results
            fresh = bases.compare(folder, lines, before, findings, maintainer=maintainer)
    check_rows(folder, findings)
    claimed = fresh if folder.submission or base is not None else set()
    _check(folder, lines, fresh, claimed, findings)
    check_environments(folder, _machines(lines), findings)
    if folder.submission:
        _metadata(folder, lines, findings)
    return Verdict(folder, len(lines), Counter(line.row.suite for line in fresh), findings)


def of_suite(folder: Folder) -> dict[str, Any]:
    """The result for the files of one suite without a base, as JSON data for the cache of `summary`."""
    findings = Findings()
    lines = lines_of(folder, findings)
    _check(folder, lines, set(lines), set(), findings)
    listed = [[finding.place, finding.what, finding.fix, finding.warning] for finding in findings.entries]
    return {"rows": len(lines), "findings": listed, "environments": _machines(lines)}


def _machines(lines: Sequence[Line]) -> dict[str, str]:
    """Hash of an environment -> place of its first row."""
    return {digest: rows[0].place for digest, rows in grouped(lines, lambda line: line.row.environment).items()}


def _check(folder: Folder, lines: Sequence[Line], fresh: set[Line], claimed: set[Line], findings: Findings) -> None:
    for line in lines:
        for what, fix in problems(line):
            findings.add(line.place, what, fix, warning=line not in fresh)
        if line.row.method not in METHODS.names():
            what = f"method {line.row.method!r:.80} is unknown, so its settings and rounds were not checked"
            findings.add(line.place, what, "its code is reviewed and merged before its rows count", warning=True)
        if line.row.tuning == TRIAL and not folder.trials:
            findings.add(line.place, "a trial of `fglbench tune`, not a score of its suite", "leave it out")
    _duplicates(lines, claimed, findings)
    if not folder.trials:
        _suites(lines, claimed, _settings(folder, findings), findings)
    _data(lines, fresh, findings)
    _side_files(folder, lines, findings)


def _duplicates(lines: Sequence[Line], claimed: set[Line], findings: Findings) -> None:
    seen: dict[tuple[str, str], Line] = {}
    for line in lines:
        before = seen.get((line.row.suite, line.row.key))
        if before is not None and line.text == before.text:
            findings.add(line.place, f"the same row as in line {before.number}", "remove one of them")
        elif before is not None and {line, before} <= claimed and before.row.status == line.row.status == "ok":
            what = f"a second result for the experiment of line {before.number} (key {line.row.key})"
            findings.add(line.place, what, "submit one result per experiment; `fglbench submit` packs the last")
        seen[line.row.suite, line.row.key] = line


def _settings(folder: Folder, findings: Findings) -> Table:
    """The tuned settings of a submission. Findings if they contain scored seeds, or parameters that are not tuned."""
    if not folder.files.get("settings"):
        return {}
    try:
        table = read_tuned(folder.root / SETTINGS)
    except UserError as error:
        findings.add(folder.place(SETTINGS), str(error), "give the file that `fglbench compete` wrote")
        return {}
    for method, by_dataset in table.items():
        for dataset, chosen in by_dataset.items():
            if wrong := sorted({*chosen.training} - TRAINING | {*chosen.backbone} - BACKBONE):
                what = f"{method} on {dataset} sets {', '.join(wrong)}; tuning chooses {', '.join(TRAINING | BACKBONE)}"
                findings.add(folder.place(SETTINGS), what, "leave it out")
                return {}
            if min(chosen.seeds) < TUNING_SEED:
                what = f"{method} on {dataset} was tuned on seed {min(chosen.seeds)}, which may be scored"
                findings.add(folder.place(SETTINGS), what, f"tune on seeds from {TUNING_SEED} on")
                return {}
    return table


def _suites(lines: Sequence[Line], claimed: set[Line], table: Table, findings: Findings) -> None:
    """Check that every row is a cell of its suite, and that no seed is missing. table: settings of a submission.

    Findings about rows that are not claimed are warnings, because a results folder may be incomplete.
    """
    for (suite, method), rows in grouped(lines, lambda line: (line.row.suite, line.row.method)).items():
        if suite != CUSTOM and suite in suite_names():
            with suppress(UserError):  # an unknown method or setting, which the check of the row reports
                _against_suite(suite, method, rows, claimed, expected(suite, method, table), findings)
            continue
        for line in rows:
            if suite != CUSTOM:
                what = f"unknown suite {suite!r} (known: {', '.join(suite_names())})"
                findings.add(line.place, what, CUSTOM_FIX, warning=line not in claimed)
            elif line in claimed:
                findings.add(line.place, "a row with changed settings (suite 'custom') is on no board", CUSTOM_FIX)


def _against_suite(
    suite: str, method: str, rows: Sequence[Line], claimed: set[Line], cells: Expected, findings: Findings
) -> None:
    present = dict[str, dict[int, Line]]()
    for line in rows:
        if line.seedless in cells:
            present.setdefault(line.seedless, {})[line.row.seed] = line
            tuning = next(iter(cells[line.seedless].values())).tuning
            if line in claimed and line.row.tuning != tuning:
                what = f"tuning is {line.row.tuning!r:.60}; of this experiment it is {tuning!r:.60}"
                findings.add(line.place, what, "run it with the settings that the suite refers to")
        elif line.cell:
            what = f"not an experiment of suite {suite!r}: {departure(line.cell, cells.values())}"
            findings.add(line.place, what, CUSTOM_FIX, warning=line not in claimed)
    lacking: dict[tuple[bool, tuple[int, ...]], list[Line]] = {}
    for place, seeds in present.items():
        missing = tuple(sorted(set(cells[place]) - set(seeds)))
        if missing:
            # tables of papers and sweeps may have the first seeds only (`fglbench reproduce --seeds n`)
            first_seeds = missing[0] > max(seeds) and not load_suite(suite).leaderboard
            wrong = not first_seeds and not claimed.isdisjoint(seeds.values())
            lacking.setdefault((wrong, missing), []).append(next(iter(seeds.values())))
        for seed in sorted(set(seeds) - set(cells[place])):
            what = f"seed {seed} of {seeds[seed].row.dataset}, {method} is not a seed of suite {suite!r}"
            fix = "leave it out: on a board every method has the same seeds"
            findings.add(seeds[seed].place, what, fix, warning=seeds[seed] not in claimed)
    for (wrong, missing), first in lacking.items():
        datasets = ",".join(dict.fromkeys(line.row.dataset for line in first))
        what = f"suite {suite!r} has more seeds of {method} on {datasets}; missing: {', '.join(map(str, missing))}"
        fix = f"run them: fglbench run -s {suite} -m {method} -d {datasets}"
        findings.add(first[0].place, what, fix, warning=not wrong)


def expected(suite: str, method: str, table: Table | None = None) -> Expected:
    """The cells of a method on a suite. A method that the suite lacks has all its tasks, with the settings in table."""
    cells = cells_of(suite, method)
    if load_suite(suite).lists(method) or method not in (table or {}):
        return cells
    return _by_seed(at_settings([cell for seeds in cells.values() for cell in seeds.values()], table or {}))


@cache
def cells_of(suite: str, method: str) -> Expected:
    """The cells of a method on a suite, with the settings of the suite."""
    return _by_seed(cell for _, cell in parted(Request(suites=(suite,), methods=(method,)))[0])


def _by_seed(cells: Iterable[Cell]) -> Expected:
    by_settings: Expected = {}
    for cell in cells:
        by_settings.setdefault(cell.seedless, {})[cell.seed] = cell
    return by_settings


def departure(cell: Cell, cells: Iterable[dict[int, Cell]]) -> str:
    """The differences between a cell and the most similar cell of a suite, at most three. cells: of the suite."""
    others = [next(iter(seeds.values())) for seeds in cells]
    others = [other for other in others if other.dataset.name == cell.dataset.name]
    departures = [_differences(cell.identity, other.identity) for other in others]
    return "; ".join(min(departures, key=len)[:3]) if departures else f"it has no dataset {cell.dataset.name!r}"


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any], inside: str = "") -> list[str]:
    """ "NAME is X, the suite has Y" for all values that differ, including parameters."""
    differences = list[str]()
    for name in sorted({*ours, *theirs} - {"seed"}):
        one, two = ours.get(name, "absent"), theirs.get(name, "absent")
        if isinstance(one, dict) and isinstance(two, dict):
            differences += _differences(one, two, f"{inside}{name}.")
        elif one != two:
            differences.append(f"{inside}{name} is {one!r:.60}, the suite has {two!r:.60}")
    return differences


def _data(lines: Sequence[Line], fresh: set[Line], findings: Findings) -> None:
    for line in lines:
        row = line.row
        for name, value, registered in (
            ("data fingerprint", row.dataset_fingerprint, _registered(row.dataset)),
            ("partition hash", row.partition_hash, registered_hash(line.cell) if line.cell else None),
        ):
            if registered and value and not value.startswith(registered):
                what = f"{name} {value[:16]}… of {row.dataset}, seed {row.seed}; it must be {registered[:16]}…"
                findings.add(line.place, what, DATA_FIX, warning=line not in fresh)


@cache
def _registered(dataset: str) -> str | None:
    with suppress(UserError):
        return DATASETS.cls(dataset).row_fingerprint()
    return None


def _side_files(folder: Folder, lines: Sequence[Line], findings: Findings) -> None:
    """Check that every row with status ok has curves that agree with it, and that every side file belongs to a row."""
    current, files = standing(lines), folder.curves
    for run, line in current.items():
        if line.row.status == "ok" and run not in files:
            what = f"its curves ({run[0]}/history/{run[1]}.json.gz) are missing"
            findings.add(line.place, what, "run it again; `fglbench submit` packs the curves")
        elif line.row.status == "ok":
            single = files[run].endswith(".json.gz")
            for what in curves.problems(folder, line):
                findings.add(folder.place(files[run]), what if single else f"{run[1]} {what}", RERUN)
    fix = "mend the rows above, which may be theirs, or remove them" if findings.errors else "remove them"
    for run in sorted(set(files) - set(current)):
        findings.add(folder.place(files[run]), f"curves of no row: {run[1]}", fix)
    for file in folder.files.get("columns", ()):
        path = PurePosixPath(file)
        if wrong := folder.store.columns(path.parts[0]).damaged.get(path.stem):
            findings.add(folder.place(file), f"cannot be read: {wrong}", "take the file of the base")
    for file in folder.files.get("embeddings", ()):
        path = PurePosixPath(file)
        if (path.parts[0], path.stem) not in current:
            findings.add(folder.place(file), "embeddings of no row", "remove the file")


def _metadata(folder: Folder, lines: Sequence[Line], findings: Findings) -> None:
    methods = {line.row.method for line in lines}
    if not folder.files.get("metadata"):
        findings.add(folder.name, f"{METADATA} is missing", "pack with `fglbench submit METHOD`")
        return
    try:
        about = metadata(read_fields(folder.root / METADATA))
    except UserError as error:
        number, what = located(error, folder.root / METADATA)
        findings.add(folder.place(METADATA, number), what.split("; ")[0], "correct the file")
        return
    if others := sorted(methods - {about.method}):
        what = f"about {about.method!r}, but there are rows of {', '.join(others)}"
        findings.add(folder.place(METADATA), what, "submit one method per submission")
    if folder.root.parent.name == SUBMISSIONS and folder.root.name != safe_name(about.method):
        findings.add(folder.place(METADATA), f"about {about.method!r}", f"name the folder {safe_name(about.method)}")
