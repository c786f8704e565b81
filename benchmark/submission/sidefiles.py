"""What lies beside the rows: curves, environments, metadata. It must belong to a row and agree with it."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from ...metrics import METRICS
from ...registry import UserError
from ..store.folder import Store, safe_name
from ..store.provenance import canonical
from ..store.schema import Row
from . import metadata
from .inbox import Findings, Folder, Line, standing
from .limits import LARGE

PARTS = {"history", "per_client", "label_counts"}
RERUN = "run the cell again; `fglbench submit` packs the curves"
ENVIRONMENT = {"python", "system", "machine", "cpu", "cores", "memory_gib", "threads", "packages"}
TEXT = 200  # characters of a value


def check(folder: Folder, lines: Sequence[Line], findings: Findings) -> None:
    counting = standing(lines)
    rows = {f"{suite}/history/{key}.json.gz": line for (suite, key), line in counting.items()}
    files = set(folder.files.get("curves", ()))
    for file, line in rows.items():
        if line.row.status == "ok" and file not in files:
            findings.add(line.place, f"its curves ({file}) are missing", RERUN)
    for file in sorted(files):
        if file not in rows:
            findings.add(folder.place(file), "curves of no row", "remove the file")
            continue
        for what in _curves(folder, rows[file].row):
            findings.add(folder.place(file), what, RERUN)
    _environments(folder, lines, findings)
    _metadata(folder, lines, findings)


def _curves(folder: Folder, row: Row) -> Iterator[str]:
    """What is wrong with the curves of a row."""
    try:
        found: Any = Store(folder.root).history(row.suite, row.key)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        yield f"cannot be read: {str(error).splitlines()[0]:.120}"
        return
    wrong = _misshapen(found, row)
    if wrong:
        yield wrong
    elif row.status == "ok" and row.in_time:
        yield from _disagreeing(found["history"], row)


def _misshapen(found: Any, row: Row) -> str | None:
    """In what a side file has not the form of curves with one value for each of a row's rounds."""
    history = found.get("history") if isinstance(found, dict) else None
    if not isinstance(history, dict) or not set(found) <= PARTS:
        return f"is not made of {', '.join(sorted(PARTS))}"
    if not all(map(_numbers, found.values())):
        return "holds something else than lists of numbers"
    curves = [*dict.fromkeys(rule.curve for name, rule in METRICS.items() if rule.curve and row.has(name)), "seconds"]
    if not set(curves) <= set(history) or {len(column) for column in history.values()} != {row.rounds}:
        return f"has not one value of {', '.join(curves)} for each of {row.rounds} rounds"
    return None


def _disagreeing(history: dict[str, list[Any]], row: Row) -> Iterator[str]:
    """Where the figures of a row are not those of its curves."""
    for name, rule in METRICS.items():
        if rule.curve and row.has(name):
            here = history[rule.curve][-1 if rule.at == "last" else (row.best_round or 0) - 1]
            there = getattr(row, name)
            if here != there:
                yield f"{name} is {there!r} in the row and {here!r} in its curves"


def _numbers(part: Any) -> bool:
    """Whether a part of a side file is lists of numbers, with names or without."""
    lists = list(part.values()) if isinstance(part, dict) else part
    return isinstance(lists, list) and all(isinstance(each, list) and all(map(_number, each)) for each in lists)


def _number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGE)


def _environments(folder: Folder, lines: Sequence[Line], findings: Findings) -> None:
    files = {PurePosixPath(file).stem: file for file in folder.files.get("environment", ())}
    for line in lines:
        if line.row.environment not in files:
            findings.add(line.place, f"environments/{line.row.environment}.json is missing", "add the file of the run")
    used = {line.row.environment for line in lines}
    for digest, file in files.items():
        if digest not in used and folder.submission:
            findings.add(folder.place(file), "environment of no row", "remove the file")
        about = Store(folder.root).environment(digest)
        if not _short(about) or hashlib.sha256(canonical(about).encode()).hexdigest()[:12] != digest:
            findings.add(folder.place(file), "not the environment that its name stands for", "add the file of the run")


def _short(about: dict[str, Any] | None) -> bool:
    """Whether this is a description of a machine and its packages, and short."""
    packages = (about or {}).get("packages", {})
    if not about or not set(about) <= ENVIRONMENT or not isinstance(packages, dict) or len(packages) > 100:
        return False
    return all(map(_brief, [*({**about, "packages": None}).values(), *packages, *packages.values()]))


def _brief(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= TEXT and value.isprintable()
    return value is None or (isinstance(value, int | float) and abs(value) < 1e9)


def _metadata(folder: Folder, lines: Sequence[Line], findings: Findings) -> None:
    """A submission has one metadata file, about the method of all its rows; a results folder has any number."""
    methods = {line.row.method for line in lines}
    if folder.submission and not folder.files.get("metadata"):
        what = f"{metadata.FILE} is missing"
        findings.add(folder.name, what, "pack with `fglbench submit METHOD`, which asks for what must be in it")
    for file in folder.files.get("metadata", ()):
        try:
            found = metadata.read(folder.root / file)
        except UserError as error:
            what = str(error).removeprefix(f"{folder.root / file}: ").split("; ")[0]
            findings.add(folder.place(file), what, "correct the file")
            continue
        if folder.submission and methods - {found.method}:
            what = f"about {found.method!r}, but there are rows of {', '.join(sorted(methods - {found.method}))}"
            findings.add(folder.place(file), what, "one method a submission")
        elif not folder.submission and PurePosixPath(file).stem != safe_name(found.method):
            findings.add(folder.place(file), f"about {found.method!r}", f"name it {safe_name(found.method)}.yaml")
