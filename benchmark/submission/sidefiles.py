"""What lies beside the rows: curves, environments, metadata. It must belong to a row and agree with it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from ...registry import UserError
from ..store.attachments import environment_text
from ..store.folder import Store
from ..store.places import safe_name
from ..store.provenance import canonical
from . import arrays, curves, metadata
from .inbox import Findings, Folder, Line, standing

RERUN = "run the cell again; `fglbench submit` packs the curves"
ENVIRONMENT = {"python", "system", "machine", "cpu", "cores", "memory_gib", "threads", "packages"}
GPU = {"gpu", "gpu_memory_gib", "cuda", "driver"}  # where one computes
COMPUTING = ("torch", "dgl", "numpy", "scipy")  # packages without which nothing runs
TEXT = 200  # characters of a value


def check(folder: Folder, lines: Sequence[Line], fresh: set[Line], findings: Findings) -> dict[Line, curves.Stored]:
    """Findings about side files; the curves of each row whose file has their form."""
    found: dict[Line, curves.Stored] = {}
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
        stored = _curves(folder, rows[file], file, fresh, findings)
        if stored is not None:
            found[rows[file]] = stored
    _embeddings(folder, counting, findings)
    _environments(folder, lines, findings)
    _metadata(folder, lines, findings)
    return found


def _embeddings(folder: Folder, counting: dict[tuple[str, str], Line], findings: Findings) -> None:
    for file in folder.files.get("embeddings", ()):
        path = PurePosixPath(file)
        line = counting.get((path.parts[0], path.stem))
        if line is None or line.row.status != "ok":
            findings.add(folder.place(file), "embeddings of no row", "remove the file")
        elif wrong := arrays.wrong(folder.root / file):
            findings.add(folder.place(file), wrong, "run the cell again with --embeddings")


def _curves(folder: Folder, line: Line, name: str, fresh: set[Line], findings: Findings) -> curves.Stored | None:
    """Findings about the curves of a row; what they hold, where they have the form of curves."""
    row, place = line.row, folder.place(name)
    packed, wrong = curves.read(Store(folder.root), row)
    if wrong:
        findings.add(place, wrong, RERUN)
    if packed is None:
        return None
    stored: curves.Stored = packed.found
    if row.status != "ok" or not row.in_time:
        return stored
    if line in fresh and not packed.as_written:
        findings.add(place, "is not as fglbench writes it", RERUN)
    for what in curves.disagreeing(stored["history"], row):
        findings.add(place, what, RERUN)
    for what in curves.impossible(stored, row, line.kin) if line.cell else ():
        findings.add(place, what, RERUN, warning=line not in fresh)
    return stored


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
        if about is not None and (folder.root / file).read_bytes() != environment_text(about):
            findings.add(folder.place(file), "is not as fglbench writes it", "add the file of the run")
        if not _short(about) or hashlib.sha256(canonical(about).encode()).hexdigest()[:12] != digest:
            findings.add(folder.place(file), "not the environment that its name stands for", "add the file of the run")


def _short(about: dict[str, Any] | None) -> bool:
    """Whether this is a whole description of a machine and its packages, and short."""
    packages = (about or {}).get("packages", {})
    if (
        not about
        or set(about) not in (ENVIRONMENT, ENVIRONMENT | GPU)
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
