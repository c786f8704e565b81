"""FedDC: FedAvg with a drift variable per client and a correction of the gradient."""

from __future__ import annotations

from typing import Literal

import torch

from ..benchmark.engine import (
    METHODS,
    ClientBatch,
    Download,
    Params,
    Server,
    Tensors,
    TrainConfig,
    Tree,
    of_shape,
    option,
)
from .fedavg import FedAvg


@METHODS.register("feddc")
class FedDC(FedAvg):
    """Gao et al., CVPR 2022 (arXiv 2203.11751).

    Client: theta <- w, then S local steps with learning rate lr on
        L_k(theta) + alpha/2 ||h_k + theta - w||^2 + <theta, v_k - v> / (lr S),
    with its drift h_k (initially 0), its last update v_k and the mean update v. Then with D_k = theta_k - w:
        h_k <- h_k + D_k;  v_k <- D_k (correction "update", the paper) or D_k + v_k - v ("state", the released code).
    Server: w <- mean over participants of theta_k + mean over all clients of h_k; v <- mean of v_k, over participants
    ("update") or all clients ("state"). Means are uniform. Messages: (theta_k, v_k) up, (w, v) down; only theta without
    correction. "state" sends the change of v_k, so that the server need not store one v per client.

    lr S is the sum of the steps only for plain SGD, so the method has its own optimiser and rate; weight decay is part
    of the gradient. With alpha = 0, h has no effect and is left out; alpha = 0 without correction is FedAvg with
    uniform weights. The paper's v_k contains the client's last correction with a negative sign: the clients'
    differences D_k - mean D alternate in sign and grow until curvature or `clip` limits them. "state" subtracts the old
    correction, and the differences decay. To first order the server's means are the same. The sum of all drifts acts as
    server momentum, so learning rates that are good for FedAvg can be too large here.

    `client_size`: s_k is the client's number of training nodes (at least one) divided by the mean number. Client k uses
    alpha / s_k and v / s_k instead of alpha and v, and its v_k, or the change of it, has weight s_k in the server's
    mean, as in the released code. The mean number is sent down with the model. Clients of equal size are unaffected.
    """

    summary = "corrects each client's drift from the average by a learned offset"
    title = "FedDC"
    venue = "CVPR 2022"
    paper_url = "https://arxiv.org/abs/2203.11751"
    code_url = "https://github.com/gaoliang13/FedDC"
    heterogeneous_features = False

    alpha: float = option(
        0.1, "weight of the drift penalty (released code on MNIST, OpenFGL: 0.1)", ge=0, tune=[0.01, 0.1, 0.5]
    )
    correction: Literal["update", "state", "none"] = option(
        "update", "gradient correction: last updates (paper), states as in SCAFFOLD (released code), or none"
    )
    client_size: bool = option(
        False,
        "alpha and the mean update divided by the client's relative size (released code, not the paper)",
        later=True,
    )
    optimiser: Literal["sgd", "adam"] = option(
        "sgd", "local optimiser; Adam does not fit the correction and is best with correction none"
    )
    lr: float = option(
        0.1,
        "local learning rate (released code: 0.1; 0.5 overshoots because of the drift; for Adam 0.01)",
        gt=0,
        own_rate=True,
    )
    clip: float | None = option(10.0, "bound on each client's gradient 2-norm (released code: 10)", gt=0)

    def protocol(self, config: TrainConfig) -> TrainConfig:
        settings = {"optimiser": self.optimiser, "momentum": 0.0, "lr": self.lr, "grad_clip": self.clip}
        sizes = {"weighting": "train_nodes"} if self.client_size else {}  # for server.sizes; means are uniform
        return config.model_copy(update=settings | sizes)

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        clients.state["drift"], clients.state["update"] = _zeros(clients.params), _zeros(clients.params)

    def open(self, server: Server) -> Download:
        super().open(server)
        server.state["drift"], server.state["update"] = _zeros(server.state["model"]), _zeros(server.state["model"])
        return self._download(server)

    def client(self, clients: ClientBatch) -> Tree:
        w, drift, span = clients.received["model"], clients.state["drift"], self.lr * clients.config.local_epochs
        corrects, state = self.correction != "none", self.correction == "state"
        size = self.relative_size(clients)
        fixed = {n: _divided((drift[n] - w[n]).mul_(self.alpha), size) for n in drift}
        if corrects:
            mean = {n: _divided(v, size) for n, v in clients.received["update"].items()}
            difference = {n: v - mean[n] for n, v in clients.state["update"].items()}
            for n, value in fixed.items():
                value.add_(clients.of_a_step(difference[n]), alpha=1 / span)

        def corrected(clients: ClientBatch, grads: Tensors) -> Tensors:
            params = clients.params
            pull = {n: _divided(params[n].detach(), size) for n in grads}
            return {n: torch.add(g, pull[n], alpha=self.alpha).add_(fixed[n]) for n, g in grads.items()}

        clients.load(w)
        clients.fit(self.local_loss, adjust=corrected)
        moved = {n: value - w[n] for n, value in clients.params.items()}
        clients.state["drift"] = {n: drift[n] + moved[n] for n in moved}
        if not corrects:
            return {"model": clients.params}
        clients.state["update"] = {n: v + difference[n] for n, v in moved.items()} if state else moved
        sent = {n: v - mean[n] for n, v in moved.items()} if state else moved
        if size is not None:
            sent = {n: _divided(v, 1 / size) for n, v in sent.items()}
        return {"model": clients.params, "update": sent}

    def relative_size(self, clients: ClientBatch) -> torch.Tensor | None:
        """Return s_k (K,), or None without `client_size`."""
        if not self.client_size:
            return None
        size = torch.tensor(clients.batch.counts["train"], dtype=torch.float32)
        return size.clamp(min=1) / clients.received["mean size"].squeeze(1)

    def server(self, server: Server, uploads: Tree) -> Download:
        w, drift, v = (server.state[slot] for slot in ("model", "drift", "update"))
        models, sent = uploads["model"], uploads.get("update", {})
        server.state["drift"] = {n: drift[n] + (models[n] - w[n]).sum(0) / server.clients for n in w}
        server.state["model"] = {n: models[n].mean(0) + (server.state["drift"][n] if self.alpha else 0) for n in w}
        if self.correction == "state":
            server.state["update"] = {n: v[n] + change.sum(0) / server.clients for n, change in sent.items()}
        else:
            server.state["update"] = {n: update.mean(0) for n, update in sent.items()}
        return self._download(server)

    def _download(self, server: Server) -> Download:
        slots = ("model",) if self.correction == "none" else ("model", "update")
        size = {"mean size": server.sizes.mean().clamp(min=1).view(1)} if self.client_size else {}
        return {slot: server.state[slot] for slot in slots} | size


def _divided(value: torch.Tensor, size: torch.Tensor | None) -> torch.Tensor:
    """Return value (K, ...) divided by size (K,); unchanged if size is None."""
    return value if size is None else value / of_shape(size, value)


def _zeros(params: Params) -> Params:
    return {name: torch.zeros_like(value) for name, value in params.items()}
