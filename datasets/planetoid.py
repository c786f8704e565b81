"""Cora, CiteSeer and PubMed as Planetoid publishes them (Yang, Cohen and Salakhutdinov, ICML 2016)."""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from . import pickles
from .content import Content, node_content
from .sources import Files

NUM_VAL = 500  # the public split: the first labelled nodes train, the next 500 validate, the test index tests

_FILES = resources.files(__package__) / "files"
_HASHES = (_FILES / "planetoid.sha256").read_text("utf-8")  # as sha256sum writes them: hash, file
SHA256 = {name: digest for digest, name in map(str.split, _HASHES.splitlines())}


def read_planetoid(files: Files) -> Content:
    """Content from `ind.NAME.{y,tx,ty,allx,ally,graph}` (pickles, hash-checked) and `ind.NAME.test.index` (text).

    Test nodes are listed in shuffled order, and CiteSeer's index skips 15 nodes: those have no features, no links, and
    label 0, as in every published use of this file.
    """
    pickled: dict[str, Any] = {
        name.rsplit(".", 1)[1]: pickles.load(path, SHA256[name])
        for name, path in files.items()
        if not name.endswith("test.index")
    }
    index = next(path for name, path in files.items() if name.endswith("test.index"))
    test = np.loadtxt(index, dtype=np.int64, ndmin=1)
    known = pickled["allx"].shape[0]
    num_nodes = max(known, int(test.max()) + 1)
    place = np.concatenate([np.arange(known), test])
    stacked = sp.vstack([pickled["allx"], pickled["tx"]], format="coo")
    feat = sp.csr_matrix((stacked.data, (place[stacked.row], stacked.col)), shape=(num_nodes, stacked.shape[1]))
    label = np.zeros(num_nodes, dtype=np.int64)
    label[place] = np.concatenate([pickled["ally"], pickled["ty"]]).argmax(axis=1)
    edges = [(node, other) for node, others in pickled["graph"].items() for other in others]
    return node_content(np.array(edges), label, feat, _public_split(len(pickled["y"]), test))


def _public_split(num_train: int, test: np.ndarray) -> dict[str, np.ndarray]:
    return {"train": np.arange(num_train), "val": np.arange(num_train, num_train + NUM_VAL), "test": test}


# The classes of cora.content in the order of Planetoid's label columns.
CORA_CLASSES = (
    "Theory",
    "Reinforcement_Learning",
    "Genetic_Algorithms",
    "Neural_Networks",
    "Probabilistic_Methods",
    "Case_Based",
    "Rule_Learning",
)


def read_linqs_cora(files: Files, order: np.ndarray | None = None) -> Content:
    """Planetoid's Cora from the older text files `cora.content` and `cora.cites`.

    order: order[i] is the line of `cora.content` that is Planetoid's node i; by default the shipped one. The public
    split is Planetoid's: 20 nodes a class first, 1000 test nodes last.
    """
    if order is None:
        with resources.as_file(_FILES / "cora_planetoid_order.npy") as path:
            order = np.load(path, allow_pickle=False).astype(np.int64)
    table = pd.read_csv(files["cora.content"], sep="\t", header=None, dtype={0: np.int64})
    table = table.iloc[order]
    paper = pd.Series(np.arange(len(table)), index=table[0])
    feat = sp.csr_matrix(table.iloc[:, 1:-1].to_numpy(dtype=np.float32))
    label = table.iloc[:, -1].map({name: code for code, name in enumerate(CORA_CLASSES)}).to_numpy(dtype=np.int64)
    cites = pd.read_csv(files["cora.cites"], sep=r"\s+", header=None).to_numpy()
    edges = paper.loc[cites.ravel()].to_numpy().reshape(-1, 2)
    num_nodes = len(table)
    split = _public_split(20 * len(CORA_CLASSES), np.arange(num_nodes - 1000, num_nodes))
    return node_content(edges, label, feat, split)
