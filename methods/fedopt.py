"""FedOpt: FedAvg with an optimiser step at the server."""

from __future__ import annotations

from typing import Literal

import torch

from ..benchmark.engine import METHODS, Params, Server, average, option
from .fedavg import FedAvg


@METHODS.register("fedopt")
class FedOpt(FedAvg):
    """Reddi et al., ICLR 2021 (arXiv 2003.00295).

    Client and messages as FedAvg. Server: Delta = sum_k w_k theta_k - theta, then theta <- theta + step:
    sgd      m <- momentum m + Delta,                       step = lr m
    adagrad  v <- v + Delta^2,                              step = lr Delta / (sqrt(v) + tau)
    adam     m <- b1 m + (1-b1) Delta, v <- b2 v + (1-b2) Delta^2,                  step = lr m / (sqrt(v) + tau)
    yogi     m as adam, v <- v - (1-b2) Delta^2 sign(v - Delta^2),                  step = lr m / (sqrt(v) + tau)
    v starts at tau^2, m at 0, without bias correction (Algorithm 2). With sgd, momentum 0 and rate 1 it is FedAvg.
    """

    summary = "FedAvg with an optimiser as the server's step"
    title = "FedOpt"
    venue = "ICLR 2021"
    paper_url = "https://arxiv.org/abs/2003.00295"

    server_optimiser: Literal["sgd", "adam", "yogi", "adagrad"] = option(
        "sgd",
        "server rule: sgd (FGSSL's released code), or adam, yogi, adagrad (paper)",
        tune=[
            *({"server_optimiser": "sgd", "server_lr": rate} for rate in (0.5, 1.0)),
            *({"server_optimiser": rule, "server_lr": rate} for rule in ("adam", "yogi") for rate in (0.01, 0.1)),
        ],
    )
    server_lr: float = option(0.5, "server rate; FGSSL's scripts try 0.5 and 0.1, 0.5 is our choice", gt=0)
    server_momentum: float = option(0.0, "momentum of the sgd rule", ge=0, lt=1)
    beta1: float = option(0.9, "decay of m for adam and yogi (paper, section 5)", ge=0, lt=1)
    beta2: float = option(0.99, "decay of v for adam and yogi (paper, section 5)", ge=0, lt=1)
    tau: float = option(1e-3, "adaptivity (paper, section 5)", gt=0)

    def aggregate(self, server: Server, models: Params) -> Params:
        mean = average(models, server.weights)
        before: Params = server.state["model"]
        return {name: before[name] + self._step(server, name, mean[name] - before[name]) for name in mean}

    def _step(self, server: Server, name: str, delta: torch.Tensor) -> torch.Tensor:
        state = server.state.setdefault("optimiser", {})
        m, v = state.get(name, (torch.zeros_like(delta), torch.full_like(delta, self.tau**2)))
        rule, square = self.server_optimiser, delta**2
        if rule == "sgd":
            m = self.server_momentum * m + delta
        elif rule == "adagrad":
            m, v = delta, v + square
        else:
            m = self.beta1 * m + (1 - self.beta1) * delta
            drift = v - square if rule == "adam" else square * torch.sign(v - square)
            v = v - (1 - self.beta2) * drift
        state[name] = (m, v)
        return self.server_lr * (m if rule == "sgd" else m / (v.sqrt() + self.tau))


@METHODS.register("fedadam")
class FedAdam(FedOpt):
    """FedOpt with Adam on the server (FedAdam of Reddi et al.), at the paper's settings. Messages as FedAvg.

    All its experiments have b1 = 0.9, b2 = 0.99 and tau = 1e-3. It tunes the server's rate per task together with the
    clients' (10^-2 on CIFAR-10 and several others, between 10^-2.5 and 1 elsewhere); here it is 10^-2 unless tuned. Its
    clients use plain SGD, here the run's optimiser.
    """

    summary = "FedAvg with Adam as the server's step"
    title = "FedAdam"
    venue = "ICLR 2021"
    paper_url = "https://arxiv.org/abs/2003.00295"

    server_optimiser: Literal["adam"] = option("adam", "server rule")
    server_lr: float = option(
        0.01, "server rate (paper, appendix: 0.01 on CIFAR-10, tuned by task)", gt=0, tune=[0.01, 0.1]
    )


@METHODS.register("fedyogi")
class FedYogi(FedOpt):
    """FedOpt with Yogi on the server (FedYogi of Reddi et al.), with the settings of FedAdam. Messages as FedAvg."""

    summary = "FedAvg with Yogi as the server's step"
    title = "FedYogi"
    venue = "ICLR 2021"
    paper_url = "https://arxiv.org/abs/2003.00295"

    server_optimiser: Literal["yogi"] = option("yogi", "server rule")
    server_lr: float = option(
        0.01, "server rate (paper, appendix: 0.01 on CIFAR-10, tuned by task)", gt=0, tune=[0.01, 0.1]
    )
