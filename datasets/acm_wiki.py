"""ACM and Wiki, the two small graphs that FedGL uses beside the citation graphs."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp

from . import pickles
from .base import DATASETS, About, NodeSpec
from .content import Content, node_content, open_npz
from .sources import Download, Files, Mirror, Route


def read_csr_npz(files: Files) -> Content:
    """Content from an npz with `edges`, `label`, `feat_{indptr,indices,data,shape}`; empty `feat_data` = all ones."""
    (path,) = files.values()
    with open_npz(path) as archive:
        indices = archive["feat_indices"].astype(np.int32)
        values = archive["feat_data"] if archive["feat_data"].size else np.ones(len(indices), dtype=np.float32)
        feat = sp.csr_matrix((values, indices, archive["feat_indptr"]), shape=tuple(archive["feat_shape"].tolist()))
        return node_content(archive["edges"], archive["label"], feat)


def read_graphdata(files: Files) -> Content:
    """Content from an npz of EdisonLeeeee/GraphData: `adj_matrix`, `node_attr` (CSR or array), `node_label`."""
    (path,) = files.values()
    entry = pickles.load_npz(path, ("adj_matrix", "node_attr", "node_label"))
    feat = sp.csr_matrix(entry["node_attr"], dtype=np.float32)
    return node_content(np.argwhere(sp.csr_matrix(entry["adj_matrix"])), entry["node_label"], feat)


def read_wiki(files: Files) -> Content:
    """Content from an edge list, a label list ("node class" a line) and a MATLAB file whose `fea` is the features."""
    edges = np.loadtxt(files["Wiki_edgelist.txt"], dtype=np.int64)
    label = pd.read_csv(files["wiki_labels.txt"], sep=" ", header=None, index_col=0)[1].sort_index().to_numpy()
    feat = sp.csr_matrix(scipy.io.loadmat(files["mgae_wiki.mat"], variable_names=["fea"])["fea"], dtype=np.float32)
    return node_content(edges, label, feat)


@DATASETS.register("acm")
class ACM(NodeSpec):
    """3025 ACM papers linked by common authors: 1870 keywords, 3 areas."""

    about: ClassVar[About] = About(
        "Wang et al., Heterogeneous graph attention network, WWW 2019; as a plain graph: Bo et al., SDCN, WWW 2020",
        "MIT (the GraphData repository)",
        "https://github.com/EdisonLeeeee/GraphData",
    )
    routes: ClassVar[tuple[Route, ...]] = (
        Mirror({"ACM.npz": "acm/ACM.npz"}, read_csr_npz),
        Download(
            {"acm.npz": "https://raw.githubusercontent.com/EdisonLeeeee/GraphData/master/datasets/acm.npz"},
            read_graphdata,
        ),
    )
    fingerprint: ClassVar[str | None] = "e78ec6e1d2e62fd4ddb31cdf66aa233512caa46ed0befd5df4198a987fdc508e"


@DATASETS.register("wiki")
class Wiki(NodeSpec):
    """Links among 2405 Wikipedia pages: 4973 tf-idf words, 17 topics, the smallest of 9 pages."""

    about: ClassVar[About] = About(
        "Yang et al., Network representation learning with rich text information (TADW), IJCAI 2015",
        "none stated by the authors of the data; the OpenNE repository is MIT",
        "https://github.com/thunlp/OpenNE",
    )
    routes: ClassVar[tuple[Route, ...]] = (
        Mirror({"Wiki.npz": "wiki/Wiki.npz"}, read_csr_npz),
        Download(
            {
                name: f"https://raw.githubusercontent.com/{path}"
                for name, path in (
                    ("Wiki_edgelist.txt", "shenweichen/GraphEmbedding/master/data/wiki/Wiki_edgelist.txt"),
                    ("wiki_labels.txt", "shenweichen/GraphEmbedding/master/data/wiki/wiki_labels.txt"),
                    ("mgae_wiki.mat", "TrustAGI-Lab/MGAE/master/data/mgae_wiki.mat"),
                )
            },
            read_wiki,
        ),
    )
    fingerprint: ClassVar[str | None] = "3b14306126f20255432213f60b4546ddb9c85fb149dd128a62df57f98383e963"
