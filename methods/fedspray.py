"""FedSpray: private graph networks, and a common model without edges that uses structure proxies of the classes."""

from __future__ import annotations

from typing import ClassVar

import torch

from ..benchmark.engine import (
    METHODS,
    Batch,
    ClientBatch,
    Download,
    Params,
    Server,
    Tree,
    affine,
    average,
    linear_maps,
    option,
    segment_product,
    torch_source,
)
from .fedavg import LocalTraining
from .parts.dual import kl
from .parts.prototypes import class_means, of_held, weighted_mean

START = 0.1  # initial value of all entries of a node's proxy (released code)
STEP = 0.01  # difference between consecutive classes in the server's initial proxies (released code)


@METHODS.register("fedspray")
class FedSpray(LocalTraining):
    """Fu et al., KDD 2024 ("Federated Graph Learning with Structure Proxy Alignment"): private graph networks.

    The common model uses no edges: an encoder e(x) = ReLU(x W + b) of width p, a classifier f of e(x) + z and a plain
    classifier g of e(x). z is a structure proxy: the server has one per class, a client one per training node.
    Client k receives the common model and the class proxies P. For its other nodes z_i = sum_c softmax(g(e(x_i)))_c
    P_c. Then E epochs of its graph network h, of any architecture, on
        CE(h) + lambda_1 mean_i KL(softmax f(e(x_i) + z_i) || softmax h_i),
    i the training nodes and the nodes whose probability by g is above `sure`; then, with h fixed, E epochs of e, f, g
    and the proxies of its training nodes on CE(g) + mean over training nodes of KL(softmax h || softmax f(e + z)).
    Server: e, f, g averaged, with weights by the training configuration's `weighting`; P_c is the mean of the clients'
    mean proxies of class c, weighted by that class's share of each client's training nodes.
    Messages: up e, f, g, and for each of the C_k classes of the client a proxy (p), the class and its share; down
    e, f, g and (C, p); graph networks are not sent. Scored: each client's graph network. lambda_1 = 0 is local
    training. A client trains two models and so takes twice as many steps as with FedAvg.

    Written from the released code, with its initial values; the paper's text was not available. Departures: the code
    has a separate rate for proxies (Adam, 0.02; here the run's optimiser for all), overwrites g at each client by f,
    and trains GraphSAGE; a class that no client has keeps its proxy.
    """

    family = "distillation"
    summary = "private graph networks, distilled from a common model without edges that uses proxies of the classes"
    title = "FedSpray"
    venue = "KDD 2024"
    paper_url = "https://arxiv.org/abs/2408.09393"
    code_url = "https://github.com/xbfu/FedSpray"
    delivers = "personal"
    heterogeneous = True
    revision: ClassVar[int] = 2

    lambda_1: float = option(1.0, "weight of the distillation to h (code: 1; an unused line has 5)", ge=0,
                             tune=[0.1, 1, 5])  # fmt: skip
    width: int = option(64, "p, width of proxies and encoder (code: 64)", ge=1)
    sure: float = option(0.7, "minimal probability of a node in the distillation (code: 0.7)", ge=0, le=1)

    # -- server -------------------------------------------------------------------------------------------------------

    def open(self, server: Server) -> Download:
        source = torch_source(server.generator)
        shapes = {"encoder": (server.features, self.width)}
        shapes |= dict.fromkeys(("structured", "plain"), (self.width, server.classes))
        step = STEP * torch.arange(server.classes, dtype=torch.float32)
        server.state["proxies"] = step.unsqueeze(1).expand(-1, self.width).clone()
        return {"model": linear_maps(shapes, source, "pygcn"), "proxies": server.state["proxies"]}

    def server(self, server: Server, uploads: Tree) -> Download:
        sent, classes, share = (torch.cat(uploads[name]) for name in ("prototypes", "classes", "counts"))
        server.state["proxies"] = weighted_mean(sent, classes, share, server.state["proxies"])
        return {"model": average(uploads["model"], server.weights), "proxies": server.state["proxies"]}

    # -- clients ------------------------------------------------------------------------------------------------------

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        most = max(1, *clients.batch.counts["train"])
        clients.state["proxies"] = torch.full((len(clients), most, self.width), START)

    def client(self, clients: ClientBatch) -> Tree:
        batch, rows = clients.batch, clients.batch.rows["train"]
        common = {name: value.clone() for name, value in clients.received["model"].items()}
        target, sure = self._targets(clients, common)

        def graph_loss(clients: ClientBatch) -> torch.Tensor:
            logits = clients.forward().logits
            distilled = clients.mean_over(kl(target, logits.log_softmax(1))[sure], sure)
            return clients.cross_entropy(logits) + self.lambda_1 * distilled

        clients.fit(graph_loss if self.lambda_1 else self.local_loss)
        with torch.no_grad():
            teacher = clients.forward(training=False).logits.log_softmax(1)

        def common_loss(clients: ClientBatch) -> torch.Tensor:
            code = encoded(common, batch)
            student = affine(common, "structured", code + self._own(clients, trained["proxies"]), batch).log_softmax(1)
            distilled = clients.mean_over(kl(teacher, student)[rows], rows)
            return clients.cross_entropy(affine(common, "plain", code, batch)) + distilled

        trained = {**common, "proxies": clients.state["proxies"]}
        clients.fit(common_loss, params=trained, name="common")
        return {"model": common, **self._class_proxies(clients)}

    @torch.no_grad()
    def _targets(self, clients: ClientBatch, common: Params) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities (N, C) of the structured classifier, and the rows of the nodes to distil."""
        batch = clients.batch
        code = encoded(common, batch)
        soft = affine(common, "plain", code, batch).softmax(1)
        guessed = segment_product(soft, clients.received["proxies"], batch.sizes)
        train = batch.masks["train"]
        z = torch.where(train.unsqueeze(1), self._own(clients, clients.state["proxies"]), guessed)
        sure = (train | (soft.max(1).values > self.sure)).nonzero().squeeze(1)
        return affine(common, "structured", code + z, batch).log_softmax(1), sure

    @staticmethod
    def _own(clients: ClientBatch, proxies: torch.Tensor) -> torch.Tensor:
        """Return (N, p) the proxies of training nodes, 0 for other nodes. proxies: (K, most, p)."""
        rows = clients.batch.rows["train"]
        trained = torch.cat([table[:n] for table, n in zip(proxies, clients.batch.counts["train"], strict=True)])
        return trained.new_zeros(len(clients.batch.label), trained.shape[1]).index_copy(0, rows, trained)

    def _class_proxies(self, clients: ClientBatch) -> Tree:
        """Return for each class of a client: the mean proxy of its training nodes, the class, and its share of them."""
        means, counts = class_means(self._own(clients, clients.state["proxies"]), clients.batch, clients.classes)
        held, proxies, shares = of_held(counts, means, counts / counts.sum(1, keepdim=True).clamp(min=1))
        return {"prototypes": proxies, "classes": held, "counts": shares}


def encoded(common: Params, batch: Batch) -> torch.Tensor:
    """Return e(x) (N, p)."""
    return torch.relu(affine(common, "encoder", batch.x, batch))
