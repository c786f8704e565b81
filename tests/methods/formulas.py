"""Formulas of several methods, written out."""

from __future__ import annotations

from typing import Any

import torch


def divergence(teacher: torch.Tensor, student: torch.Tensor) -> torch.Tensor:
    """KL(softmax(teacher) || softmax(student)) of two rows, with a fixed teacher."""
    p, q = teacher.detach().softmax(0), student.softmax(0)
    return sum((a * (a.log() - b.log()) for a, b in zip(p, q, strict=True)), torch.zeros(()))


def near_of(client: Any) -> list[list[int]]:
    """The sorted neighbours of each node."""
    return [sorted(client.graph.predecessors(v).tolist()) for v in range(client.graph.num_nodes())]
