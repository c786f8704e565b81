"""Ditto: FedAvg, and a personal model per client that is regularised towards the global model."""

from __future__ import annotations

import torch

from ..benchmark.engine import METHODS, ClientBatch, Params, Tree, option
from .fedavg import FedAvg

OWN = "own."


@METHODS.register("ditto")
class Ditto(FedAvg):
    """Li, Hu, Beirami, Smith, ICML 2021 (arXiv 2012.04221).

    Client: theta_k <- theta, E epochs on L_k, as FedAvg; then E epochs of its personal model v_k, which is not sent, on
        L_k(v_k) + lam/2 ||v_k - theta||^2,  theta the received model (Algorithm 1).
    Server: as FedAvg. Messages: theta up and down, as FedAvg. Scored: v_k. With lam = 0, v_k is local training. Each
    client trains two models and so takes twice as many steps as with FedAvg. Both use the run's optimiser, with
    separate states.
    """

    family = "personal"
    summary = "FedAvg, and a personal model per client that is regularised towards the global model"
    title = "Ditto"
    venue = "ICML 2021"
    paper_url = "https://arxiv.org/abs/2012.04221"
    code_url = "https://github.com/litian96/ditto"
    delivers = "personal"

    lam: float = option(
        1.0,
        "lambda, weight of the distance between personal and received model; our choice, not fixed by the paper",
        ge=0,
        tune=[0.01, 0.1, 1.0, 10.0],
    )

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        clients.state["own"] = {OWN + name: value.clone() for name, value in clients.params.items()}

    def client(self, clients: ClientBatch) -> Tree:
        upload = super().client(clients)
        clients.fit(self.personal_loss, params=clients.state["own"], name="own")
        return upload

    def personal_loss(self, clients: ClientBatch) -> torch.Tensor:
        """Return the loss (K,) of the personal models."""
        personal = self.personal_model(clients)
        loss = clients.loss(clients.forward(personal).logits)
        return loss + self.lam / 2 * clients.sq_distance(clients.received["model"], personal)

    def personal_model(self, clients: ClientBatch) -> Params:
        """Return the personal models without the prefix of their names."""
        return {name.removeprefix(OWN): value for name, value in clients.state["own"].items()}
