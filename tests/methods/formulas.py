"""Formulas of several methods, written out."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

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


def generated(w: Model, z: torch.Tensor, label: list[int]) -> torch.Tensor:
    """The nodes that FedTAD's generator makes of noise and classes."""
    h = torch.stack([torch.cat([w["class"][c], noise]) for c, noise in zip(label, z, strict=True)])
    for i in range(3):
        h = torch.tanh(h @ w[f"{i}.weight"] + w[f"{i}.bias"])
    return h @ w["3.weight"] + w["3.bias"]


def joined(x: torch.Tensor, neighbours: int) -> torch.Tensor:
    """(n, n) ones if either node is among the nearest of the other by cosine, which include itself."""
    a = torch.zeros(len(x), len(x))
    for i, row in enumerate(x.detach()):
        cosines = [
            2.0 if i == j else float(F.cosine_similarity(row, other, dim=0)) for j, other in enumerate(x.detach())
        ]
        for j in sorted(range(len(x)), key=lambda j, cosines=cosines: -cosines[j])[:neighbours]:
            a[i, j] = a[j, i] = float(i != j)
    return a


def divergence(teacher: torch.Tensor, student: torch.Tensor) -> torch.Tensor:
    """KL(softmax(teacher) || softmax(student)) of two rows, with a fixed teacher."""
    p, q = teacher.detach().softmax(0), student.softmax(0)
    return sum((a * (a.log() - b.log()) for a, b in zip(p, q, strict=True)), torch.zeros(()))


def near_of(client: Any) -> list[list[int]]:
    """The sorted neighbours of each node."""
    return [sorted(client.graph.predecessors(v).tolist()) for v in range(client.graph.num_nodes())]
