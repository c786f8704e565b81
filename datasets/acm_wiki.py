"""ACM and Wiki, the two small graphs that FedGL uses beside the citation graphs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp

from . import pickles
from .content import Content, checked_csr, csr, node_content, open_npz
from .sources import Files


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
