"""Making a submission of a method's rows, and taking a sound one in."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ... import files
from ...registry import UserError, did_you_mean
from ..store import rowfile
from ..store.folder import Store
from ..store.places import safe_name
from ..store.schema import Row
from ..suites.selection import CUSTOM
from . import archive, metadata
from .checks import Validation
from .inbox import standing
from .metadata import Metadata

RESULTS = Path("results")


def default_base(root: Path, into: Path | None = None) -> str | None:
    """What a submission is held against if nothing is said: the results folder that it goes into, or the one here."""
    found = into or RESULTS
    return str(found) if (root / metadata.FILE).is_file() and found.is_dir() else None


def rows_to_submit(store: Store, method: str, suites: Sequence[str] = ()) -> list[Row]:
    """The standing rows of a method, of the given suites or of all named ones.

    UserError when there are none; it names what there is.
    """
    rows = store.existing().rows(latest_only=True)
    own = [row for row in rows if row.method == method]
    if not rows:
        raise UserError(f"no result rows under {str(store.root)!r}; run `fglbench run -m {method}` first")
    if not own:
        raise did_you_mean(method, {row.method for row in rows}, f"method with rows under {str(store.root)!r}:")
    present = {row.suite for row in own}
    for suite in sorted(set(suites) - present):
        raise did_you_mean(suite, present, f"suite with rows of {method!r}")
    wanted = set(suites) or present - {CUSTOM}
    if not wanted:
        raise UserError(f"all rows of {method!r} have changed settings (suite 'custom'); run it with -s SUITE only")
    return [row for row in own if row.suite in wanted]


def write(store: Store, rows: Sequence[Row], about: Metadata, folder: Path) -> None:
    """The submission of rows in an empty folder: rows, their curves and environments, and the metadata.

    Raises UserError when a side file of a row is missing.
    """
    target = Store(folder)
    for row in rows:
        path = target.file(row.suite, row.method)
        if not path.exists():
            files.write_atomically(path, rowfile.header())
        files.append(path, rowfile.line(row))
        if row.status == "ok":
            _curves(store, target, row)
    for digest in {row.environment for row in rows}:
        _copy(store.environment_file(digest), target.environment_file(digest))
    (folder / metadata.FILE).write_text(about.text(), encoding="utf-8")


def _curves(source: Store, target: Store, row: Row) -> None:
    """The curves of a row, as a file of their own wherever they stood. UserError where there are none."""
    place = source.history_file(row.suite, row.key)
    try:
        found = source.history(row.suite, row.key)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise UserError(f"{place} cannot be read ({error!s:.120}); run the cell again with --rerun all") from None
    if found is None:
        raise UserError(f"{place} is missing; run the cell again with --rerun all")
    target.write_history(row.suite, row.key, found)


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise UserError(f"{source} is missing; run the cell again with --rerun all")
    files.write_atomically(target, source.read_bytes())


@contextmanager
def placed(out: Path) -> Iterator[Path]:
    """An empty folder that becomes `out` (.zip: a zip file) once it is filled. UserError if `out` exists."""
    if out.exists() or out.is_symlink():
        raise UserError(f"{str(out)!r} exists already; remove it, or give another --out")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.", suffix=".tmp") as temporary:
            folder = Path(temporary) / "submission"
            folder.mkdir()
            yield folder
            made = folder if out.suffix != ".zip" else folder.with_name("packed")
            if made != folder:
                archive.pack(folder, made)
            os.replace(made, out)
    except OSError as error:
        raise UserError(f"cannot write {str(out)!r}: {error.strerror or error}") from None


def take_in(found: Validation, results: Path) -> int:
    """Append a sound submission's rows to a results folder, with their side files; the number of rows added.

    A row that stands there already is not added again. Raises UserError for metadata that another submission of the
    method has left and that differ, and for a folder that cannot be written.
    """
    folder, source, store = found.folder, Store(found.folder.root), Store(results)
    about = metadata.read(folder.root / metadata.FILE)
    kept = results / metadata.FOLDER / f"{safe_name(about.method)}.yaml"
    if kept.is_file() and metadata.read(kept) != about:
        raise UserError(f"{kept} says something else than the submission; agree on one of them, then edit it there")
    store.prepare({line.row.suite for line in found.lines})
    rows = [line.row for line in standing(found.lines).values()]
    new = [row for row in rows if row != store.find(row.suite, row.method, row.key)]
    for path in folder.files.get("environment", ()):
        _copy(folder.root / path, results / path)
    for row in new:
        if row.status == "ok":
            _curves(source, store, row)
        store.append(row)
    files.write_atomically(kept, about.text().encode())  # what it says, and not what else is in the file
    return len(new)
