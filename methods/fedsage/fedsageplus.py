"""FedSage+: federated GraphSAGE, and a generator for the neighbours that the cut took away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field

from ...benchmark.engine import (
    METHODS,
    Backbone,
    Cohort,
    Download,
    Each,
    Params,
    Phase,
    Server,
    Step,
    Streams,
    TrainConfig,
    Tree,
    transform,
)
from ...datasets.federation import Federation, NodeClient, NodeData
from .fedsage import FedSage
from .mending import Mending
from .neighgen import WIDTHS
from .turn import Generation, Turn

NOTHING = torch.empty(0)
LIMIT = 8 * 2**30  # bytes that a run may take


@METHODS.register("fedsage+")
class FedSagePlus(FedSage, Generation):
    """Zhang et al., NeurIPS 2021 (arXiv 2106.13430): GraphSAGE on graphs mended by a neighbour generator, NeighGen.

    NeighGen: encoder H^e (GraphSAGE, d -> hidden -> latent, z_i), dGen (linear, ReLU: n~_i missing neighbours), fGen
    (z_i + N(0, 1) noise -> 256 -> 2048 -> dropout -> P maps to d, tanh: features x~_ip). A client hides a share of its
    validation nodes; n_i and x_iq are the hidden neighbours of node i. On the training nodes T of the impaired graph
    L = a SmoothL1(n~, n) + b/|T| sum_i sum_{p <= n~_i} min_{q <= n_i} ||x~_ip - x_iq||^2 + c CE(classifier, mended)
    (a node that lacks none has no feature term; the classifier sees the impaired graph, mended).

    Before the rounds each client i takes a turn, alone, so that only one generator exists at a time:
    1. `generator_epochs` on L: encoder, dGen, fGen and a classifier together, the latter from the initial model.
    2. `exchange_epochs` in which fGen alone learns L + b sum_{j != i} L_ij, L_ij the feature term with P random
       neighbours of a random node of client j as each node's targets. i sends fGen, z_i + noise and n~_i of its
       training nodes; the server passes them to every j, which returns the gradient of L_ij; the server adds these up.
       The dropout mask of those rows is drawn from a stream that all share. No client sees another's features.
    3. It mends its graph with round(n~_i) <= P new neighbours a node, joined both ways.
    Then FedAvg of the classifier on the mended graphs, as `fedsage`, from the initial model.

    Messages: before the rounds, in each exchange epoch of i: |fGen| + |T| (latent + 1) up from i and down to each other
    client, |fGen| up from each of them, and |fGen|, their sum, down to i. In the rounds theta up and down.

    Departures: the released code truncates n~_i in training (`training_number`); takes zero features for a match;
    divides the whole by K, which Adam undoes; lets decay act on the maps of slots that no node uses, which rest here;
    and makes the exchange by reading the other clients' features. Scored on the mended graphs, as OpenFGL does; the
    whole graph is never mended, as in the original.
    """

    score_on: Literal["mended", "own"] = Field("mended", description="clients' graphs as mended, or as they were cut")

    def skip(self, federation: Federation, backbones: Sequence[Backbone]) -> str | None:
        reason = super().skip(federation, backbones)
        if reason or self.neighbours == 0:
            return reason
        need = self._bytes(federation)
        if need > LIMIT:
            return f"{self.name} needs about {need / 2**30:.1f} GiB for generators and generated features, limit 8 GiB"
        return None

    def _bytes(self, federation: Federation) -> float:
        """Bytes of fGen with Adam's moments, own and summed gradient, all answers, and the new nodes' features."""
        d, data = federation.num_features, federation.whole
        assert isinstance(data, NodeData)
        weights = self.latent * WIDTHS[0] + WIDTHS[0] * WIDTHS[1] + WIDTHS[1] * self.neighbours * d
        made = 0.0
        for client in federation.clients:
            assert isinstance(client, NodeClient)
            share = self.hidden_share * float(client.graph.ndata["val_mask"].float().mean())
            made += float((share * client.graph.in_degrees()).clamp(max=self.neighbours).sum())
        return 4 * (weights * (len(federation.clients) + 5) + made * d)

    def phases(self, config: TrainConfig) -> list[Phase]:
        turns = Phase(
            (Step(self.offer, self.relay), Step(self.answer, self.collect)),
            lambda server: server.clients * (self.exchange_epochs + 1),
            scored=False,
            name="generator",
            everyone=True,
        )
        return [turns] * (self.neighbours > 0) + super().phases(config)

    def _turn(self, number: int) -> tuple[int, int]:
        """(client, epoch) of a round of the generator phase: every client has exchange_epochs + 1 rounds in a row."""
        return divmod(number - 1, self.exchange_epochs + 1)

    # -- the generator's turn ---------------------------------------------------------------------------------------

    def offer(self, cohort: Cohort) -> Tree:
        """The client whose turn it is trains and shows its generator; at the end of its turn it mends its graph."""
        if cohort.round == 1:
            cohort.load(cohort.received["model"])
            cohort.state |= {"turn": [None] * len(cohort)}
            cohort.state |= {name: [NOTHING] * len(cohort) for name in ("missing", "generated")}
        owner, epoch = self._turn(cohort.round)
        shown = {name: [NOTHING] * len(cohort) for name in self.generator.shown}
        encoding, missing = [NOTHING] * len(cohort), [NOTHING] * len(cohort)
        if owner in cohort.clients:
            at = cohort.clients.index(owner)
            if epoch == 0:
                cohort.state["turn"][at] = Turn(self, cohort, at)
            turn: Turn = cohort.state["turn"][at]
            if epoch > 0:
                turn.refine({name: values[at] for name, values in cohort.received["gradient"].items()})
            if epoch < self.exchange_epochs:
                turn.draw(epoch)
                for name in shown:
                    shown[name][at] = turn.params[name][0]
                encoding[at], missing[at] = turn.noisy[turn.rows], turn.missing[turn.rows]
            else:
                cohort.state["missing"][at], cohort.state["generated"][at] = turn.mend(cohort.members[at])
                cohort.state["turn"][at] = None
        return {"generator": shown, "encoding": encoding, "missing": missing}

    def relay(self, server: Server, uploads: Tree) -> Download:
        """What the client in turn has shown, to all others."""
        owner, epoch = self._turn(server.round)
        if epoch == self.exchange_epochs:
            return {}

        def others(values: list[torch.Tensor]) -> list[torch.Tensor]:
            return [NOTHING if k == owner else values[owner] for k in range(server.clients)]

        shown = {name: others(values) for name, values in uploads["generator"].items()}
        return Each(
            {"generator": shown, "encoding": others(uploads["encoding"]), "missing": others(uploads["missing"])}
        )

    def answer(self, cohort: Cohort) -> Tree:
        """The gradient of the generator in turn on each other client's neighbours."""
        if not cohort.received:
            return {}
        owner, epoch = self._turn(cohort.round)
        gradient = {name: [NOTHING] * len(cohort) for name in self.generator.shown}
        others = [at for at, client in enumerate(cohort.clients) if client != owner]
        if others:
            received = transform(cohort.received, lambda values: values[others[0]])
            found = self.answers(cohort, others, owner, epoch, received)
            for at, own in zip(others, found, strict=True):
                for name, value in own.items():
                    gradient[name][at] = value
        return {"gradient": gradient}

    def collect(self, server: Server, uploads: Tree) -> Download:
        """The sum of the answers, to the client in turn."""
        if not uploads:
            return {}
        owner, _ = self._turn(server.round)

        def total(values: list[torch.Tensor]) -> list[torch.Tensor]:
            answers = [value for client, value in enumerate(values) if client != owner]
            return [add(answers) if client == owner else NOTHING for client in range(server.clients)]

        return Each({"gradient": {name: total(values) for name, values in uploads["gradient"].items()}})

    # -- the rounds -------------------------------------------------------------------------------------------------

    def client(self, cohort: Cohort) -> Tree:
        if cohort.received:  # nothing before the first round: the initial model came before the generators
            cohort.load(cohort.received["model"])
        cohort.fit(self.local_loss)
        return {"model": cohort.params}

    def local_loss(self, cohort: Cohort) -> torch.Tensor:
        return cohort.cross_entropy(self._logits(cohort, cohort.params, cohort.streams))

    def _logits(self, cohort: Cohort, params: Params, streams: Streams | None) -> torch.Tensor:
        """(N, C) scores of the clients' own nodes in their mended graphs."""
        if self.neighbours == 0:
            return cohort.network.forward(params, cohort.data, streams).logits
        if "mended" not in cohort.cache:
            mending = Mending(cohort.batch, torch.cat(cohort.state["missing"]))
            mending.fill(torch.cat(cohort.state["generated"]))
            cohort.state["generated"] = list(mending.features.generated.split(mending.features.extra))  # not kept twice
            cohort.cache["mended"] = mending
        mending = cohort.cache["mended"]
        return cohort.network.forward(params, (mending.batch,), streams).logits[mending.own]

    @torch.no_grad()
    def predict_own(self, params: Params, cohort: Cohort) -> torch.Tensor:
        if self.score_on == "own":
            return super().predict_own(params, cohort)
        return self._logits(cohort, params, None)


def add(values: list[torch.Tensor]) -> torch.Tensor:
    """The sum of equally shaped tensors; zeros that are expanded from one stay so."""
    stored = [value for value in values if any(value.stride())]
    if len(stored) < 2:
        return (stored or values)[0]
    total = stored[0] + stored[1]
    for value in stored[2:]:
        total += value
    return total
