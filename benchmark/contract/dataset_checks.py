"""What every dataset must hold to, as checks that anyone can run on a dataset of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

import dgl
import torch

from ...datasets import PARTITIONS, SPLITS, DatasetSpec, build_federation
from ...datasets.federation import Data, NodeData
from .method_checks import ContractError, Inapplicable, Judgement, judge, says_what_it_is

CLIENTS = 3


@lru_cache(maxsize=2)
def _loaded(spec: DatasetSpec) -> Data:
    return spec.load()


def documented(spec: DatasetSpec) -> None:
    """The class has a docstring, citation and licence, and every option a description."""
    says_what_it_is(type(spec), "what its nodes, edges, features and labels are")
    about = getattr(spec, "about", None)
    if about is None or not (about.citation and about.licence):
        raise ContractError("does not state citation and licence: about = About(citation, licence, home)")


def loads(spec: DatasetSpec) -> None:
    """Loading gives the kind of data that the class names, under its own name, with a fingerprint."""
    data = _loaded(spec)
    if data.task != spec.task:
        raise ContractError(f"is a {spec.task} dataset, but loads data of task {data.task!r}")
    if data.name != spec.name:
        raise ContractError(f"loads data named {data.name!r}")
    if not re.fullmatch(r"[0-9a-f]{64}", data.fingerprint):
        raise ContractError(f"its fingerprint {data.fingerprint[:20]!r} is no sha256 in hex")
    if data.synthetic != spec.synthetic:
        raise ContractError(f"synthetic is {spec.synthetic} in the class and {data.synthetic} in its data")


def holds_sound_graphs(spec: DatasetSpec) -> None:
    """Both directions of every edge, no loop, no edge twice; finite float32 features; labels below the classes."""
    data = _loaded(spec)
    if isinstance(data, NodeData):
        _sound_graph("the graph", data.graph)
        _sound_features("the features", data.feat, data.graph.num_nodes())
        _sound_labels(data.label, data.graph.num_nodes(), data.num_classes, lowest=-1)
        return
    for index, graph in enumerate(data.graphs):
        _sound_graph(f"graph {index}", graph)
        _sound_features(f"the features of graph {index}", graph.ndata["feat"], graph.num_nodes())
    _sound_labels(data.label, len(data.graphs), data.num_classes, lowest=0)


def _sound_graph(what: str, graph: dgl.DGLGraph) -> None:
    source, target = graph.edges()
    if (source == target).any():
        raise ContractError(f"{what} has a self-loop; models add their own")
    keys, back = source * graph.num_nodes() + target, target * graph.num_nodes() + source
    if len(keys.unique()) != len(keys):
        raise ContractError(f"{what} has an edge twice")
    if not torch.equal(keys.sort().values, back.sort().values):
        raise ContractError(f"{what} lacks the other direction of an edge")


def _sound_features(what: str, feat: torch.Tensor, rows: int) -> None:
    values = feat.values() if feat.layout == torch.sparse_csr else feat
    if feat.dim() != 2 or feat.shape[0] != rows or values.dtype != torch.float32:
        raise ContractError(f"{what} are {feat.dtype} {tuple(feat.shape)}, not float32 ({rows}, d)")
    if not torch.isfinite(values).all():
        raise ContractError(f"{what} are not finite")


def _sound_labels(label: torch.Tensor, count: int, classes: int, lowest: int) -> None:
    if label.dtype != torch.int64 or tuple(label.shape) != (count,):
        raise ContractError(f"the labels are {label.dtype} {tuple(label.shape)}, not int64 ({count},)")
    if int(label.min()) < lowest or int(label.max()) != classes - 1 or classes < 2:
        raise ContractError(f"labels from {int(label.min())} to {int(label.max())} with {classes} classes")


def splits_apart(spec: DatasetSpec) -> None:
    """The split that comes with the dataset, if one does: nodes that exist and have a label, each in one part."""
    data = _loaded(spec)
    if not isinstance(data, NodeData) or not data.fixed_split:
        raise Inapplicable("no split comes with it")
    ids = torch.cat(list(data.fixed_split.values()))
    if set(data.fixed_split) != {"train", "val", "test"} or len(ids.unique()) != len(ids):
        raise ContractError("its split has not the parts train, val and test, or a node in two of them")
    if int(ids.min()) < 0 or int(ids.max()) >= len(data.label) or (data.label[ids] < 0).any():
        raise ContractError("its split names a node that does not exist or has no label")


def repeats_itself(spec: DatasetSpec) -> None:
    """Loading it again gives the same data."""
    if _loaded(spec).fingerprint != spec.load().fingerprint:
        raise ContractError("loads different data the second time")


def is_registered(spec: DatasetSpec) -> None:
    """The fingerprint of its content is that of the class, so that everyone has the same data."""
    if spec.synthetic or not spec.routes:
        raise Inapplicable("it is generated, not fetched")
    if spec.fingerprint is None:
        found = _loaded(spec).fingerprint
        raise ContractError(f"registers no fingerprint; if the data are right: fingerprint = {found!r}")


def cuts_into_clients(spec: DatasetSpec) -> None:
    """It can be cut evenly into clients, each node or graph at one of them."""
    data = _loaded(spec)
    split = SPLITS.build("ratio" if data.task == "node" else "none")
    federation = build_federation(data, PARTITIONS.build("uniform"), split, CLIENTS, 0)
    if data.task == "node":
        held = [int(own.graph.num_nodes()) for own in federation.clients]  # type: ignore[union-attr]
        if sum(held) != len(data.label):
            raise ContractError(f"clients hold {sum(held)} of {len(data.label)} nodes")


CHECKS: dict[str, Callable[[DatasetSpec], None]] = {
    check.__name__: check
    for check in (
        documented, loads, holds_sound_graphs, splits_apart, repeats_itself, is_registered, cuts_into_clients,
    )
}  # fmt: skip


def results(spec: DatasetSpec) -> Iterator[tuple[str, Judgement, str]]:
    """(check, verdict, reason) one by one."""
    for name, function in CHECKS.items():
        yield name, *judge(partial(function, spec))
