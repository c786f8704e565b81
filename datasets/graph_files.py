"""Readers of graphs: Planetoid, NumPy archives (Amazon, Coauthor, ACM, Wiki, heterophilous graphs), graphs of several
sources that share one feature space (Twitch by country, papers of three sources), and pages of Facebook.

Pickles cannot run code: the file must have the registered sha256, and the unpickler accepts NumPy arrays, SciPy CSR
matrices and the Planetoid graph's dictionary of lists only.
"""

from __future__ import annotations

import collections
import hashlib
import io
import json
import pickle
import zipfile
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.io
import scipy.sparse as sp
import torch

from ..registry import UserError, option
from . import content as contents
from .content import Content, checked_csr, csr, node_content, open_npz, read_csv
from .federation import PARTS, Goal, Part
from .sources import Files
from .spec import NodeSpec, NumbersSpec

_RECONSTRUCT = np.empty(0).__reduce__()[0]  # its module depends on the version of NumPy

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
    """Return the object in a pickle (Python 2 or 3) of arrays. Raises pickle.UnpicklingError for any other type."""
    return _ArraysOnly(io.BytesIO(data), encoding="latin1").load()


def load(path: Path, sha256: str) -> Any:
    """Return the object in a pickle file. Raises UserError if the file has another hash."""
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise UserError(
            f"{path} is truncated or tampered with (sha256 {digest[:12]}…, registered {sha256[:12]}…): refusing to "
            "unpickle it; replace it with the original file"
        )
    return loads(data)


def load_npz(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return entries of an npz whose arrays may be pickled objects (a CSR matrix in a 0-d array)."""
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


if TYPE_CHECKING:
    import pandas as pd


def read_heterophilous(files: Files) -> Content:
    """Return content from an npz with `node_features`, `node_labels`, `edges`, `{train,val,test}_masks` (splits, N)."""
    with open_npz(*files.values()) as archive:
        content = node_content(archive["edges"], archive["node_labels"], archive["node_features"])
        masks = np.stack([archive[f"{part}_masks"] for part in PARTS])
    if masks.shape[2] != len(content["label"]) or (masks.sum(axis=0) > 1).any():
        raise ValueError("the splits do not give each node one part")
    content["roles"] = np.where(masks.any(axis=0), masks.argmax(axis=0), -1).astype(np.int8)
    return content


class HeterophilousSpec(NodeSpec):
    """A graph with several published splits."""

    split_index: int = option(0, "which of the ten published splits is the fixed one", ge=0, le=9)

    def published_splits(self, content: Content) -> tuple[dict[Part, torch.Tensor], ...]:
        return tuple(
            {part: torch.from_numpy(np.flatnonzero(role == code)) for code, part in enumerate(PARTS)}
            for role in content["roles"]
        )

    def select(self, content: Content) -> Content:
        role = content["roles"][self.split_index]
        return content | {f"split_{part}": np.flatnonzero(role == code) for code, part in enumerate(PARTS)}


def read_gnn_benchmark(files: Files) -> Content:
    """Return content from an npz of gnn-benchmark: adjacency and attributes in CSR parts, `labels`. Never unpickles."""
    with open_npz(*files.values()) as archive:
        return node_content(np.argwhere(csr(archive, "adj")), archive["labels"], csr(archive, "attr"))


class AmazonSpec(NodeSpec):
    """A graph of several components."""

    largest_component: bool = option(False, "keep only the largest connected component")

    def select(self, content: Content) -> Content:
        return contents.largest_component(content) if self.largest_component else content


def read_csr_npz(files: Files) -> Content:
    """Return content from an npz: `edges`, `label`, `feat_{indptr,indices,data,shape}`; empty `feat_data` = ones."""
    with open_npz(*files.values()) as archive:
        arrays = dict(archive)
    if not arrays["feat_data"].size:
        arrays["feat_data"] = np.ones(len(arrays["feat_indices"]), dtype=np.float32)
    return node_content(arrays["edges"], arrays["label"], csr(arrays, "feat"))


def read_graphdata(files: Files) -> Content:
    """Return content from an npz of EdisonLeeeee/GraphData: `adj_matrix`, `node_attr` (CSR or array), `node_label`."""
    (path,) = files.values()
    entry = load_npz(path, ("adj_matrix", "node_attr", "node_label"))
    links, feat = (
        checked_csr(entry[name], name) if sp.issparse(entry[name]) else entry[name]
        for name in ("adj_matrix", "node_attr")
    )
    return node_content(np.argwhere(sp.csr_matrix(links)), entry["node_label"], sp.csr_matrix(feat, dtype=np.float32))


def read_wiki(files: Files) -> Content:
    """Return content from an edge list, a label list ("node class" per line) and a MATLAB file with features `fea`."""
    edges = np.loadtxt(files["Wiki_edgelist.txt"], dtype=np.int64)
    label = read_csv(files["wiki_labels.txt"], sep=" ", header=None, index_col=0)[1].sort_index().to_numpy()
    feat = sp.csr_matrix(scipy.io.loadmat(files["mgae_wiki.mat"], variable_names=["fea"])["fea"], dtype=np.float32)
    return node_content(edges, label, feat)


NUM_VAL = 500  # the public split: the first labelled nodes train, the next 500 validate, the test index tests

_FILES = resources.files(__package__) / "files"
_HASHES = (_FILES / "planetoid.sha256").read_text("utf-8")  # in the format of sha256sum
SHA256 = {name: digest for digest, name in map(str.split, _HASHES.splitlines())}


def read_planetoid(files: Files) -> Content:
    """Return content from `ind.NAME.{y,tx,ty,allx,ally,graph}` (pickles, hash-checked) and `ind.NAME.test.index`.

    The index lists test nodes in shuffled order. CiteSeer's lacks 15 nodes: they get no features and label 0, as in
    every published use of this file.
    """
    pickled: dict[str, Any] = {
        name.rsplit(".", 1)[1]: load(path, SHA256[name])
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
    """Return Planetoid's Cora from the older text files `cora.content` and `cora.cites`.

    order: order[i] is the line of `cora.content` with Planetoid's node i; by default the order in this package. The
    public split is Planetoid's: 20 nodes per class first, 1000 test nodes last.
    """
    if order is None:
        with resources.as_file(_FILES / "cora_planetoid_order.npy") as path:
            order = np.load(path, allow_pickle=False).astype(np.int64)
    table = read_csv(files["cora.content"], sep="\t", header=None, dtype={0: np.int64})
    table = table.iloc[order]
    paper = table.reset_index(drop=True).reset_index().set_index(0)["index"]
    feat = sp.csr_matrix(table.iloc[:, 1:-1].to_numpy(dtype=np.float32))
    label = table.iloc[:, -1].map({name: code for code, name in enumerate(CORA_CLASSES)}).to_numpy(dtype=np.int64)
    cites = read_csv(files["cora.cites"], sep=r"\s+", header=None).to_numpy()
    edges = paper.loc[cites.ravel()].to_numpy().reshape(-1, 2)
    num_nodes = len(table)
    split = _public_split(20 * len(CORA_CLASSES), np.arange(num_nodes - 1000, num_nodes))
    return node_content(edges, label, feat, split)


TWITCH_FEATURES, PAGE_FEATURES = 3170, 4714  # numbers of features: of all countries; of the Facebook pages
PAGE_TYPES = ("company", "government", "politician", "tvshow")


class ViewsSpec(NumbersSpec, NodeSpec):
    """Twitch, with log(1 + views) of each user to be predicted."""

    goal: ClassVar[Goal] = "node-regression"

    def published_targets(self, content: Content) -> torch.Tensor:
        return torch.from_numpy(np.log1p(content["views"]).astype(np.float32)).unsqueeze(1)


def read_twitch(files: Files) -> Content:
    """Return content from `{COUNTRY}_{edges.csv,features.json,target.csv}`: one client per country, sorted by name.

    label: 1 for mature content. The targets of FR list two users twice with the same label: the first line is used.
    """
    countries = []
    for country in sorted({name.partition("_")[0] for name in files}):
        edges, features, target = (files[f"{country}_{part}"] for part in ("edges.csv", "features.json", "target.csv"))
        table = read_csv(target, usecols=["new_id", "mature", "views"])
        if (table.groupby("new_id")["mature"].nunique() > 1).any():
            raise ValueError(f"{target.name} gives a user two labels")
        table = _by_node(table.drop_duplicates("new_id"), "new_id", target)
        content = node_content(_edges(edges), table["mature"].to_numpy(bool), _features(features, TWITCH_FEATURES))
        countries.append(content | {"views": table["views"].to_numpy(np.int64)})
    return side_by_side(countries)


def read_pages(files: Files) -> Content:
    """Return content from `{edges,target}.csv` and `features.json`; classes in the order of PAGE_TYPES."""
    table = read_csv(files["target.csv"], usecols=["id", "page_type"])
    kind = _by_node(table, "id", files["target.csv"])["page_type"]
    if unknown := sorted({*kind} - {*PAGE_TYPES}):
        raise ValueError(f"target.csv has the page type {unknown[0]!r:.40}")
    label = kind.map(PAGE_TYPES.index).to_numpy(np.int64)
    return node_content(_edges(files["edges.csv"]), label, _features(files["features.json"], PAGE_FEATURES))


def read_citation_sources(files: Files) -> Content:
    """Return content from MATLAB files with `network` (N, N), `attrb` (N, d), `group` (N, C): one client per file.

    A paper without exactly one label gets -1: it stays in the graph, and no split uses it.
    """
    sources = []
    for path in files.values():
        arrays = scipy.io.loadmat(path, variable_names=["network", "attrb", "group"])
        links, feat, group = (sp.csr_matrix(arrays[name]) for name in ("network", "attrb", "group"))
        if links.shape != (feat.shape[0],) * 2 or group.shape[0] != feat.shape[0]:
            raise ValueError(f"{path.name}: network, attrb and group are of different numbers of papers")
        single = np.diff(group.indptr) == 1
        label = np.where(single, group.argmax(axis=1).A1, -1)
        sources.append(node_content(np.argwhere(links), label, feat.astype(np.float32)))
    return side_by_side(sources)


def side_by_side(graphs: list[Content]) -> Content:
    """Return graphs with sparse features as one content, one client each. ValueError for different feature spaces."""
    sizes = [len(graph["label"]) for graph in graphs]
    first = np.cumsum([0, *sizes[:-1]])
    feat = [contents.features(graph) for graph in graphs]
    if len({matrix.shape[1] for matrix in feat}) > 1:
        raise ValueError(f"the sources have {sorted({matrix.shape[1] for matrix in feat})} features, not one space")
    edges = np.concatenate([graph["edges"] + start for graph, start in zip(graphs, first, strict=True)])
    content = node_content(edges, np.concatenate([graph["label"] for graph in graphs]), sp.vstack(feat, format="csr"))
    content["client"] = np.repeat(np.arange(len(graphs)), sizes)
    return content | ({"views": np.concatenate([graph["views"] for graph in graphs])} if "views" in graphs[0] else {})


def _edges(path: Path) -> np.ndarray:
    return read_csv(path, dtype=np.int64).to_numpy()


def _by_node(table: pd.DataFrame, key: str, path: Path) -> pd.DataFrame:
    """Return the lines sorted by node. ValueError unless each node from 0 has exactly one."""
    table = table.sort_values(key)
    if not np.array_equal(table[key], np.arange(len(table))):
        raise ValueError(f"{path.name} does not have one line for each node from 0 to {len(table) - 1}")
    return table


def _features(path: Path, width: int) -> sp.csr_matrix:
    """Return 0/1 float32 (N, width) from a JSON map: node -> its features, with duplicates."""
    listed = json.loads(path.read_text("utf-8"))
    if sorted(map(int, listed)) != list(range(len(listed))):
        raise ValueError(f"{path.name} does not have one entry for each node from 0 to {len(listed) - 1}")
    columns = [np.unique(np.array(listed[str(node)], dtype=np.int64)) for node in range(len(listed))]
    indices = np.concatenate(columns)
    if len(indices) and not 0 <= indices.min() <= indices.max() < width:
        raise ValueError(f"{path.name} names a feature outside 0 to {width - 1}")
    indptr = np.cumsum([0, *map(len, columns)])
    return sp.csr_matrix((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(len(columns), width))
