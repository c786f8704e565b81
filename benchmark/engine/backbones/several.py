"""Several GCNs on one large graph: hidden values a few rows at a time, and a sum over neighbours for several models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ..batch import Batch
from .backbone import Backbone, Params
from .convolutional import GCN

COLUMNS = 32  # values of a node in one sum over neighbours: a sum of fewer takes as long
ROWS = 2**12  # whose hidden values stay in the cache of a core


def is_apt(backbone: Backbone, batch: Batch) -> bool:
    """Whether `logits_of_each` computes this architecture on this batch."""
    plain = type(backbone) is GCN and not backbone.linear_head and not backbone.residual
    return plain and backbone.layers > 1 and batch.summed is not None


def logits_of_each(layers: int, params: Params, batch: Batch) -> Iterator[torch.Tensor]:
    """Logits (N, C) of K models (K, ...) on one graph of N nodes, one model after the other; no gradient.

    The values of `GCN.forward` up to rounding. Memory: twice (N, COLUMNS) floats, or (N, width) of the widest layer but
    the first.
    """
    widest = max(params[f"{i}.weight"].shape[2] for i in range(1, layers))
    together, count = max(COLUMNS // widest, 1), len(params["0.weight"])
    mixed = torch.zeros(len(batch.label), max(together * widest, COLUMNS))
    for first in range(0, count, together):
        models = range(first, min(first + together, count))
        h: list[torch.Tensor] = []
        for i in range(1, layers):
            weight, bias = params[f"{i}.weight"], params[f"{i}.bias"]
            places = [slice(at * weight.shape[2], (at + 1) * weight.shape[2]) for at in range(len(models))]
            for start in range(0, len(mixed), ROWS):
                rows = slice(start, start + ROWS)
                for at, k in enumerate(models):
                    below = _first(params, k, batch, rows) if i == 1 else h[at][rows]
                    mixed[rows, places[at]] = torch.relu(below) @ weight[k]
            h = _columns(batch.gcn.times(mixed), places, bias[models.start : models.stop])
        yield from h


def _columns(summed: torch.Tensor, places: Sequence[slice], bias: torch.Tensor) -> list[torch.Tensor]:
    """Each model's columns with its bias; in a function, so that nothing else keeps what is large."""
    return [summed[:, place].add_(shift) for place, shift in zip(places, bias, strict=True)]


def _first(params: Params, k: int, batch: Batch, rows: slice) -> torch.Tensor:
    """Model k's first layer on some rows, whose features are already summed over neighbours."""
    assert batch.summed is not None
    return torch.addmm(params["0.bias"][k], batch.summed[rows], params["0.weight"][k])
