"""FedDyn: the linear and quadratic terms of each client's loss follow its own last gradient."""

import dgl
import torch
import torch.nn.functional as F
from dgl.nn import GraphConv
from pydantic import Field
from torch import nn

from fglbench.benchmark.engine import METHODS, TorchMethod


class GCN(nn.Module):
    """Two graph convolutions with DGL's layers."""

    def __init__(self, features, hidden, classes, dropout):
        super().__init__()
        self.first, self.second = GraphConv(features, hidden), GraphConv(hidden, classes)
        self.dropout = dropout

    def forward(self, graph, feat):
        graph = dgl.add_self_loop(graph)
        hidden = F.dropout(F.relu(self.first(graph, feat)), self.dropout, self.training)
        return self.second(graph, hidden)


@METHODS.register("feddyn")
class FedDyn(TorchMethod):
    """Acar et al., ICLR 2021 (arXiv 2111.04263), Algorithm 1.

    Client k: theta_k <- E epochs from the received theta on its mean cross-entropy - <g_k, theta'> + alpha/2
    ||theta' - theta||^2 for theta'; then g_k <- g_k - alpha (theta_k - theta). Server, with m clients of which P take
    part: h <- h - alpha/m sum_P (theta_k - theta); theta <- mean_P theta_k - h/alpha. Messages: theta up, theta down.

    Departure: the optimiser is that of the training configuration (the paper has SGD).
    """

    hidden: int = Field(64, ge=1, description="hidden width; the benchmark's")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout after the hidden layer; the benchmark's")
    alpha: float = Field(0.1, gt=0, description="weight of the quadratic term; among the paper's values")

    def build(self, features, classes):
        return GCN(features, self.hidden, classes, self.dropout)

    def train(self, model, client):
        mask, received = client.train_mask, client.received["model"]
        gradient = client.state.setdefault("gradient", {n: torch.zeros_like(v) for n, v in received.items()})
        optimiser = client.optimiser(model.parameters())
        for _ in range(client.config.local_epochs if mask.any() else 0):
            loss = F.cross_entropy(model(client.graph, client.feat)[mask], client.label[mask])
            for name, value in model.named_parameters():
                loss = loss - (gradient[name] * value).sum()
                loss = loss + self.alpha / 2 * (value - received[name]).square().sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        for name, value in model.named_parameters():
            gradient[name] = gradient[name] - self.alpha * (value.detach() - received[name])

    def init_server(self, server):
        server.state["model"] = self.initial(server)
        server.state["h"] = {name: torch.zeros_like(value) for name, value in server.state["model"].items()}
        return {"model": server.state["model"]}

    def aggregate(self, server, uploads):
        old, h, new = server.state["model"], server.state["h"], {}
        for name, models in uploads["model"].items():  # (participants, ...)
            h[name] = h[name] - self.alpha / server.clients * (models - old[name]).sum(0)
            new[name] = models.mean(0) - h[name] / self.alpha
        server.state["model"] = new
        return {"model": new}
