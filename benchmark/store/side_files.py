"""Side files of a results folder: curves, embeddings, machines, logs. Each file is written atomically."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import files
from ...registry import UserError
from .row_file import CURVES, LOGS, SUFFIX, column_file
from .schema import parse

if TYPE_CHECKING:
    import numpy as np

    from .curves import CurveTable

HISTORY_BYTES, EMBEDDINGS_BYTES = 8 * 2**20, 32 * 2**20  # limits of the unpacked size, for files of any source
SUITE_BYTES = 512 * 2**20  # limit of all files of columns of a suite
SITES = "sites.json"
OWN = ".json.gz"  # suffix of the file with the curves of one run


class SideFiles:
    """The side files of the results folder at `root`. Writing raises UserError if the folder cannot be used."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)
        self._columns: dict[str, tuple[int, Columns]] = {}  # suite -> modification time of the folder, content

    # -- places ------------------------------------------------------------------------------------------------------

    def history_file(self, suite: str, key: str) -> Path:
        return self.root.joinpath(suite, "history", f"{key}{OWN}")

    def columns_file(self, suite: str, stem: str, part: int = 1) -> Path:
        """A file with the curves of many rows of a method. stem: of its row file. part: of several files, from 1."""
        return self.root / suite / CURVES / column_file(stem, part)

    def embeddings_file(self, suite: str, key: str) -> Path:
        return self.root / suite / "embeddings" / f"{key}.npz"

    def model_file(self, suite: str, key: str) -> Path:
        return self.root / suite / "models" / f"{key}.safetensors"

    def environment_file(self, digest: str) -> Path:
        return self.root / "environments" / f"{digest}.json"

    def log_file(self, name: str) -> Path:
        return self.root / LOGS / f"{name}.txt"

    # -- writing -----------------------------------------------------------------------------------------------------

    def write_history(self, suite: str, key: str, history: dict[str, Any]) -> None:
        """Store the curves of a run; the bytes depend on the content only."""
        self.put(
            self.history_file(suite, key), gzip.compress(json.dumps(history, separators=(",", ":")).encode(), mtime=0)
        )

    def write_embeddings(self, suite: str, key: str, arrays: dict[str, np.ndarray]) -> None:
        """Store named arrays (without objects); the bytes depend on the content only."""
        import numpy as np

        buffer, members = io.BytesIO(), dict[str, Any](arrays)
        np.savez_compressed(buffer, **members)
        self.put(self.embeddings_file(suite, key), buffer.getvalue())

    def write_environment(self, digest: str, environment: dict[str, Any]) -> None:
        if not self.environment_file(digest).exists():
            self.put(self.environment_file(digest), environment_text(environment))

    def write_sites(self, fingerprint: str, names: Sequence[str]) -> None:
        """Store the names of the clients of a user's own data, by the fingerprint of the data."""
        known = self.sites()
        if known.get(fingerprint) != list(names):
            text = json.dumps(known | {fingerprint: list(names)}, indent=1, ensure_ascii=False, sort_keys=True)
            self.put(self.root / SITES, f"{text}\n".encode())

    def write_log(self, key: str, text: str) -> None:
        """Store a text that is too long for a row (a traceback); it is not for version control."""
        self.put(self.log_file(key), text.encode())

    def put(self, path: Path, data: bytes) -> None:
        with clear_errors(self.root):
            files.write_atomically(path, data)

    # -- reading -----------------------------------------------------------------------------------------------------

    def sites(self) -> dict[str, list[str]]:
        """The names of clients by fingerprint; empty if there is no file, or if it cannot be read."""
        try:
            content = json.loads((self.root / SITES).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(content, dict):
            return {}
        return {str(key): [str(name) for name in names] for key, names in content.items()}

    def history(self, suite: str, key: str) -> dict[str, Any] | None:
        """The curves of a run, or None. A single file takes precedence over a file of columns, which may have an
        earlier run of the cell.

        Raises OSError, EOFError, zlib.error or ValueError for a file that is damaged, too large, or no JSON.
        """
        path = self.history_file(suite, key)
        if path.exists():
            stored: dict[str, Any] = unpacked(path.read_bytes())
            return stored
        columns = self.columns(suite)
        if key in columns.holder:
            return columns.files[columns.holder[key]].stored(key)
        for stem, reason in columns.damaged.items():
            raise ValueError(f"{stem}{SUFFIX}: {reason}")
        return None

    def columns(self, suite: str) -> Columns:
        """The files of columns of a suite, cached until one of them changes."""
        folder = self.root / suite / CURVES
        try:
            changed = folder.stat().st_mtime_ns
        except OSError:
            return Columns({}, {}, {})
        known = self._columns.get(suite)
        if known is None or known[0] != changed:
            known = self._columns[suite] = changed, _columns(folder)
        return known[1]

    def environment(self, digest: str) -> dict[str, Any] | None:
        """The machine and packages of a row; None without a valid description."""
        try:
            return parse(self.environment_file(digest).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def embeddings(self, suite: str, key: str) -> dict[str, np.ndarray] | None:
        """The embeddings of a run, or None. Nothing in the file is executed. ValueError if it is too large or has
        content other than arrays, zipfile.BadZipFile if it is no archive."""
        import numpy as np

        path = self.embeddings_file(suite, key)
        if not path.exists():
            return None
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > EMBEDDINGS_BYTES:
                raise ValueError(f"{path}: more than {EMBEDDINGS_BYTES >> 20} MiB unpacked")
        with np.load(path, allow_pickle=False) as stored:
            return dict(stored.items())


class Columns(NamedTuple):
    """The files of columns of a suite. files: by stem. holder: key of a run -> stem of its file. damaged: stem of an
    unreadable file -> reason."""

    files: dict[str, CurveTable]
    holder: dict[str, str]
    damaged: dict[str, str]


def _columns(folder: Path) -> Columns:
    from . import curves

    columns, left = Columns({}, {}, {}), SUITE_BYTES
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            if path.is_symlink() or path.stat().st_size > curves.CURVE_BYTES:
                raise ValueError("a link, or too large")
            table = curves.read_curves(path)
            left -= table.size
            if left < 0:
                raise ValueError(f"the files of a suite hold more than {SUITE_BYTES >> 20} MiB unpacked")
            columns.files[path.stem] = table
            columns.holder.update(dict.fromkeys(table.keys, path.stem))
        except (OSError, ValueError) as error:
            columns.damaged[path.stem] = str(error)
    return columns


def unpacked(data: bytes) -> Any:
    """The content of a single file of curves. Raises as `SideFiles.history`."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        text = stream.read(HISTORY_BYTES + 1)
    if len(text) > HISTORY_BYTES:
        raise ValueError(f"more than {HISTORY_BYTES >> 20} MiB unpacked")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def environment_text(environment: dict[str, Any]) -> bytes:
    """The file content of a machine's description."""
    return (json.dumps(environment, indent=2, sort_keys=True) + "\n").encode()


@contextmanager
def clear_errors(root: Path) -> Iterator[None]:
    """Turn errors of the operating system into a UserError of one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            problem = f"no space left for results in {str(root)!r}; every finished row is kept"
            raise UserError(f"{problem}: free some space and run the same command again") from None
        place, reason = Path(error.filename or root), error.strerror or error
        if place != root and not os.path.exists(place):  # a temporary file has a random name
            place = place.parent
        raise UserError(f"cannot write results to {str(place)!r}: {reason}; use --results DIR") from None


class Parcel(SideFiles):
    """Side files in memory. contents: path in a results folder -> bytes."""

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        super().__init__("")
        self.contents = contents or {}

    @classmethod
    def places(cls, suite: str, key: str) -> set[str]:
        """The paths of the side files that a run may have."""
        made = cls()
        of_run = (made.history_file, made.embeddings_file, made.model_file)
        return {made.log_file(key).as_posix(), *(place(suite, key).as_posix() for place in of_run)}

    def put(self, path: Path, data: bytes) -> None:
        self.contents[path.as_posix()] = data
