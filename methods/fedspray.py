"""FedSpray: private graph networks, and a common model without edges that gets the surroundings of each class."""

from __future__ import annotations

from typing import Any

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
    linear_map,
    segment_product,
    segment_sum,
)
from ..registry import option
from .fedavg import LocalTraining
from .parts.dual import kl

START = 0.1  # of every entry of a node's proxy (released code)
STEP = 0.01  # from class to class in the server's first proxies (released code)


@METHODS.register("fedspray")
class FedSpray(LocalTraining):
    """Fu et al., KDD 2024 ("Federated Graph Learning with Structure Proxy Alignment"): private graph networks.

    All clients share, without edges, an encoder e(x) = ReLU(x W + b) of width p, a classifier f that sees e(x) + z and
    a plain one g that sees e(x); z is a structure proxy, of each class at the server, of each training node at its
    client. Client k, with the received ones and class proxies P: z_i = sum_c softmax(g(e(x_i)))_c P_c beyond its
    training nodes; then E epochs of its graph network h, of any architecture, on
        CE(h) + lambda_1 mean_i KL(softmax f(e(x_i) + z_i) || softmax h_i),
    i the training nodes and the nodes of which g is surer than `sure`; then with h fixed E epochs of e, f, g and the
    proxies of its training nodes on CE(g) + mean over training nodes of KL(softmax h || softmax f(e + z)).
    Server: e, f, g averaged, with weights by the training configuration's `weighting`; P_c the mean of the clients'
    mean proxies of class c, weighted by that class's share of each client's training nodes. The graph networks stay.
    Messages: up e, f, g, for each of the C_k classes that the client has a proxy (p), the class and its share; down
    e, f, g and (C, p). Scored: each client's graph network. lambda_1 = 0 is local training. A client takes twice the
    steps of FedAvg, each parameter as many.

    From the released code, the paper's text was not available. Departures: the code has a rate of its own for proxies
    (Adam, 0.02; here the run's optimiser for all), overwrites g at each client by f, and trains GraphSAGE; a class
    that no client has keeps its proxy.
    """

    family = "distillation"
    summary = "private graph networks taught by a common model without edges that gets each class's surroundings"
    title = "FedSpray"
    venue = "KDD 2024"
    code_url = "https://github.com/xbfu/FedSpray"
    tasks = ("node",)
    delivers = "personal"
    heterogeneous = True

    lambda_1: float = option(5.0, "weight of the common model's teaching (code: 1 to 5)", ge=0, tune=[0.1, 1, 5])
    width: int = option(64, "p, width of proxies and encoder (code: 64)", ge=1)
    sure: float = option(0.7, "least probability of a node that teaches (code: 0.7)", ge=0, le=1)

    # -- server -------------------------------------------------------------------------------------------------------

    def open(self, server: Server) -> Download:
        source = torch.Generator().manual_seed(int(server.generator.integers(2**63)))
        shapes = {"encoder": (server.features, self.width)}
        shapes |= dict.fromkeys(("structured", "plain"), (self.width, server.classes))
        model: Params = {}
        for name, shape in shapes.items():
            model[f"{name}.weight"], model[f"{name}.bias"] = linear_map(*shape, source, "torch")
        step = STEP * torch.arange(server.classes, dtype=torch.float32)
        server.state["proxies"] = step.unsqueeze(1).expand(-1, self.width).clone()
        return {"model": model, "proxies": server.state["proxies"]}

    def server(self, server: Server, uploads: Tree) -> Download:
        sent, classes, share = (torch.cat(uploads[name]) for name in ("prototypes", "classes", "counts"))
        total = segment_sum(sent * share.unsqueeze(1), classes, server.classes)
        mass = segment_sum(share, classes, server.classes).unsqueeze(1)
        old = server.state["proxies"]
        server.state["proxies"] = torch.where(mass > 0, total / mass.masked_fill(mass == 0, 1), old)
        return {"model": average(uploads["model"], server.weights), "proxies": server.state["proxies"]}

    # -- clients ------------------------------------------------------------------------------------------------------

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        most = max(1, *clients.batch.counts["train"])
        clients.state["proxies"] = torch.full((len(clients), most, self.width), START)

    def client(self, clients: ClientBatch) -> Tree:
        batch, rows = clients.batch, clients.batch.rows["train"]
        common = {name: value.clone() for name, value in clients.received["model"].items()}
        target, sure = self._teaching(clients, common)

        def taught(clients: ClientBatch) -> torch.Tensor:
            logits = clients.forward().logits
            apart = clients.mean_over(kl(target, logits.log_softmax(1))[sure], sure)
            return clients.cross_entropy(logits) + self.lambda_1 * apart

        clients.fit(taught if self.lambda_1 else self.local_loss)
        with torch.no_grad():
            seen = clients.forward(training=False).logits.log_softmax(1)

        def teaching(clients: ClientBatch) -> torch.Tensor:
            code = encoded(common, batch)
            told = affine(common, "structured", code + self._own(clients, trained["proxies"]), batch).log_softmax(1)
            apart = clients.mean_over(kl(seen, told)[rows], rows)
            return clients.cross_entropy(affine(common, "plain", code, batch)) + apart

        trained = {**common, "proxies": clients.state["proxies"]}
        clients.fit(teaching, params=trained, name="common")
        return {"model": common, **self._told(clients)}

    @torch.no_grad()
    def _teaching(self, clients: ClientBatch, common: Params) -> tuple[torch.Tensor, torch.Tensor]:
        """(N, C) log-probabilities of the structured classifier, and the rows of the nodes that teach."""
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
        """(N, p) the proxies of training nodes in their rows, 0 elsewhere. proxies: (K, most, p)."""
        rows = clients.batch.rows["train"]
        trained = torch.cat([table[:n] for table, n in zip(proxies, clients.batch.counts["train"], strict=True)])
        return trained.new_zeros(len(clients.batch.label), trained.shape[1]).index_copy(0, rows, trained)

    @staticmethod
    def _told(clients: ClientBatch) -> dict[str, Any]:
        """Of each class that a client has: the mean proxy of its training nodes, the class, and its share of them."""
        label = clients.batch.label[clients.batch.rows["train"]].split(clients.batch.counts["train"])
        uploads: dict[str, Any] = {"prototypes": [], "classes": [], "counts": []}
        for labels, proxies in zip(label, clients.state["proxies"], strict=True):
            many = torch.bincount(labels, minlength=clients.classes)
            held = many.nonzero().squeeze(1)
            means = segment_sum(proxies[: len(labels)], labels, clients.classes)[held] / many[held].unsqueeze(1)
            uploads["prototypes"].append(means)
            uploads["classes"].append(held)
            uploads["counts"].append(many[held] / max(len(labels), 1))
        return uploads


def encoded(common: Params, batch: Batch) -> torch.Tensor:
    """(N, p) e(x)."""
    return torch.relu(affine(common, "encoder", batch.x, batch))
