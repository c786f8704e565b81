"""SCAFFOLD: FedAvg with control variates."""

from __future__ import annotations

import torch

from ..benchmark.engine import METHODS, ClientBatch, Download, Params, Server, Tensors, TrainConfig, Tree, option
from .fedavg import FedAvg


@METHODS.register("scaffold")
class Scaffold(FedAvg):
    """Karimireddy et al., ICML 2020 (arXiv 1910.06378), option II.

    Client: y <- x, then S steps y <- y - lr (grad L_k(y) - c_k + c); c_k' = c_k - c + (x - y) / (S lr).
    Server: x <- x + server_lr mean_k (y_k - x), c <- c + |S_t|/K mean_k (c_k' - c_k), uniform over participants.
    Messages: (y - x, c_k' - c_k) up, (x, c) down.

    c_k is a gradient only for plain SGD without momentum, so the method has its own optimiser and rate; weight decay is
    part of the gradient.
    """

    summary = "corrects each local step by the difference between the client's and the mean gradient"
    title = "SCAFFOLD"
    venue = "ICML 2020"
    paper_url = "https://arxiv.org/abs/1910.06378"
    heterogeneous_features = False

    lr: float = option(0.5, "local SGD rate, our choice from {0.01, 0.05, 0.1, 0.5} on validation", gt=0, own_rate=True)
    server_lr: float = option(1.0, "server rate (paper: 1)", gt=0, tune=[0.5, 1.0])

    def protocol(self, config: TrainConfig) -> TrainConfig:
        return config.model_copy(update={"optimiser": "sgd", "momentum": 0.0, "lr": self.lr, "grad_clip": None})

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        clients.state["control"] = {name: torch.zeros_like(value) for name, value in clients.params.items()}

    def open(self, server: Server) -> Download:
        download = super().open(server)
        server.state["control"] = {name: torch.zeros_like(v) for name, v in server.state["model"].items()}
        return {**download, "control": server.state["control"]}  # type: ignore[dict-item]

    def client(self, clients: ClientBatch) -> Tree:
        x, c, c_k = clients.received["model"], clients.received["control"], clients.state["control"]
        correction = {name: c[name] - c_k[name] for name in c_k}

        def corrected(_: ClientBatch, grads: Tensors) -> Tensors:
            return {name: grad + correction[name] for name, grad in grads.items()}

        clients.load(x)
        clients.fit(self.local_loss, adjust=corrected)
        moved = {name: value - x[name] for name, value in clients.params.items()}
        span = clients.config.local_epochs * self.lr
        change = {name: -c[name] - clients.of_a_step(moved[name]) / span for name in c_k}
        clients.state["control"] = {name: c_k[name] + change[name] for name in c_k}
        return {"model": moved, "control": change}

    def server(self, server: Server, uploads: Tree) -> Download:
        def advanced(old: Params, change: Params, rate: float) -> Params:
            return {name: old[name] + rate * change[name].mean(0) for name in old}

        share = len(server.participants) / server.clients
        server.state["model"] = advanced(server.state["model"], uploads["model"], self.server_lr)
        server.state["control"] = advanced(server.state["control"], uploads["control"], share)
        return {"model": server.state["model"], "control": server.state["control"]}
