"""Graph sets of the TU collection (Morris et al., TUDataset, 2020)."""

from __future__ import annotations

import io
import re
import zipfile

import numpy as np

from ..registry import UserError
from .content import Content, undirected
from .sources import Files


def read_tu(files: Files) -> Content:
    """Return content from `NAME_{A,graph_indicator,graph_labels}.txt`, and node labels and attributes if there are any.

    files: the text files, or one zip of them. Ids in the files start at 1. UserError for a set of another kind.
    """
    texts = _texts(files)

    def table(part: str, dtype: type) -> np.ndarray | None:
        name = next((name for name in texts if name.endswith(f"_{part}.txt")), None)
        return None if name is None else _table(name.rpartition("/")[2], texts[name], dtype)

    def required(part: str, columns: int, why: str) -> np.ndarray:
        values = table(part, np.int64)
        if values is None:
            raise UserError(f"the set has no file {part}.txt: {why}")
        if values.shape[1] != columns:
            raise UserError(f"{part}.txt has {values.shape[1]} columns, not {columns}: {why}")
        return values

    graph = required("graph_indicator", 1, "it says the graph of each node")[:, 0] - 1
    label = required("graph_labels", 1, "only sets with one class per graph can be used")[:, 0].copy()
    content: Content = {"graph": graph, "label": label}
    content["edges"] = undirected(required("A", 2, "it has one edge per line") - 1, len(graph))
    if not len(graph) or (np.diff(graph) < 0).any() or graph[0] != 0 or graph[-1] >= len(label):
        raise ValueError("the graph indicator does not match the labels")
    ends = graph[content["edges"]]
    across = np.flatnonzero(ends[:, 0] != ends[:, 1])
    if len(across):
        (one, other), graphs = content["edges"][across[0]] + 1, ends[across[0]] + 1
        problem = f"A.txt: nodes {one} and {other} of an edge are in graphs {graphs[0]} and {graphs[1]}"
        raise UserError(f"{problem}; nodes are numbered through all graphs")
    labels, attributes = table("node_labels", np.int64), table("node_attributes", np.float32)
    if labels is not None:
        content["node_label"] = labels[:, 0].copy() if labels.shape[1] == 1 else labels
    if attributes is not None:
        content["node_attr"] = attributes
    if any(len(content[key]) != len(graph) for key in ("node_label", "node_attr") if key in content):
        raise ValueError("node labels or attributes do not match the graph indicator")
    return content


def _table(name: str, text: bytes, dtype: type) -> np.ndarray:
    """Return the numbers of a file, (lines, columns). UserError, with the line, for a set of another kind."""
    try:
        return np.loadtxt(io.BytesIO(text), dtype=dtype, delimiter=",", ndmin=2)
    except ValueError:
        lines = [line.split(b",") for line in text.splitlines() if line.strip()]
        for number, words in enumerate(lines, 1):
            if len(words) != len(lines[0]):
                cause = "lines of several lengths, as labels that change over time, cannot be used"
                raise UserError(f"{name}:{number}: {len(words)} values, {len(lines[0])} in line 1: {cause}") from None
            real = next((word for word in words if _is_fraction(word)), None) if dtype is np.int64 else None
            if real is not None:
                cause = "real values, as targets of a regression; only whole numbers (classes) can be used"
                raise UserError(f"{name}:{number}: {real.strip().decode()}: {cause}") from None
        raise


def _is_fraction(word: bytes) -> bool:
    return re.fullmatch(rb"\s*[+-]?(\d+\.\d*|\.\d+|\d+(?=e))(e[+-]?\d+)?\s*", word, re.IGNORECASE) is not None


def _texts(files: Files) -> dict[str, bytes]:
    texts: dict[str, bytes] = {}
    for name, path in files.items():
        if name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                texts |= {member: archive.read(member) for member in archive.namelist() if member.endswith(".txt")}
        else:
            texts[name] = path.read_bytes()
    return texts
