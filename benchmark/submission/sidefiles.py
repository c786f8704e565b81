"""What lies beside the rows: curves, environments, metadata. It must belong to a row and agree with it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from ...registry import UserError
from ..store.attachments import environment_text
from ..store.places import rows_stem, safe_name
from ..store.provenance import canonical
from . import arrays, curves, metadata
from .inbox import Findings, Folder, Line, standing
from .sides import Sides, read

RERUN = "run the cell again; `fglbench submit` packs the curves"
AGAIN = "take it from the base again; `fglbench pack` makes it"
ENVIRONMENT = {"python", "system", "machine", "cpu", "cores", "memory_gib", "threads", "packages"}
GPU = {"gpu", "gpu_memory_gib", "cuda", "driver"}  # where one computes
LATER = {"instructions", "preloaded"}  # of newer rows; where the loader was told of libraries
COMPUTING = ("torch", "dgl", "numpy", "scipy")  # packages without which nothing runs
TEXT = 200  # characters of a value


def check(folder: Folder, lines: Sequence[Line], fresh: set[Line], findings: Findings) -> Sides:
    """Findings about side files; the curves of each row whose file has their form."""
    counting, files = standing(lines), folder.curves
    for (suite, key), line in counting.items():
        if line.row.status == "ok" and (suite, key) not in files:
            findings.add(line.place, f"its curves ({suite}/history/{key}.json.gz) are missing", RERUN)
    _columns(folder, counting, findings)
    held = {counting[own]: file for own, file in sorted(files.items()) if own in counting}
    sides = read(folder.store, held, strict=fresh)
    told = _told(sides, fresh)
    for own, file in sorted(files.items()):
        place = folder.place(file)
        if own not in counting:
            findings.add(place, *_ownerless(own[1], file))
            continue
        line = counting[own]
        about = f"{own[1]} " if file.endswith(".npz") else ""
        if line in sides.wrong:
            findings.add(place, about + sides.wrong[line], RERUN)
        for what, warning in told.get(line, ()):
            findings.add(place, about + what, RERUN, warning=warning)
    _embeddings(folder, counting, findings)
    _environments(folder, lines, findings)
    _metadata(folder, lines, findings)
    return sides


def _ownerless(key: str, file: str) -> tuple[str, str]:
    """What to say of curves that belong to no row."""
    if file.endswith(".npz"):
        return f"curves of no row: {key}", AGAIN
    return "curves of no row", "remove the file"


def _columns(folder: Folder, counting: dict[tuple[str, str], Line], findings: Findings) -> None:
    """Files of columns are sound, and each holds the curves of its own method's rows, which no other has."""
    for file in folder.files.get("columns", ()):
        suite, stem = PurePosixPath(file).parts[0], PurePosixPath(file).stem
        columns = folder.store.columns(suite)
        wrong = arrays.misplaced(folder.root / file) or columns.damaged.get(stem)
        if wrong or stem not in columns.files:
            findings.add(folder.place(file), f"cannot be read: {wrong}", AGAIN)
            continue
        for key in columns.files[stem].keys:
            line = counting.get((suite, key))
            if columns.holder[key] != stem:
                findings.add(folder.place(file), f"{key} stands in {columns.holder[key]}.npz too", AGAIN)
            elif line and safe_name(line.row.method) != rows_stem(stem):
                findings.add(folder.place(file), f"{key} is a row of {line.row.method!r}", AGAIN)


def _embeddings(folder: Folder, counting: dict[tuple[str, str], Line], findings: Findings) -> None:
    for file in folder.files.get("embeddings", ()):
        path = PurePosixPath(file)
        line = counting.get((path.parts[0], path.stem))
        if line is None or line.row.status != "ok":
            findings.add(folder.place(file), "embeddings of no row", "remove the file")
        elif wrong := arrays.wrong(folder.root / file):
            findings.add(folder.place(file), wrong, "run the cell again with --embeddings")


def _told(sides: Sides, fresh: set[Line]) -> dict[Line, list[tuple[str, bool]]]:
    """What is wrong with the curves of each row, and whether that is but a warning."""
    told: dict[Line, list[tuple[str, bool]]] = defaultdict(list)
    for table, lines, runs in sides.tables():
        rows = curves.TabledRows(table, lines, runs).only(lambda line: line.row.status == "ok" and line.row.in_time)
        for line in sides.changed.intersection(rows.lines):
            told[line].append(("is not as fglbench writes it", False))
        for place, what in curves.disagreeing(rows):
            told[rows.lines[place]].append((what, False))
        rows = rows.only(lambda line: line.cell is not None)
        for place, what in curves.impossible(rows):
            told[rows.lines[place]].append((what, rows.lines[place] not in fresh))
    return told


def _environments(folder: Folder, lines: Sequence[Line], findings: Findings) -> None:
    files = {PurePosixPath(file).stem: file for file in folder.files.get("environment", ())}
    for line in lines:
        if line.row.environment not in files:
            findings.add(line.place, f"environments/{line.row.environment}.json is missing", "add the file of the run")
    used = {line.row.environment for line in lines}
    for digest, file in files.items():
        if digest not in used and folder.submission:
            findings.add(folder.place(file), "environment of no row", "remove the file")
        about = folder.store.environment(digest)
        if about is not None and (folder.root / file).read_bytes() != environment_text(about):
            findings.add(folder.place(file), "is not as fglbench writes it", "add the file of the run")
        if not _short(about) or hashlib.sha256(canonical(about).encode()).hexdigest()[:12] != digest:
            findings.add(folder.place(file), "not the environment that its name stands for", "add the file of the run")


def _short(about: dict[str, Any] | None) -> bool:
    """Whether this is a whole description of a machine and its packages, and short."""
    packages = (about or {}).get("packages", {})
    if (
        not about
        or set(about) - LATER not in (ENVIRONMENT, ENVIRONMENT | GPU)
        or not isinstance(packages, dict)
        or len(packages) > 100
    ):
        return False
    if not set(COMPUTING) <= set(packages):
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
        elif not folder.submission and found.method not in methods:
            findings.add(folder.place(file), f"about {found.method!r}, of which there are no rows", "remove the file")
        elif not folder.submission and PurePosixPath(file).stem != safe_name(found.method):
            findings.add(folder.place(file), f"about {found.method!r}", f"name it {safe_name(found.method)}.yaml")
