"""Label propagation on the clients' graphs."""

from __future__ import annotations

import torch

from ...benchmark.engine import Batch


def propagate_labels(batch: Batch, start: torch.Tensor, steps: int, kappa: float) -> torch.Tensor:
    """Y_l = kappa A_hat Y_(l-1) + (1 - kappa) Y_0 for l = 1..steps, A_hat = D^-1/2 (A + I) D^-1/2 of each client.

    The personalised-PageRank form of label propagation that FedGTA and AdaFGL use (Zhu & Ghahramani, 2002; Gasteiger et
    al., ICLR 2019). batch: N nodes; a `propagation` of its own takes the place of A_hat. start: Y_0 (N, C), taken up
    again at every step. Returns Y_steps (N, C), Y_0 itself for no step. Gradients reach `start`.
    """
    y = start
    for _ in range(steps):
        y = kappa * (batch.gcn @ y) + (1 - kappa) * start
    return y
