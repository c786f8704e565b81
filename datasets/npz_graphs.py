"""Readers of graphs in one NumPy archive: Amazon and Coauthor, ACM and Wiki, the heterophilous graphs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp
import torch
from pydantic import Field

from . import content as contents, pickles
from .content import Content, checked_csr, csr, node_content, open_npz
from .federation import PARTS, Part
from .sources import Files
from .spec import NodeSpec


def read_heterophilous(files: Files) -> Content:
    """Content from an npz with `node_features`, `node_labels`, `edges` and `{train,val,test}_masks` (splits, N)."""
    with open_npz(*files.values()) as archive:
        content = node_content(archive["edges"], archive["node_labels"], archive["node_features"])
        masks = np.stack([archive[f"{part}_masks"] for part in PARTS])
    if masks.shape[2] != len(content["label"]) or (masks.sum(axis=0) > 1).any():
        raise ValueError("the splits do not give each node one part")
    content["roles"] = np.where(masks.any(axis=0), masks.argmax(axis=0), -1).astype(np.int8)
    return content


class HeterophilousSpec(NodeSpec):
    """A graph with several published splits."""

    split_index: int = Field(0, ge=0, le=9, description="which of the ten published splits is the fixed one")

    def published_splits(self, content: Content) -> tuple[dict[Part, torch.Tensor], ...]:
        return tuple(
            {part: torch.from_numpy(np.flatnonzero(role == code)) for code, part in enumerate(PARTS)}
            for role in content["roles"]
        )

    def select(self, content: Content) -> Content:
        role = content["roles"][self.split_index]
        return content | {f"split_{part}": np.flatnonzero(role == code) for code, part in enumerate(PARTS)}


def read_gnn_benchmark(files: Files) -> Content:
    """Content from one npz of gnn-benchmark: adjacency and attributes in CSR parts, `labels`. Never unpickles."""
    with open_npz(*files.values()) as archive:
        return node_content(np.argwhere(csr(archive, "adj")), archive["labels"], csr(archive, "attr"))


class AmazonSpec(NodeSpec):
    """A graph of several components."""

    largest_component: bool = Field(False, description="keep only the largest connected component")

    def select(self, content: Content) -> Content:
        return contents.largest_component(content) if self.largest_component else content


def read_csr_npz(files: Files) -> Content:
    """Content from an npz with `edges`, `label`, `feat_{indptr,indices,data,shape}`; empty `feat_data` = all ones."""
    with open_npz(*files.values()) as archive:
        arrays = dict(archive)
    if not arrays["feat_data"].size:
        arrays["feat_data"] = np.ones(len(arrays["feat_indices"]), dtype=np.float32)
    return node_content(arrays["edges"], arrays["label"], csr(arrays, "feat"))


def read_graphdata(files: Files) -> Content:
    """Content from an npz of EdisonLeeeee/GraphData: `adj_matrix`, `node_attr` (CSR or array), `node_label`."""
    (path,) = files.values()
    entry = pickles.load_npz(path, ("adj_matrix", "node_attr", "node_label"))
    links, feat = (
        checked_csr(found, name) if sp.issparse(found := entry[name]) else found for name in ("adj_matrix", "node_attr")
    )
    return node_content(np.argwhere(sp.csr_matrix(links)), entry["node_label"], sp.csr_matrix(feat, dtype=np.float32))


def read_wiki(files: Files) -> Content:
    """Content from an edge list, a label list ("node class" a line) and a MATLAB file whose `fea` is the features."""
    edges = np.loadtxt(files["Wiki_edgelist.txt"], dtype=np.int64)
    label = pd.read_csv(files["wiki_labels.txt"], sep=" ", header=None, index_col=0)[1].sort_index().to_numpy()
    feat = sp.csr_matrix(scipy.io.loadmat(files["mgae_wiki.mat"], variable_names=["fea"])["fea"], dtype=np.float32)
    return node_content(edges, label, feat)
