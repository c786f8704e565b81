"""Ditto: a model of every client's own beside FedAvg's, held near it."""

from __future__ import annotations

import torch

from ..benchmark.engine import METHODS, ClientBatch, Params, Tree
from ..registry import option
from .fedavg import FedAvg

OWN = "own."


@METHODS.register("ditto")
class Ditto(FedAvg):
    """Li, Hu, Beirami, Smith, ICML 2021 (arXiv 2012.04221).

    Client: theta_k <- theta, E epochs on L_k, which is FedAvg; then its own v_k, which stays, E epochs on
        L_k(v_k) + lam/2 ||v_k - theta||^2,  theta the received model (Algorithm 1).
    Server and messages as FedAvg. Scored: v_k. lam = 0 is local training beside FedAvg. Two models are trained, so a
    client takes twice the steps of FedAvg, each parameter as many. Both have the cell's optimiser, each its own state.
    """

    family = "personal"
    summary = "FedAvg, and beside it a model of every client's own that is held near the common one"
    title = "Ditto"
    venue = "ICML 2021"
    paper_url = "https://arxiv.org/abs/2012.04221"
    code_url = "https://github.com/litian96/ditto"
    delivers = "personal"

    lam: float = option(
        1.0,
        "lambda, pull of the own model towards the received one; not fixed by the paper, our choice",
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
        """(K,) the loss of the clients' own models."""
        personal = self.personal_model(clients)
        loss = clients.loss(clients.forward(personal).logits)
        return loss + self.lam / 2 * clients.sq_distance(clients.received["model"], personal)

    def personal_model(self, clients: ClientBatch) -> Params:
        """The clients' own models under their plain names."""
        return {name.removeprefix(OWN): value for name, value in clients.state["own"].items()}
