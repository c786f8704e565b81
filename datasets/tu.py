"""Graph sets of the TU collection (Morris et al., TUDataset, 2020)."""

from __future__ import annotations

import io
import zipfile

import numpy as np

from .content import Content, undirected
from .sources import Files


def read_tu(files: Files) -> Content:
    """Content from the text files `NAME_{A,graph_indicator,graph_labels}.txt`, and node labels and attributes if any.

    files: the texts themselves, or one zip that holds them. Node and graph ids start at 1 in the files.
    """
    texts = _texts(files)

    def table(part: str, dtype: type) -> np.ndarray | None:
        text = next((data for name, data in texts.items() if name.endswith(f"_{part}.txt")), None)
        return None if text is None else np.loadtxt(io.BytesIO(text), dtype=dtype, delimiter=",", ndmin=2)

    def required(part: str) -> np.ndarray:
        values = table(part, np.int64)
        if values is None:
            raise ValueError(f"no file …_{part}.txt")
        return values

    graph = required("graph_indicator")[:, 0] - 1
    content: Content = {"graph": graph, "label": required("graph_labels")[:, 0].copy()}
    content["edges"] = undirected(required("A") - 1, len(graph))
    if (np.diff(graph) < 0).any() or graph[0] != 0 or graph[-1] >= len(content["label"]):
        raise ValueError("the graph indicator does not match the labels")
    if (graph[content["edges"][:, 0]] != graph[content["edges"][:, 1]]).any():
        raise ValueError("an edge joins two graphs")
    labels, attributes = table("node_labels", np.int64), table("node_attributes", np.float32)
    if labels is not None:
        content["node_label"] = labels[:, 0].copy()
    if attributes is not None:
        content["node_attr"] = attributes
    if any(len(content[key]) != len(graph) for key in ("node_label", "node_attr") if key in content):
        raise ValueError("node labels or attributes do not match the graph indicator")
    return content


def _texts(files: Files) -> dict[str, bytes]:
    texts: dict[str, bytes] = {}
    for name, path in files.items():
        if name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                texts |= {member: archive.read(member) for member in archive.namelist() if member.endswith(".txt")}
        else:
            texts[name] = path.read_bytes()
    return texts
