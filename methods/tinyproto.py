"""TinyProto: FedProto with sparse prototypes, each class in a few dimensions of its own."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Literal

import numpy as np
import torch

from ..benchmark.engine import METHODS, ClientBatch, Server, Tree, option, segment_sum, stream
from .parts.prototypes import PrototypeDistance, last_table


@METHODS.register("tinyproto")
class TinyProto(PrototypeDistance):
    """Lee, Choi, AAAI 2026 (arXiv 2507.04327): FedProto with two changes.

    Class-wise prototype sparsification: the h entries of an embedding are cut into B = min(C, h) blocks of h // B;
    class j has a mask m_j of max(1, `density` B) blocks. Masks overlap little: in class order each gets the least used
    blocks, ties at random, and no mask occurs twice if that is possible. They are drawn from the run's seed, which
    everybody knows. Only the entries in m_j are sent; the others count as zero, for the regulariser too:
        CE + lam mean_i mean_h (r_i - m_(y_i) c^(y_i))^2.
    Adaptive prototype scaling: client k sends n_kj c_k^(j), n_kj its training nodes of class j, c_k^(j) their mean;
    c^(j) = s |K_j| mean over K_j of n_kj c_k^(j) = s sum_k n_kj c_k^(j), K_j the participants that have class j. With
    `scaling` "none" both factors are 1. A class that no client sent in a round keeps its prototype.
    Messages: up C_k m scalars, C_k int64 class numbers and, if s is C / N, one int64 count; down C m scalars; m the
    entries of a mask. density = 1 with `scaling` "none" is FedProto, if C divides h.

    Departures: s is C / N with the N training nodes of the participants, so that a class of average size keeps its
    mean. The script's constant 0.00015 for CIFAR-10 is about that, but depends on the data (`scaling` "constant").
    Masks are drawn by usage, which minimises the summed overlap of each new mask; the released code takes the best of
    10,000 random masks, and fails if `density` C < 1. By mistake its training with masks has no distance to the
    prototypes, and its server averages the prototypes of one class only. Prototypes are computed after training and
    without dropout. As with FedProto, we predict by the classifier and average R over nodes and entries.
    """

    family = "prototypes"
    summary = "FedProto with sparse prototypes, scaled by the number of a class's training nodes"
    title = "TinyProto"
    venue = "AAAI 2026"
    paper_url = "https://arxiv.org/abs/2507.04327"
    code_url = "https://github.com/regulationLee/TinyProto"
    tasks = ("node", "graph-classification")

    lam: float = option(
        10.0, "lambda, weight of the distance to the prototypes (released script)", ge=0, tune=[0.1, 1.0, 10.0]
    )
    density: float = option(0.1, "share of the blocks in a mask (FedGB: 0.1)", gt=0, le=1)
    scaling: Literal["relative", "constant", "none"] = option(
        "relative",
        "scale prototypes by training nodes with s = C / N (our choice), with a constant s (paper), or not",
        tune=["relative", "none"],
    )
    scale: float = option(1.5e-4, "the constant s (released script)", gt=0)

    def entries(self, seed: int, classes: int, width: int) -> torch.Tensor:
        """Return (C, m), the entries of each class's mask, in order."""
        blocks = min(classes, width)
        size, count = width // blocks, max(1, int(self.density * blocks))
        chosen = masks(stream(seed, "prototype masks"), classes, blocks, count)
        return (chosen.unsqueeze(2) * size + torch.arange(size)).flatten(1)

    def compressed(self, clients: ClientBatch, means: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        if self.scaling != "none":
            means = means * counts.unsqueeze(2)
        return means.gather(2, self._places(clients, means.shape[2]))

    def table(self, clients: ClientBatch) -> torch.Tensor | None:
        sent = super().table(clients)
        if sent is None:
            return None
        width = clients.network.backbones[0].hidden
        whole = sent.new_zeros(*sent.shape[:2], width).scatter(2, self._places(clients, width), sent)
        return torch.where(sent[..., :1].isnan(), torch.nan, whole)

    def _places(self, clients: ClientBatch, width: int) -> torch.Tensor:
        """Return `entries` of each client (K, C, m), which are the same for all."""
        if "masks" not in clients.cache:
            clients.cache["masks"] = self.entries(clients.streams.seed, clients.classes, width)
        places: torch.Tensor = clients.cache["masks"]
        return places.expand(len(clients), *places.shape)

    def extras(self, counts: torch.Tensor, held: Sequence[torch.Tensor]) -> Tree:
        return {"count": counts.sum(1)} if self.scaling == "relative" else {}

    def combine(self, server: Server, uploads: Tree, sent: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        if self.scaling == "none":
            return super().combine(server, uploads, sent, classes)
        s = server.classes / uploads["count"].sum().clamp(min=1) if self.scaling == "relative" else self.scale
        total = segment_sum(s * sent, classes, server.classes)
        held = torch.bincount(classes, minlength=server.classes).unsqueeze(1) > 0
        return torch.where(held, total, last_table(server, sent.shape[1]))


def masks(source: np.random.Generator, classes: int, blocks: int, count: int) -> torch.Tensor:
    """Return (C, count) block numbers, in order: the least used ones, different for each class if that is possible."""
    usage, seen = np.zeros(blocks), set[tuple[int, ...]]()
    chosen, different = [], comb(blocks, count) >= classes
    for _ in range(classes):
        noise = 1.0  # below 1 it decides between equally used blocks only
        while True:
            picked = tuple(sorted(np.argsort(usage + noise * source.random(blocks))[:count].tolist()))
            if picked not in seen or not different:
                break
            noise += 0.1
        seen.add(picked)
        usage[list(picked)] += 1
        chosen.append(picked)
    return torch.tensor(chosen)
