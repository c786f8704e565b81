"""Layers for a `torch.nn.Module` that trains one client at a time."""

from __future__ import annotations

from collections.abc import MutableMapping
from weakref import WeakKeyDictionary

import dgl
import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from .segment_ops import SparseMatrix, adjacency, to_scipy_csr


class GraphConvolution(nn.Module):
    """Kipf and Welling, ICLR 2017, eq. 2: D^-1/2 (A + I) D^-1/2 X W + b, called as layer(graph, feat).

    graph: without self-loops, which the layer adds. feat: (n, `features`), dense or sparse CSR. Returns (n, `width`).

    The same numbers, parameters and initial draws as `dgl.nn.GraphConv(features, width)` on `dgl.add_self_loop(graph)`,
    several times faster on graphs of some hundred nodes: the normalised matrix of a graph is kept as long as the graph
    is, and sparse features are multiplied as such.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features, width))
        self.bias = nn.Parameter(torch.zeros(width))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, graph: dgl.DGLGraph, feat: torch.Tensor) -> torch.Tensor:
        sparse = feat.layout == torch.sparse_csr
        projected = _constant(feat) @ self.weight if sparse else feat @ self.weight
        return _propagation(graph) @ projected + self.bias


_PROPAGATIONS: WeakKeyDictionary[dgl.DGLGraph, tuple[int, SparseMatrix]] = WeakKeyDictionary()
_CONSTANTS: MutableMapping[torch.Tensor, SparseMatrix] = WeakIdKeyDictionary()


def _propagation(graph: dgl.DGLGraph) -> SparseMatrix:
    """D^-1/2 (A + I) D^-1/2 (n, n), made again if the graph has got other edges."""
    known = _PROPAGATIONS.get(graph)
    if known is None or known[0] != graph.num_edges():
        looped = dgl.add_self_loop(graph)
        source, target = looped.edges(order="eid")
        weight = (looped.out_degrees()[source] * looped.in_degrees()[target]).float().rsqrt()
        known = _PROPAGATIONS[graph] = graph.num_edges(), adjacency(looped, weight.numpy())
    return known[1]


def _constant(feat: torch.Tensor) -> SparseMatrix:
    known = _CONSTANTS.get(feat)
    if known is None:
        known = _CONSTANTS[feat] = SparseMatrix(to_scipy_csr(feat))
    return known
