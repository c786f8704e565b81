"""Where results live: one CSV file a method, one line a run, appended so that no crash can lose a finished row.

    results/<suite>/<method>.csv                the rows (schema.Row)
    results/<suite>/<method>.csv.damaged        bytes of lines that a crash or a power cut left unreadable
    results/<suite>/history/<key>.json.gz       per-round curves and per-client figures of a row
    results/<suite>/embeddings/<key>.npz        embeddings of its best round, where they were asked for
    results/submissions/<method>.yaml           what a submission says of itself
    results/verified.csv                        rows that the maintainers ran again (verified.Verified)
    results/versions.csv                        which versions of methods compute the same (versions.Equal)
    results/environments/<hash>.json            the machine and package versions that rows refer to
    results/.logs/<key>.txt                     the traceback behind a failed row (not for version control)

Rows are never edited or deleted. When a key occurs more than once in a file, the row that stands later supersedes the
earlier ones (`latest`); a rerun is therefore an append like any other.
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from ...files import write_atomically
from ...registry import UserError
from . import rowfile, verified, versions
from .schema import COLUMNS, Row

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

LOCKS, LOGS = ".locks", ".logs"
NOT_SUITES = {"environments", "submissions", LOCKS, LOGS}
HISTORY_BYTES = EMBEDDINGS_BYTES = 32 * 2**20  # unpacked; a side file may come from anyone


class Store:
    """The results folder at `root`. Every method raises UserError (one line) when the folder cannot serve."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def existing(self) -> Store:
        """Itself; UserError where there is no folder."""
        if not self.root.is_dir():
            raise UserError(f"no results folder at {str(self.root)!r}; run `fglbench run` first or give --results DIR")
        return self

    # -- places ------------------------------------------------------------------------------------------------------

    def file(self, suite: str, method: str) -> Path:
        return self.root / suite / f"{safe_name(method)}.csv"

    def history_file(self, suite: str, key: str) -> Path:
        return self.root / suite / "history" / f"{key}.json.gz"

    def embeddings_file(self, suite: str, key: str) -> Path:
        return self.root / suite / "embeddings" / f"{key}.npz"

    def environment_file(self, digest: str) -> Path:
        return self.root / "environments" / f"{digest}.json"

    def log_file(self, name: str) -> Path:
        return self.root / LOGS / f"{name}.txt"

    def suites(self) -> list[str]:
        """Suites that have rows."""
        return sorted({path.parent.name for path in self.root.glob("*/*.csv")} - NOT_SUITES)

    # -- writing -----------------------------------------------------------------------------------------------------

    def prepare(self, suites: Iterable[str]) -> None:
        """Make the folders, prove that they can be written, and move damaged lines aside: before anything runs."""
        with _clear_errors(self.root):
            (self.root / LOCKS).mkdir(parents=True, exist_ok=True)
            for suite in sorted(set(suites)):
                (self.root / suite / "history").mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=self.root / suite) as probe:
                    probe.write(bytes(1 << 16))
                    probe.flush()
                    os.fsync(probe.fileno())
                for path in sorted((self.root / suite).glob("*.csv")):
                    if not os.access(path, os.W_OK):
                        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
                    with self._locked(path):
                        rowfile.repair(path)

    def append(self, row: Row) -> None:
        """Add one row and force it to disk. Safe with other processes appending to the same file."""
        path = self.file(row.suite, row.method)
        with _clear_errors(self.root):
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked(path):
                rowfile.append(path, row)

    def write_history(self, suite: str, key: str, history: dict[str, Any]) -> None:
        """Store a run's curves next to its row; the bytes depend on the content only."""
        data = json.dumps(history, separators=(",", ":")).encode()
        self._write(self.history_file(suite, key), gzip.compress(data, mtime=0))

    def write_embeddings(self, suite: str, key: str, arrays: dict[str, np.ndarray]) -> None:
        """Store named arrays (no objects among them) next to a row; the bytes depend on the content only."""
        import numpy as np

        buffer, members = io.BytesIO(), dict[str, Any](arrays)
        np.savez_compressed(buffer, **members)
        self._write(self.embeddings_file(suite, key), buffer.getvalue())

    def write_environment(self, digest: str, environment: dict[str, Any]) -> None:
        if not self.environment_file(digest).exists():
            text = json.dumps(environment, indent=2, sort_keys=True) + "\n"
            self._write(self.environment_file(digest), text.encode())

    def write_log(self, key: str, text: str) -> None:
        """Keep what a row's one line leaves out (a traceback), beside the results but out of version control."""
        self._write(self.log_file(key), text.encode())

    def _write(self, path: Path, data: bytes) -> None:
        with _clear_errors(self.root):
            write_atomically(path, data)

    def claim(self, suite: str, key: str) -> FileLock | None:
        """The right to run a cell, or None while another process has it. Freed by `unclaim` or by our end."""
        with _clear_errors(self.root), suppress(Timeout):
            lock = self._lock(f"{safe_name(suite)}.{key}", blocking=False)
            lock.acquire()
            return lock
        return None

    def unclaim(self, lock: FileLock) -> None:
        Path(lock.lock_file).unlink(missing_ok=True)  # while it is held: who opened it meanwhile sees an unlinked file
        lock.release()

    def _locked(self, path: Path) -> FileLock:
        return self._lock(f"{safe_name(path.parent.name)}.{path.name}.lock")

    def _lock(self, name: str, *, blocking: bool = True) -> FileLock:
        (self.root / LOCKS).mkdir(parents=True, exist_ok=True)
        return FileLock(self.root / LOCKS / name, blocking=blocking)

    # -- reading -----------------------------------------------------------------------------------------------------

    def rows(self, suite: str | None = None, *, latest_only: bool = False) -> list[Row]:
        """All rows of one suite, or of all, file by file. Damaged lines are left out with a warning."""
        found: list[Row] = []
        for name in [suite] if suite else self.suites():
            for path in sorted((self.root / name).glob("*.csv")):
                rows = rowfile.read(path)
                found += latest(rows).values() if latest_only else rows
        return found

    def find(self, suite: str, method: str, key: str) -> Row | None:
        """The row that now stands for a cell, read afresh from disk; None when there is none."""
        path = self.file(suite, method)
        return latest(rowfile.read(path, only=key)).get(key) if path.exists() else None

    def history(self, suite: str, key: str) -> dict[str, Any] | None:
        """What `write_history` stored, or None. Raises OSError, EOFError, zlib.error or ValueError for a file that is
        damaged, larger than any run's, or no JSON."""
        path = self.history_file(suite, key)
        if not path.exists():
            return None
        with gzip.open(path) as stream:
            data = stream.read(HISTORY_BYTES + 1)
        if len(data) > HISTORY_BYTES:
            raise ValueError(f"more than {HISTORY_BYTES >> 20} MiB unpacked")
        try:
            found: dict[str, Any] = json.loads(data)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        return found

    def environment(self, digest: str) -> dict[str, Any] | None:
        """The machine and packages that a row refers to, or None when there is no sound description."""
        try:
            found = json.loads(self.environment_file(digest).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def verdicts(self) -> list[verified.Verified]:
        """On rows that the maintainers ran again, oldest first."""
        return verified.read(self.root)

    def versions(self) -> versions.Versions:
        """Which versions of methods stand for which."""
        return versions.read(self.root)

    def embeddings(self, suite: str, key: str) -> dict[str, np.ndarray] | None:
        """The arrays stored beside a row, or None. Nothing in the file is ever executed; ValueError if it is too large
        or holds anything but arrays, zipfile.BadZipFile if it is no archive."""
        import numpy as np

        path = self.embeddings_file(suite, key)
        if not path.exists():
            return None
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > EMBEDDINGS_BYTES:
                raise ValueError(f"{path}: more than {EMBEDDINGS_BYTES >> 20} MiB unpacked")
        with np.load(path, allow_pickle=False) as stored:
            return dict(stored.items())


def latest(rows: Iterable[Row]) -> dict[str, Row]:
    """The row that counts for each key: the last one, in file order."""
    return {row.key: row for row in rows}


def load_results(results: str | os.PathLike[str] = "results", suite: str | None = None) -> pd.DataFrame:
    """The rows that count, as a data frame with the columns of `schema.Row` (None where a metric does not exist)."""
    import pandas as pd

    rows = Store(results).existing().rows(suite, latest_only=True)
    frame: pd.DataFrame = pd.DataFrame([row.model_dump() for row in rows], columns=COLUMNS)
    return frame


def safe_name(name: str) -> str:
    """`name` as a file name: everything but letters, digits, '.', '_', '+' and '-' becomes '-'."""
    return re.sub(r"[^\w.+-]", "-", name)


@contextmanager
def _clear_errors(root: Path) -> Iterator[None]:
    """Turn what the operating system says about the folder into one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            told = f"no space left for results in {str(root)!r}; every finished row is kept"
            raise UserError(f"{told}: free some space and run the same command again") from None
        place, reason = error.filename or root, error.strerror or error
        raise UserError(f"cannot write results to {str(place)!r}: {reason}; use --results DIR") from None
