"""ogbn-arxiv through the `ogb` package, and its structure alone for timing."""

from __future__ import annotations

import contextlib
import io
import shutil
import socket
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from . import content as contents
from .base import DATASETS, About, DatasetSpec, NodeSpec, node_data, preprocessing
from .content import Content, node_content, open_npz
from .features import Preprocessing
from .federation import NodeData
from .sources import Files, Mirror, Reader, Route, Unavailable

_TABLES = ("edge", "node-feat", "node-label", "node_year", "num-node-list", "num-edge-list")
RAW_FILES = tuple(f"raw/{table}.csv.gz" for table in _TABLES)
RAW_FILES += tuple(f"split/time/{part}.csv.gz" for part in ("train", "valid", "test"))


def read_ogb(files: Files) -> Content:
    """Content of ogbn-arxiv, read by ogb from its raw csv.gz files; with no `files`, ogb downloads them first.

    ogb always gets a fresh folder. So it neither asks on the terminal whether to update an old one, nor calls the
    `torch.load` on pickles of its own that fails under torch >= 2.6 (weights_only) and would run code from them.
    """
    from ogb.nodeproppred import NodePropPredDataset  # here, because it takes seconds and starts a thread

    chatter = sys.stderr if sys.stderr.isatty() else io.StringIO()
    with tempfile.TemporaryDirectory(prefix="fglbench-ogb-") as work, contextlib.redirect_stdout(chatter):
        root = Path(work) / "ogbn_arxiv"
        for name, path in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, root / name)
        if files:
            (root / "processed").mkdir()
            (root / "RELEASE_v1.txt").touch()
        dataset = NodePropPredDataset(name="ogbn-arxiv", root=work)
        (root / "split/time/split_dict.pt").unlink(missing_ok=True)
        split = dataset.get_idx_split()
    graph, label = dataset[0]
    parts = {"train": split["train"], "val": split["valid"], "test": split["test"]}
    return node_content(graph["edge_index"].T, label[:, 0], graph["node_feat"], parts)


def read_structure(files: Files) -> Content:
    """Content without features from an npz with `edges`, `label`, `train`, `valid`, `test`."""
    (path,) = files.values()
    with open_npz(path) as archive:
        parts = {"train": archive["train"], "val": archive["valid"], "test": archive["test"]}
        return node_content(archive["edges"], archive["label"], None, parts)


def _structure_of_ogb(files: Files) -> Content:
    return {name: array for name, array in read_ogb(files).items() if name != "feat"}


@dataclass(frozen=True)
class OgbDownload:
    """ogb's own download."""

    kind: ClassVar[str] = "upstream"
    read: Reader

    def content(self, work: Path) -> Content:
        timeout = socket.getdefaulttimeout()
        socket.setdefaulttimeout(30)  # ogb sets none and would wait for ever
        try:
            return self.read({})
        except (OSError, RuntimeError) as error:
            raise Unavailable(f"ogb could not download ogbn-arxiv ({type(error).__name__})") from None
        finally:
            socket.setdefaulttimeout(timeout)


def _ogb_routes(read: Reader) -> tuple[Route, ...]:
    return Mirror({name: f"ogb/ogbn_arxiv/{name}" for name in RAW_FILES}, read), OgbDownload(read)


_CITATION = "Hu et al., Open Graph Benchmark, NeurIPS 2020; Wang et al., Microsoft Academic Graph, 2020"


@DATASETS.register("arxiv-structure")
class ArxivStructure(DatasetSpec):
    """ogbn-arxiv's graph, labels and split under RANDOM features: for timing at real size, never for accuracy."""

    about: ClassVar[About] = About(
        _CITATION,
        "ODC-BY",
        "https://ogb.stanford.edu/docs/nodeprop/",
        "synthetic: its accuracies mean nothing and are never reported",
    )
    routes: ClassVar[tuple[Route, ...]] = (
        Mirror({"ogbn-arxiv_nofeat.npz": "ogb/ogbn-arxiv_nofeat.npz"}, read_structure),
        *_ogb_routes(_structure_of_ogb),
    )
    fingerprint: ClassVar[str | None] = "25c3f0303a61908d28062d14525235de9f535569047dce9083ec2ffcad2add58"
    task: ClassVar[Literal["node", "graph"]] = "node"
    synthetic: ClassVar[bool] = True
    width: int = Field(128, ge=1, description="number of standard normal features")
    seed: int = Field(0, ge=0, description="seed of the features")

    def load(self) -> NodeData:
        content, source = self.content()
        feat = np.random.default_rng(self.seed).standard_normal((len(content["label"]), self.width), dtype=np.float32)
        return node_data(self, content, feat, contents.fingerprint({**content, "feat": feat}), source)


@DATASETS.register("ogbn-arxiv")
class OgbnArxiv(NodeSpec):
    """Citations among 169343 computer-science papers, made bidirected: 128 features, 40 areas, split by year."""

    features: Preprocessing = preprocessing("raw")
    about: ClassVar[About] = About(
        _CITATION,
        "ODC-BY",
        "https://ogb.stanford.edu/docs/nodeprop/",
        "the fingerprint of its edges, labels and split is registered and checked; that of its features is not",
    )
    routes: ClassVar[tuple[Route, ...]] = _ogb_routes(read_ogb)
    fingerprint: ClassVar[str | None] = ArxivStructure.fingerprint
    unverified: ClassVar[tuple[str, ...]] = ("feat",)
