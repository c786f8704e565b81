"""What every dataset must hold to, as checks that anyone can run on a dataset of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import dgl
import torch

from ...datasets import PARTITIONS, SPLITS, DatasetSpec, build_federation
from ...datasets.federation import Data, NodeData
from .verdicts import Inapplicable, Judgement, demand, judged, named, says_what_it_is

CLIENTS = 3


@lru_cache(maxsize=2)
def _loaded(spec: DatasetSpec) -> Data:
    return spec.load()


def documented(spec: DatasetSpec) -> None:
    """The class has a docstring, citation and licence, and every option a description."""
    says_what_it_is(type(spec), "what its nodes, edges, features and labels are")
    about = getattr(spec, "about", None)
    stated = about is not None and about.citation and about.licence
    demand(stated, "does not state citation and licence: about = About(citation, licence, home)")


def loads(spec: DatasetSpec) -> None:
    """Loading gives the kind of data that the class names, under its own name, with a fingerprint."""
    data = _loaded(spec)
    demand(data.task == spec.task, f"is a {spec.task} dataset, but loads data of task {data.task!r}")
    demand(data.name == spec.name, f"loads data named {data.name!r}")
    digest = re.fullmatch(r"[0-9a-f]{64}", data.fingerprint)
    demand(digest, f"its fingerprint {data.fingerprint[:20]!r} is no sha256 in hex")
    marked = f"synthetic is {spec.synthetic} in the class and {data.synthetic} in its data"
    demand(data.synthetic == spec.synthetic, marked)


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


def can_be_scored(spec: DatasetSpec) -> None:
    """What is scored by ROC AUC has two classes."""
    data = _loaded(spec)
    if not isinstance(data, NodeData) or data.scored_by != "roc_auc":
        raise Inapplicable("it is not scored by ROC AUC")
    demand(data.num_classes == 2, f"is scored by ROC AUC and has {data.num_classes} classes")


def _sound_graph(what: str, graph: dgl.DGLGraph) -> None:
    source, target = graph.edges()
    demand((source != target).all(), f"{what} has a self-loop; models add their own")
    keys, back = source * graph.num_nodes() + target, target * graph.num_nodes() + source
    demand(len(keys.unique()) == len(keys), f"{what} has an edge twice")
    demand(torch.equal(keys.sort().values, back.sort().values), f"{what} lacks the other direction of an edge")


def _sound_features(what: str, feat: torch.Tensor, rows: int) -> None:
    values = feat.values() if feat.layout == torch.sparse_csr else feat
    fits = feat.dim() == 2 and feat.shape[0] == rows and values.dtype == torch.float32
    demand(fits, f"{what} are {feat.dtype} {tuple(feat.shape)}, not float32 ({rows}, d)")
    demand(torch.isfinite(values).all(), f"{what} are not finite")


def _sound_labels(label: torch.Tensor, count: int, classes: int, lowest: int) -> None:
    fits = label.dtype == torch.int64 and tuple(label.shape) == (count,)
    demand(fits, f"the labels are {label.dtype} {tuple(label.shape)}, not int64 ({count},)")
    least, most = int(label.min()), int(label.max())
    demand(lowest <= least and 2 <= classes == most + 1, f"labels from {least} to {most} with {classes} classes")


def splits_apart(spec: DatasetSpec) -> None:
    """The split that comes with the dataset, if one does: nodes that exist and have a label, each in one part."""
    data = _loaded(spec)
    if not isinstance(data, NodeData) or not data.fixed_split:
        raise Inapplicable("no split comes with it")
    ids = torch.cat(list(data.fixed_split.values()))
    apart = set(data.fixed_split) == {"train", "val", "test"} and len(ids.unique()) == len(ids)
    demand(apart, "its split has not the parts train, val and test, or a node in two of them")
    known = int(ids.min()) >= 0 and int(ids.max()) < len(data.label) and (data.label[ids] >= 0).all()
    demand(known, "its split names a node that does not exist or has no label")


def repeats_itself(spec: DatasetSpec) -> None:
    """Loading it again gives the same data."""
    demand(_loaded(spec).fingerprint == spec.load().fingerprint, "loads different data the second time")


def is_registered(spec: DatasetSpec) -> None:
    """The fingerprint of its content is that of the class, so that everyone has the same data."""
    if spec.synthetic or not spec.routes:
        raise Inapplicable("it is generated, not fetched")
    found = spec.fingerprint or _loaded(spec).fingerprint
    demand(spec.fingerprint, f"registers no fingerprint; if the data are right: fingerprint = {found!r}")


def cuts_into_clients(spec: DatasetSpec) -> None:
    """It can be cut evenly into clients, each node or graph at one of them."""
    data = _loaded(spec)
    split = "none" if not isinstance(data, NodeData) else "fixed" if data.fixed_split else "ratio"
    federation = build_federation(data, PARTITIONS.build("uniform"), SPLITS.build(split), CLIENTS, 0)
    if data.task == "node":
        held = [int(own.graph.num_nodes()) for own in federation.clients]  # type: ignore[union-attr]
        demand(sum(held) == len(data.label), f"clients hold {sum(held)} of {len(data.label)} nodes")


CHECKS = named(
    documented, loads, holds_sound_graphs, can_be_scored, splits_apart, repeats_itself, is_registered,
    cuts_into_clients,
)  # fmt: skip


def results(spec: DatasetSpec) -> Iterator[tuple[str, Judgement, str]]:
    """(check, verdict, reason) one by one."""
    return judged(CHECKS, spec)
