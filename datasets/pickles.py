"""Reading the pickles of old datasets without letting them run code.

Two locks: the file must be the one whose sha256 is registered, and the unpickler admits NumPy arrays, SciPy CSR
matrices and the Planetoid graph's dictionary of lists, and nothing else.
"""

from __future__ import annotations

import collections
import hashlib
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..registry import UserError

_RECONSTRUCT = np.empty(0).__reduce__()[0]  # numpy moved this function between modules; ask an array for it

_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("scipy.sparse.csr", "csr_matrix"): sp.csr_matrix,
    ("scipy.sparse._csr", "csr_matrix"): sp.csr_matrix,
    ("collections", "defaultdict"): collections.defaultdict,
    ("builtins", "list"): list,  # pickle maps Python 2's __builtin__ to builtins
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        module = {"__builtin__": "builtins"}.get(module, module)
        if (module, name) not in _ADMITTED:
            raise pickle.UnpicklingError(f"{module}.{name} is not an array type")
        return _ADMITTED[module, name]


def loads(data: bytes) -> Any:
    """The object in a pickle (Python 2 or 3) of arrays. Raises pickle.UnpicklingError for any other type in it."""
    return _ArraysOnly(io.BytesIO(data), encoding="latin1").load()


def load(path: Path, sha256: str) -> Any:
    """The object in a pickle file, after its hash is checked. Raises UserError when the file is another."""
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise UserError(
            f"{path} is truncated or tampered with (sha256 {found[:12]}…, registered {sha256[:12]}…): refusing to "
            "unpickle it; replace it with the original file"
        )
    return loads(data)


def load_npz(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    """Entries of an npz whose members may be pickled objects (a CSR matrix in a 0-d array), read array by array."""
    entries: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive:
        for key in keys:
            with archive.open(f"{key}.npy") as member:
                version = np.lib.format.read_magic(member)
                read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
                _, _, dtype = read_header[version](member)
                pickled = dtype.hasobject
                rest = member.read() if pickled else b""
            value = loads(rest) if pickled else np.load(io.BytesIO(archive.read(f"{key}.npy")), allow_pickle=False)
            entries[key] = value.item() if pickled and value.ndim == 0 else value
    return entries
