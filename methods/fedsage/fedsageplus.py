"""FedSage: FedAvg of GraphSAGE. FedSage+: also generates the neighbours that the partition removed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import ClassVar, Literal

import torch

from ...benchmark.engine import (
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
    Common,
    Download,
    Facts,
    Leaf,
    Params,
    Phase,
    Server,
    Step,
    Streams,
    TrainConfig,
    Tree,
    option,
    transform,
)
from ..fedavg import FedAvg
from .mending import Mending
from .neighgen import WIDTHS
from .turn import Answer, Generation, Turn, random_neighbours, reach


@METHODS.register("fedsage")
class FedSage(FedAvg):
    """Zhang et al., NeurIPS 2021 (arXiv 2106.13430), without the generator: FedAvg of a GraphSAGE classifier.

    Client and messages as FedAvg; server: the uniform mean of the models, as in the released code. Depth, width,
    dropout, rate and rounds are the run's (released: Adam 0.001, 20 rounds; the boards have 0.01). Neighbourhoods are
    complete; the released code samples 5 neighbours per layer.
    """

    summary = "FedAvg of a GraphSAGE classifier"
    title = "FedSage"
    venue = "NeurIPS 2021"
    paper_url = "https://arxiv.org/abs/2106.13430"
    code_url = "https://github.com/zkhku/fedsage"
    tasks = ("node",)
    fixed_backbone = "sage"

    uniform: bool = option(True, "mean of the models (released code), or by the configuration's `weighting`")

    def protocol(self, config: TrainConfig) -> TrainConfig:
        return config.model_copy(update={"weighting": "uniform"}) if self.uniform else config


LIMIT = 8 * 2**30  # bytes; a run that needs more is skipped


@METHODS.register("fedsage+")
class FedSagePlus(Generation, FedSage):
    """Zhang et al., NeurIPS 2021 (arXiv 2106.13430): GraphSAGE on graphs mended by a neighbour generator, NeighGen.

    NeighGen: encoder H^e (GraphSAGE, d -> hidden -> latent, z_i), dGen (linear, ReLU: n~_i missing neighbours), fGen
    (z_i + N(0, 1) noise -> 256 -> 2048 -> dropout -> P maps to d, tanh: features x~_ip). A client hides a share of its
    validation nodes; n_i is the number and x_iq are the features of node i's hidden neighbours. The loss on the
    training nodes T of the impaired graph, the graph without hidden nodes, is
    L = a SmoothL1(n~, n) + b/|T| sum_i sum_{p <= n~_i} min_{q <= n_i} ||x~_ip - x_iq||^2 + c CE(classifier, mended)
    (no feature term for a node without hidden neighbours; the classifier gets the mended impaired graph).

    Before the rounds the clients train their generators in turn, so that only one generator exists at a time:
    1. `generator_epochs` on L: encoder, dGen, fGen and a classifier, which starts from the initial model.
    2. `exchange_epochs` of fGen alone on L + b sum_{j != i} L_ij, L_ij the feature term whose targets are, for each
       node, P random neighbours of a random node of client j. i sends fGen, z_i + noise and n~_i of its training nodes;
       the server forwards them to each j, which returns the gradient of L_ij; the server adds these gradients. All
       clients draw the dropout mask of those rows from the same stream. No client gets another client's features.
    3. It mends its graph with round(n~_i) <= P new neighbours per node, joined in both directions.
    Then FedAvg of the classifier on the mended graphs, as `fedsage`, from the initial model.

    Messages: before the rounds, in each exchange epoch of i: |fGen| + |T| (latent + 1) up from i and down to each other
    client, |fGen| up from each of them, and |fGen|, their sum, down to i. In the rounds theta up and down.

    Departures: the released code truncates n~_i, in training (`training_number`) and in mending; mends the nodes of the
    impaired graph only, by n~_i on it, here all nodes by n~_i on the client's graph; has terms L_ij only for nodes with
    n_i > 0, with min(P, n_i) targets; divides the loss by K, which makes the decay K times as strong; applies decay to
    the maps of unused slots, here they are unchanged; and reads the other clients' features directly in the exchange.
    dGen's bias starts at 1, because with a negative output it would never learn (`NeighGen.init`); z_i has no ReLU.
    Scored on the mended graphs, as in OpenFGL; the whole graph is never mended, as in the original.
    """

    family = "generation"
    summary = "FedSage on graphs with generated missing neighbours"
    title = "FedSage+"
    venue = "NeurIPS 2021"
    paper_url = "https://arxiv.org/abs/2106.13430"
    code_url = "https://github.com/zkhku/fedsage"
    revision: ClassVar[int] = 4

    score_on: Literal["mended", "own"] = option("mended", "score on the clients' mended graphs, or on their own graphs")

    def skip(self, facts: Facts, backbones: Sequence[Backbone]) -> str | None:
        reason = super().skip(facts, backbones)
        if reason or self.neighbours == 0:
            return reason
        need = self._bytes(facts)
        if need > LIMIT:
            return f"{self.name} needs about {need / 2**30:.1f} GiB for generators and generated features, limit 8 GiB"
        return None

    def _bytes(self, facts: Facts) -> float:
        """Return the bytes of fGen with Adam's moments, two gradients, all answers, and the new nodes' features."""
        d = facts.num_features
        weights = self.latent * WIDTHS[0] + WIDTHS[0] * WIDTHS[1] + WIDTHS[1] * self.neighbours * d
        made = 0.0
        for client in facts.clients:
            share = self.hidden_share * client.parts["val"] / client.size
            made += float((share * client.degrees).clamp(max=self.neighbours).sum())
        return 4 * (weights * (len(facts.clients) + 5) + made * d)

    def phases(self, config: TrainConfig) -> list[Phase]:
        start = Phase((Step(self.begin),), 1, scored=False, name="start", everyone=True)
        turns = Phase(
            (
                Step(self.offer, self.relay, only=self.owner),
                Step(self.answer, self.collect, only=self.others, shared=self.passed),
            ),
            lambda server: server.clients * (self.exchange_epochs + 1),
            scored=False,
            name="generator",
            everyone=True,
        )
        return [start, turns] * (self.neighbours > 0) + super().phases(config)

    # -- the generators' turns --------------------------------------------------------------------------------------

    def turn(self, number: int) -> tuple[int, int]:
        """Return (client, epoch) of a round of the generator phase, exchange_epochs + 1 rounds per client in a row."""
        return divmod(number - 1, self.exchange_epochs + 1)

    def owner(self, server: Server) -> list[int]:
        """Return the client in turn."""
        return [self.turn(server.round)[0]]

    def others(self, server: Server) -> list[int]:
        """Return the clients that answer: all others; none in the last round of the turn."""
        owner, epoch = self.turn(server.round)
        return [k for k in range(server.clients) if k != owner] if epoch < self.exchange_epochs else []

    def begin(self, clients: ClientBatch) -> Tree:
        clients.load(clients.received["model"])
        return {}

    def offer(self, clients: ClientBatch) -> Tree:
        """Train the client's generator and send it; in the last round of the turn, mend the client's graph."""
        _, epoch = self.turn(clients.round)
        turn: Turn = clients.state["turn"][0] if epoch else Turn(self, clients)
        if epoch:
            turn.refine(clients.received.get("gradient", {}))
        if epoch < self.exchange_epochs:
            clients.state["turn"] = [turn]
            return turn.show(epoch)
        counts, made = turn.mend(clients.members[0])
        clients.state |= {"turn": [None], "missing": [counts], "generated": [made]}
        return {}

    def relay(self, server: Server, uploads: Tree) -> Download:
        """Forward the upload of the client in turn to all others."""
        return transform(uploads, lambda shown: shown[0])

    def passed(self, shown: Tree, common: Common) -> Answer:
        """Return the generator's pass, which is the same for all answering clients."""
        owner, epoch = self.turn(common.round)
        missing = shown["missing"]
        keep = self.shared_keep(common.seed, owner, epoch, len(missing))
        scale = self.feature_scale(common.features, len(missing))
        return Answer(self.generator, shown["generator"], shown["encoding"], self.number(missing), keep, scale)

    def answer(self, clients: ClientBatch) -> Tree:
        """Upload the gradients of L_ij by fGen's parameters, for each client j on its nodes' neighbours."""
        batch, answer, gradients = clients.batch, clients.shared, []
        for k, source in enumerate(clients.streams("exchange")):
            targets = random_neighbours(batch, k, len(answer.rows), self.neighbours, source)
            gradients.append(answer.gradient(batch.x, targets))
        return {"gradient": {name: [gradient[name] for gradient in gradients] for name in self.generator.shown}}

    def collect(self, server: Server, uploads: Tree) -> Download:
        """Send the sum of the answers to the client in turn."""
        return transform(uploads, add)

    # -- the rounds -------------------------------------------------------------------------------------------------

    def scores(self, clients: ClientBatch, params: Params, streams: Streams | None) -> torch.Tensor:
        if self.neighbours == 0:
            return clients.network.forward(params, clients.data, streams).logits
        if "mended" not in clients.cache:
            clients.cache["mended"] = self._mended(clients)
        own_rows, whole, training = clients.cache["mended"]
        return clients.network.forward(params, (whole if streams is None else training,), streams).logits[own_rows]

    def _mended(self, clients: ClientBatch) -> tuple[torch.Tensor, Batch, Batch]:
        """Return the rows of the clients' nodes, the mended graphs, and these graphs for training: hidden layers of new
        nodes are computed only if a training node's score depends on them."""
        mending = Mending(clients.batch, torch.cat(clients.state["missing"]))
        mending.fill(torch.cat(clients.state["generated"]))
        clients.state["generated"] = list(mending.features.generated.split(mending.features.extra))  # views: one copy
        near = reach(clients.batch, clients.batch.rows["train"], clients.network.backbones[0].layers - 2)
        return mending.own_rows, *mending.pooled(near.bool())


def add(values: Leaf) -> torch.Tensor:
    """Return the sum of equally shaped tensors; tensors expanded from one zero are left out, or stay expanded."""
    stored = [value for value in values if any(value.stride())]
    return reduce(torch.add, stored or values[:1])
