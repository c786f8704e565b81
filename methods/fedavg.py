"""FedAvg, and the references without federation: Local and Global."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import torch

from ..benchmark.engine import (
    METHODS,
    Arrangement,
    ClientBatch,
    Download,
    Federation,
    Goal,
    Method,
    NodeClient,
    Params,
    Server,
    Tree,
    average,
    option,
    union_client,
    whole_client,
)


class LocalTraining(Method):
    """Base of methods whose clients minimise their local loss; subclasses define the exchange."""

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        """Return the task's loss (K,) over each client's training rows: for classification the mean cross-entropy."""
        return clients.loss(clients.forward().logits)

    def prepare(self, clients: ClientBatch) -> None:
        clients.params = clients.network.init(clients.streams.seed, clients.features, clients.classes)

    def personal_model(self, clients: ClientBatch) -> Params | None:
        return clients.params


class Exchange(LocalTraining):
    """Base of methods whose clients train the received model and send it."""

    def shared(self, params: Params) -> Params:
        """Return the parameters that are sent: by default all."""
        return params

    def open(self, server: Server) -> Download:
        return {"model": self.shared(server.initial_model())}

    def client(self, clients: ClientBatch) -> Tree:
        clients.load(clients.received["model"])
        clients.fit(self.local_loss)
        return {"model": self.shared(clients.params)}

    def server(self, server: Server, uploads: Tree) -> Download:
        return average(uploads, server.weights)


class SharedPart(Exchange):
    """Base of methods that average the shared parameters; the others are personal. The personal models are scored."""

    delivers = "personal"

    def personal_model(self, clients: ClientBatch) -> Params | None:
        return clients.params | clients.received["model"]


@METHODS.register("local")
class Local(LocalTraining):
    """No federation: each client trains on its own graph only.

    Objective of client k: mean cross-entropy over its training nodes. Messages: none.
    """

    family = "alone"
    summary = "each client trains on its own data only: the baseline for federation"
    title = "Local training"
    tasks: ClassVar[tuple[Goal, ...]] = ("node", "graph-classification", "rows")
    heterogeneous_features = True

    delivers = "personal"
    heterogeneous = True

    def client(self, clients: ClientBatch) -> Tree:
        clients.fit(self.local_loss)
        return {}

    def server(self, server: Server, uploads: Tree) -> Download:
        return {}


@METHODS.register("fedavg")
class FedAvg(Exchange):
    """McMahan et al., AISTATS 2017 (arXiv 1602.05629).

    Client: theta_k <- theta, E epochs on its mean cross-entropy. Server: theta <- sum_k w_k theta_k, with w_k by the
    training configuration's `weighting`. Messages: theta up, theta down. The global model is scored after aggregation;
    `personal_*` columns score the clients' models before it.
    """

    family = "shared model"
    summary = "averages the clients' models every round: the baseline"
    title = "FedAvg"
    venue = "AISTATS 2017"
    paper_url = "https://arxiv.org/abs/1602.05629"
    tasks: ClassVar[tuple[Goal, ...]] = ("node", "graph-classification", "rows")
    heterogeneous_features = True

    def open(self, server: Server) -> Download:
        server.state["model"] = self.shared(server.initial_model())
        return {"model": server.state["model"]}

    def server(self, server: Server, uploads: Tree) -> Download:
        server.state["model"] = self.aggregate(server, uploads["model"])
        return {"model": server.state["model"]}

    def aggregate(self, server: Server, models: Params) -> Params:
        """Return the next global model from the clients' models (K, ...)."""
        return average(models, server.weights)

    def global_model(self, server: Server) -> Params | None:
        model: Params = server.state["model"]
        return model


@METHODS.register("global")
class Global(Local):
    """Centralised reference: one model on all data, no communication.

    scope "whole": the undivided graph with all edges (FGSSL's Global). scope "union": the union of the clients' graphs,
    without edges between clients (FedGL's Centralized). Trained for rounds x local epochs, selected by validation like
    every other method, scored on each client's test nodes within that graph.
    """

    family = "reference"
    summary = "one model on all data in one place: the reference for the cost of federation"
    title = "Centralised training"
    tasks = ("node",)
    heterogeneous = False
    reference = True

    scope: Literal["whole", "union"] = option("whole", "the undivided graph, or the union of the clients' graphs")

    @classmethod
    def takes_minibatches(cls) -> bool:
        return True

    def arrange(self, federation: Federation) -> Arrangement:
        one = whole_client(federation) if self.scope == "whole" else union_client(federation)
        place = torch.full((int(one.graph.ndata["global_id"].max()) + 1,), -1)
        place[one.graph.ndata["global_id"]] = torch.arange(one.graph.num_nodes())
        scored = [place[c.graph.ndata["global_id"]] for c in federation.clients if isinstance(c, NodeClient)]
        return Arrangement(replace(federation, clients=[one]), scored)
