"""AdaFGL: a federated knowledge extractor, then personal training that adapts to each client's topology."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from ..benchmark.engine import (
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
    Facts,
    Features,
    Params,
    Phase,
    Step,
    Streams,
    TrainConfig,
    Tree,
    dropout,
    option,
    section,
    segment_add,
    stream,
    torch_source,
)
from .fedavg import FedAvg
from .fedgta import propagate_labels
from .parts.encoders import linear, prelu

# -- the corrected topology --------------------------------------------------------------------------------------------

DENSE = 3072  # X~ with at most this many columns is stored: a product with it is faster than propagating h columns
LARGE = 1000  # similarities of clients with at least this many nodes are computed again for the gradient
HEADS = ("homo", "smooth", "signed")  # the MLPs on the propagated features


class Topology:
    """The corrected graphs of a client batch. known: P (N, C). alike: S (n, n), bool, of each client; blocks:
    A~ (n, n), normalised."""

    def __init__(self, batch: Batch, known: torch.Tensor, alpha: float, similar: float, powers: int) -> None:
        self.batch, self.known, self.powers = batch, known, powers
        self.alike = [cosine(rows) > similar for rows in known.split(batch.sizes)]
        for pairs in self.alike:
            pairs.fill_diagonal_(False)
        self.blocks = []
        matrix = batch.sum.scipy()
        for first, pairs in zip(batch.offsets, self.alike, strict=False):
            last = first + len(pairs)
            edges = torch.from_numpy(matrix[first:last, first:last].toarray())
            block = alpha * edges + (1 - alpha) * pairs
            block.diagonal().add_(1)
            scale = block.sum(1).rsqrt()
            self.blocks.append(block.mul_(scale).mul_(scale.unsqueeze(1)))

    @section("topology")
    def propagate(self, rows: torch.Tensor) -> torch.Tensor:
        """Return A~ rows, client by client."""
        parts = rows.split(self.batch.sizes)
        return torch.cat([block @ client_rows for block, client_rows in zip(self.blocks, parts, strict=True)])

    @cached_property
    def _features(self) -> Features | None:
        """X~ (N, (powers + 1) d), or None if d is large: `smoothed` then propagates the products.

        The choice depends on d only, so it is the same in any client batch.
        """
        if (self.powers + 1) * self.batch.x.width > DENSE:
            return None
        columns = [self.batch.x.dense()]
        for _ in range(self.powers):
            columns.append(self.propagate(columns[-1]))
        return Features(torch.cat(columns, 1), self.batch.sizes)

    def smoothed(self, weights: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return X~ W (N, c) = sum over l of A~^l X W_l, for W_0, W_1, ... (K, d, c)."""
        if self._features is not None:
            return self._features @ torch.cat(list(weights), 1)
        *lower, highest = weights
        out = self.batch.x @ highest
        for weight in reversed(lower):
            out = self.batch.x @ weight + self.propagate(out)
        return out


def cosine(rows: torch.Tensor) -> torch.Tensor:
    """Return the cosines (n, n) of softmax(rows)."""
    unit = F.normalize(rows.softmax(1), dim=1)
    return unit @ unit.T


@section("signed propagation")
def signed_propagation(h: torch.Tensor, slope: torch.Tensor, pairs: torch.Tensor, beta: float) -> torch.Tensor:
    """Return one client's signed propagation (n, C). h: (n, C); slope: (1,); pairs: S (n, n). The matrices of a large
    client are computed again for the gradient."""
    if h.requires_grad and len(h) >= LARGE:
        return checkpoint(_signed, h, slope, pairs, beta, use_reentrant=False)
    return _signed(h, slope, pairs, beta)


def _signed(h: torch.Tensor, slope: torch.Tensor, pairs: torch.Tensor, beta: float) -> torch.Tensor:
    similar = cosine(h)
    if beta:
        similar = (1 - beta) * similar + beta * pairs
    similar = similar.fill_diagonal_(0)
    mean, largest = similar.mean(), similar.max()
    # r = r+ - r-, PReLU(r) = r+ - a r-, PReLU(-r) = r- - a r+. The products are scaled instead of the matrices.
    # A divisor of 0 (a client with one node) belongs to a matrix of zeros and is replaced by 1.
    attract = torch.relu(similar - mean) @ h / (largest - mean + (largest == mean)) + h
    repel = similar.masked_fill(similar > mean, 0) @ h / (mean + (mean == 0))
    positive, negative = attract - slope * repel, repel - slope * attract
    return (positive.softmax(1) - negative.softmax(1) + h) / 2


def heads(source: torch.Generator, features: int, hidden: int, classes: int, powers: int) -> Params:
    """Return Xavier-uniform weights with ReLU's gain, zero biases, PReLU slopes 1/4 (released code).

    The first layers of the three MLPs on X~ are one tensor (d, 3 h) per power.
    """

    def xavier(n_in: int, n_out: int) -> torch.Tensor:
        bound = 2**0.5 * (6 / (n_in + n_out)) ** 0.5
        return torch.empty(n_in, n_out).uniform_(-bound, bound, generator=source)

    wide = [xavier((powers + 1) * features, hidden).view(powers + 1, features, hidden) for _ in HEADS]
    params = {f"wide.{power}.weight": torch.cat(weights, 1) for power, weights in enumerate(zip(*wide, strict=True))}
    params |= {"wide.bias": torch.zeros(3 * hidden)}
    params |= {"own.0.weight": xavier(features, hidden), "own.0.bias": torch.zeros(hidden)}
    for name in ("own", "smooth", "signed"):
        params |= {f"{name}.1.weight": xavier(hidden, hidden), f"{name}.1.bias": torch.zeros(hidden)}
        params |= {f"{name}.2.weight": xavier(hidden, classes), f"{name}.2.bias": torch.zeros(classes)}
    params |= {"homo.1.weight": xavier(hidden, classes), "homo.1.bias": torch.zeros(classes)}
    return params | {f"{name}.slope": torch.full((1,), 0.25) for name in ("homo", "hete", "signed")}


# -- the method --------------------------------------------------------------------------------------------------------

LIMIT = 8 * 2**30  # bytes; a run that needs more is skipped


@METHODS.register("adafgl")
class AdaFGL(FedAvg):
    """Li et al., ICDE 2024 (arXiv 2401.11750): two steps.

    Step 1: FedAvg of the run's backbone for `extractor_rounds`; P = softmax(global model on G_k). Messages: theta up,
    theta down.
    Step 2, no communication, `personal_epochs` in each remaining round. S_ij = 1 if cos(softmax(P_i), softmax(P_j))
    > `similar` and i != j; A~ = alpha A + (1 - alpha) S, as D^-1/2 (A~ + I) D^-1/2; X~ = [X, A~X, A~^2 X, A~^3 X].
    Homophilous branch: MLP-2 on X~, loss CE + MSE(logits, P), output the mean of softmax(logits) and softmax(P).
    Heterophilous branch: MLP-3 on X, MLP-3 on X~, and signed propagation; the sum of their CE, output the mean of their
    softmaxes. Signed propagation: H = MLP-3(X~), R = beta S + (1 - beta) cos(softmax(H_i), softmax(H_j)) without
    diagonal; r = (R - mean) / (max - mean) above its mean, -R / mean below, and 1 added on the diagonal; output
    ((softmax(PReLU(r) H) - softmax(PReLU(-r) H)) + H) / 2.
    Prediction: w homophilous + (1 - w) heterophilous, w = accuracy of label propagation (`steps`, `kappa`) from a
    random half of the training nodes on the other half; 1/2 for a client without two training nodes.

    Budget: the default is OpenFGL's: half of the rounds for step 1, one epoch in each other round. The original has 100
    rounds of 3 epochs and 200 personal epochs: `extractor_rounds` 100 and `training.rounds` 300. Validation then
    selects among 200 rounds, for other methods among 300.

    As released: MSE compares logits with probabilities; S and the output take the softmax of P again; r jumps from 0 to
    -1 at the mean. Departures: the released label propagation adds the seeds' labels again at every step and starts
    from the true labels of nodes outside the three splits; here all nodes except the seeds start uniform. Only step 2
    is scored, on the clients' graphs, because its models exist for them only.
    """

    family = "personal"
    summary = "average first, then each client corrects its graph and trains on it without federation"
    title = "AdaFGL"
    venue = "ICDE 2024"
    paper_url = "https://arxiv.org/abs/2401.11750"
    code_url = "https://github.com/xkLi-Allen/AdaFGL"
    revision: ClassVar[int] = 2
    tasks = ("node",)
    delivers = "personal"
    travels = False

    extractor_rounds: int | None = option(None, "rounds of step 1; None = half of them (OpenFGL: 50 of 100)", ge=0)
    personal_epochs: int = option(1, "epochs a round of step 2 (OpenFGL: 1; released code: 200 in all)", ge=1)
    alpha: float = option(
        0.5, "weight of A in A~, 1 - alpha of S (OpenFGL: 0.5; code: 0.05)", ge=0, le=1, tune=[0.05, 0.2, 0.5]
    )
    beta: float = option(0.0, "weight of S in R (OpenFGL: 0; released code: 0.2)", ge=0, le=1, tune=[0.0, 0.2, 0.5])
    similar: float = option(0.999, "least cosine for an entry of S (released code: 0.999)", ge=-1, lt=1)
    powers: int = option(3, "powers of A~ in X~ (released code: 3)", ge=0)
    steps: int = option(10, "steps of label propagation (released code: 10)", ge=0)
    kappa: float = option(0.5, "weight of the neighbours in label propagation (released code: 0.5)", ge=0, le=1)
    branches: Literal["mixed", "chosen"] = option(
        "mixed", "w unchanged (paper, OpenFGL), or 1 if w >= `threshold`, else 0 (released code)"
    )
    threshold: float = option(0.9, "for chosen branches (released code: 0.9)", ge=0, le=1)

    def skip(self, facts: Facts, backbones: Sequence[Backbone]) -> str | None:
        reason = super().skip(facts, backbones)
        if reason:
            return reason
        sizes = [client.size for client in facts.clients]
        need = 4 * (sum(n * n for n in sizes) + 12 * max(sizes) ** 2)  # all A~; one client's similarities and gradients
        if need > LIMIT:
            return f"{self.name} would need about {need / 2**30:.1f} GiB for nodes x nodes of each client, limit 8 GiB"
        return None

    def phases(self, config: TrainConfig) -> list[Phase]:
        first = config.rounds // 2 if self.extractor_rounds is None else min(self.extractor_rounds, config.rounds - 1)
        return [
            Phase((Step(self.client, self.server),), first, scored=False, name="extractor"),
            Phase((Step(self.personalise),), config.rounds - first, name="personal", everyone=True),
        ]

    # -- step 2 -----------------------------------------------------------------------------------------------------

    def personalise(self, clients: ClientBatch) -> Tree:
        if clients.round == 1:
            self.prepare_personal(clients)
        clients.fit(self.personal_loss, self.personal_epochs, params=clients.state["heads"], name="personal")
        return {}

    @torch.no_grad()
    def prepare_personal(self, clients: ClientBatch) -> None:
        """Compute the topology and w from the extractor, and draw the heads, the same for all clients."""
        clients.load(clients.received["model"])
        known = clients.forward(training=False).logits.softmax(1)
        clients.cache["topology"] = Topology(clients.batch, known, self.alpha, self.similar, self.powers)
        clients.state["confidence"] = self.confidence(clients)
        backbone = clients.network.backbones[0]
        source = torch_source(stream(clients.streams.seed, "personal heads"))
        fresh = heads(source, clients.features, backbone.hidden, clients.classes, self.powers)
        clients.state["heads"] = {
            name: value.expand(len(clients), *value.shape).clone() for name, value in fresh.items()
        }

    def confidence(self, clients: ClientBatch) -> torch.Tensor:
        """Return w (K,)."""
        batch = clients.batch
        seeds, held_out = [], []
        for rows, generator in zip(
            batch.rows["train"].split(batch.counts["train"]), clients.streams("seeds"), strict=True
        ):
            order = torch.from_numpy(generator.permutation(len(rows)))
            seeds.append(rows[order[: len(rows) // 2]])
            held_out.append(rows[order[len(rows) // 2 :]])
        known, tested = torch.cat(seeds), torch.cat(held_out)
        start = torch.full((len(batch.label), clients.classes), 1 / clients.classes)
        start[known] = F.one_hot(batch.label[known], clients.classes).float()
        predicted = propagate_labels(batch, start, self.steps, self.kappa).argmax(1)[tested]
        accuracy = clients.mean_over((predicted == batch.label[tested]).float(), tested)
        without_seeds = torch.tensor([not len(client_seeds) for client_seeds in seeds])
        weight = torch.where(without_seeds, 0.5, accuracy)
        return (weight >= self.threshold).float() if self.branches == "chosen" else weight

    def personal_loss(self, clients: ClientBatch) -> torch.Tensor:
        """Return (K,) sums of both branches' losses; their parameters are disjoint."""
        out = self.outputs(clients, clients.state["heads"], clients.streams)
        topology: Topology = clients.cache["topology"]
        gap = (out["homo"] - topology.known).square().mean(1)
        mean_gap = clients.mean_over(gap, torch.arange(len(gap)))
        return sum((clients.cross_entropy(logits) for logits in out.values()), mean_gap)

    def outputs(self, clients: ClientBatch, params: Params, streams: Streams | None) -> dict[str, torch.Tensor]:
        """Return the logits (N, C) of each head. streams: given in training only."""
        batch, topology, backbone = clients.batch, clients.cache["topology"], clients.network.backbones[0]

        def mlp(head: str, slope: str, z: torch.Tensor, layers: int) -> torch.Tensor:
            for i in range(1, layers):
                z = prelu(z, params[f"{slope}.slope"], batch.sizes)
                z = dropout(z, backbone.dropout, streams, batch.sizes)
                z = linear(params, f"{head}.{i}", z, batch.sizes)
            return z

        def first(name: str, z: torch.Tensor) -> torch.Tensor:
            return segment_add(z, params[f"{name}.bias"], batch.sizes)

        wide = topology.smoothed([params[f"wide.{power}.weight"] for power in range(self.powers + 1)])
        homo, smooth, signed = first("wide", wide).chunk(3, dim=1)
        out = {"homo": mlp("homo", "homo", homo.contiguous(), 2)}
        out["own"] = mlp("own", "hete", first("own.0", batch.x @ params["own.0.weight"]), 3)
        out["smooth"] = mlp("smooth", "hete", smooth.contiguous(), 3)
        embedding = mlp("signed", "signed", signed.contiguous(), 3)
        out["signed"] = torch.cat([
            signed_propagation(h, slope, pairs, self.beta)
            for h, slope, pairs in zip(
                embedding.split(batch.sizes), params["signed.slope"], topology.alike, strict=True
            )
        ])  # fmt: skip
        return out

    # -- evaluation -------------------------------------------------------------------------------------------------

    def personal_model(self, clients: ClientBatch) -> Params | None:
        return clients.state.get("heads", clients.params)

    @torch.no_grad()
    def predict_own(self, params: Params, clients: ClientBatch) -> torch.Tensor:
        if "wide.bias" not in params:
            return super().predict_own(params, clients)  # the extractor
        out = {name: logits.softmax(1) for name, logits in self.outputs(clients, params, None).items()}
        homophilous = (out["homo"] + clients.cache["topology"].known.softmax(1)) / 2
        heterophilous = (out["own"] + out["smooth"] + out["signed"]) / 3
        weight = clients.state["confidence"][clients.batch.owner].unsqueeze(1)
        return weight * homophilous + (1 - weight) * heterophilous
