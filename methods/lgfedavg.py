"""LG-FedAvg: private encoders with a shared classifier head."""

from __future__ import annotations

from ..benchmark.engine import METHODS, ClientBatch, Download, Params, Server, Tree, average
from .parts.personal import CommonWidth

HEAD = "head."


@METHODS.register("lg-fedavg")
class LGFedAvg(CommonWidth):
    """Liang et al., NeurIPS workshop 2019 (arXiv 2001.01523), with FedGKC's split: the classifier is shared.

    Client k: private encoder f_k (any architecture, width h), head g <- the global one; E epochs on the mean
    cross-entropy of g_k(f_k(x)). Server: g <- sum_k w_k g_k, with w_k by the training configuration's `weighting`.
    Messages: the head up and down, h C + C scalars each.

    Departures: the original starts from a trained FedAvg model, which does not exist for different architectures; here
    encoders and the server's head start untrained. The original averages uniformly, which `weighting` offers. Scored:
    each client's encoder with the new global head, as in the original's code.
    """

    family = "personal"
    summary = "encoders are personal, the classifier is averaged"
    title = "LG-FedAvg"
    venue = "NeurIPS workshop 2019"
    paper_url = "https://arxiv.org/abs/2001.01523"
    code_url = "https://github.com/pliang279/LG-FedAvg"
    tasks = ("node", "graph-classification")

    def open(self, server: Server) -> Download:
        model = server.initial_model()
        return {"head": {name: value for name, value in model.items() if name.startswith(HEAD)}}

    def client(self, clients: ClientBatch) -> Tree:
        clients.params = self.personal_model(clients)
        clients.fit(self.local_loss)
        return {"head": clients.network.part(clients.params, HEAD)}

    def server(self, server: Server, uploads: Tree) -> Download:
        return average(uploads, server.weights)

    def personal_model(self, clients: ClientBatch) -> Params:
        return clients.network.with_part(clients.params, clients.received["head"])
