"""FedLoG: nodes are compared with condensed nodes of each class; those of all clients are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F

from ..benchmark.engine import (
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
    Download,
    Features,
    Forward,
    GraphSAGE,
    Params,
    Phase,
    Server,
    Step,
    Streams,
    TrainConfig,
    Tree,
    glorot,
    linear_map,
    on_host,
    owners,
    placed,
    rate,
    segment_product,
    stream,
)
from ..registry import option
from .fedavg import FedAvg

KINDS = ("head", "tail")
WIDTHS = (256, 512)  # hidden layers of the generator of neighbours in the released code
RIGHT, STEP = 0.8, 1e-3  # accuracy on a class from which its global nodes are made harder, and by how much a step


class LogSAGE(GraphSAGE):
    """GraphSAGE of widths d -> 2 h -> ... -> h, and s condensed nodes "condensed.head", "condensed.tail" of each class.

    A node's class scores of a kind are -|LayerNorm(z) - prototype_c|^2, prototype_c the mean embedding of class c's
    condensed nodes, each with itself as neighbour. alpha = sigmoid(degree - threshold - 1) is the weight of "head".
    """

    condensed: int
    threshold: int

    def whole_only(self) -> str | None:
        return "nodes are weighted by degrees in whole graphs"

    def widths(self, features: int, classes: int) -> list[tuple[int, int]]:
        return list(pairwise([features, *[2 * self.hidden] * (self.layers - 1), self.hidden]))

    def embedder(self, generator: np.random.Generator, features: int) -> Params:
        source = torch.Generator().manual_seed(int(generator.integers(2**63)))
        params: Params = {}
        for i, (n_in, n_out) in enumerate(self.widths(features, 0)):
            params |= {f"{i}.{name}": v for name, v in self.init_layer(n_in, n_out, source, hidden=True).items()}
        return params

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        params = self.embedder(generator, features)
        source = torch.Generator().manual_seed(int(generator.integers(2**63)))
        for kind in KINDS:
            params[f"norm.{kind}.scale"], params[f"norm.{kind}.shift"] = (
                torch.ones(self.hidden),
                torch.zeros(self.hidden),
            )
            params[f"condensed.{kind}"] = glorot(classes * self.condensed, features, source)
        return params

    def embed(self, params: Params, batch: Batch, streams: Streams | None = None) -> list[torch.Tensor]:
        """The layers' outputs before activation, the last (N, h) the embedding."""
        h: torch.Tensor | Features = batch.x if streams is None else batch.x.dropout(self.input_dropout, streams)
        outputs: list[torch.Tensor] = []
        for i in range(self.layers):
            if i:
                h = self.active(outputs[-1], batch.sizes, streams)
            outputs.append(self.whole_layer(params, i, h, batch))
        return outputs

    def embed_pairs(
        self, params: Params, nodes: torch.Tensor, neighbours: torch.Tensor | None, streams: Streams | None = None
    ) -> torch.Tensor:
        """(K, M, h) embeddings of nodes own (K, M, d), each with one neighbour, other (K, M, d) or itself."""
        for i in range(self.layers):
            if i:
                nodes = self._active(nodes, streams)
                neighbours = None if neighbours is None else self._active(neighbours, streams)
            weight, bias = params[f"{i}.weight"], params[f"{i}.bias"].unsqueeze(1)
            mine, to_other = _each(nodes, weight).chunk(2, 2)
            if neighbours is None:
                nodes = mine + to_other + bias
                continue
            its, to_own = _each(neighbours, weight).chunk(2, 2)
            nodes, neighbours = mine + to_own + bias, its + to_other + bias
        return nodes

    def prototypes(self, params: Params, streams: Streams | None = None) -> list[torch.Tensor]:
        """Of each kind (K, C, h)."""
        means = []
        for kind in KINDS:
            z = self.embed_pairs(params, params[f"condensed.{kind}"], None, streams)
            means.append(z.view(len(z), -1, self.condensed, z.shape[2]).mean(2))
        return means

    def compare(
        self, params: Params, z: torch.Tensor, sizes: tuple[int, ...], prototypes: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Of each kind (M, C) log-probabilities of rows z (M, h), `sizes` of each client."""
        owner, logs = owners(sizes), []
        for kind, points in zip(KINDS, prototypes, strict=True):
            scale, shift = params[f"norm.{kind}.scale"][owner], params[f"norm.{kind}.shift"][owner]
            q = F.layer_norm(z, z.shape[1:]) * scale + shift
            near = 2 * segment_product(q, points.transpose(1, 2), sizes) - points.square().sum(2)[owner]
            logs.append(near.log_softmax(1))  # |q|^2 is the same for all classes
        return logs

    def lean(self, batch: Batch) -> torch.Tensor:
        """(N, 1) whose sigmoid is alpha."""
        return (batch.degrees.float() - self.threshold - 1).unsqueeze(1)

    def forward(self, params: Params, batch: Batch, streams: Streams | None = None) -> Forward:
        z = self.embed(params, batch, streams)[-1]
        head, tail = self.compare(params, z, batch.sizes, self.prototypes(params, streams))
        lean = self.lean(batch)
        logits = torch.logaddexp(head + F.logsigmoid(lean), tail + F.logsigmoid(-lean))
        return Forward(logits, [z], activate=lambda rows: rows)

    def _active(self, z: torch.Tensor, streams: Streams | None) -> torch.Tensor:
        return self.active(z.flatten(0, 1), (z.shape[1],) * len(z), streams).view_as(z)


def _each(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """(K, M, in) x (K, in, out) -> (K, M, out), with gradients of gradients."""
    return torch.stack([client_rows @ w for client_rows, w in zip(rows, weight, strict=True)])


@METHODS.register("fedlog")
class FedLoG(FedAvg):
    """Kim et al., ICLR 2025 (arXiv 2503.03995): local generalisation by condensed nodes of all clients.

    Model: `LogSAGE`, with s condensed nodes of each class and kind as parameters; a client keeps its own, and sends
    those of "head", the kind for nodes of high degree.
    Once: client k learns a generator g_k (d -> 256 -> 512 -> d, tanh) of the mean of a node's neighbours, from the
    node, on its training nodes: squared error + lam_gradient times the squared difference of the gradients of a random
    GraphSAGE's cross-entropy on the graph and on pairs of node and generated neighbour. With r_kc the share of class c
    among the training nodes of k, p_kc = r_kc / sum_k r_kc: the server sends g^c = sum_k p_kc g_k for each class.
    Rounds: E epochs on  -mean over training nodes [alpha log p_head + (1 - alpha) log p_tail] of the node's class
        + lam_norm (|S_head| + |S_tail|) / 2   (Frobenius)
        + lam_global times -mean of (log p_head + log p_tail) / 2 of the global nodes x_ci, from the second round on,
          each with g^c's neighbour. They are pulled towards their mean by lambda_c in [0, 1] first, which grows by
          0.001 in a step in which more than 0.8 of class c's are right, else falls.
    theta <- mean_k theta_k; x_ci = sum_k p_kc S_head,k,c,i, the i of each client in random order.
    Messages: g_k and r_k (C) up once, C generators down; then theta and condensed nodes, C s d values, up and down.
    Predicted: by the client's model after its epochs, argmax of alpha p_head + (1 - alpha) p_tail.

    Departures and readings. The released heads move a node's embedding by messages from the condensed nodes; by an
    index these reach the condensed nodes and their result is dropped, so that a head is its layer norm, as here. It
    also never loads g^c and uses fresh ones; divides the sum of 20 random networks' terms by 20 after each, which
    leaves the last with 1/20 (one network here, `lam_gradient`); trains model and classifier alone for 100 epochs,
    chosen by test accuracy, before the rounds (none here: the budget); sends what no one reads (S_tail, lambda). Random
    networks have no dropout here. Decay acts on condensed nodes too. Width h, depth, rate and epochs are the cell's
    (released: 64, 2, 0.001, 1, minibatches of 64).
    """

    family = "personal"
    summary = "nodes are compared with condensed nodes of each class, which are also exchanged"
    title = "FedLoG"
    venue = "ICLR 2025"
    paper_url = "https://arxiv.org/abs/2503.03995"
    code_url = "https://github.com/sung-won-kim/FedLoG"
    tasks = ("node",)
    heterogeneous_features = False
    delivers = "personal"
    fixed_backbone = "sage"

    condensed: int = option(20, "s, condensed nodes of a class (code: 20)", ge=1)
    threshold: int = option(3, "degree up to which a node is of the tail (code: 3)", ge=0)
    lam_norm: float = option(1.0, "weight of the condensed nodes' norm (code: 1)", ge=0, tune=[0.01, 0.1, 1.0])
    lam_global: float = option(1.0, "weight of the global nodes (code: 1)", ge=0, tune=[0.1, 1.0])
    lam_gradient: float = option(0.05, "weight of the gradients' difference (code: 1/20, see above)", ge=0)
    generator_epochs: int = option(100, "epochs of the generator (code: 100)", ge=0)
    generator_lr: float = option(0.01, "Adam's rate for the generator (code: 0.01)", gt=0)
    generator_dropout: float = option(0.5, "dropout in the generator (code: 0.5)", ge=0, lt=1)
    uniform: bool = option(True, "mean of the models (released code), or by the configuration's `weighting`")

    def protocol(self, config: TrainConfig) -> TrainConfig:
        return config.model_copy(update={"weighting": "uniform"}) if self.uniform else config

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        return [
            backbone.turned_into(LogSAGE, condensed=self.condensed, threshold=self.threshold)
            for backbone in super().architecture(backbones)
        ]

    def phases(self, config: TrainConfig) -> list[Phase]:
        steps = Step(self.learn, self.gather), Step(self.keep, self.start)
        return [Phase(steps, 1, scored=False, name="neighbours", everyone=True), *super().phases(config)]

    def open(self, server: Server) -> Download:
        return {}

    # -- the generator of neighbours ----------------------------------------------------------------------------------

    def learn(self, clients: ClientBatch) -> Tree:
        """Each client's generator, and the shares of classes (K, C) among its training nodes."""
        batch = clients.batch
        with on_host():
            source = torch.Generator().manual_seed(int(stream(clients.streams.seed, "neighbours").integers(2**63)))
            first: Params = {}
            for i, (n_in, n_out) in enumerate(pairwise((clients.features, *WIDTHS, clients.features))):
                first[f"{i}.weight"], first[f"{i}.bias"] = linear_map(n_in, n_out, source, "torch")
        learner = clients.learner(self.generator_lr)
        around = placed(self._around(batch)).split(batch.counts["train"])
        # One client at a time: Adam's rounding depends on where a number is in its stack, and 100 steps with
        # gradients near 0 turn it into 2e-4.
        generators = [self._generator(learner.select([k]), first, means.clone()) for k, means in enumerate(around)]
        generator = {name: torch.cat([params[name] for params in generators]) for name in first}
        owner, label = batch.owner[batch.rows["train"]], batch.label[batch.rows["train"]]
        counts = torch.bincount(owner * clients.classes + label, minlength=len(clients) * clients.classes)
        counts = counts.view(len(clients), -1).float()
        return {"generator": generator, "classes": counts / counts.sum(1, keepdim=True).clamp(min=1)}

    def _generator(self, learner: ClientBatch, first: Params, around: torch.Tensor) -> Params:
        """(1, ...) the generator of a single client. around: (n, d) what it is to say of each training node."""
        batch, generator = learner.batch, {n: placed(v)[None].clone() for n, v in first.items()}
        nodes = batch.x.rows(batch.rows["train"].cpu(), batch.counts["train"]).dense()

        def loss(learner: ClientBatch) -> torch.Tensor:
            params = {name: value[0] for name, value in generator.items()}
            if not len(nodes):
                return torch.stack([value.sum() for value in params.values()]).sum(0, keepdim=True) * 0
            made = neighbour(params, nodes, self._kept(learner.streams, len(nodes)))
            error = F.mse_loss(made, around)
            if self.lam_gradient:
                error = error + self.lam_gradient * self._apart(learner, nodes, made)
            return error[None]

        trained = {f"neighbours.{name}": value for name, value in generator.items()}
        learner.fit(loss, self.generator_epochs, params=trained, name="neighbours")
        return generator

    @on_host()
    def _around(self, batch: Batch) -> torch.Tensor:
        """(n, d) the mean features of each training node's neighbours."""
        rows, x = batch.rows["train"].cpu().numpy(), batch.x.value
        means = batch.mean.scipy()[rows] @ (x.cpu().numpy() if isinstance(x, torch.Tensor) else x)
        return torch.from_numpy(means if isinstance(means, np.ndarray) else means.toarray()).float()

    def _kept(self, streams: Streams, nodes: int) -> torch.Tensor:
        kept = streams.keep("neighbour dropout", [nodes * WIDTHS[1]], self.generator_dropout).view(nodes, WIDTHS[1])
        return kept.float() / (1 - rate(self.generator_dropout))

    def _apart(self, clients: ClientBatch, nodes: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        """() how far the gradients of a random network are from each other, of the graph and of pairs."""
        (backbone,), (source,) = clients.network.backbones, clients.streams("random networks")
        graph = clients.batch
        assert isinstance(backbone, LogSAGE)
        with on_host():
            drawn = backbone.embedder(source, clients.features)
            draws = torch.Generator().manual_seed(int(source.integers(2**63)))
            head = glorot(backbone.hidden, clients.classes, draws)
        weights, head = {n: placed(v).unsqueeze(0).requires_grad_(True) for n, v in drawn.items()}, placed(head)
        label = graph.label[graph.rows["train"]]
        true = F.cross_entropy(backbone.embed(weights, graph)[-1][graph.rows["train"]] @ head, label)
        wanted = torch.autograd.grad(true, list(weights.values()))
        pairs = backbone.embed_pairs(weights, nodes.unsqueeze(0), made.unsqueeze(0))[0]
        grads = torch.autograd.grad(F.cross_entropy(pairs @ head, label), list(weights.values()), create_graph=True)
        return torch.stack([F.mse_loss(a, b) for a, b in zip(grads, wanted, strict=True)]).sum()

    def gather(self, server: Server, uploads: Tree) -> Download:
        share = uploads["classes"]
        total = share.sum(0)
        share = torch.where(total > 0, share / total.clamp(min=1e-12), 1 / len(share))
        server.state["share"] = share
        generators = {n: torch.einsum("kc,k...->c...", share, v) for n, v in uploads["generator"].items()}
        return {"generators": generators}

    def keep(self, clients: ClientBatch) -> Tree:
        generators = {name: value[0].clone() for name, value in clients.received["generators"].items()}
        clients.state = {"generators": [Held(generators)] * len(clients)}
        clients.state["pull"] = torch.zeros(len(clients), clients.classes)
        return {}

    def start(self, server: Server, uploads: Tree) -> Download:
        server.state["model"] = crossing(server.initial_model())
        return {"model": server.state["model"]}

    # -- the rounds -------------------------------------------------------------------------------------------------

    def client(self, clients: ClientBatch) -> Tree:
        clients.load(clients.received["model"])
        clients.fit(self.local_loss)
        return {"model": crossing(clients.params), "condensed": clients.params["condensed.head"]}

    def server(self, server: Server, uploads: Tree) -> Download:
        model = super().server(server, {"model": uploads["model"]})
        assert isinstance(model, dict)
        share = server.state["share"][server.participants]
        share = torch.where(share.sum(0) > 0, share / share.sum(0).clamp(min=1e-12), 1 / len(share))
        nodes = uploads["condensed"].unflatten(1, (server.classes, self.condensed))
        order = [server.generator.permutation(self.condensed) for _ in nodes]
        nodes = torch.stack(
            [client_nodes[:, placed(torch.from_numpy(by))] for client_nodes, by in zip(nodes, order, strict=True)]
        )
        return model | {"condensed": torch.einsum("kc,kcsd->csd", share, nodes)}

    def global_model(self, server: Server) -> Params | None:
        return None

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        (backbone,), params, batch = clients.network.backbones, clients.params, clients.batch
        assert isinstance(backbone, LogSAGE)
        prototypes = backbone.prototypes(params, clients.streams)
        z, rows = backbone.embed(params, batch, clients.streams)[-1], batch.rows["train"]
        head, tail = (scores[rows] for scores in backbone.compare(params, z, batch.sizes, prototypes))
        alpha = backbone.lean(batch)[rows].sigmoid()
        right = (alpha * head + (1 - alpha) * tail).gather(1, batch.label[rows].unsqueeze(1)).squeeze(1)
        norms = torch.stack([params[f"condensed.{kind}"].flatten(1).norm(dim=1) for kind in KINDS])
        loss = clients.mean_over(-right, rows) + self.lam_norm * norms.mean(0)
        if "condensed" in clients.received and self.lam_global:
            loss = loss + self.lam_global * self._global_loss(clients, backbone, prototypes)
        return loss

    def _global_loss(self, clients: ClientBatch, backbone: LogSAGE, prototypes: Sequence[torch.Tensor]) -> torch.Tensor:
        """(K,) of the global nodes; lambda moves after it."""
        count, pull = len(clients), clients.state["pull"]
        with torch.no_grad():
            nodes = clients.received["condensed"]  # (K, C, s, d)
            nodes = nodes + pull[:, :, None, None] * (nodes.mean((1, 2), keepdim=True) - nodes)
            held = [state.generators for state in clients.state["generators"]]
            near = torch.stack([neighbour(generator, x) for generator, x in zip(held, nodes, strict=True)])
        z = backbone.embed_pairs(clients.params, nodes.flatten(1, 2), near.flatten(1, 2), clients.streams)
        sizes = (z.shape[1],) * count
        head, tail = backbone.compare(clients.params, z.flatten(0, 1), sizes, prototypes)
        scores = ((head + tail) / 2).view(count, clients.classes, self.condensed, clients.classes)
        label = torch.arange(clients.classes)
        right = scores.argmax(3) == label[:, None]
        up = right.float().mean(2) > RIGHT
        clients.state["pull"] = (pull + torch.where(up, STEP, -STEP)).clamp(0, 1)
        return -scores[:, label, :, label].mean((0, 2))


class Held:
    """The generators of all classes, (C, ...), which clients that share a machine hold once."""

    def __init__(self, generators: Params) -> None:
        self.generators = generators


def crossing(params: Params) -> Params:
    """What is averaged: all but condensed nodes."""
    return {name: value for name, value in params.items() if not name.startswith("condensed.")}


def neighbour(params: Params, rows: torch.Tensor, keep: torch.Tensor | None = None) -> torch.Tensor:
    """(..., d) generated neighbours of rows (..., n, d), by a generator or, (C, ...), one for each class."""
    for i in range(len(WIDTHS)):
        rows = torch.relu(rows @ params[f"{i}.weight"] + params[f"{i}.bias"].unsqueeze(-2))
    last = len(WIDTHS)
    rows = rows if keep is None else rows * keep
    return torch.tanh(rows @ params[f"{last}.weight"] + params[f"{last}.bias"].unsqueeze(-2))
