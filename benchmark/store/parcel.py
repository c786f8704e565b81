"""Side files on their way: a worker packs them beside its row, and who writes the row unpacks them first."""

from __future__ import annotations

from pathlib import Path

from .folder import Store


class Parcel(Store):
    """A store that keeps what is written in memory: `contents`, bytes by their place in a results folder."""

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        super().__init__("")
        self.contents = contents or {}

    def deliver(self, store: Store) -> None:
        """Write all of it to where it belongs in a results folder that is still the one that was prepared."""
        store.check_there()
        for place, data in self.contents.items():
            store._write(store.root / place, data)

    def _write(self, path: Path, data: bytes) -> None:
        self.contents[path.as_posix()] = data
