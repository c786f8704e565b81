"""A user's own graph as a dataset, `own:NAME`: the name of its folder and the fingerprint of its content.

`fglbench run --data FOLDER` and `announce` register a folder. The variable FGLBENCH_OWN lists folders (separated as in
PATH, or one folder) for the other commands. Workers get them with the job: `known_folders` and `add_folders` on the
same machine, `packed` and `keep` on another (which transfer cache files of other datasets too). The parameter `sha256`
is the beginning of the content's fingerprint, so rows and keys identify the content, and an edited folder is another
experiment.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal, cast

import numpy as np
from pydantic import Field

from ..files import cache_dir, write_atomically
from ..registry import OWN, UserError, did_you_mean
from . import content as contents
from .content import Content
from .federation import Data, Measure, NodeData, Preprocessing, Task
from .own_content import mapped, offer, read
from .own_files import ARCHIVE, EDGES, NODES, Mistakes
from .partitioning import PARTITIONS, PartitionSpec
from .sources import cache_file, exclusive
from .spec import DATASETS, About, DatasetSpec, NodeSpec, preprocessing

VARIABLE = "FGLBENCH_OWN"
DIGITS = 16  # hex digits of the fingerprint in the parameter `sha256`
_folders: dict[str, Path] = {}  # name -> folder, registered in this process
_received: dict[str, Content] = {}  # name -> content from another machine
Stamp = tuple[tuple[str, int, int], ...]
_shared: dict[Path, tuple[str, Stamp]] = {}  # folder -> file in memory, and the stamp of its content
_fingerprints: list[tuple[Content, str]] = []
METRICS: dict[str, Measure] = {
    "accuracy": "accuracy",
    "macro-f1": "macro_f1",
    "roc-auc": "roc_auc",
    "average-precision": "average_precision",
}


class OwnData(NodeSpec):
    """A graph of the user's own, from a folder: edges, features, labels, perhaps clients and a split."""

    about: ClassVar[About] = About("none: the user's own data", "the owner's", "", "on no board: no one else has it")
    folder: ClassVar[Path | None]  # None: received from another machine
    features: Preprocessing = preprocessing("raw")
    sha256: str = Field("", description="the first digits of the content's fingerprint")
    metric: Literal["accuracy", "macro-f1", "roc-auc", "average-precision"] = Field(
        "accuracy", description="the metric of the score, and of the validation that selects rounds and settings"
    )

    def content(self) -> tuple[Content, str]:
        content = self._content()
        digest = self.digest(content)
        if not digest.startswith(self.sha256):
            raise UserError(
                f"{self.name} has changed: its content is {digest[:DIGITS]}, not {self.sha256}; run the command again"
            )
        return content, "own"

    def own_clients(self) -> int | None:
        owner = self.content()[0].get("client")
        return 0 if owner is None else int(owner.max()) + 1

    def has_split(self) -> bool:
        return any(part.startswith("split_") for part in self.content()[0])

    def digest(self, content: Content) -> str:
        return _fingerprint(content)

    def _content(self) -> Content:
        return _received[self.name] if self.folder is None else content_of(self.folder)

    def load(self) -> NodeData:
        return replace(super().load(), scored_by=METRICS[self.metric])


def announce(folder: Path, tell: Callable[[str], object] = lambda line: None) -> str:
    """Register a folder for this process and the workers of its jobs; return the dataset's name.

    `tell` gets each mistake in the files and each note, one line each. Raises UserError for a mistake, a missing
    folder, and a folder name that cannot name a dataset.
    """
    path = _expanded(folder, "--data").resolve()
    if not path.is_dir():
        raise UserError(f"--data: no folder {str(folder)!r}; give a folder with {NODES} and {EDGES}, or {ARCHIVE}")
    if not re.fullmatch(r"[A-Za-z0-9_][\w.-]{0,60}", path.name, re.ASCII):
        raise UserError(f"--data: {path.name!r} cannot name a dataset; rename it with letters, digits, '.', '_', '-'")
    mistakes = _read(path, _stamp(path))[1]
    for line in [*mistakes, *mistakes.notes]:
        tell(line)
    if mistakes:
        count = f"{mistakes.total} mistake{'s' * (mistakes.total > 1)}"
        raise UserError(f"{folder}: {count} in the files; docs/own-data.md says what belongs there")
    _folders[path.name] = path
    return f"{OWN}{path.name}"


def metric_setting(metric: str | None, folder: str | None) -> tuple[str, ...]:
    """Return the `--set` options for `--metric`. UserError for an unknown metric, and without own data."""
    if metric is None:
        return ()
    if metric not in METRICS:
        raise did_you_mean(metric, METRICS, "metric")
    if folder is None:
        raise UserError("--metric is for a graph of your own: give --data FOLDER (other datasets have their metric)")
    return (f"dataset.metric={metric}",)


def folder_of(name: str) -> Path:
    """Return the folder that `announce` was given for `own:NAME`."""
    return _folders[name.removeprefix(OWN)]


def words_of(name: str) -> tuple[list[str], list[str]]:
    """Return the classes and the sites of `own:NAME` as the words (or numbers) in its files."""
    folder = _named().get(name.removeprefix(OWN))
    if folder is None:
        return [], []
    mistakes = _read(folder, _stamp(folder))[1]
    return mistakes.classes, mistakes.sites


def known_folders() -> tuple[tuple[str, str, Stamp], ...]:
    """Return the registered folders for workers on this machine: (folder, file in memory with its content as of
    `own_content.offer`, stamp of its files)."""
    for folder in _folders.values():
        stamp = _stamp(folder)
        if _shared.get(folder, ("", ()))[1] != stamp:
            _shared[folder] = offer(content_of(folder)), stamp
    return tuple((str(folder), *_shared[folder]) for folder in _folders.values())


def add_folders(known: Iterable[tuple[str, str, Stamp]]) -> None:
    """Register folders that another process has checked. known: `known_folders()` of that process."""
    for path, file, stamp in known:
        _folders[Path(path).name] = Path(path)
        _shared[Path(path)] = file, stamp


# -- transfer to workers on other machines, which check the fingerprint of what they load ------------------------------


def held() -> list[str]:
    """Return the names of the files that this machine's cache has."""
    return sorted(path.name for path in (cache_dir() / "datasets").glob("*.npz"))


def packed(name: str) -> tuple[str, str, bytes] | None:
    """Return (name, sha256, bytes) of a dataset's cache file, or of the content of own data; None if there is none, as
    for generated data."""
    if name.startswith(OWN):
        stream = io.BytesIO()
        np.savez_compressed(stream, **DATASETS.build(name).content()[0])  # type: ignore[arg-type]
        data = stream.getvalue()
    elif (path := cache_file(name)).is_file():
        data = path.read_bytes()
    else:
        return None
    return name, hashlib.sha256(data).hexdigest(), data


def keep(name: str, sha256: str, data: bytes) -> None:
    """Store the result of `packed` of another machine in this machine's cache, unless it has a copy. Own data are kept
    in this process, and take precedence over a folder.

    UserError if the bytes are not those that were sent. If the cache cannot be written, nothing is stored, and the
    dataset is loaded from its sources.
    """
    if hashlib.sha256(data).hexdigest() != sha256:
        raise UserError(f"dataset {name!r} was damaged on its way to a worker (sha256 is not {sha256[:12]}…)")
    if name.startswith(OWN):
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            _received[name] = dict(archive)
        return
    path = cache_file(name)
    with suppress(OSError), exclusive(path) as writable:
        if writable and not path.is_file():
            write_atomically(path, data)


def _expanded(folder: Path, where: str) -> Path:
    try:
        return folder.expanduser()
    except RuntimeError:
        raise UserError(f"{where}: the home folder in {str(folder)!r} does not exist; give a whole path") from None


def _named() -> dict[str, Path]:
    """Return the folders of the variable and of this process by name; those of the process take precedence."""
    value = os.environ.get(VARIABLE, "")
    single = bool(value) and _expanded(Path(value), VARIABLE).is_dir()  # also a folder with a colon in its path
    parts = [value] if single else value.split(os.pathsep)
    paths = [_expanded(Path(part), VARIABLE).resolve() for part in parts if part]
    return {path.name: path for path in paths} | _folders


def content_of(folder: Path) -> Content:
    """Return the current content of a folder. Raises UserError with the first mistake and the number of mistakes."""
    stamp = _stamp(folder)
    file, shared_stamp = _shared.get(folder, ("", ()))
    if file and shared_stamp == stamp:
        with suppress(OSError, ValueError):
            return _from_memory(file)
    content, mistakes = _read(folder, stamp)
    if content is None:
        more = f" (and {mistakes.total - 1} more mistakes)" if mistakes.total > 1 else ""
        raise UserError(f"{OWN}{folder.name}: {mistakes[0]}{more}")
    return content


def _fingerprint(content: Content) -> str:
    """Return `contents.fingerprint(content)`; the last two are kept, because hashing a large content is slow."""
    for known, digest in _fingerprints:
        if known is content:
            return digest
    del _fingerprints[:-1]
    _fingerprints.append((content, contents.fingerprint(content)))
    return _fingerprints[-1][1]


def _stamp(folder: Path) -> Stamp:
    """Return names, times and sizes of the existing files of a folder; it changes if one of them changes."""
    stamps = []
    for name in (NODES, EDGES, ARCHIVE):
        with suppress(OSError):  # no such file, or a broken link
            status = (folder / name).stat()
            stamps.append((name, status.st_mtime_ns, status.st_size))
    return tuple(stamps)


_from_memory = lru_cache(maxsize=2)(mapped)


@lru_cache(maxsize=2)
def _read(folder: Path, stamp: object) -> tuple[Content | None, Mistakes]:
    return read(folder)


# -- registered --------------------------------------------------------------------------------------------------------


@DATASETS.resolver
def _resolve(name: str) -> type[OwnData] | None:
    """Return the class of `own:NAME`; the default of `sha256` is that of the folder's current content."""
    if not name.startswith(OWN):
        return None
    if name in _received:
        return _class(name, None, _fingerprint(_received[name])[:DIGITS])
    folders = _named()
    folder = folders.get(name.removeprefix(OWN))
    if folder is None:
        unknown = did_you_mean(name, (f"{OWN}{each}" for each in folders), "dataset")
        raise UserError(f"{unknown}; name its folder in {VARIABLE}, or by --data FOLDER of run, tune and recommend")
    if not folder.is_dir():
        raise UserError(f"dataset {name!r}: there is no folder {str(folder)!r}; name another by --data or {VARIABLE}")
    return _class(name, folder, _fingerprint(content_of(folder))[:DIGITS])


@lru_cache(maxsize=64)
def _class(name: str, folder: Path | None, digest: str) -> type[OwnData]:
    field = Field(digest, description=OwnData.model_fields["sha256"].description)
    types = {"sha256": str, "folder": ClassVar[Path | None]}
    namespace: dict[str, object] = {"__doc__": OwnData.__doc__, "__module__": __name__, "__annotations__": types}
    namespace |= {"sha256": field, "folder": folder, "name": name}
    return cast("type[OwnData]", type(name, (OwnData,), namespace))


@PARTITIONS.register("own")
class OwnPartition(PartitionSpec):
    """The clients that the dataset defines for its nodes (graphs). The seed changes nothing."""

    def check(self, dataset: DatasetSpec, clients: int) -> None:
        self.check_task(type(dataset), "cuts", PARTITIONS)
        if (count := dataset.own_clients()) is not None:
            self._check_count(dataset, count, clients)

    def _check_count(self, data: Data | DatasetSpec, count: int, clients: int) -> None:
        """Raise UserError if the dataset comes with another number of clients than is wanted."""
        if not count:
            others = [name for name in PARTITIONS.names() if self._can_replace(PARTITIONS.cls(name), data.task)]
            raise UserError(f"dataset {data.name!r} comes without clients; choose one of {', '.join(others)}")
        if count != clients:
            raise UserError(f"{data.name!r} comes with {count} clients, not {clients}; give -k {count}")

    @staticmethod
    def _can_replace(partition: type[PartitionSpec], task: Task) -> bool:
        return task in partition.tasks and not issubclass(partition, OwnPartition)

    def deal(self, data: Data, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        owner = data.owner
        self._check_count(data, 0 if owner is None else int(owner.max()) + 1, clients)
        assert owner is not None
        return [np.flatnonzero(owner.numpy() == client) for client in range(clients)]


@PARTITIONS.register("source")
class SourcePartition(OwnPartition):
    """The clients that the dataset defines, each with a separate graph, as the countries of Twitch.

    As `own`, but UserError if an edge joins two clients, so no edge is lost. The seed changes nothing.
    """

    tasks: ClassVar[tuple[Task, ...]] = ("node",)

    def deal(self, data: Data, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        parts = super().deal(data, clients, rng)
        if isinstance(data, NodeData) and data.owner is not None:
            source, target = (data.owner[ends] for ends in data.graph.edges())
            if crossing := int((source != target).sum()) // 2:
                raise UserError(f"{crossing} edges of {data.name!r} join two clients, so it has no sources; use own")
        return parts
