"""FedDEP: generated embeddings of missing neighbours, from prototypes that clients exchange once."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np
import torch

from ..benchmark.engine import (
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
    Download,
    Features,
    Forward,
    GraphSAGE,
    NodeClient,
    Params,
    Phase,
    Server,
    Step,
    Streams,
    TrainConfig,
    Tree,
    affine,
    glorot,
    k_means,
    linear_maps,
    on_host,
    option,
    placed,
    torch_source,
)
from .fedsage import Generation, Impaired, NeighGen, Turn, first_hidden, hide, impair, match
from .parts.encoders import linear


class FusedSAGE(GraphSAGE):
    """GraphSAGE that adds M_i(... M_1(m_v)) to the output of layer i before the activation. m_v (width): the sum of a
    node's generated embeddings divided by P, 0 without any; M_i: linear maps "mend.i"."""

    width: int

    def whole_only(self) -> str | None:
        return "the embeddings of missing neighbours need whole graphs"

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        params = super().init(generator, features, classes)
        widths = [self.width, *(n_out for _, n_out in self.widths(features, classes))]
        maps = {f"mend.{i}": shape for i, shape in enumerate(pairwise(widths))}
        return params | linear_maps(maps, torch_source(generator), "torch")

    def forward(self, params: Params, batch: Batch, streams: Streams | None = None) -> Forward:
        return self.fused(params, batch, torch.zeros(len(batch.label), self.width), streams)

    def fused(self, params: Params, batch: Batch, mended: torch.Tensor, streams: Streams | None = None) -> Forward:
        """Return the forward pass with m_v, `mended` (N, width). streams: given in training only."""
        pre: list[torch.Tensor] = []
        h: torch.Tensor | Features = batch.x.dropout(self.input_dropout, streams)
        for i in range(self.layers):
            mended = linear(params, f"mend.{i}", mended, batch.sizes)
            z = self.whole_layer(params, i, h, batch) + mended
            if i == self.layers - 1 and not self.linear_head:
                return Forward(z, pre)
            pre.append(z)
            h = self.active(z, batch.sizes, streams)
        return Forward(affine(params, "head", h, batch), pre)


@METHODS.register("feddep")
class FedDEP(Generation):
    """Zhang, Sun, Ding, Yiu, Yang, SDM 2024 (arXiv 2401.04336): deep, efficient and private neighbour generation.

    As FedSage+ (see there: H^e, dGen, fGen, hidden nodes), with three differences. The generator predicts an embedding
    of a missing neighbour's surroundings instead of its features. Clients exchange prototypes once instead of gradients
    in each epoch. The classifier is `FusedSAGE`: no node is added.

    1. Client k trains an encoder on the mean cross-entropy: GraphSAGE d -> e -> e, then tanh, dropout and a linear map.
       k-means divides its nodes' embeddings into K clusters; the prototype omega_kc is the mean of cluster c.
    2. It hides a share of its validation nodes. It uploads its prototypes and, per node, P cluster numbers: those of
       its first P hidden neighbours, and its own in the other slots. The server sends all uploads to all clients.
    3. Each client trains its generator: `generator_epochs` on
       L = a SmoothL1(n~, n) + b/(P e |T|) sum_i sum_{p <= n~_i} min_{q <= n_i} ||x~_ip - omega_iq||^2 + c CE,
       then `exchange_epochs` in which only fGen is trained, on L + b sum_{j != k} L_kj. In L_kj the targets of each
       training node i are the prototypes of P slots, drawn with replacement, of a random node of client j.
    4. m_v = 1/P times the sum of round(n~_v) <= P generated embeddings. Then FedAvg of the classifier.
    Messages: once K e values and N_k P numbers up, those of all clients down; in the rounds theta up and down. The
    numbers reveal which nodes of a client are similar to each other and to hidden neighbours.

    Departures and readings. The released code clusters by DEC: k-means on an autoencoder's codes, then ten epochs of
    training; here k-means on the embeddings. It applies the softmax twice in the encoder's loss, and dropout to class
    scores. It samples 5 neighbours per layer and minibatches of nodes, which gives the paper's noise-free edge-level
    privacy; here neighbourhoods are whole, so that guarantee does not hold. It sends gradients in each exchange, as
    FedSage+; prototypes are exchanged once in the paper and in FedGB's code. Both codes compute L_kj over all nodes of
    the impaired graph, here over training nodes. Hidden nodes get m = 0 there; here the generator uses the whole graph
    after training. It scores with m = 0 (`score_on`). Width and depth of the classifier,
    rate and epochs are the run's (released: 128, 2, FederatedScope's defaults).
    """

    family = "generation"
    summary = "GraphSAGE with generated embeddings of missing neighbours, from prototypes that are exchanged once"
    title = "FedDEP"
    venue = "SDM 2024"
    paper_url = "https://arxiv.org/abs/2401.04336"
    code_url = "https://github.com/zkzhangke/FedDEP"
    tasks = ("node",)
    heterogeneous_features = False
    fixed_backbone = "sage"

    embedding: int = option(128, "width e of embeddings (released code: 128)", ge=1)
    prototypes: int = option(5, "K, clusters per client (released code: 5)", ge=1, tune=[5, 10, 20])
    encoder_epochs: int = option(50, "epochs of the encoder (released code: 50)", ge=0)
    encoder_lr: float = option(0.01, "Adam's learning rate for the encoder (released code: 0.01)", gt=0)
    encoder_decay: float = option(5e-4, "L2 penalty for the encoder (released code: 5e-4)", ge=0)
    generator_hidden: int = option(128, "width of H^e (released code: 128)", ge=1)
    generator_epochs: int = option(
        20, "local epochs of the generator (FedSage+'s: 20; released code: 1, FedGB: 2)", ge=0
    )
    exchange_epochs: int = option(
        20, "epochs with the others' prototypes (FedSage+'s: 20; released code: 3)", ge=0, tune=[3, 20]
    )
    generator_lr: float = option(1e-3, "Adam's learning rate for NeighGen (FedSage+'s; released code: SGD, 0.1)", gt=0)
    generator_decay: float = option(1e-4, "L2 penalty for NeighGen (FedSage+'s)", ge=0)
    feature_loss: Literal["sum", "mean"] = option(
        "mean", "squared norm, or its mean over the P e entries (released code)"
    )

    score_on: Literal["mended", "own"] = option(
        "mended", "score clients' nodes with m_v (FedGB's code), or with m = 0 (released code)"
    )

    def adapt(self, backbone: Backbone) -> Backbone:
        return backbone.turned_into(FusedSAGE, width=self.embedding)

    @property
    def generator(self) -> NeighGen:
        encoder = GraphSAGE(hidden=self.generator_hidden, layers=2, dropout=self.generator_dropout)
        return NeighGen(encoder, self.latent, self.neighbours, self.generator_dropout, self.embedding)

    def phases(self, config: TrainConfig) -> list[Phase]:
        steps = Step(self.describe, self.share), Step(self.generate)
        start = Phase(steps, 1, scored=False, name="generator", everyone=True)
        return [start] * (self.neighbours > 0) + super().phases(config)

    # -- prototypes -------------------------------------------------------------------------------------------------

    def describe(self, clients: ClientBatch) -> Tree:
        """Upload each client's prototypes (K, e) and the clusters (n, P) of its nodes' slots."""
        clients.load(clients.received["model"])
        embeddings = self.embed(clients)
        clients.state["impaired"], uploads = [], []
        with on_host():
            seeds = [int(source.integers(2**31)) for source in clients.streams("clusters")]
            hiding = clients.streams("hidden nodes")
            for member, embedding, seed, source in zip(clients.members, embeddings, seeds, hiding, strict=True):
                hidden = hide(member, self.hidden_share, source)
                prototypes, of_node = clustered(embedding, self.prototypes, seed)
                uploads.append((prototypes, slots_of(member, hidden, of_node, self.neighbours)))
                clients.state["impaired"].append(impair(member, hidden, self.neighbours, prototypes[of_node]))
        return {
            "prototypes": [placed(prototypes) for prototypes, _ in uploads],
            "clusters": [placed(slots) for _, slots in uploads],
        }

    def embed(self, clients: ClientBatch) -> list[torch.Tensor]:
        """Train the encoder; return the embeddings (n, e) of each client's nodes, on the host."""
        encoder = GraphSAGE(hidden=self.embedding, layers=2, dropout=self.generator_dropout)
        starts = []
        with on_host():
            for source in clients.streams("encoder"):
                start = encoder.init(source, clients.features, self.embedding)
                head = torch_source(source)
                start |= {"class.weight": glorot(self.embedding, clients.classes, head)}
                starts.append(start | {"class.bias": torch.zeros(clients.classes)})
        params = {name: placed(torch.stack([start[name] for start in starts])) for name in starts[0]}
        learner = clients.learner(self.encoder_lr, self.encoder_decay)

        def loss(batch: ClientBatch) -> torch.Tensor:
            coded = torch.tanh(encoder.forward(params, batch.batch, batch.streams).logits)
            kept = batch.streams.keep(
                "encoder dropout", [n * self.embedding for n in batch.batch.sizes], self.generator_dropout
            )
            coded = coded * kept.view(coded.shape) / (1 - self.generator_dropout)
            return batch.cross_entropy(affine(params, "class", coded, batch.batch))

        trained = {f"encoder.{name}": value for name, value in params.items()}
        learner.fit(loss, self.encoder_epochs, params=trained, name="encoder")
        with torch.no_grad():
            embeddings = torch.tanh(encoder.forward(params, learner.batch).logits)
        return [embedding.cpu().clone() for embedding in embeddings.split(learner.batch.sizes)]

    def share(self, server: Server, uploads: Tree) -> Download:
        """Send all prototypes (M, e), the rows of the prototypes (N, P) of all nodes, and the clients' node counts."""
        prototypes = uploads["prototypes"]
        first = np.cumsum([0, *[len(of_client) for of_client in prototypes]])
        clusters = [slots + int(start) for slots, start in zip(uploads["clusters"], first[:-1], strict=True)]
        nodes = torch.tensor([len(slots) for slots in clusters])
        return {"prototypes": torch.cat(prototypes), "clusters": torch.cat(clusters), "nodes": nodes}

    # -- generators -------------------------------------------------------------------------------------------------

    def generate(self, clients: ClientBatch) -> Tree:
        """Train each client's generator, and keep its nodes' m_v."""
        mended = []
        for k in range(len(clients)):
            turn = DeepTurn(self, clients.select([k]), clients.received)
            for _ in range(self.exchange_epochs):
                turn.learn_from_others()
            counts, made = turn.mend(clients.members[k])
            mended.append(turn.mean(made, counts))
        clients.state = {"mended": mended}
        return {}

    # -- the rounds -------------------------------------------------------------------------------------------------

    def scores(self, clients: ClientBatch, params: Params, streams: Streams | None) -> torch.Tensor:
        """Return the class scores (N, C) of the clients' nodes, with m_v if they are known."""
        if "mended" not in clients.state:
            return clients.network.forward(params, clients.data, streams).logits
        return fused(clients, params, torch.cat(clients.state["mended"]), streams)


class DeepTurn(Turn):
    """The training of one client's generator of embeddings."""

    settings: FedDEP

    def __init__(self, settings: FedDEP, clients: ClientBatch, sent: Tree) -> None:
        """sent: the download of `FedDEP.share`."""
        (owner,) = clients.ids
        self.prototypes = sent["prototypes"][0]
        tables = sent["clusters"][0].split(sent["nodes"][0].tolist())
        self.others = [table for client, table in enumerate(tables) if client != owner]
        self.targets: list[torch.Tensor] = []
        super().__init__(settings, clients)

    def without(self, clients: ClientBatch) -> Impaired:
        (impaired,) = clients.state["impaired"]
        assert isinstance(impaired, Impaired)
        return impaired

    def mean(self, made: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Return m_v (n, e). counts: (n,) numbers of generated embeddings per node; made: (G, e) the embeddings."""
        parent = torch.repeat_interleave(torch.arange(len(counts)), counts)
        return made.new_zeros(len(counts), made.shape[1]).index_add(0, parent, made) / self.settings.neighbours

    def scores(self, made: torch.Tensor, counts: torch.Tensor, streams: Streams | None) -> torch.Tensor:
        return fused(self.clients, self.classifier, self.mean(made, counts), streams)

    def feature_loss(self, made: torch.Tensor, parent: torch.Tensor) -> torch.Tensor:
        """Return L's term on the client's prototypes and, if there are targets of the others, on these."""
        full = torch.full_like(self.held, self.settings.neighbours)
        others = [match(made, parent, targets, full).sum() for targets in self.targets]
        scale = self.settings.feature_scale(made.shape[1], len(self.rows))
        return super().feature_loss(made, parent) + scale * sum(others)

    def learn_from_others(self) -> None:
        """Train fGen for an epoch on L + b sum_j L_kj."""
        self.noisy = self._noisy(self.encoding)
        self.keep = self.generator.keep(self.clients.streams, "generator dropout", len(self.encoding))
        self.targets = [self.prototypes[self.drawn(table)] for table in self.others]
        self.refine({})

    def drawn(self, table: torch.Tensor) -> torch.Tensor:
        """Return rows of the prototypes (|T|, P): per training node, random slots of a random node of `table`."""
        (source,) = self.clients.streams("targets")
        shape = len(self.rows), self.settings.neighbours
        node, slot = source.integers(len(table), size=shape[0]), source.integers(shape[1], size=shape)
        return table[placed(torch.from_numpy(node)).unsqueeze(1), placed(torch.from_numpy(slot))]


def fused(clients: ClientBatch, params: Params, mended: torch.Tensor, streams: Streams | None) -> torch.Tensor:
    """Return the class scores (N, C) of the clients' nodes with m_v, `mended` (N, e)."""
    (backbone,) = clients.network.backbones
    assert isinstance(backbone, FusedSAGE)
    return backbone.fused(params, clients.batch, mended, streams).logits


def clustered(rows: torch.Tensor, clusters: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the means (K, e) of clusters of rows (n, e), and the cluster (n,) of each row. K: at most `clusters`."""
    label = torch.from_numpy(k_means(rows.numpy(), min(clusters, len(rows)), seed))
    clusters_used, of_row = torch.unique(label, return_inverse=True)
    means = rows.new_zeros(len(clusters_used), rows.shape[1]).index_add_(0, of_row, rows)
    return means / torch.bincount(of_row).unsqueeze(1), of_row


def slots_of(member: NodeClient, hidden: torch.Tensor, of_node: torch.Tensor, slots: int) -> torch.Tensor:
    """Return (n, slots) the clusters of each node's first hidden neighbours; its own cluster in the other slots."""
    slots_of_node = of_node.unsqueeze(1).repeat(1, slots)
    target, rank, source = first_hidden(member.graph, hidden, torch.arange(len(of_node)), slots)
    slots_of_node[target, rank] = of_node[source]
    return slots_of_node
