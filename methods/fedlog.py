"""FedLoG: nodes are classified by condensed nodes of each class, which clients exchange and train on."""

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
    linear_maps,
    on_host,
    option,
    owners,
    placed,
    segment_product,
    stream,
    torch_source,
)
from .fedavg import FedAvg
from .parts.encoders import dropout_factors
from .parts.prototypes import class_counts

KINDS = ("head", "tail")
WIDTHS = (256, 512)  # hidden layers of the neighbour generator in the released code
RIGHT, STEP = 0.8, 1e-3  # above this accuracy on a class its lambda grows by STEP, else it falls by STEP


class LogSAGE(GraphSAGE):
    """GraphSAGE of widths d -> 2 h -> ... -> h, and s condensed nodes per class, "condensed.head" and "condensed.tail".

    A node's class scores of each kind are -|LayerNorm(z) - prototype_c|^2; prototype_c is the mean embedding of class
    c's condensed nodes, each with itself as neighbour. alpha = sigmoid(degree - threshold - 1) is the weight of "head".
    """

    condensed: int
    threshold: int

    def whole_only(self) -> str | None:
        return "nodes are weighted by degrees in whole graphs"

    def widths(self, features: int, classes: int) -> list[tuple[int, int]]:
        return list(pairwise([features, *[2 * self.hidden] * (self.layers - 1), self.hidden]))

    def embedder(self, generator: np.random.Generator, features: int) -> Params:
        source = torch_source(generator)
        params: Params = {}
        for i, (n_in, n_out) in enumerate(self.widths(features, 0)):
            params |= {f"{i}.{name}": v for name, v in self.init_layer(n_in, n_out, source, hidden=True).items()}
        return params

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        params = self.embedder(generator, features)
        source = torch_source(generator)
        for kind in KINDS:
            params |= {f"norm.{kind}.scale": torch.ones(self.hidden), f"norm.{kind}.shift": torch.zeros(self.hidden)}
            params[f"condensed.{kind}"] = glorot(classes * self.condensed, features, source)
        return params

    def embed(self, params: Params, batch: Batch, streams: Streams | None = None) -> list[torch.Tensor]:
        """Return the layers' outputs before activation; the last one, (N, h), is the embedding."""
        h: torch.Tensor | Features = batch.x.dropout(self.input_dropout, streams)
        outputs: list[torch.Tensor] = []
        for i in range(self.layers):
            if i:
                h = self.active(outputs[-1], batch.sizes, streams)
            outputs.append(self.whole_layer(params, i, h, batch))
        return outputs

    def embed_pairs(
        self, params: Params, nodes: torch.Tensor, neighbours: torch.Tensor | None, streams: Streams | None = None
    ) -> torch.Tensor:
        """Return embeddings (K, M, h) of nodes (K, M, d) with one neighbour each: `neighbours`, or the node itself."""
        for i in range(self.layers):
            if i:
                nodes = self._active(nodes, streams)
                neighbours = None if neighbours is None else self._active(neighbours, streams)
            weight, bias = params[f"{i}.weight"], params[f"{i}.bias"].unsqueeze(1)
            own, message = _multiply(nodes, weight).chunk(2, 2)
            if neighbours is None:
                nodes = own + message + bias
                continue
            neighbour_own, neighbour_message = _multiply(neighbours, weight).chunk(2, 2)
            nodes, neighbours = own + neighbour_message + bias, neighbour_own + message + bias
        return nodes

    def prototypes(self, params: Params, streams: Streams | None = None) -> list[torch.Tensor]:
        """Return the prototypes (K, C, h) of each kind."""
        means = []
        for kind in KINDS:
            z = self.embed_pairs(params, params[f"condensed.{kind}"], None, streams)
            means.append(z.view(len(z), -1, self.condensed, z.shape[2]).mean(2))
        return means

    def compare(
        self, params: Params, z: torch.Tensor, sizes: tuple[int, ...], prototypes: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Return log-probabilities (M, C) of each kind for rows z (M, h). sizes: rows per client."""
        owner, logs = owners(sizes), []
        for kind, points in zip(KINDS, prototypes, strict=True):
            scale, shift = params[f"norm.{kind}.scale"][owner], params[f"norm.{kind}.shift"][owner]
            q = F.layer_norm(z, z.shape[1:]) * scale + shift
            near = 2 * segment_product(q, points.transpose(1, 2), sizes) - points.square().sum(2)[owner]
            logs.append(near.log_softmax(1))  # without -|q|^2, which is equal for all classes
        return logs

    def lean(self, batch: Batch) -> torch.Tensor:
        """Return the logit (N, 1) of alpha."""
        return (batch.degrees.float() - self.threshold - 1).unsqueeze(1)

    def forward(self, params: Params, batch: Batch, streams: Streams | None = None) -> Forward:
        z = self.embed(params, batch, streams)[-1]
        head, tail = self.compare(params, z, batch.sizes, self.prototypes(params, streams))
        lean = self.lean(batch)
        logits = torch.logaddexp(head + F.logsigmoid(lean), tail + F.logsigmoid(-lean))
        return Forward(logits, [z], activate=lambda rows: rows)

    def _active(self, z: torch.Tensor, streams: Streams | None) -> torch.Tensor:
        return self.active(z.flatten(0, 1), (z.shape[1],) * len(z), streams).view_as(z)


def _multiply(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return rows (K, M, in) times weight (K, in, out), differentiable twice."""
    return torch.stack([client_rows @ w for client_rows, w in zip(rows, weight, strict=True)])


@METHODS.register("fedlog")
class FedLoG(FedAvg):
    """Kim et al., ICLR 2025 (arXiv 2503.03995): local generalisation by condensed nodes of all clients.

    Model: `LogSAGE`, with s condensed nodes of each class and kind as parameters. Clients keep theirs, and send those
    of "head", the kind for nodes of high degree.
    Once: client k trains a generator g_k (d -> 256 -> 512 -> d, tanh) that predicts the mean of a node's neighbours
    from the node, on its training nodes: squared error + lam_gradient times the squared difference between the
    gradients of a random GraphSAGE's cross-entropy on the graph and on pairs of node and generated neighbour. r_kc is
    the share of class c among k's training nodes, p_kc = r_kc / sum_k r_kc. The server sends g^c = sum_k p_kc g_k.
    Rounds: E epochs on  -mean over training nodes [alpha log p_head + (1 - alpha) log p_tail] of the node's class
        + lam_norm (|S_head| + |S_tail|) / 2   (Frobenius)
        + lam_global times -mean of (log p_head + log p_tail) / 2 of the global nodes x_ci, from the second round on,
          each with g^c's neighbour. Before, they are moved towards their mean by the factor lambda_c in [0, 1], which
          grows by 0.001 after a step with more than 0.8 correct predictions in class c, and else falls by 0.001.
    theta <- mean_k theta_k; x_ci = sum_k p_kc S_head,k,c,i, the i of each client in random order.
    Messages: g_k and r_k (C) up once, C generators down; then theta and condensed nodes, C s d values, up and down.
    Predicted: by the client's model after its epochs, argmax of alpha p_head + (1 - alpha) p_tail.

    Departures and readings. The released heads should update a node's embedding by messages from the condensed nodes,
    but a wrong index sends them to the condensed nodes and their result is not used, so a head is its layer norm, as
    here. The released code also never loads g^c and uses untrained ones; divides the sum of 20 random networks' terms
    by 20 after each, so the last has weight 1/20 (here one network, `lam_gradient`); trains model and classifier
    locally for up to 100 epochs, stopped by test accuracy, before the rounds (not here, because of the budget); sends
    unused values (S_tail, lambda). Here random networks have no dropout. Weight decay includes condensed nodes. Width
    h, depth, rate and epochs are the run's (released: 64, 2, 0.001, 1, minibatches of 64).
    """

    family = "personal"
    summary = "nodes are classified by condensed nodes of each class, which clients also exchange"
    title = "FedLoG"
    venue = "ICLR 2025"
    paper_url = "https://arxiv.org/abs/2503.03995"
    code_url = "https://github.com/sung-won-kim/FedLoG"
    tasks = ("node",)
    heterogeneous_features = False
    delivers = "personal"
    fixed_backbone = "sage"

    condensed: int = option(20, "s, condensed nodes per class (code: 20)", ge=1)
    threshold: int = option(3, "largest degree of a tail node (code: 3)", ge=0)
    lam_norm: float = option(1.0, "weight of the condensed nodes' norm (code: 1)", ge=0, tune=[0.01, 0.1, 1.0])
    lam_global: float = option(1.0, "weight of the global nodes (code: 1)", ge=0, tune=[0.1, 1.0])
    lam_gradient: float = option(0.05, "weight of the gradients' difference (code: 1/20, see above)", ge=0)
    generator_epochs: int = option(100, "epochs of the generator (code: 100)", ge=0)
    generator_lr: float = option(0.01, "Adam's learning rate for the generator (code: 0.01)", gt=0)
    generator_dropout: float = option(0.5, "dropout in the generator (code: 0.5)", ge=0, lt=1)
    uniform: bool = option(True, "mean of the models (released code), or by the configuration's `weighting`")

    def protocol(self, config: TrainConfig) -> TrainConfig:
        return config.model_copy(update={"weighting": "uniform"}) if self.uniform else config

    def adapt(self, backbone: Backbone) -> Backbone:
        return backbone.turned_into(LogSAGE, condensed=self.condensed, threshold=self.threshold)

    def phases(self, config: TrainConfig) -> list[Phase]:
        steps = Step(self.learn, self.gather), Step(self.keep, self.start)
        return [Phase(steps, 1, scored=False, name="neighbours", everyone=True), *super().phases(config)]

    def open(self, server: Server) -> Download:
        return {}

    # -- the generator of neighbours ----------------------------------------------------------------------------------

    def learn(self, clients: ClientBatch) -> Tree:
        """Train and upload each client's generator; also upload the class shares (K, C) of its training nodes."""
        batch = clients.batch
        with on_host():
            maps = {str(i): shape for i, shape in enumerate(pairwise((clients.features, *WIDTHS, clients.features)))}
            first = linear_maps(maps, torch_source(stream(clients.streams.seed, "neighbours")), "torch")
        learner = clients.learner(self.generator_lr)
        targets = placed(self._neighbour_means(batch)).split(batch.counts["train"])
        # One client at a time: Adam's rounding depends on the position in the stack of clients, and 100 steps with
        # gradients near 0 enlarge it to 2e-4.
        generators = [self._train_generator(learner.select([k]), first, mean.clone()) for k, mean in enumerate(targets)]
        generator = {name: torch.cat([params[name] for params in generators]) for name in first}
        counts = class_counts(batch, clients.classes)
        return {"generator": generator, "counts": counts / counts.sum(1, keepdim=True).clamp(min=1)}

    def _train_generator(self, learner: ClientBatch, first: Params, target: torch.Tensor) -> Params:
        """Return the generator (1, ...) of a single client. target: (n, d), for each training node."""
        batch, generator = learner.batch, {n: placed(v)[None].clone() for n, v in first.items()}
        nodes = batch.x.rows(batch.rows["train"].cpu(), batch.counts["train"]).dense()

        def loss(learner: ClientBatch) -> torch.Tensor:
            params = {name: value[0] for name, value in generator.items()}
            if not len(nodes):
                return torch.stack([value.sum() for value in params.values()]).sum(0, keepdim=True) * 0
            shape = len(nodes), WIDTHS[1]
            keep = dropout_factors(learner.streams, "neighbour dropout", shape, self.generator_dropout)
            made = neighbour(params, nodes, keep)
            error = F.mse_loss(made, target)
            if self.lam_gradient:
                error = error + self.lam_gradient * self._gradient_distance(learner, nodes, made)
            return error[None]

        trained = {f"neighbours.{name}": value for name, value in generator.items()}
        learner.fit(loss, self.generator_epochs, params=trained, name="neighbours")
        return generator

    @on_host()
    def _neighbour_means(self, batch: Batch) -> torch.Tensor:
        rows, x = batch.rows["train"].cpu().numpy(), batch.x.value
        means = batch.mean.scipy()[rows] @ (x.cpu().numpy() if isinstance(x, torch.Tensor) else x)
        return torch.from_numpy(means if isinstance(means, np.ndarray) else means.toarray()).float()

    def _gradient_distance(self, clients: ClientBatch, nodes: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        """Return the squared distance () of a random network's gradients on the graph and on pairs with neighbours
        `made`."""
        (backbone,), (source,) = clients.network.backbones, clients.streams("random networks")
        graph = clients.batch
        assert isinstance(backbone, LogSAGE)
        with on_host():
            drawn = backbone.embedder(source, clients.features)
            draws = torch_source(source)
            head = glorot(backbone.hidden, clients.classes, draws)
        weights, head = {n: placed(v).unsqueeze(0).requires_grad_(True) for n, v in drawn.items()}, placed(head)
        label = graph.label[graph.rows["train"]]
        true = F.cross_entropy(backbone.embed(weights, graph)[-1][graph.rows["train"]] @ head, label)
        wanted = torch.autograd.grad(true, list(weights.values()))
        pairs = backbone.embed_pairs(weights, nodes.unsqueeze(0), made.unsqueeze(0))[0]
        grads = torch.autograd.grad(F.cross_entropy(pairs @ head, label), list(weights.values()), create_graph=True)
        return torch.stack([F.mse_loss(a, b) for a, b in zip(grads, wanted, strict=True)]).sum()

    def gather(self, server: Server, uploads: Tree) -> Download:
        share = server.state["share"] = shares(uploads["counts"])
        generators = {n: torch.einsum("kc,k...->c...", share, v) for n, v in uploads["generator"].items()}
        return {"generators": generators}

    def keep(self, clients: ClientBatch) -> Tree:
        generators = {name: value[0].clone() for name, value in clients.received["generators"].items()}
        clients.state = {"generators": [generators] * len(clients)}  # one copy for all clients of a process
        clients.state["pull"] = torch.zeros(len(clients), clients.classes)
        return {}

    def start(self, server: Server, uploads: Tree) -> Download:
        return super().open(server)

    # -- the rounds -------------------------------------------------------------------------------------------------

    def shared(self, params: Params) -> Params:
        return {name: value for name, value in params.items() if not name.startswith("condensed.")}

    def client(self, clients: ClientBatch) -> Tree:
        return super().client(clients) | {"condensed": clients.params["condensed.head"]}

    def server(self, server: Server, uploads: Tree) -> Download:
        model = super().server(server, {"model": uploads["model"]})
        assert isinstance(model, dict)
        share = shares(server.state["share"][server.participants])
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
        """Return the loss (K,) of the global nodes; then update lambda."""
        count, pull = len(clients), clients.state["pull"]
        with torch.no_grad():
            nodes = clients.received["condensed"]  # (K, C, s, d)
            nodes = nodes + pull[:, :, None, None] * (nodes.mean((1, 2), keepdim=True) - nodes)
            made = zip(clients.state["generators"], nodes, strict=True)
            near = torch.stack([neighbour(generators, x) for generators, x in made])
        z = backbone.embed_pairs(clients.params, nodes.flatten(1, 2), near.flatten(1, 2), clients.streams)
        sizes = (z.shape[1],) * count
        head, tail = backbone.compare(clients.params, z.flatten(0, 1), sizes, prototypes)
        scores = ((head + tail) / 2).view(count, clients.classes, self.condensed, clients.classes)
        label = torch.arange(clients.classes)
        right = scores.argmax(3) == label[:, None]
        up = right.float().mean(2) > RIGHT
        clients.state["pull"] = (pull + torch.where(up, STEP, -STEP)).clamp(0, 1)
        return -scores[:, label, :, label].mean((0, 2))


def shares(weight: torch.Tensor) -> torch.Tensor:
    """Return the clients' shares (K, C) of each class, equal ones if no client has it. weight: (K, C)."""
    total = weight.sum(0)
    return torch.where(total > 0, weight / total.clamp(min=1e-12), 1 / len(weight))


def neighbour(params: Params, rows: torch.Tensor, keep: torch.Tensor | None = None) -> torch.Tensor:
    """Return generated neighbours of rows (..., n, d), by one generator, or by one per class (C, ...)."""
    for i in range(len(WIDTHS)):
        rows = torch.relu(rows @ params[f"{i}.weight"] + params[f"{i}.bias"].unsqueeze(-2))
    rows = rows if keep is None else rows * keep
    return torch.tanh(rows @ params[f"{len(WIDTHS)}.weight"] + params[f"{len(WIDTHS)}.bias"].unsqueeze(-2))
