"""The canonical content of a dataset, before any option is applied: plain arrays, their fingerprint, the npz cache.

A `Content` is a dictionary of arrays. Node datasets have

    edges         int64 (M, 2), u < v, sorted, no duplicates: the undirected graph without loops
    label         int64 (N,), -1 = no label
    feat          float32 (N, d), or in CSR form: feat_indptr, feat_indices (int32), feat_data (float32), feat_shape
    split_train, split_val, split_test   int64 node ids, sorted, if the dataset has a published split
    roles         int8 (S, N), if it has S published splits: 0 train, 1 val, 2 test, -1 none
    client        int64 (N,), the client of each node, if the dataset defines clients
    views         int64 (N,), the views of each Twitch user
    target        float32 (N, T), numbers to predict instead of labels, nan = none

and graph sets have `edges` over the nodes of all graphs, `graph` (int64, the graph of each node, ascending), `label`
(one per graph) and optionally `node_label` (int64), `node_attr` (float32, (nodes, a)), `target` (one row per graph),
`scaffold` (int64, of each molecule) and `edge_label` (uint8, (M, b), of each row of `edges`).
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.lib.npyio import NpzFile

from ..files import replacing

Content = dict[str, np.ndarray]

if TYPE_CHECKING:
    import pandas as pd


def read_csv(path: Path, **options: Any) -> pd.DataFrame:
    """Return the table in a text file. options: of `pandas.read_csv`."""
    import pandas  # the import takes half a second

    table: pd.DataFrame = pandas.read_csv(path, **options)
    return table


class Unsound(ValueError):
    """The arrays are no valid dataset. The message gives the array, the problem and the fix."""


def fingerprint(content: Content, without: Iterable[str] = ()) -> str:
    """Return the sha256 (hex) over names, dtypes, shapes and little-endian bytes of all arrays except `without`.

    `edge_label` is never included, because the fingerprints of molecules are older than their bonds.
    """
    digest = hashlib.sha256()
    for name in sorted(set(content) - {*without, "edge_label"}):
        array = np.ascontiguousarray(content[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        digest.update(array.data)
    return digest.hexdigest()


def undirected(edges: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return `edges` (whole numbers, (M, 2)) as an undirected simple graph: int64 pairs u < v, sorted.

    Raises Unsound for another shape, fractions, and a node outside [0, num_nodes).
    """
    given = np.asarray(edges)
    if given.size and (given.ndim != 2 or given.shape[1] != 2):
        hint = "; transpose it" if given.ndim == 2 and given.shape[0] == 2 else ""
        raise Unsound(f"edges has shape {given.shape}; give one row per edge, (M, 2){hint}")
    whole = given.dtype.kind in "iu" or (given.dtype.kind == "f" and (given == np.rint(given)).all())
    if given.size and not whole:
        raise Unsound(f"edges is {given.dtype}; give whole numbers")
    pairs = given.astype(np.int64, copy=False).reshape(-1, 2)
    if pairs.size and (pairs.min() < 0 or pairs.max() >= num_nodes):
        wrong = pairs.min() if pairs.min() < 0 else pairs.max()
        raise Unsound(f"an edge names node {wrong} of {num_nodes}; name nodes from 0 to {num_nodes - 1}")
    one, other = pairs.T
    keys = (np.minimum(one, other) * num_nodes + np.maximum(one, other))[one != other]
    keys.sort()  # np.unique takes ten times as long for millions of keys
    new = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
    return unpacked(keys[new], num_nodes)


def unpacked(keys: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return the pairs (M, 2) of keys first * num_nodes + second."""
    pairs = np.empty((len(keys), 2), dtype=np.int64)
    np.floor_divide(keys, max(num_nodes, 1), out=pairs[:, 0])
    np.subtract(keys, pairs[:, 0] * num_nodes, out=pairs[:, 1])
    return pairs


def node_content(
    edges: np.ndarray,
    label: np.ndarray,
    feat: np.ndarray | sp.spmatrix | None,
    split: dict[str, np.ndarray] | None = None,
) -> Content:
    """Return the canonical content of a node dataset. A sparse `feat` is stored as CSR, indices sorted, no zeros.

    Raises Unsound for arrays that do not fit together.
    """
    label = np.asarray(label)
    if not label.size or label.ndim != 1 or label.dtype.kind not in "iub":
        raise Unsound(f"label is {label.dtype} {label.shape}; give whole numbers (N,), -1 for no label")
    content: Content = {"edges": undirected(edges, len(label)), "label": np.array(label, dtype=np.int64)}
    if sp.issparse(feat):
        matrix = sp.csr_matrix(checked_csr(feat, "feat"), dtype=np.float32, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        content["feat_indptr"] = matrix.indptr.astype(np.int32)
        content["feat_indices"] = matrix.indices.astype(np.int32)
        content["feat_data"] = matrix.data
        content["feat_shape"] = np.array(matrix.shape, dtype=np.int64)
    elif feat is not None:
        feat = np.asarray(feat)
        if feat.ndim != 2:
            raise Unsound(f"features have the shape {feat.shape}; give one row per node, (N, d)")
        content["feat"] = np.ascontiguousarray(feat, dtype=np.float32)
    rows = len(label) if feat is None else feat.shape[0]
    if rows != len(label):
        raise Unsound(f"{rows} feature rows for {len(label)} labels; give one row per node")
    _check_split(split or {}, len(label))
    for part, ids in (split or {}).items():
        content[f"split_{part}"] = np.sort(np.asarray(ids, dtype=np.int64))
    return content


def _check_split(split: Mapping[str, np.ndarray], rows: int) -> None:
    """Raise Unsound for masks instead of ids, an id outside [0, rows), and a node in two parts or twice in one."""
    times = np.zeros(rows, dtype=np.int64)
    for part, given in split.items():
        ids = np.asarray(given)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise Unsound(f"split {part!r} is {ids.dtype} {ids.shape}; give the ids of its nodes (n,)")
        if ids.size and (ids.min() < 0 or ids.max() >= rows):
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise Unsound(f"split {part!r} has node {wrong} of {rows}; name nodes from 0 to {rows - 1}")
        np.add.at(times, ids.astype(np.int64), 1)
    if (times > 1).any():
        raise Unsound(f"node {int(times.argmax())} is in the split {times.max()} times; put it into one part, once")


def features(content: Content) -> np.ndarray | sp.csr_matrix:
    """Return the features of a node dataset's content: float32 (N, d), dense or CSR as stored."""
    return content["feat"] if "feat" in content else csr(content, "feat")


def csr(arrays: Mapping[str, np.ndarray], name: str) -> sp.csr_matrix:
    """Return the matrix of the arrays `NAME_{data,indices,indptr,shape}`.

    Raises Unsound if they are no valid CSR matrix, which SciPy does not check, and KeyError if one is missing.
    """
    data, indices, indptr, shape = (np.asarray(arrays[f"{name}_{part}"]) for part in CSR_PARTS)
    _check_csr(name, data, indices, indptr, shape)
    return sp.csr_matrix((data, indices, indptr), shape=tuple(shape.tolist()))


def checked_csr(matrix: sp.spmatrix, name: str) -> sp.spmatrix:
    """Return a sparse matrix. Raises Unsound if it is in CSR form and not valid."""
    if matrix.format == "csr":
        _check_csr(name, matrix.data, matrix.indices, matrix.indptr, np.array(matrix.shape))
    return matrix


WIDEST = 2**31  # columns: PyTorch multiplies sparse matrices by 32-bit indices
CSR_PARTS = ("data", "indices", "indptr", "shape")


def _check_csr(name: str, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: np.ndarray) -> None:
    for part, array, kinds in zip(CSR_PARTS, (data, indices, indptr, shape), ("fiub", "iu", "iu", "iu"), strict=True):
        if array.ndim != 1 or array.dtype.kind not in kinds:
            wanted = "numbers" if part == "data" else "whole numbers"
            raise Unsound(f"{name}_{part} is {array.dtype} {array.shape}; give {wanted} in one dimension")
    if len(shape) != 2 or shape.min() < 0:
        raise Unsound(f"{name}_shape is {shape.tolist()}; give (rows, columns)")
    rows, columns = shape.tolist()
    if columns >= WIDEST:
        raise Unsound(f"{name}_shape has {columns} columns; fewer than {WIDEST} can be computed with")
    if len(indptr) != rows + 1:
        raise Unsound(f"{name}_indptr has {len(indptr)} numbers for {rows} rows; give {rows + 1}")
    if len(indices) != len(data):
        raise Unsound(f"{name}_indices has {len(indices)} numbers and {name}_data {len(data)}; give one each per value")
    if indptr[0] != 0 or indptr[-1] != len(data) or (indptr[1:] < indptr[:-1]).any():
        raise Unsound(f"{name}_indptr must go from 0 to {len(data)} and never fall; write SciPy's own csr.indptr")
    if len(indices) and (indices.min() < 0 or indices.max() >= columns):
        wrong = indices.min() if indices.min() < 0 else indices.max()
        raise Unsound(f"{name}_indices has {wrong} for {columns} columns; number columns from 0 to {columns - 1}")


def largest_component(content: Content) -> Content:
    """Return the content of the largest connected component (of equal ones, the first), nodes in the same order."""
    num_nodes = len(content["label"])
    edges = content["edges"]
    links = sp.csr_matrix((np.ones(len(edges), dtype=np.int8), (edges[:, 0], edges[:, 1])), shape=(num_nodes,) * 2)
    _, component = sp.csgraph.connected_components(links, directed=False)
    keep = component == np.bincount(component).argmax()
    new_id = np.cumsum(keep) - 1
    split = {
        name.removeprefix("split_"): new_id[ids[keep[ids]]]
        for name, ids in content.items()
        if name.startswith("split_")
    }
    inside = edges[keep[edges[:, 0]]]
    return node_content(new_id[inside], content["label"][keep], features(content)[keep], split)


def write(content: Content, path: Path) -> None:
    """Write an npz atomically: readers see the whole file or none. Raises OSError."""
    with replacing(path) as file:
        np.savez_compressed(file, **content)  # type: ignore[arg-type]


def open_npz(path: Path) -> NpzFile:
    """Open an npz without unpickling. Raises ValueError for a truncated file, OSError for a missing one."""
    if path.is_file() and not zipfile.is_zipfile(path):
        raise ValueError("not a whole npz file")
    return cast(NpzFile, np.load(path, allow_pickle=False))


def read(path: Path) -> Content:
    """Read a file of `write`. Raises OSError, ValueError or zipfile.BadZipFile for a damaged file."""
    with open_npz(path) as archive:
        return {name: archive[name] for name in archive.files}
