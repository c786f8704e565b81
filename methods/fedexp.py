"""FedExP: FedAvg whose server extrapolates along the mean update, by a step that it computes in every round."""

from __future__ import annotations

import torch

from ..benchmark.engine import METHODS, Download, Params, Server, Tree, average, is_statistic, option
from .fedavg import FedAvg


@METHODS.register("fedexp")
class FedExP(FedAvg):
    """Jhunjhunwala, Wang, Joshi, ICLR 2023 (arXiv 2301.09604): an adaptive step of the server.

    Client and messages as FedAvg. Server, with the updates D_k = theta_k - theta of the M participants, their mean
    D = sum_k w_k D_k and w_k by the training configuration's `weighting`:
        eta = max(1, sum_k w_k ||D_k||^2 / (2 (||D||^2 + M epsilon))),  theta <- theta + eta D.
    The more the updates differ, the longer the step. Scored: the mean of the last two theta (the paper's choice, since
    long steps oscillate), theta itself in the first round. A large epsilon without that mean is FedAvg.

    Departures: epsilon stays constant; the released code multiplies the clients' rate by 0.998 in every round and
    epsilon by its square. Running statistics of BatchNorm are averaged, as they are no updates. FedGB limits eta to 10
    and scores theta.
    """

    summary = "FedAvg with a longer step of the server, the more the clients' updates differ"
    title = "FedExP"
    venue = "ICLR 2023"
    paper_url = "https://arxiv.org/abs/2301.09604"
    code_url = "https://github.com/Divyansh03/FedExP"

    epsilon: float = option(
        1e-3, "added to ||D||^2 per participant (released code: 0.001, EMNIST 0.1)", ge=0, tune=[1e-3, 1e-2, 1e-1]
    )
    average_last: bool = option(True, "score the mean of the last two global models (paper), or the last one (FedGB)")

    def server(self, server: Server, uploads: Tree) -> Download:
        before = server.state["model"] if "before" in server.state else None
        download = super().server(server, uploads)
        server.state["before"] = before
        return download

    def aggregate(self, server: Server, models: Params) -> Params:
        mean, last = average(models, server.weights), server.state["model"]
        step = self.step(models, mean, last, server.weights)
        return {name: v if is_statistic(name) else last[name] + step * (v - last[name]) for name, v in mean.items()}

    def step(self, models: Params, mean: Params, last: Params, weights: torch.Tensor) -> torch.Tensor:
        """Return eta. models: (M, ...); mean: their mean; last: the model from which they started."""
        spread, length = torch.zeros(len(weights)), torch.zeros(())
        for name, value in mean.items():
            if not is_statistic(name):
                spread = spread + (models[name] - last[name]).flatten(1).square().sum(1)
                length = length + (value - last[name]).square().sum()
        denominator = 2 * (length + len(weights) * self.epsilon)
        return (weights @ spread / denominator).nan_to_num(1.0).clamp(min=1)  # 0 / 0 if nothing was learnt

    def global_model(self, server: Server) -> Params | None:
        last: Params = server.state["model"]
        before = server.state.get("before")
        if before is None or not self.average_last:
            return last
        return {name: (value + before[name]) / 2 for name, value in last.items()}
