"""Side files on their way: a worker packs them beside its row, and who writes the row unpacks them first."""

from __future__ import annotations

from pathlib import Path

from .attachments import SideFiles
from .folder import Store


class Parcel(SideFiles):
    """Side files that are kept in memory: `contents`, bytes by their place in a results folder."""

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        super().__init__("")
        self.contents = contents or {}

    def deliver(self, store: Store) -> None:
        """Write all of it to where it belongs in a results folder that is still the one that was prepared."""
        store.check_there()
        for place, data in self.contents.items():
            store.put(store.root / place, data)

    def put(self, path: Path, data: bytes) -> None:
        self.contents[path.as_posix()] = data
