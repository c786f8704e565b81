"""Training of a neighbour generator: its hyper-parameters, one client's turn, and the answers of the others."""

from __future__ import annotations

from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from ...benchmark.engine import (
    Batch,
    ClientBatch,
    Features,
    GraphSAGE,
    NodeClient,
    Params,
    Parts,
    Streams,
    Tensors,
    Tree,
    collate,
    in_parts,
    on_host,
    option,
    section,
)
from ..fedavg import FedAvg
from .mending import Mending
from .neighgen import Impaired, NeighGen, Thinned, hide, impair, linear, match, multiply


def random_neighbours(
    batch: Batch, at: int, nodes: int, slots: int, generator: np.random.Generator
) -> np.ndarray | None:
    """Return rows (nodes, slots) of random neighbours, with replacement, of random nodes of a client with neighbours.

    at: the client's position in the batch. None for a client without an edge.
    """
    matrix = batch.sum.scipy()
    degree = np.diff(matrix.indptr)
    first, last = batch.offsets[at], batch.offsets[at + 1]
    centres = first + np.flatnonzero(degree[first:last])
    if not len(centres):
        return None
    centre = generator.choice(centres, nodes)
    pick = (generator.random((nodes, slots)) * degree[centre, None]).astype(np.int64)
    neighbours: np.ndarray = matrix.indices[matrix.indptr[centre, None] + pick]
    return neighbours


class Answer:
    """One pass of fGen over a client's rows, and its parameters' gradients for the targets x_iq of any client, of

    scale * sum_i sum_{p < counts[i]} min_q ||x~_ip - x_iq||^2.

    The part of the gradient from ||x~||^2 is the same for all answers; the other part comes from one row of features
    per generated neighbour, which is sparse for bags of words. So an answer takes a small part of a backward pass.
    """

    def __init__(self, generator: NeighGen, shown: Tensors, encoding: torch.Tensor, counts: torch.Tensor,
                 keep: torch.Tensor, scale: float) -> None:  # fmt: skip
        """shown: fGen's parameters, without client axis. encoding: (n, latent), noisy. keep: dropout (n, 2048)."""
        self.shown, self.scale = shown, 2 * scale
        params: Params = {name: value.detach().unsqueeze(0) for name, value in shown.items()}
        rows = counts.nonzero().squeeze(1)
        self.rows, counts, self.keep, self.z = rows, counts[rows], keep[rows], encoding[rows]
        self.narrow = torch.relu(linear(params, "grow.0", self.z))
        self.wide = torch.relu(linear(params, "grow.1", self.narrow))
        h = self.wide * self.keep
        self.users = [(counts > p).nonzero().squeeze(1) for p in range(int(counts.max()) if len(rows) else 0)]
        self.inputs = [Thinned(h[users]) for users in self.users]
        self.made = [torch.tanh(x.times(*self._slot(p))) for p, x in enumerate(self.inputs)]
        self.slope = [self.scale * (1 - made.square()) for made in self.made]
        common = [slope * made for slope, made in zip(self.slope, self.made, strict=True)]
        self.common_weight = [x.across(s) for s, x in zip(common, self.inputs, strict=True)]
        self.common_bias = [s.sum(0) for s in common]
        self.common_wide = [
            x.towards(s, self._slot(p)[0]) for p, (s, x) in enumerate(zip(common, self.inputs, strict=True))
        ]

    def _slot(self, p: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.shown[f"slot.{p}.weight"].detach(), self.shown[f"slot.{p}.bias"].detach()

    @section("answers")
    def gradient(self, x: Features, targets: np.ndarray | None) -> Tensors:
        """Return the gradients by name. targets: rows (len(self.rows), Q) of x; None: no targets, all gradients 0.

        The gradient of an unused parameter is one expanded 0.
        """
        gradients: Tensors = {name: torch.zeros(()).expand(value.shape) for name, value in self.shown.items()}
        if targets is None or not self.users:
            return gradients
        return gradients | self._used(x, targets)

    def _used(self, x: Features, targets: np.ndarray) -> Tensors:
        gradients: Tensors = {}
        wide = torch.zeros_like(self.wide)
        for p, users in enumerate(self.users):
            chosen = _nearest(self.made[p], x, targets[users.numpy()])
            towards = _masked(x, chosen, self.slope[p])
            gradients[f"slot.{p}.weight"] = in_parts(Reached(self.common_weight[p], towards, self.inputs[p]))
            gradients[f"slot.{p}.bias"] = self.common_bias[p] - torch.as_tensor(np.asarray(towards.sum(0)).ravel())
            back = self.inputs[p].towards(towards, self._slot(p)[0])
            wide.index_add_(0, users, self.common_wide[p] - back)
        wide *= self.keep * (self.wide > 0)
        narrow = multiply(wide, self.shown["grow.1.weight"].detach()) * (self.narrow > 0)
        gradients |= {"grow.1.weight": multiply(wide.T, self.narrow), "grow.1.bias": wide.sum(0)}
        gradients |= {"grow.0.weight": multiply(narrow.T, self.z), "grow.0.bias": narrow.sum(0)}
        return gradients


class Reached(Parts):
    """The sum of `answers` gradients of one map's weights: answers * common - inputs^T @ towards, (2048, d).

    Only `towards` (n, d) differs between clients, and is sparse if the features are: so a sum of answers needs only one
    pass over the large matrix.
    """

    def __init__(
        self, common: torch.Tensor, towards: torch.Tensor | sp.csr_matrix, inputs: Thinned, answers: int = 1
    ) -> None:
        self.common, self.towards, self.inputs, self.answers = common, towards, inputs, answers
        self.shape = tuple(common.shape)

    def tensors(self) -> list[torch.Tensor]:
        return [self.common]

    def assemble(self) -> torch.Tensor:
        gradient, of_targets = self.answers * self.common, self.inputs.across(self.towards)
        if isinstance(of_targets, torch.Tensor):
            return gradient.sub_(of_targets)
        of_targets = of_targets.tocoo()
        gradient.numpy()[of_targets.row, of_targets.col] -= of_targets.data
        return gradient

    def plus(self, other: Parts) -> Reached | None:
        if not isinstance(other, Reached) or other.common is not self.common:
            return None
        return Reached(self.common, self.towards + other.towards, self.inputs, self.answers + other.answers)


def _nearest(made: torch.Tensor, x: Features, targets: np.ndarray) -> np.ndarray:
    """Return the row of x (n,), among targets (n, Q), nearest to each row of made (n, d), by ||x||^2 - 2 x . made."""
    n, q = targets.shape
    if isinstance(x.value, torch.Tensor):
        rows = x.value[torch.from_numpy(targets).long()]
        distance = (rows.square().sum(2) - 2 * torch.einsum("nqd,nd->nq", rows, made)).numpy()
    else:
        rows = x.value[targets.ravel()]
        owner = np.repeat(np.arange(n * q), np.diff(rows.indptr))
        terms = rows.data * (rows.data - 2 * made.numpy()[owner // q, rows.indices])
        distance = np.bincount(owner, terms, minlength=n * q).reshape(n, q)
    best: np.ndarray = targets[np.arange(n), distance.argmin(1)]
    return best


def _masked(x: Features, rows: np.ndarray, slope: torch.Tensor) -> torch.Tensor | sp.csr_matrix:
    """Return x[rows] * slope, sparse if x is."""
    if isinstance(x.value, torch.Tensor):
        return x.value[torch.from_numpy(rows).long()] * slope
    chosen = x.value[rows]
    owner = np.repeat(np.arange(len(rows)), np.diff(chosen.indptr))
    return sp.csr_matrix(
        (chosen.data * slope.numpy()[owner, chosen.indices], chosen.indices, chosen.indptr), chosen.shape
    )


class Generation(FedAvg):
    """Base of methods with a neighbour generator: parameters, and FedAvg of a classifier on generated neighbours."""

    neighbours: int = option(5, "P, maximal number of new neighbours per node (released code: 5); 0 = none", ge=0)
    hidden_share: float = option(0.5, "share of the validation nodes hidden (released code: 0.5)", ge=0, le=1)
    latent: int = option(128, "width of the encoding (released code, OpenFGL: 128)", ge=1)
    generator_hidden: int = option(64, "width of the encoder (FGSSL's code: 64; released code: 32)", ge=1)
    generator_dropout: float = option(0.5, "dropout in NeighGen (released code: 0.5)", ge=0, lt=1)
    generator_epochs: int = option(20, "local epochs of NeighGen (released code: 20)", ge=0)
    exchange_epochs: int = option(20, "epochs with the other clients' gradients (released code: 20)", ge=0)
    generator_lr: float = option(1e-3, "Adam's learning rate for NeighGen (released code: 0.001)", gt=0)
    generator_decay: float = option(1e-4, "L2 penalty for NeighGen (released code: 1e-4)", ge=0)
    degree_weight: float = option(1.0, "a, weight of the number's loss (released code: 1)", ge=0)
    feature_weight: float = option(1.0, "b, weight of the features' losses (released code: 1)", ge=0)
    label_weight: float = option(1.0, "c, weight of the classifier's loss (released code: 1)", ge=0)
    feature_loss: Literal["sum", "mean"] = option(
        "sum", "squared norm (paper), or its mean over the P d entries, 7165 on Cora (released code)"
    )

    training_number: Literal["round", "truncate"] = option(
        "round",
        "number of neighbours in training: rounded, as here in mending (our choice), or truncated (released code)",
    )
    score_on: Literal["mended", "own"] = "mended"  # each method describes it

    def number(self, missing: torch.Tensor) -> torch.Tensor:
        """Return the number of neighbours to generate in training, from predicted numbers."""
        whole = missing.round() if self.training_number == "round" else missing
        return whole.long().clamp(max=self.neighbours)

    @property
    def generator(self) -> NeighGen:
        encoder = GraphSAGE(hidden=self.generator_hidden, layers=2, dropout=self.generator_dropout)
        return NeighGen(encoder, self.latent, self.neighbours, self.generator_dropout)

    def feature_scale(self, features: int, nodes: int) -> float:
        """Return the factor of the sum of matched squared distances: 1 / |T|, or 1 / (|T| P d) for the code's mean."""
        return 1 / (max(nodes, 1) * (1 if self.feature_loss == "sum" else self.neighbours * features))

    def shared_keep(self, seed: int, owner: int, epoch: int, rows: int) -> torch.Tensor:
        """Return dropout factors (rows, 2048) of an exchange epoch, equal at the owner and the answering clients."""
        return self.generator.keep(Streams(seed, (owner,), {}), f"exchange {epoch}", rows)

    def client(self, clients: ClientBatch) -> Tree:
        if clients.received:  # empty in the first round: the initial model was sent before the generators' turns
            clients.load(clients.received["model"])
        clients.fit(self.local_loss)
        return {"model": clients.params}

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        return clients.cross_entropy(self.scores(clients, clients.params, clients.streams))

    def scores(self, clients: ClientBatch, params: Params, streams: Streams | None) -> torch.Tensor:
        """Return class scores (N, C) of the clients' nodes with generated neighbours. streams: given in training."""
        raise NotImplementedError

    @torch.no_grad()
    def predict_own(self, params: Params, clients: ClientBatch) -> torch.Tensor:
        if self.score_on == "own":
            return super().predict_own(params, clients)
        return self.scores(clients, params, None)


class Turn:
    """One client's turn: the training of its generator on its impaired graph, until the graph is mended."""

    def __init__(self, settings: Generation, clients: ClientBatch) -> None:
        """clients: the client batch of this client only; its `params` are the initial classifier."""
        self.settings, self.generator, streams = settings, settings.generator, clients.streams
        self.impaired = self.without(clients).placed()
        self.clients = clients.learner(settings.generator_lr, settings.generator_decay, [self.impaired.client])
        self.params = self.generator.init(streams("neighbour generator")[0], clients.features)
        self.classifier = {name: value.clone() for name, value in clients.params.items()}
        batch = self.clients.batch
        self.rows = batch.rows["train"]
        self.place = torch.full((len(batch.label),), -1).index_copy(0, self.rows, torch.arange(len(self.rows)))
        self.held = self.impaired.missing[self.rows].clamp(max=settings.neighbours)
        self.reach = reach(batch, self.rows, clients.network.backbones[0].layers - 1)
        self._mending: Mending | None = None
        trained = self.params | {f"classifier.{name}": value for name, value in self.classifier.items()}
        self.clients.fit(self._joint, self.settings.generator_epochs, params=trained, name="joint")
        self.clients.optimiser("joint").reset()  # frees half a gigabyte for a large d; fGen gets a new optimiser
        with torch.no_grad():
            self.encoding = self.generator.encode(self.params, self.clients.batch, None)
            self.missing = self.generator.missing(self.params, self.encoding)

    def without(self, clients: ClientBatch) -> Impaired:
        """Return the client's graph without hidden nodes, and the targets of the generator."""
        (member,), settings = clients.members, self.settings
        with on_host():
            hidden = hide(member, settings.hidden_share, clients.streams("hidden nodes")[0])
        return impair(member, hidden, settings.neighbours)

    def _noisy(self, encoding: torch.Tensor) -> torch.Tensor:
        (source,) = self.clients.streams("generator noise")
        return encoding + torch.from_numpy(source.standard_normal(encoding.shape, dtype="float32"))

    def _joint(self, clients: ClientBatch) -> torch.Tensor:
        """Return L (1,) of the whole generator and its classifier in a training pass."""
        encoding = self.generator.encode(self.params, clients.batch, clients.streams)
        keep = self.generator.keep(clients.streams, "generator dropout", len(encoding))
        return self.loss(self.generator.missing(self.params, encoding), self._noisy(encoding), keep, clients.streams)

    def loss(
        self, missing: torch.Tensor, noisy: torch.Tensor, keep: torch.Tensor | None, streams: Streams | None
    ) -> torch.Tensor:
        """Return L (1,). missing: (m,) predicted numbers; noisy: (m, latent) encodings with noise; streams: for the
        classifier's dropout."""
        s, rows = self.settings, self.rows
        counts = s.number(missing.detach()) * self.reach  # L does not depend on neighbours of other nodes
        made = self.generator.generate(self.params, noisy, counts, keep)
        true = self.impaired.missing[rows].float()
        number = F.smooth_l1_loss(missing[rows], true, reduction="sum") / max(len(rows), 1)
        parent = torch.repeat_interleave(self.place, counts)
        trained = parent >= 0
        feature = self.feature_loss(made[trained], parent[trained])
        label = self.clients.cross_entropy(self.scores(made, counts, streams))
        return s.degree_weight * number + s.feature_weight * feature + s.label_weight * label

    def feature_loss(self, made: torch.Tensor, parent: torch.Tensor) -> torch.Tensor:
        """Return the feature term (). made: (G, d) generated for training nodes; parent: (G,) their training nodes."""
        scale = self.settings.feature_scale(made.shape[1], len(self.rows))
        return scale * match(made, parent, self.impaired.targets, self.held).sum()

    def scores(self, made: torch.Tensor, counts: torch.Tensor, streams: Streams | None) -> torch.Tensor:
        """Return class scores (m, C) with new neighbours. made: (G, d); counts: (m,) new neighbours per node."""
        if self._mending is None or not torch.equal(counts, self._mending.counts):
            self._mending = Mending(self.clients.batch, counts)
        logits = self.clients.network.forward(self.classifier, (self._mending.fill(made),), streams).logits
        return logits[self._mending.own_rows]

    def show(self, epoch: int) -> Tree:
        """Return the upload of an exchange epoch, with new noise and dropout: fGen, and of the training nodes the
        encodings with noise "encoding" (n, latent) and predicted numbers "missing" (n,)."""
        (owner,) = self.clients.ids
        self.noisy = self._noisy(self.encoding)
        n, total = len(self.rows), len(self.encoding)
        shared = self.settings.shared_keep(self.clients.streams.seed, owner, epoch, n)
        private = self.generator.keep(self.clients.streams, "generator dropout", total - n)
        order = torch.cat([self.rows, (self.place < 0).nonzero().squeeze(1)]).argsort()
        self.keep = torch.cat([shared, private])[order]
        shown = {name: self.params[name] for name in self.generator.shown}
        return {"generator": shown, "encoding": [self.noisy[self.rows]], "missing": [self.missing[self.rows]]}

    def refine(self, received: Tensors) -> None:
        """Take a step of fGen on L, all else fixed. received: the sum of the others' gradients; empty: none."""
        if not (self.settings.number(self.missing) * self.reach).any():
            return  # L contains no generated neighbour, so fGen has no gradient

        def adjust(_: ClientBatch, grads: Tensors) -> Tensors:
            weight = self.settings.feature_weight
            return (
                {name: grad.add_(received[name], alpha=weight) for name, grad in grads.items()} if received else grads
            )

        fgen = {name: self.params[name] for name in self.generator.shown}
        self.clients.fit(lambda _: self.loss(self.missing, self.noisy, self.keep, None), 1, params=fgen, adjust=adjust)

    @torch.no_grad()
    def mend(self, member: NodeClient) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rounded numbers (n,) of new neighbours of all nodes of the client, and their features (G, d)."""
        batch: Batch = collate([member])
        encoding = self.generator.encode(self.params, batch, None)
        counts = self.generator.missing(self.params, encoding).round().long().clamp(max=self.settings.neighbours)
        return counts, self.generator.generate(self.params, self._noisy(encoding), counts)


def reach(batch: Batch, rows: torch.Tensor, hops: int) -> torch.Tensor:
    """Return (N,) 1 for the given rows and the rows within `hops` hops of them, else 0."""
    near = torch.zeros(len(batch.label)).index_fill(0, rows, 1.0)
    for _ in range(hops):
        near = ((batch.sum @ near.unsqueeze(1)).squeeze(1) + near).clamp(max=1)
    return near.long()
