"""Formulas of several methods, written out."""

from __future__ import annotations

from typing import Any

import torch

Model = dict[str, torch.Tensor]


def adjacency(graph: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A (n, n), dense: 1 at (v, u) for an edge from u to v."""
    a = torch.zeros(graph.num_nodes(), graph.num_nodes(), dtype=dtype)
    source, target = graph.edges()
    a[target, source] = 1
    return a


def normal(a: torch.Tensor) -> torch.Tensor:
    """D^-1/2 A D^-1/2, D the row sums."""
    root = a.sum(1) ** -0.5
    return root[:, None] * a * root


def looped(graph: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """D^-1/2 (A + I) D^-1/2."""
    return normal(adjacency(graph, dtype) + torch.eye(graph.num_nodes(), dtype=dtype))


def gcn(w: Model, x: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden values after activation, and logits, of a GCN of two layers with the propagation matrix a."""
    h = torch.relu(a @ (x @ w["0.weight"]) + w["0.bias"])
    return h, a @ (h @ w["1.weight"]) + w["1.bias"]


def divergence(teacher: torch.Tensor, student: torch.Tensor) -> torch.Tensor:
    """KL(softmax(teacher) || softmax(student)) of two rows, with a fixed teacher."""
    p, q = teacher.detach().softmax(0), student.softmax(0)
    return sum((a * (a.log() - b.log()) for a, b in zip(p, q, strict=True)), torch.zeros(()))


def near_of(client: Any) -> list[list[int]]:
    """The sorted neighbours of each node."""
    return [sorted(client.graph.predecessors(v).tolist()) for v in range(client.graph.num_nodes())]
