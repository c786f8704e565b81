"""The folder of a user's own graph: either `nodes.csv` and `edges.csv`, or `graph.npz`.

docs/own-data.md says what is in them.
"""

from __future__ import annotations

from pathlib import Path

from .content import Content
from .ownarchive import ARCHIVE, read_archive
from .ownraw import Mistakes, checked
from .owntables import EDGES, NODES, read_tables


def read(folder: Path) -> tuple[Content | None, list[str]]:
    """The canonical content of a folder, or None and its mistakes."""
    mistakes, raw = Mistakes(), None
    if (folder / ARCHIVE).is_file():
        raw = read_archive(folder / ARCHIVE, mistakes)
    elif (folder / NODES).is_file() and (folder / EDGES).is_file():
        raw = read_tables(folder, mistakes)
    else:
        mistakes.append(f"{folder}: neither {NODES} and {EDGES} nor {ARCHIVE}; put either into the folder")
    if raw is None or mistakes:
        return None, list(mistakes)
    return checked(raw, mistakes), list(mistakes)
