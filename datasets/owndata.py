"""A user's own graph as a dataset, `own:NAME`: never one that others have, and told apart by what is in it.

FGLBENCH_OWN   folders with own graphs, separated as in PATH; `fglbench run --data FOLDER` adds to it

The name is that of the folder. The parameter `sha256` is the beginning of the content's fingerprint, so that a row, and
its key, says which content was used, and an edited folder is another cell.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, cast

import numpy as np
import torch
from pydantic import Field

from ..registry import UserError, did_you_mean
from . import content as contents
from .content import Content
from .features import Preprocessing
from .federation import Data, NodeData
from .ownarchive import ARCHIVE
from .ownfiles import read
from .owntables import EDGES, NODES
from .partitioning import PARTITIONS, PartitionSpec
from .spec import DATASETS, About, NodeSpec, preprocessing

OWN = "own:"
VARIABLE = "FGLBENCH_OWN"
DIGITS = 16  # hex digits of the fingerprint that are a parameter


class OwnData(NodeSpec):
    """A graph of the user's own, from a folder: edges, features, labels, perhaps clients and a split."""

    about: ClassVar[About] = About("none: the user's own data", "the owner's", "", "on no board: nobody else has it")
    folder: ClassVar[Path]
    features: Preprocessing = preprocessing("raw")
    sha256: str = Field("", description="how the fingerprint of the content begins")

    def content(self) -> tuple[Content, str]:
        found = content_of(self.folder)
        digest = contents.fingerprint(found)
        if not digest.startswith(self.sha256):
            raise UserError(
                f"{self.name} has changed: its content is {digest[:DIGITS]}, not {self.sha256}; run the command again"
            )
        return found, "own"

    def load(self) -> NodeData:
        data, owner = super().load(), content_of(self.folder).get("client")
        return data if owner is None else replace(data, owner=torch.from_numpy(owner))


def announce(folder: Path, tell: Callable[[str], object] = lambda mistake: None) -> str:
    """Make a folder known to this process and those that it starts; the dataset's name.

    `tell` hears of each mistake in its files; UserError where there is one, or the folder cannot be one.
    """
    path = folder.expanduser().resolve()
    if not path.is_dir():
        raise UserError(f"--data: no folder {str(folder)!r}; give a folder with {NODES} and {EDGES}, or {ARCHIVE}")
    if not re.fullmatch(r"[A-Za-z0-9_][\w.-]{0,60}", path.name, re.ASCII):
        raise UserError(f"--data: {path.name!r} cannot name a dataset; rename it with letters, digits, '.', '_', '-'")
    mistakes = read(path)[1]
    for mistake in mistakes:
        tell(mistake)
    if mistakes:
        count = f"{len(mistakes)} mistake{'s' * (len(mistakes) > 1)}"
        raise UserError(f"{folder}: {count} in the files; docs/own-data.md says what belongs there")
    others = [own for own in os.environ.get(VARIABLE, "").split(os.pathsep) if own and Path(own).name != path.name]
    os.environ[VARIABLE] = os.pathsep.join([*others, str(path)])
    return f"{OWN}{path.name}"


def content_of(folder: Path) -> Content:
    """The content of a folder as it now is. UserError with its first mistake, and how many there are."""
    stamp = tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.glob("*.*")))
    found, mistakes = _read(folder, stamp)
    if found is None:
        more = f" (and {len(mistakes) - 1} more mistakes)" if len(mistakes) > 1 else ""
        raise UserError(f"{OWN}{folder.name}: {mistakes[0]}{more}")
    return found


@lru_cache(maxsize=2)
def _read(folder: Path, stamp: object) -> tuple[Content | None, list[str]]:
    return read(folder)


@DATASETS.resolver
def own_data(name: str) -> type[OwnData] | None:
    """The class of `own:NAME`, whose parameter `sha256` is by default what the folder now holds."""
    if not name.startswith(OWN):
        return None
    folders = {path.name: path for path in map(Path, filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)))}
    folder = folders.get(name.removeprefix(OWN))
    if folder is None or not folder.is_dir():
        unknown = did_you_mean(name, (f"{OWN}{known}" for known in folders), "dataset")
        raise UserError(f"{unknown}; own data are named by --data FOLDER, or in {VARIABLE}")
    return _class(name, folder, contents.fingerprint(content_of(folder))[:DIGITS])


@lru_cache(maxsize=64)
def _class(name: str, folder: Path, digest: str) -> type[OwnData]:
    field = Field(digest, description=OwnData.model_fields["sha256"].description)
    types = {"sha256": str, "folder": ClassVar[Path]}
    namespace: dict[str, object] = {"__doc__": OwnData.__doc__, "__module__": __name__, "__annotations__": types}
    namespace |= {"sha256": field, "folder": folder, "name": name}
    return cast("type[OwnData]", type(name, (OwnData,), namespace))


@PARTITIONS.register("own")
class OwnPartition(PartitionSpec):
    """The clients that come with the dataset: each node (graph) is at its own. The seed changes nothing."""

    def deal(self, data: Data, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        owner = data.owner
        if owner is None:
            raise UserError(f"dataset {data.name!r} comes without clients; use another partition, as louvain")
        count = int(owner.max()) + 1
        if count != clients:
            raise UserError(f"{data.name!r} comes with {count} clients, not {clients}; give -k {count}")
        return [np.flatnonzero(owner.numpy() == client) for client in range(clients)]
