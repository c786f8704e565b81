"""The contract of datasets, partitions, splits and backbones: checks of `fglbench check`.

A run checks its dataset, partition and split by `datasets.build`. These checks do the same on small data of every kind,
and also check that a repetition gives the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import dgl
import numpy as np
import torch

from ...datasets import DatasetSpec, PartitionSpec, SplitSpec
from ...datasets.build import check_data, cover_problem, ids_problem, roles_problem
from ...datasets.federation import PARTS, Data, GraphSetData, NodeClient, NodeData
from ...datasets.partitioning import BadResult
from ...datasets.splits import SplitResult
from ...registry import UserError
from ..engine import Backbone, Batch, Forward, Params, Streams, affine, collate, stream
from .recording import ATOL, RTOL, ContractError, Inapplicable, Judgement, demand, judged, named
from .trial import graph_federation, node_federation

COUNTS = (3, 6)  # numbers of clients; the first that a partition accepts is used
FEATURES, CLASSES = 20, 3  # of the trial's data


def loads(spec: DatasetSpec) -> None:
    """Loading gives valid data with the task, name and fingerprint of the class, and the same data a second time."""
    data, about = spec.load(), getattr(spec, "about", None)
    stated = about is not None and about.citation and about.licence
    demand(stated, "does not state citation and licence: about = About(citation, licence, home)")
    demand(data.task == spec.task, f"is a {spec.task} dataset, but loads data of task {data.task!r}")
    demand(data.name == spec.name, f"loads data named {data.name!r}")
    demand(re.fullmatch(r"[0-9a-f]{64}", data.fingerprint), f"its fingerprint {data.fingerprint[:20]!r} is no sha256")
    marked = f"synthetic is {spec.synthetic} in the class and {data.synthetic} in its data"
    demand(data.synthetic == spec.synthetic, marked)
    try:
        check_data(data)
    except UserError as error:
        demand(False, str(error).partition(": ")[2])
    most = int(data.label.max()) + 1
    demand(most == data.num_classes, f"labels go to {most - 1} with {data.num_classes} classes")
    binary = data.scored_by != "roc_auc" or data.num_classes == 2
    demand(binary, f"is scored by ROC AUC and has {data.num_classes} classes")
    demand(data.fingerprint == spec.load().fingerprint, "loads different data the second time")
    registered = spec.synthetic or not spec.routes or spec.fingerprint
    demand(registered, f"registers no fingerprint; if the data are right: fingerprint = {data.fingerprint!r}")


@cache
def samples() -> tuple[Data, ...]:
    """Data of every kind: a graph with clients, a split and unlabelled nodes; the same without edges between clients; a
    set of graphs, in groups of three."""
    data = node_federation().whole
    assert isinstance(data, NodeData)
    label = torch.where(torch.arange(len(data.label)) % 9 == 0, -1, data.label)
    labelled = (label >= 0).nonzero().flatten()
    split = dict(zip(PARTS, (labelled[::3], labelled[1::3], labelled[2::3]), strict=True))
    owner = torch.arange(len(label)) % COUNTS[0]
    whole = replace(data, label=label, fixed_split=split, owner=owner)
    source, target = data.graph.edges()
    apart = dgl.edge_subgraph(data.graph, owner[source] == owner[target], relabel_nodes=False, store_ids=False)
    graphs = graph_federation().whole
    assert isinstance(graphs, GraphSetData)
    return whole, replace(whole, graph=apart), replace(graphs, group=torch.arange(len(graphs.label)) // 3)


def _made(spec: PartitionSpec | SplitSpec, seed: int) -> Iterator[tuple[Data, Any, Any]]:
    """(data, argument, result) for each sample that the spec accepts. Inapplicable if it accepts none."""
    refused, accepted = "it names no task", False
    for data in (data for data in samples() if data.task in spec.tasks):
        ids, label = np.arange(len(data.label)), data.label.clone()
        uneven = (np.array_split(ids, COUNTS[0]), [ids[: len(ids) // 2], ids[len(ids) // 3 :]])
        arguments: Sequence[Any] = COUNTS if isinstance(spec, PartitionSpec) else uneven
        for argument in arguments:
            try:
                made = spec(data, argument, seed)
            except BadResult as error:
                raise ContractError(str(error)) from None
            except UserError as error:
                refused = str(error)
                continue
            demand(torch.equal(label, data.label), f"writes into the labels of {data.name}")
            accepted = True
            yield data, argument, made
            if isinstance(spec, PartitionSpec):
                break
    if not accepted:
        raise Inapplicable(f"it refuses every sample: {refused}")


def gives_the_same_again(spec: PartitionSpec | SplitSpec) -> None:
    """The result depends only on the seed, not on the global random state."""
    for seed in (0, 1):
        results = []
        for state in (1, 2):
            np.random.seed(state)
            torch.manual_seed(state)
            results.append(list(_made(spec, seed)))
        for (data, _, left), (_, _, right) in zip(*results, strict=True):
            arrays = [[made.role] if isinstance(made, SplitResult) else made for made in (left, right)]
            same = all(np.array_equal(a, b) for a, b in zip(*arrays, strict=True))
            demand(same, f"gives two results for {data.name} with seed {seed}: draw from the `rng` that it is given")


def deals_every_node_once(spec: PartitionSpec) -> None:
    """One part per client: sorted ids of existing nodes, each node in one part; in several if the class is
    overlapping."""
    for data, clients, parts in _made(spec, 0):
        problem = ids_problem(parts, clients, data) or cover_problem(parts, data, spec.overlapping)
        demand(not problem, f"{data.name}: {problem}")
        shared = not spec.overlapping or (np.bincount(np.concatenate(parts)) > 1).any()
        demand(shared, f"says overlapping, and on {data.name} no two parts share a node")


def gives_roles_to_labelled_nodes(spec: SplitSpec) -> None:
    """Only labelled nodes have roles, and at least one is a training node."""
    for data, parts, roles in _made(spec, 0):
        problem = roles_problem(roles, parts, data)
        demand(not problem, f"{data.name}: {problem}")
        demand(not spec.labelled or (roles.role == 0).any(), f"leaves {data.name} no training node")
        demand(spec.labelled or (roles.role == -1).all(), f"gives roles to the graphs of {data.name}")


@cache
def members(*, sparse: bool = False) -> tuple[NodeClient, ...]:
    """Three clients of different sizes, with dense features or the same features as sparse CSR."""
    clients = [client for client in node_federation().clients[:3] if isinstance(client, NodeClient)]
    rows = [torch.relu(client.feat.to_dense()) for client in clients]
    feats = [row.to_sparse_csr() if sparse else row for row in rows]
    return tuple(replace(client, feat=feat) for client, feat in zip(clients, feats, strict=True))


def _kinds(spec: Backbone) -> tuple[Backbone, ...]:
    """The backbone with width 8, without and with a linear head."""
    small = spec.model_copy(update={"hidden": 8})
    return small, small.model_copy(update={"linear_head": True})


def _stack(spec: Backbone, clients: Sequence[int]) -> Params:
    models = [spec.init(stream(0, "backbone", client), FEATURES, CLASSES) for client in clients]
    return {name: torch.stack([one[name] for one in models]) for name in models[0]}


def _pass(spec: Backbone, batch: Batch, clients: Sequence[int] = (0, 1, 2), *, training: bool = False) -> Forward:
    return spec.forward(_stack(spec, clients), batch, Streams(0, clients, {}) if training else None)


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=10 * RTOL, atol=10 * ATOL)


def starts_the_same(spec: Backbone) -> None:
    """`init` gives finite float32 parameters without a client axis, which depend only on the generator."""
    for kind in _kinds(spec):
        torch.manual_seed(1)
        first, other = (kind.init(stream(0, "backbone", client), FEATURES, CLASSES) for client in (0, 1))
        torch.manual_seed(2)
        again = kind.init(stream(0, "backbone", 0), FEATURES, CLASSES)
        demand(first, "has no parameters")
        for name, value in first.items():
            sound = value.dtype == torch.float32 and torch.isfinite(value).all() and not value.requires_grad
            demand(sound, f"parameter {name!r} is no finite float32 without gradient")
            demand(torch.equal(value, again[name]), f"parameter {name!r} is not decided by the generator")
            demand(value.shape == other[name].shape, f"parameter {name!r} has another shape in another draw")
        differ = any(not torch.equal(value, other[name]) for name, value in first.items())
        demand(differ, "starts from the same values for every generator: draw from it")


def yields_its_shapes(spec: Backbone) -> None:
    """Finite logits (N, C) and hidden layers (N, h); with `linear_head`, logits = embedding head.weight + head.bias."""
    batch = collate(members())
    rows = sum(batch.sizes)
    for kind in _kinds(spec):
        out, params = _pass(kind, batch), _stack(kind, (0, 1, 2))
        demand(tuple(out.logits.shape) == (rows, CLASSES), f"logits {tuple(out.logits.shape)}, not ({rows}, {CLASSES})")
        demand(torch.isfinite(out.logits).all(), "logits are not finite")
        wide = [tuple(z.shape) for z in out.pre if z.shape != (rows, kind.hidden)]
        demand(not wide, f"a hidden layer yields {wide[:1]}, not ({rows}, {kind.hidden})")
        if kind.linear_head:
            demand({"head.weight", "head.bias"} <= set(params), "linear_head asks for head.weight and head.bias")
            linear = _close(affine(params, "head", out.embedding, batch), out.logits)
            demand(linear, "with linear_head, its logits are not its embedding through the head")


def uses_every_parameter(spec: Backbone) -> None:
    """Each parameter changes the logits of its own client and of no other."""
    batch = collate(members())
    for kind in _kinds(spec):
        params = {name: value.requires_grad_(True) for name, value in _stack(kind, (0, 1, 2)).items()}
        logits = kind.forward(params, batch).logits
        for client in range(3):
            aim = logits[batch.owner == client].square().sum()
            gradients = torch.autograd.grad(aim, list(params.values()), retain_graph=True, allow_unused=True)
            for name, grad in zip(params, gradients, strict=True):
                demand(grad is not None and grad[client].any(), f"parameter {name!r} has no part in the logits")
                assert grad is not None
                others = grad[[other for other in range(3) if other != client]]
                demand(not others.any(), f"parameter {name!r} of one client has a part in another's logits")


def ignores_other_clients(spec: Backbone) -> None:
    """A client has the same numbers alone and in a client batch, also in training, and for sparse features."""
    clients = members()
    for kind in _kinds(spec):
        for training in (False, True):
            together = _pass(kind, collate(clients), training=training).logits
            alone = [_pass(kind, collate([one]), (k,), training=training).logits for k, one in enumerate(clients)]
            same = _close(together, torch.cat(alone))
            demand(same, f"{'training' if training else 'evaluation'} differs alone and in a client batch of 3")
    thin = _pass(spec, collate(members(sparse=True))).logits
    demand(_close(_pass(spec, collate(clients)).logits, thin), "gives other numbers for sparse features than for dense")


def sees_no_label(spec: Backbone) -> None:
    """Results do not depend on labels, masks or the global random state."""
    for training in (False, True):
        batch = collate(members())
        torch.manual_seed(1)
        before = _pass(spec, batch, training=training).logits
        torch.manual_seed(2)
        again = _pass(spec, batch, training=training).logits
        demand(torch.equal(before, again), "gives other numbers when run again: draw from `streams` alone")
        batch.label.fill_(0)
        for mask in batch.masks.values():
            mask.fill_(True)
        after = _pass(spec, batch, training=training).logits
        demand(torch.equal(before, after), "its numbers change with labels or masks")


CHECKS: dict[str, dict[str, Callable[[Any], None]]] = {
    "dataset": named(loads),
    "partition": named(deals_every_node_once, gives_the_same_again),
    "split": named(gives_roles_to_labelled_nodes, gives_the_same_again),
    "backbone": named(starts_the_same, yields_its_shapes, uses_every_parameter, ignores_other_clients, sees_no_label),
}


def results(kind: str, spec: Any) -> Iterator[tuple[str, Judgement, str]]:
    """(check, verdict, reason) one by one, on a dataset, partition, split or backbone."""
    return judged(CHECKS[kind], spec)
