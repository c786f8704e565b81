"""Transfer of datasets to workers on other machines: cache files, which fill the cache of the other machine, and the
content of own data, which a worker keeps in memory. When a dataset is loaded, it is checked against the registered
fingerprint or that of the cell."""

from __future__ import annotations

import hashlib
from contextlib import suppress

from ...datasets import own_data
from ...datasets.sources import cache_file, exclusive
from ...files import cache_dir, write_atomically
from ...registry import UserError


def held() -> list[str]:
    """The names of the files that this machine's cache has."""
    return sorted(path.name for path in (cache_dir() / "datasets").glob("*.npz"))


def packed(dataset: str) -> tuple[str, str, bytes] | None:
    """(dataset, sha256, bytes) of its cache file, or of own data; None if there is none, as for generated data."""
    path, data = cache_file(dataset), own_data.packed(dataset)
    if data is None and path.is_file():
        data = path.read_bytes()
    if data is None:
        return None
    return dataset, hashlib.sha256(data).hexdigest(), data


def keep(dataset: str, sha256: str, data: bytes) -> None:
    """Store the result of `packed` of another machine in this machine's cache (own data: in this process), unless it
    has a copy.

    UserError if the bytes are not those that were sent. If the cache cannot be written, nothing is stored, and the
    dataset is loaded from its sources.
    """
    if hashlib.sha256(data).hexdigest() != sha256:
        raise UserError(f"dataset {dataset!r} was damaged on its way to a worker (sha256 is not {sha256[:12]}…)")
    if dataset.startswith(own_data.OWN):
        own_data.receive(dataset, data)
        return
    path = cache_file(dataset)
    with suppress(OSError), exclusive(path) as writable:
        if writable and not path.is_file():
            write_atomically(path, data)
