"""The results folder: one CSV file per method, one line per run. Rows are appended: a crash loses no finished row.

    results/<suite>/<method>.csv                the rows (schema.Row)
    results/<suite>/<method>.csv.damaged        lines that a crash or a power cut left unreadable
    results/<suite>/history/<key>.json.gz       curves per round and values per client of a row
    results/<suite>/curves/<method>.parquet     the same of many rows, in columns (curves, packing); further files are
                                                <method>@2.parquet and so on
    results/<suite>/embeddings/<key>.npz        embeddings of the best round, if requested
    results/<suite>/models/<key>.safetensors    models of the best round, if requested
    results/submissions/<method>.yaml           the description of a submission
    results/verified.csv                        rows that the maintainers ran again (verified.Verified)
    results/sites.json                          names of the clients of own data, by the fingerprint of the data
    results/environments/<hash>.json            machine and package versions that rows refer to
    results/.logs/<key>.txt                     the traceback of a failed row (not for version control)

Rows are never edited or deleted. If a key occurs more than once in a file, the last row counts (`latest`), so a rerun
is an append too.
"""

from __future__ import annotations

import errno
import os
import statistics
import tempfile
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import psutil
from filelock import FileLock, Timeout

from ... import files
from ...registry import UserError, did_you_mean, path_argument, text_argument
from . import row_file
from .row_file import LOCKS, LOGS, SUBMISSIONS, is_rows, place, reading, safe_name
from .schema import COLUMNS, EXPERIMENT, RULES, AnyRow, Row, Standing, loaded
from .side_files import SideFiles, clear_errors

if TYPE_CHECKING:
    import pandas as pd


class LostFolder(UserError):
    """Stored rows were removed during the run. The exit code is that of failed cells, because no argument is wrong."""

    code = 1


class Store(SideFiles):
    """The results folder at `root`. Every method raises UserError (one line) if the folder cannot be used."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        super().__init__(root)
        self._prepared: tuple[int, int] | None = None  # identity of the folder at `prepare`

    def existing(self) -> Store:
        """The store itself; UserError if there is no folder."""
        if not self.root.is_dir():
            fix = "run `fglbench run` first or give --results DIR (in Python results=DIR)"
            raise UserError(f"no results folder at {str(self.root)!r}; {fix}")
        return self

    # -- places ------------------------------------------------------------------------------------------------------

    def file(self, suite: str, method: str) -> Path:
        return self.root / suite / f"{safe_name(method)}.csv"

    def suites(self) -> list[str]:
        """Suites that have rows."""
        return sorted({path.parent.name for path in self.files()})

    def files(self, suite: str | None = None) -> list[Path]:
        """The row files of one suite, or of all. UserError if one is a folder."""
        folders = [self.root / suite] if suite else self.root.glob("*/")
        paths = sorted(path for folder in folders for path in folder.glob("*.csv"))
        paths = [path for path in paths if path.exists() and is_rows(f"{path.parent.name}/{path.name}")]
        for path in paths:
            if path.is_dir():
                raise UserError(f"{path} is a folder, where a file of rows belongs; move it away")
        return paths

    # -- writing -----------------------------------------------------------------------------------------------------

    def prepare(self, suites: Iterable[str]) -> None:
        """Before runs: make the folders, check that they can be written, and move damaged lines aside."""
        with clear_errors(self.root):
            (self.root / LOCKS).mkdir(parents=True, exist_ok=True)
            self._prepared = _identity(self.root)
            files.sweep(self.root)
            _sweep_logs(self.root / LOGS)
            for suite in sorted(set(suites)):
                (self.root / suite / "history").mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=self.root / suite) as probe:
                    probe.write(bytes(1 << 16))
                    probe.flush()
                    os.fsync(probe.fileno())
                for path in self.files(suite):
                    if not os.access(path, os.W_OK):
                        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
                    with self.locked(path):
                        row_file.repair(path)

    def append_row(self, row: Row, side_files: Mapping[str, bytes] = MappingProxyType({})) -> None:
        """Write the side files of a run, then add its row and force it to disk. Other processes may append to the same
        file. LostFolder if the folder is not the one that was prepared.
        """
        path = self.file(row.suite, row.method)
        self.check_there()
        for name, data in side_files.items():
            self.put(self.root / name, data)
        with clear_errors(self.root):
            path.parent.mkdir(parents=True, exist_ok=True)
            with self.locked(path):
                row_file.append_row(path, row)

    def check_there(self, rows: Iterable[Row] = ()) -> None:
        """Raise LostFolder unless the folder is the one that was prepared, and has these rows."""
        if self._prepared is not None and self._prepared != _identity(self.root):
            raise LostFolder(f"the results folder {str(self.root)!r} was removed or replaced while it was in use")
        wanted = {(row.suite, row.key) for row in rows}
        found = {(row.suite, row.key) for suite in {suite for suite, _ in wanted} for row in self.rows(suite)}
        if lost := len(wanted - found):
            problem = f"{lost} of {len(wanted)} rows of this run are no longer under {str(self.root)!r}"
            raise LostFolder(f"{problem}: files there were removed or replaced; the same command runs them again")

    def claim(self, suite: str, key: str) -> FileLock | None:
        """Lock a cell to run it; None if another process has it. `unclaim` or the end of the process frees it."""
        with clear_errors(self.root), suppress(Timeout):
            lock = self._lock(f"{safe_name(suite)}.{key}", blocking=False)
            lock.acquire()
            return lock
        return None

    def unclaim(self, lock: FileLock) -> None:
        Path(lock.lock_file).unlink(missing_ok=True)  # before the release: a process that waits for it sees the removal
        lock.release()

    def locked(self, path: Path) -> FileLock:
        """The lock to change a file of a suite; entering it waits for other processes."""
        return self._lock(f"{safe_name(path.parent.name)}.{path.name}.lock")

    def _lock(self, name: str, *, blocking: bool = True) -> FileLock:
        (self.root / LOCKS).mkdir(parents=True, exist_ok=True)
        return FileLock(self.root / LOCKS / name, blocking=blocking)

    # -- reading -----------------------------------------------------------------------------------------------------

    def rows(self, suite: str | None = None, *, latest_only: bool = False) -> list[Row]:
        """All rows of one suite, or of all, file by file. Damaged and misplaced rows are left out with a warning."""
        return self._rows(Row, suite, latest_only)

    def standing(self, suite: str) -> list[Standing]:
        """The current rows of a suite with fewer columns, in a third of the time."""
        return self._rows(Standing, suite, True)

    def _rows(self, model: type[AnyRow], suite: str | None, latest_only: bool) -> list[AnyRow]:
        found: list[AnyRow] = []
        for path in self.files(suite):
            rows = _placed(path, row_file.read(model, path))
            found += latest(rows).values() if latest_only else rows
        return found

    def find(self, suite: str, method: str, key: str) -> Row | None:
        """The current row of a cell, read from disk; None if there is none."""
        path = self.file(suite, method)
        return latest(_placed(path, row_file.read(Row, path, only=key))).get(key) if path.exists() else None


def latest(rows: Iterable[AnyRow]) -> dict[str, AnyRow]:
    """The current row of each key: the last one in file order."""
    return {row.key: row for row in rows}


def load_results(
    results: str | os.PathLike[str] | None = None, suite: str | None = None, *, expand: bool = False
) -> pd.DataFrame:
    """The current rows as a data frame with the columns of `schema.Row` (None for a missing value).

    results: a folder; by default `runs` if it has rows, else `results`. expand: replace the columns of JSON by one
    column per setting, as `training.lr` or `method.mu`. UserError if there is no folder, or no row of the suite.
    """
    import pandas as pd

    path = reading(suite) if results is None else path_argument("results", results)
    store = Store(path).existing()
    if suite is not None and suite not in (known := store.suites()):
        raise did_you_mean(text_argument("suite", suite), known, "suite with results")
    rows = store.rows(suite, latest_only=True)
    frame: pd.DataFrame = pd.DataFrame([row.model_dump() for row in rows], columns=COLUMNS)
    return expanded(frame) if expand else frame


def _placed(path: Path, rows: list[AnyRow]) -> list[AnyRow]:
    """The rows that belong in this file; a warning for others, for example after a folder was copied."""
    expected = f"{path.parent.name}/{path.name}"
    misplaced = {place(row) for row in {(row.suite, row.method): row for row in rows}.values()} - {expected}
    if misplaced:
        problem = f"rows that belong in {min(misplaced)} do not count here"
        warnings.warn(f"{path}: {problem}; move the file back", stacklevel=5)
    return [row for row in rows if place(row) == expected] if misplaced else rows


def _identity(folder: Path) -> tuple[int, int] | None:
    """Device and inode of a folder; None if there is none."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sweep_logs(folder: Path) -> None:
    for path in folder.glob("worker-*-*.txt"):
        run = path.name.split("-")[1]
        if run.isdecimal() and not psutil.pid_exists(int(run)):
            path.unlink(missing_ok=True)


def expanded(frame: pd.DataFrame) -> pd.DataFrame:
    """Replace the columns of JSON by one column per setting, at the end: `method.mu`, `dataset.features`.

    The name is that of the JSON column without "_params". The value is missing if a row has none. For clients with
    different backbones it is a list. A text that is no JSON object stays, under the name of its column.
    """
    import pandas as pd

    json_columns = [name for name, rule in RULES.items() if rule.json]
    parts = [frame.drop(columns=json_columns)]
    for name in json_columns:
        known = {text: _settings(name, text) for text in frame[name].unique()}
        parts.append(pd.DataFrame([known[text] for text in frame[name]], index=frame.index))
    wide: pd.DataFrame = pd.concat(parts, axis=1)
    return wide


def _settings(name: str, text: str) -> dict[str, Any]:
    settings = loaded(text or "{}")
    if isinstance(settings, list) and all(isinstance(backbone, dict) for backbone in settings):
        settings = {
            key: [backbone.get(key) for backbone in settings]
            for key in dict.fromkeys(key for backbone in settings for key in backbone)
        }
    if not isinstance(settings, dict):
        return {name: text}
    return {f"{name.removesuffix('_params')}.{key}": value for key, value in settings.items()}


@dataclass(frozen=True)
class SelfReported:
    """The self-reported rows of one experiment. row: one of them. seeds: reported seeds with a score. ours: mean score
    of our runs of the same seeds (their number: our_seeds), or None. theirs: mean reported score of these seeds; of all
    seeds if we have no runs. Scores are fractions."""

    row: Row
    seeds: int
    theirs: float | None
    our_seeds: int
    ours: float | None

    @property
    def difference(self) -> float | None:
        """Reported minus ours; None unless both exist."""
        return None if self.theirs is None or self.ours is None else self.theirs - self.ours


def submission_stores(results: Path) -> list[Store]:
    """The folders of self-reported rows."""
    return [Store(folder) for folder in sorted((results / SUBMISSIONS).glob("*/")) if folder.is_dir()]


def self_reported(results: Path) -> list[SelfReported]:
    """All self-reported experiments, by suite, dataset and method. `Store(results).rows()` does not have their rows."""
    ours = {(row.suite, row.key): row for row in Store(results).rows(latest_only=True)}
    groups: dict[tuple[object, ...], list[Row]] = {}
    for store in submission_stores(results):
        try:
            rows = store.rows(latest_only=True)
        except UserError:
            continue  # damaged: `fglbench validate` shows the line
        for row in rows:
            groups.setdefault((row.suite, *attrgetter(*EXPERIMENT)(row)), []).append(row)
    entries = []
    for rows in groups.values():
        scored = [row for row in rows if row.score is not None]
        pairs = [
            (row, our_row)
            for row in scored
            if (our_row := ours.get((row.suite, row.key))) and our_row.score is not None
        ]
        theirs = _mean([row for row, _ in pairs] or scored)
        entries.append(SelfReported(rows[0], len(scored), theirs, len(pairs), _mean([our_row for _, our_row in pairs])))
    return sorted(entries, key=lambda entry: (entry.row.suite, entry.row.dataset, entry.row.clients, entry.row.method))


def _mean(rows: list[Row]) -> float | None:
    scores = [row.score for row in rows if row.score is not None]
    return statistics.fmean(scores) if scores else None
