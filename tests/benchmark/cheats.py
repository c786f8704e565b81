"""Methods that cheat: each gains nothing, or is refused, marked or found by a check."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from fglbench.benchmark.engine import Arrangement, ClientBatch, Method, Phase, Step
from fglbench.benchmark.engine.optim import StackedOptimiser
from fglbench.benchmark.engine.target import Target
from fglbench.datasets.federation import Federation
from fglbench.methods.fedavg import FedAvg, Global

REMEMBERED: dict[str, Any] = {}  # a module may remember anything


def with_known_labels(logits: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Scores with every known label as the prediction."""
    known = label >= 0
    answer = F.one_hot(label.clamp(min=0), logits.shape[1]).float() * 1e3
    return torch.where(known.unsqueeze(1), answer, logits)


def loss_on(clients: ClientBatch, rows: torch.Tensor) -> torch.Tensor:
    """(K,) cross-entropy on any rows whose label is known."""
    batch = clients.batch
    rows = rows[batch.label[rows] >= 0]
    values = F.cross_entropy(clients.forward().logits[rows], batch.label[rows], reduction="none")
    return clients.mean_over(values, rows)


def right(clients: ClientBatch, part: str) -> float:
    """Accuracy of the clients' models on a part, where its labels are known."""
    batch = clients.batch
    rows = batch.rows[part][batch.label[batch.rows[part]] >= 0]
    if not len(rows):
        return 0.0
    return float((clients.forward(training=False).logits[rows].argmax(1) == batch.label[rows]).float().mean())


# -- labels that may not be seen -------------------------------------------------------------------------------------


class TrainsOnTest(FedAvg):
    """Trains on test nodes too."""

    def local_loss(self, clients):
        return loss_on(clients, torch.cat([clients.batch.rows["train"], clients.batch.rows["test"]]))


class AnswersOwn(FedAvg):
    """Answers with the labels of the batch."""

    def predict_own(self, params, clients):
        return with_known_labels(super().predict_own(params, clients), clients.batch.label)


class AnswersAnywhere(FedAvg):
    """Answers with the labels of every batch that it predicts on."""

    def predict(self, params, network, data):
        return with_known_labels(super().predict(params, network, data), torch.cat([batch.label for batch in data]))


class KeepsTheBest(FedAvg):
    """Its personal models are those with the best score on test nodes."""

    delivers = "personal"

    def personal_model(self, clients):
        best = clients.cache.get("best", (-1.0, None))
        score = right(clients, "test")
        if score > best[0]:
            best = clients.cache["best"] = (score, {name: value.clone() for name, value in clients.params.items()})
        return best[1]


class ReadsTheGraph(FedAvg):
    """Answers with the labels on the graph of the batch."""

    def predict(self, params, network, data):
        labels = [batch.graph.ndata.get("label", batch.label) for batch in data]
        return with_known_labels(super().predict(params, network, data), torch.cat(labels))


class ArrangesToRemember(FedAvg):
    """Remembers the labels of the whole graph from `arrange`."""

    def arrange(self, federation):
        REMEMBERED["whole"] = federation.whole.label
        return super().arrange(federation)

    def predict_own(self, params, clients):
        return with_known_labels(super().predict_own(params, clients), REMEMBERED["whole"][clients.batch.global_id])


class ComesBackFromTheCollector(FedAvg):
    """Finds the truth among all objects of the process."""

    def predict_own(self, params, clients):
        logits, batch = super().predict_own(params, clients), clients.batch
        shown = batch.label >= 0
        for item in gc.get_objects():
            if (
                type(item) is Federation
                and len(item.whole.label) == len(logits)
                and bool((item.whole.label >= 0).all())
            ):
                label = item.whole.label[batch.global_id]
                if bool((label == batch.label)[shown].all()):
                    return with_known_labels(logits, label)
        return logits


class RemembersOtherCells(FedAvg):
    """Keeps training labels of all runs: training nodes of another seed are test nodes of this one."""

    def prepare(self, clients):
        super().prepare(clients)
        known = REMEMBERED.setdefault("cells", {})
        batch = clients.batch
        for node, label in zip(batch.global_id.tolist(), batch.label.tolist(), strict=True):
            if label >= 0:
                known[len(batch.label), node] = label

    def local_loss(self, clients):
        batch = clients.batch
        label = [REMEMBERED["cells"].get((len(batch.label), node), -1) for node in batch.global_id.tolist()]
        rows = (torch.tensor(label) >= 0).nonzero().squeeze(1)
        values = F.cross_entropy(clients.forward().logits[rows], torch.tensor(label)[rows], reduction="none")
        return clients.mean_over(values, rows)


# -- scores ----------------------------------------------------------------------------------------------------------


class Agreeable(torch.Tensor):
    """Equals everything."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__eq__ or func is torch.eq:
            return torch.ones(args[0].shape, dtype=torch.bool)
        return super().__torch_function__(func, types, args, kwargs or {})


class AgreesWithTheTruth(FedAvg):
    """Predicts tensors that compare equal to anything."""

    def predict_own(self, params, clients):
        return super().predict_own(params, clients).as_subclass(Agreeable)


class EasyTest(FedAvg):
    """Replaces test masks by training masks, in place, in all objects that it gets."""

    def prepare(self, clients):
        super().prepare(clients)
        for member in clients.members:
            member.graph.ndata["test_mask"][:] = member.graph.ndata["train_mask"]
        clients.batch.masks["test"][:] = clients.batch.masks["train"]


class CountsForItself(FedAvg):
    """Replaces the accuracy of the engine."""

    def predict_own(self, params, clients):
        REMEMBERED.setdefault("accuracy", Target.accuracy)
        Target.accuracy = lambda target, predicted, part: torch.ones(target.clients)
        return super().predict_own(params, clients)


# -- other clients' data ---------------------------------------------------------------------------------------------


class Pooled(Global):
    """Centralised training under another name."""


class ArrangesMasks(FedAvg):
    """Trains on all nodes: it arranges the masks."""

    def arrange(self, federation):
        clients = []
        for client in federation.clients:
            graph = client.graph.local_var()
            graph.ndata["train_mask"] = torch.ones(graph.num_nodes(), dtype=torch.bool)
            clients.append(replace(client, graph=graph))
        return Arrangement(replace(federation, clients=clients))


class ArrangesInPlace(FedAvg):
    """Replaces all clients by the first, in place, and returns its input."""

    def arrange(self, federation):
        if federation.task == "node":
            federation.clients[:] = [federation.clients[0]] * len(federation.clients)
        return Arrangement(federation)


class Whispers(FedAvg):
    """Clients exchange values through the module."""

    def client(self, clients):
        upload = super().client(clients)
        previous = REMEMBERED.setdefault("whispers", torch.zeros(()))
        REMEMBERED["whispers"] = clients.batch.x.dense().mean()
        return upload | {"whisper": (previous + REMEMBERED["whispers"]).expand(len(clients), 1).clone()}


# -- budget ----------------------------------------------------------------------------------------------------------


class MoreRounds(FedAvg):
    """Asks for more rounds."""

    def protocol(self, config):
        return config.model_copy(update={"rounds": 3 * config.rounds, "local_epochs": 2 * config.local_epochs})


class LongPhase(FedAvg):
    """Has a phase longer than the given rounds."""

    def phases(self, config):
        return [Phase((Step(self.client, self.server),), 3 * config.rounds)]


class WarmUp(FedAvg):
    """Trains before the rounds that are scored."""

    def phases(self, config):
        step = Step(self.client, self.server)
        return [Phase((step,), 3 * config.rounds, scored=False, name="warm-up"), *super().phases(config)]


class MoreEpochs(FedAvg):
    """Trains longer in every round."""

    def client(self, clients):
        clients.load(clients.received["model"])
        clients.fit(self.local_loss, 4 * clients.config.local_epochs)
        return {"model": clients.params}


class OptimiserByHand(FedAvg):
    """Takes steps of an optimiser that belongs to no client."""

    def client(self, clients):
        upload = super().client(clients)
        optimiser = StackedOptimiser(clients.config)
        for _ in range(4 * clients.config.local_epochs):
            for value in clients.params.values():
                value.requires_grad_(True)
            loss = self.local_loss(clients).sum()
            grads = torch.autograd.grad(loss, list(clients.params.values()))
            for value in clients.params.values():
                value.requires_grad_(False)
            optimiser.step(clients.params, dict(zip(clients.params, grads, strict=True)))
        return upload


class TrainsWhenAsked(FedAvg):
    """Trains its personal models when they are requested."""

    delivers = "personal"

    def personal_model(self, clients):
        clients.fit(self.local_loss, 10)
        return clients.params


class OwnOptimiser(FedAvg):
    """Trains on with torch.optim."""

    def client(self, clients):
        upload = super().client(clients)
        params = {name: value.clone().requires_grad_() for name, value in clients.params.items()}
        optimiser = torch.optim.Adam(list(params.values()), lr=0.01)
        for _ in range(10):
            optimiser.zero_grad()
            clients.cross_entropy(clients.forward(params).logits).sum().backward()
            optimiser.step()
        clients.load({name: value.detach() for name, value in params.items()})
        return upload | {"model": clients.params}


# Result of each. "nothing": the score of honest training, bitwise identical, or less. "refused": the run fails with a
# reason. "over": its rows are marked. The name of a check: this check fails.
OUTCOMES: dict[type[Method], str] = {
    TrainsOnTest: "nothing", AnswersOwn: "nothing", AnswersAnywhere: "nothing",
    KeepsTheBest: "nothing", ReadsTheGraph: "nothing",
    ArrangesToRemember: "refused",
    ComesBackFromTheCollector: "knows_no_random_label", CountsForItself: "knows_no_random_label",
    RemembersOtherCells: "repeats_itself",
    AgreesWithTheTruth: "refused", EasyTest: "nothing",
    Pooled: "refused", ArrangesMasks: "refused", ArrangesInPlace: "refused",
    Whispers: "stays_local",
    MoreRounds: "refused", LongPhase: "over", WarmUp: "over", MoreEpochs: "over",
    OptimiserByHand: "over", TrainsWhenAsked: "over",
    OwnOptimiser: "counts_its_steps",
}  # fmt: skip
