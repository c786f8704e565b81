"""A `torch.nn.Module` as an architecture, and tools to run one client at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import dgl
import numpy as np
import torch
from pydantic import PrivateAttr
from torch import nn
from torch.func import functional_call
from torch.utils.weak import WeakIdKeyDictionary

from ...registry import UserError
from .backbone import Backbone, Forward, Params, affine, linear_maps
from .batch import Batch
from .client_batch import Skip
from .device import here, on_host
from .graphs.graphsets import GraphRows
from .rng import Streams, torch_source
from .segment_ops import SparseMatrix, adjacency, to_scipy_csr, to_torch_csr

State = dict[str, torch.Tensor]


class ModuleBackbone(Backbone):
    """A `torch.nn.Module` as an architecture that every method can train: `fglbench run -m fedprox -b NAME`.

    build(features, classes) makes the module. It is called as module(graph, feat), with a client's DGLGraph without
    self-loops and its dense features (n, d), one client after the other. It returns logits (n, C), or (logits,
    embedding) with an embedding (n, h) for methods that use it. With `linear_head`, `build` gets the width h instead of
    the classes, and a ReLU and a linear map h -> C follow the module.
    """

    _built: dict[str, Any] = PrivateAttr(default_factory=dict)

    def build(self, features: int, classes: int) -> nn.Module:
        raise NotImplementedError

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        with drawing(generator):
            module = self.build(features, self.hidden if self.linear_head else classes)
        self._built["module"] = module
        params = state_of(module)
        taken = [name for name in params if name.split(".")[0] in ("input", "post", "head")]
        if taken:
            raise UserError(
                f"backbone {self.name!r} has a parameter {taken[0]!r}: rename it, the engine has such layers"
            )
        if self.linear_head:
            params |= linear_maps({"head": (self.hidden, classes)}, torch_source(generator), self.linear_start)
        return params

    def forward(self, params: Params, batch: Batch, streams: Streams | None = None) -> Forward:
        if here().type != "cpu":
            raise Skip("an architecture from an nn.Module computes on the CPU: leave out --device")
        module: nn.Module = self._built["module"].train(streams is not None)
        stacks = {name: params[name] for name in module.state_dict() if name in params}
        logits, hidden = [], []
        for place, (graph, feat) in enumerate(client_graphs(batch, dense=True)):
            state = {name: value[place] for name, value in stacks.items()}
            with drawing(streams("torch")[place] if streams else None):
                out = functional_call(module, state, (graph, feat))
            outputs = out if isinstance(out, tuple) else (out, None)
            logits.append(outputs[0])
            hidden += [] if outputs[1] is None else [outputs[1]]
        rows = torch.cat(logits)
        if self.linear_head:
            return Forward(affine(params, "head", torch.relu(rows), batch), [rows])
        return Forward(rows, [torch.cat(hidden)] if hidden else [], activate=lambda given: given)


def client_graphs(batch: Any, *, dense: bool) -> list[tuple[dgl.DGLGraph, torch.Tensor]]:
    """Return each client's graph and features from a batch of nodes or of graphs. dense: False for sparse CSR."""
    nodes: Batch = batch.nodes if isinstance(batch, GraphRows) else batch
    with on_host():
        graph = nodes.graph.local_var()
        if isinstance(batch, GraphRows):
            pieces = dgl.unbatch(_as_batched(graph, batch.lengths.long()))
            ends = np.cumsum([0, *batch.sizes])
            graphs = [dgl.batch(pieces[first:last]) for first, last in pairwise(ends)]
            counts = [client_graph.num_nodes() for client_graph in graphs]
        else:
            graphs = dgl.unbatch(_as_batched(graph, torch.tensor(nodes.sizes)))
            counts = list(nodes.sizes)
    value, ends = nodes.x.value, np.cumsum([0, *counts])
    feats = []
    for first, last in pairwise(ends):
        rows: Any = value[first:last]
        if isinstance(rows, torch.Tensor):
            feats.append(rows if dense else rows.to_sparse_csr())
        else:
            feats.append(torch.from_numpy(rows.toarray()) if dense else to_torch_csr(rows))
    return list(zip(graphs, feats, strict=True))


def _as_batched(graph: dgl.DGLGraph, sizes: torch.Tensor) -> dgl.DGLGraph:
    """Make the block-diagonal graph a batched graph with blocks of these sizes. Its edges are stored block by block."""
    if graph.batch_size == len(sizes) and torch.equal(graph.batch_num_nodes(), sizes):
        return graph
    block = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    graph.set_batch_num_nodes(sizes)
    graph.set_batch_num_edges(torch.bincount(block[graph.edges(order="eid")[1]], minlength=len(sizes)))
    return graph


def state_of(module: nn.Module) -> State:
    """Copies of the module's floating-point parameters and buffers."""
    return {n: v.detach().clone() for n, v in module.state_dict().items() if v.is_floating_point()}


@contextmanager
def drawing(source: np.random.Generator | None) -> Iterator[None]:
    """Seed the generators of torch, NumPy and Python from a stream for the block; restore them after it."""
    if source is None:
        yield
        return
    with generators_kept():
        seed_generators(source)
        yield


@contextmanager
def generators_kept() -> Iterator[None]:
    """Restore the generators of torch, NumPy and Python after the block."""
    before = torch.default_generator.get_state(), np.random.get_state(), random.getstate()
    try:
        yield
    finally:
        torch.default_generator.set_state(before[0])
        np.random.set_state(before[1])
        random.setstate(before[2])


def seed_generators(source: np.random.Generator) -> None:
    """Seed the generators of torch, NumPy and Python from a stream."""
    seed = int(source.integers(2**63))
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


class GraphConvolution(nn.Module):
    """Kipf and Welling, ICLR 2017, eq. 2: D^-1/2 (A + I) D^-1/2 X W + b, called as layer(graph, feat).

    graph: without self-loops, which the layer adds. feat: (n, `features`), dense or sparse CSR. Returns (n, `width`).

    The same numbers, parameters and initial draws as `dgl.nn.GraphConv(features, width)` on `dgl.add_self_loop(graph)`,
    several times faster on graphs of some hundred nodes: the normalised matrix is cached as long as the graph exists,
    and sparse features stay sparse.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features, width))
        self.bias = nn.Parameter(torch.zeros(width))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, graph: dgl.DGLGraph, feat: torch.Tensor) -> torch.Tensor:
        sparse = feat.layout == torch.sparse_csr
        projected = _sparse_matrix(feat) @ self.weight if sparse else feat @ self.weight
        return _propagation(graph) @ projected + self.bias


_PROPAGATIONS: WeakKeyDictionary[dgl.DGLGraph, tuple[int, SparseMatrix]] = WeakKeyDictionary()
_SPARSE_MATRICES: MutableMapping[torch.Tensor, SparseMatrix] = WeakIdKeyDictionary()


def _propagation(graph: dgl.DGLGraph) -> SparseMatrix:
    """D^-1/2 (A + I) D^-1/2 (n, n); cached until the number of edges changes."""
    known = _PROPAGATIONS.get(graph)
    if known is None or known[0] != graph.num_edges():
        looped = dgl.add_self_loop(graph)
        source, target = looped.edges(order="eid")
        weight = (looped.out_degrees()[source] * looped.in_degrees()[target]).float().rsqrt()
        known = _PROPAGATIONS[graph] = graph.num_edges(), adjacency(looped, weight.numpy())
    return known[1]


def _sparse_matrix(feat: torch.Tensor) -> SparseMatrix:
    known = _SPARSE_MATRICES.get(feat)
    if known is None:
        known = _SPARSE_MATRICES[feat] = SparseMatrix(to_scipy_csr(feat))
    return known
