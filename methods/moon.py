"""MOON: FedAvg with a contrast between the embeddings of models."""

from __future__ import annotations

from typing import ClassVar

import torch

from ..benchmark.engine import METHODS, ClientBatch, Tree, option
from .fedavg import FedAvg
from .parts.contrast import model_contrast


@METHODS.register("moon")
class MOON(FedAvg):
    """Li, He, Song, CVPR 2021 (arXiv 2103.16257).

    Client: CE + mu mean_i -log[ e^{cos(r_i, g_i)/tau} / (e^{cos(r_i, g_i)/tau} + e^{cos(r_i, p_i)/tau}) ], where r_i,
    g_i, p_i are node i's embeddings (the last layer's input) by the trained, the received and the client's previous
    model; the latter two are frozen and computed without dropout, once per round. The mean is over all nodes of a
    client. A client that never trained has no previous model and no contrast; a zero embedding has cosine 0. Server and
    messages as FedAvg. mu = 0 is FedAvg.

    The paper has a projection head of width 256 for images; here there is none, as in OpenFGL, whose mu and tau are the
    defaults.
    """

    summary = "FedAvg with a contrast of embeddings: near to the received model, far from the client's last one"
    title = "MOON"
    venue = "CVPR 2021"
    paper_url = "https://arxiv.org/abs/2103.16257"
    code_url = "https://github.com/QinbinLi/MOON"
    revision: ClassVar[int] = 2

    mu: float = option(
        1.0, "weight of the contrast (OpenFGL: 1; paper: tuned over 0.1, 1, 5, 10)", ge=0, tune=[0.1, 1.0, 5.0, 10.0]
    )
    temperature: float = option(0.5, "tau (paper: 0.5)", gt=0, tune=[0.1, 0.5, 1.0])

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        clients.state["trained"] = torch.zeros(len(clients))

    def client(self, clients: ClientBatch) -> Tree:
        if not self.mu:
            return super().client(clients)
        with torch.no_grad():
            previous = clients.forward(training=False).embedding
            received = clients.forward(clients.received["model"], training=False).embedding
        contrast = model_contrast(received, previous, self.temperature)
        weight = self.mu * clients.state["trained"]

        def loss(clients: ClientBatch) -> torch.Tensor:
            out = clients.forward()
            task = clients.loss(out.logits)
            values = contrast(out.embedding, clients.at)
            return task + weight * clients.mean_over(values, torch.arange(len(values)))

        clients.load(clients.received["model"])
        clients.fit(loss)
        clients.state["trained"] = torch.ones(len(clients))
        return {"model": clients.params}
