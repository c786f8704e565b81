"""FedProx: FedAvg with a proximal term."""

from __future__ import annotations

import torch

from ..benchmark.engine import METHODS, ClientBatch, option
from .fedavg import FedAvg


@METHODS.register("fedprox")
class FedProx(FedAvg):
    """Li et al., MLSys 2020 (arXiv 1812.06127).

    Client: L_k(theta) + mu/2 ||theta - theta_g||^2, theta_g the received model, fixed for the round. Server and
    messages as FedAvg: theta up and down. The paper samples clients by size and averages uniformly; here the mean is
    weighted, the usual form for full participation. At the first local step the term and its gradient are 0, so with
    one epoch it is FedAvg.
    """

    summary = "FedAvg with a penalty for the distance to the received model"
    title = "FedProx"
    venue = "MLSys 2020"
    paper_url = "https://arxiv.org/abs/1812.06127"
    code_url = "https://github.com/litian96/FedProx"

    mu: float = option(
        0.01, "proximal weight; 0.01 is our choice (authors: 0.001 to 1)", ge=0, tune=[0.001, 0.01, 0.1, 1.0]
    )

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        loss = super().local_loss(clients)
        return loss + self.mu / 2 * clients.sq_distance(clients.received["model"])
