"""FedRep: clients learn their own classifiers on a common representation."""

import dgl
import torch.nn.functional as F
from dgl.nn import GraphConv
from pydantic import Field
from torch import nn

from fglbench.benchmark.engine import METHODS, TorchMethod, average


class Net(nn.Module):
    """A body of two graph convolutions, and a linear head."""

    def __init__(self, features, hidden, classes, dropout):
        super().__init__()
        self.body = nn.ModuleList([GraphConv(features, hidden), GraphConv(hidden, hidden)])
        self.head, self.dropout = nn.Linear(hidden, classes), dropout

    def forward(self, graph, feat):
        graph = dgl.add_self_loop(graph)
        for layer in self.body:
            feat = F.dropout(F.relu(layer(graph, feat)), self.dropout, self.training)
        return self.head(feat)


@METHODS.register("fedrep")
class FedRep(TorchMethod):
    """Collins et al., ICML 2021 (arXiv 2102.07078), Algorithm 1.

    A model is a body phi and a head h. Client k: phi_k <- the received phi; E - `body_epochs` epochs on its mean
    cross-entropy that move h_k alone, then `body_epochs` epochs that move phi_k alone. Server: phi <- sum_k w_k phi_k,
    with w_k by the training configuration. Messages: phi up, phi down; h_k stays. Scored: the received phi with h_k.

    Departures: the optimiser is that of the training configuration (the paper has SGD); its local epochs are divided
    between head and body, so that no parameter gets more steps than in FedAvg (the paper adds those of the head);
    clients are weighted by the training configuration (the paper has equal weights).
    """

    delivers = "personal"
    hidden: int = Field(64, ge=1, description="hidden width; the benchmark's")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout after the hidden layers; the benchmark's")
    body_epochs: int = Field(1, ge=1, description="local epochs for the body; as in the paper")

    def build(self, features, classes):
        return Net(features, self.hidden, classes, self.dropout)

    def body(self, state):
        return {name: value for name, value in state.items() if name.startswith("body.")}

    def init_server(self, server):
        return {"model": self.body(self.initial(server))}

    def train(self, model, client):
        model.load_state_dict(client.received["model"], strict=False)
        mask, epochs = client.train_mask, client.config.local_epochs
        turns = [model.head] * max(epochs - self.body_epochs, 0) + [model.body] * min(self.body_epochs, epochs)
        optimisers = {part: client.optimiser(part.parameters()) for part in (model.head, model.body)}
        for part in turns if mask.any() else []:
            loss = F.cross_entropy(model(client.graph, client.feat)[mask], client.label[mask])
            model.zero_grad()
            loss.backward()
            optimisers[part].step()
        return {"model": self.body(model.state_dict())}

    def aggregate(self, server, uploads):
        return {"model": average(uploads["model"], server.weights)}

    def personal_model(self, clients):
        return clients.params | clients.received["model"]
