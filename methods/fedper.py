"""FedPer: shared base layers, and personal last layers per client."""

from __future__ import annotations

from collections.abc import Collection

from ..benchmark.engine import METHODS, ClientBatch, Download, Params, Server, Tree, option
from .fedavg import FedAvg
from .parts.personal import last_layers


@METHODS.register("fedper")
class FedPer(FedAvg):
    """Arivazhagan et al., 2019 (arXiv 1912.00818).

    A model has base layers W_B and its last `own_layers` layers W_P. Client: W_B <- the received ones, E epochs on its
    mean cross-entropy over (W_B, W_P). Server: W_B <- sum_k w_k W_B,k, with w_k by the training configuration's
    `weighting`. Messages: W_B up and down; W_P is not sent. Scored: the received W_B with the client's W_P.
    own_layers = 0 is FedAvg, all layers is local training.

    Departures: the paper draws each W_P at random; here all clients start from the common initial model. The paper
    fine-tunes a pretrained image network; graphs have no pretrained network.
    """

    family = "personal"
    summary = "FedAvg of all layers except the last, which is personal"
    title = "FedPer"
    venue = "arXiv 2019"
    paper_url = "https://arxiv.org/abs/1912.00818"
    delivers = "personal"
    heterogeneous_features = False

    own_layers: int = option(1, "number of last layers that are not sent (paper: 1 to 4)", ge=0, tune=[1, 2])

    def base(self, names: Collection[str]) -> list[str]:
        """Return the names of the shared parameters."""
        personal = last_layers(names, self.own_layers)
        return [name for name in names if name not in personal]

    def open(self, server: Server) -> Download:
        model = server.initial_model()
        return {"model": {name: model[name] for name in self.base(model)}}

    def client(self, clients: ClientBatch) -> Tree:
        clients.load(clients.received["model"])
        clients.fit(self.local_loss)
        return {"model": {name: clients.params[name] for name in self.base(clients.params)}}

    def server(self, server: Server, uploads: Tree) -> Download:
        return {"model": self.aggregate(server, uploads["model"])}

    def global_model(self, server: Server) -> Params | None:
        return None

    def personal_model(self, clients: ClientBatch) -> Params | None:
        return clients.params | clients.received["model"]
