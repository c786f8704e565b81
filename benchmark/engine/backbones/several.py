"""Several GCNs on one large graph: hidden values a few rows at a time, and a sum over neighbours for several models."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..batch import Batch
from .backbone import Backbone, Params
from .convolutional import GCN

COLUMNS = 64  # values of a node in one sum over neighbours: fewer columns take longer each
ROWS = 2**12  # whose hidden values stay in the cache of a core


def is_apt(backbone: Backbone, batch: Batch) -> bool:
    """Whether `logits_of_each` computes this architecture on this batch."""
    plain = type(backbone) is GCN and not backbone.linear_head and not backbone.residual
    return plain and backbone.layers > 1 and batch.at_once is None and batch.summed is not None


def logits_of_each(layers: int, params: Params, batch: Batch) -> Iterator[torch.Tensor]:
    """Logits (N, C) of K models (K, ...) on one graph of N nodes, one model after the other; no gradient.

    The values of `GCN.forward` up to rounding. Memory: twice N x COLUMNS floats, where no layer but the first is wider.
    """
    weights, biases = ([params[f"{i}.{part}"] for i in range(layers)] for part in ("weight", "bias"))
    count, nodes = len(weights[0]), len(batch.label)
    step = max(COLUMNS // max(weight.shape[2] for weight in weights[1:]), 1)
    for first in range(0, count, step):
        models = range(first, min(first + step, count))
        h = torch.empty(0)
        for i in range(1, layers):
            mixed = torch.empty(nodes, len(models), weights[i].shape[2])
            for start in range(0, nodes, ROWS):
                rows = slice(start, start + ROWS)
                for at, k in enumerate(models):
                    below = _first(batch, weights[0][k], biases[0][k], rows) if i == 1 else h[rows, at]
                    mixed[rows, at] = torch.relu(below) @ weights[i][k]
            h = batch.gcn.times(mixed.flatten(1)).view(mixed.shape).add_(biases[i][list(models)])
        yield from h.unbind(1)


def _first(batch: Batch, weight: torch.Tensor, bias: torch.Tensor, rows: slice) -> torch.Tensor:
    """Some rows of the first layer's output, from features that are already summed over neighbours."""
    assert batch.summed is not None
    return torch.addmm(bias, batch.summed[rows], weight)
