"""pFedMe: personal models regularised towards each client's copy of the global model, which is updated towards them."""

from __future__ import annotations

import torch

from ..benchmark.engine import METHODS, ClientBatch, Params, Server, Tree, average, of_shape, option
from .fedavg import FedAvg


@METHODS.register("pfedme")
class PFedMe(FedAvg):
    """Dinh, Tran, Nguyen, NeurIPS 2020 (arXiv 2006.08848): descent on the Moreau envelopes of the clients' losses.

    Client k: w_k <- w, then local rounds of `inner` steps of theta_k by the run's optimiser towards
        argmin L_k(theta) + lam/2 ||theta - w_k||^2,
    from the last theta_k of the round (first from w), then w_k <- w_k - eta lam (w_k - theta_k), which is eta times the
    gradient of the envelope. Server: w <- (1 - beta) w + beta sum_k p_k w_k, with p_k by the training configuration's
    `weighting`. Messages: w_k up, w down; theta_k is not sent. Scored: theta_k after training; `global_*` columns score
    w. With one local round per round, eta lam = 1 and beta = 1 it is FedProx with mu = lam.

    Departures: the E local epochs of a round are E steps of theta (with minibatches: E passes, and `inner` counts
    passes), so E / `inner` local rounds, the last one possibly shorter; the paper has 20 local rounds of 5 steps. theta
    is trained by the run's optimiser; the paper has a separate rate. Only participants train; the released code trains
    all clients and averages some.
    """

    family = "personal"
    summary = "personal models are regularised towards the client's copy of the global model, which moves towards them"
    title = "pFedMe"
    venue = "NeurIPS 2020"
    paper_url = "https://arxiv.org/abs/2006.08848"
    code_url = "https://github.com/CharlieDinh/pFedMe"
    delivers = "personal"

    lam: float = option(
        1.0,
        "lambda, weight of ||theta - w||^2; our choice on validation (released scripts: 15 to 30)",
        gt=0,
        tune=[*({"lam": lam, "eta": share / lam} for lam in (0.1, 1.0, 10.0) for share in (0.5, 1))],
    )
    eta: float = option(
        0.5, "rate of w; our choice on validation (released: 0.005 or 0.01 in 20 local rounds, too small for 3)", ge=0
    )
    inner: int = option(
        1, "K, steps of theta per step of w; our choice for three epochs (released: 5)", ge=1, tune=[1, 3]
    )
    beta: float = option(1.0, "step of the server towards the mean (released: 1 and 2)", ge=0)

    def client(self, clients: ClientBatch) -> Tree:
        w = dict(clients.received["model"])
        clients.load(w)
        done = 0

        def loss(clients: ClientBatch) -> torch.Tensor:
            return self.local_loss(clients) + self.lam / 2 * clients.sq_distance(w)

        def update_w() -> None:
            """Take a step of w after each `inner` epochs; called before every epoch."""
            nonlocal done
            if done and done % self.inner == 0:
                self._step(clients, w, done)
            done += 1

        clients.fit(loss, each_epoch=update_w)
        self._step(clients, w, -(-done // self.inner) * self.inner)
        return {"model": w}

    @torch.no_grad()
    def _step(self, clients: ClientBatch, w: Params, end: int) -> None:
        """Take a step of w_k for clients that trained in the local round of `inner` steps that ends with `end`."""
        rate = torch.full((len(clients),), self.eta * self.lam)
        if clients.epochs is not None:
            rate[torch.tensor(clients.epochs) <= end - self.inner] = 0
        for name, value in w.items():
            w[name] = value - of_shape(rate, value) * (value - clients.params[name])

    def aggregate(self, server: Server, models: Params) -> Params:
        mean, last = average(models, server.weights), server.state["model"]
        return {name: last[name] + self.beta * (value - last[name]) for name, value in mean.items()}
