"""Convert results folders of fglbench 0.1 to the form of 0.2, and optionally add them to another folder:

    python tools/migrate_results.py RESULTS [RESULTS ...]
    python tools/migrate_results.py RESULTS [RESULTS ...] --into OTHER

- <suite>/<method>.csv: rows of older result schemas get the columns that were added later, empty or at their default;
- <suite>/curves/<method>.npz, the curves of many runs, becomes <method>.parquet;
- <suite>/history/<key>.json.gz, the curves of one run, stays.

The time of each round is dropped from the curves. The trials in RESULTS/tuning are converted too. A run in an .npz file
replaces the run with its key in a .parquet file, because only version 0.1 writes .npz files.

--into appends the rows that OTHER does not have yet, in their order, with their curves, embeddings and environments.

The command may be killed at any time and started again: an old file is removed only after its content is on disk in the
new form, a row is appended only after its side files, and a folder that is already converted does not change.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from fglbench import files
from fglbench.benchmark.store import Store, row_file
from fglbench.benchmark.store.packing import add_runs
from fglbench.benchmark.store.places import APART, rows_stem
from fglbench.benchmark.store.schema import COLUMNS
from fglbench.benchmark.store.side_files import unpacked

TIMES = "seconds"  # the curve that is dropped
WIDTHS = {"1": 49, "2": 52, "3": 59, "4": 61}  # columns of a line, by the result schema in its first field


def migrate(root: Path) -> tuple[int, int]:
    """Convert one results folder: (rows, runs) rewritten. UserError or ValueError if a file is damaged."""
    store, rows, runs = Store(root), 0, 0
    files.sweep(root)
    for path in store.files():
        with store.locked(path):
            rows += _rows(path)
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        runs += _columns(store, folder) + _own_files(store, folder)
    return rows, runs


def _rows(path: Path) -> int:
    """Rewrite a file of rows in which a line has fewer columns than there are now."""
    first, *lines = path.read_bytes().splitlines(keepends=True)
    fields = row_file.fields_of(first) or []
    if fields != COLUMNS[: len(fields)] or len(fields) not in {*WIDTHS.values(), len(COLUMNS)}:
        raise ValueError(f"{path}: the header is not that of a result schema")
    converted = [_converted(path, number, line) for number, line in enumerate(lines, start=2)]
    changed = sum(old != new for old, new in zip(lines, converted, strict=True))
    if changed or len(fields) < len(COLUMNS):
        files.write_atomically(path, row_file.header() + b"".join(converted))
    return changed


def _converted(path: Path, number: int, line: bytes) -> bytes:
    """A line in the newest schema; itself if it is damaged or complete."""
    fields = row_file.fields_of(line)
    if not fields or WIDTHS.get(fields[0]) != len(fields):
        return line
    values = dict(zip(COLUMNS, fields, strict=False))
    if fields[0] == "1":  # it had no column for this, and one such method
        values["reference"] = str(values["method"] == "global")
    new = row_file.line(row_file.parse(path, number, [values.get(name, "") for name in COLUMNS]))
    if (row_file.fields_of(new) or [])[: len(fields)] != fields:
        raise ValueError(f"{path}:{number}: the row does not come back as it was")
    return new


def _columns(store: Store, folder: Path) -> int:
    """Convert the .npz files of a suite, those of one method together."""
    methods: dict[str, list[Path]] = {}
    for path in sorted((folder / "curves").glob("*.npz")):
        methods.setdefault(rows_stem(path.stem), []).append(path)
    done = 0
    for stem, paths in methods.items():
        runs = {key: run for path in paths for key, run in old_curves(path).items()}
        stored = add_runs(store, folder.name, stem, runs)
        if left := sorted(runs.keys() - set(stored)):
            raise ValueError(f"{paths[0]}: the curves of {left[0]} do not fit into columns")
        for path in paths:
            path.unlink()
        done += len(runs)
    return done


def old_curves(path: Path) -> dict[str, dict[str, Any]]:
    """The runs of an .npz file by their keys, as `SideFiles.history` returns them, without the time of each round."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = dict(stored.items())
    names, keys = arrays["columns"].tolist(), arrays["keys"].tolist()
    runs: dict[str, dict[str, Any]] = {key: {} for key in keys}
    for place, name in enumerate(names):
        lengths = arrays["lengths"][:, place].tolist()
        values = [None if value != value else value for value in arrays[name].tolist()]
        start = 0
        for run, (key, length) in enumerate(zip(keys, lengths, strict=True)):
            part, dot, curve = name.partition(".")
            end = start + max(length, 0)
            if length >= 0 and not dot:
                width = int(arrays["classes"][run])
                runs[key][part] = [values[at : at + width] for at in range(start, end, width)] if width else []
            elif length >= 0 and curve != TIMES:
                runs[key].setdefault(part, {})[curve] = values[start:end]
            start = end
    return runs


def _own_files(store: Store, folder: Path) -> int:
    """Rewrite the files of single runs that still have the time of each round."""
    done = 0
    for path in sorted((folder / "history").glob("*.json.gz")):
        content = unpacked(path.read_bytes()).found
        history = content.get("history", {}) if isinstance(content, dict) else {}
        if TIMES in history:
            del history[TIMES]
            store.write_history(folder.name, path.name.split(".")[0], content)
            done += 1
    return done


def merge(source: Path, target: Path) -> int:
    """Append to a converted folder the rows of another that it does not have; how many."""
    old, new, done = Store(source), Store(target), 0
    for path in old.files():
        known = new.root / path.parent.name / path.name
        lines = set(known.read_bytes().splitlines()) if known.exists() else set()
        for number, line, fields in row_file.split(path):
            if fields is None or line.rstrip(b"\r\n") in lines:
                continue
            row = row_file.parse(path, number, fields)
            if (curves := old.history(row.suite, row.key)) is not None:
                new.write_history(row.suite, row.key, curves)
            for mine, theirs in (
                (old.embeddings_file(row.suite, row.key), new.embeddings_file(row.suite, row.key)),
                (old.environment_file(row.environment), new.environment_file(row.environment)),
            ):
                if mine.exists():
                    new.put(theirs, mine.read_bytes())
            new.append(row)
            done += 1
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", nargs="+", type=Path, help="folder to convert")
    parser.add_argument("--into", type=Path, help="folder to add the rows to")
    given = parser.parse_args()
    if missing := [folder for folder in [*given.results, *filter(None, [given.into])] if not folder.is_dir()]:
        parser.error(f"no folder {str(missing[0])!r}")
    for folder in [each for root in given.results for each in (root, root / APART) if each.is_dir()]:
        rows, runs = migrate(folder)
        print(f"{folder}: {rows} rows and the curves of {runs} runs converted")
        if given.into:
            target = given.into / APART if folder.name == APART else given.into
            print(f"{target}: {merge(folder, target)} rows added; `fglbench pack` moves their curves into columns")


if __name__ == "__main__":
    main()
