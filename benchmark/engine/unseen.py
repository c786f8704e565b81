"""Clients that are held out of training and scored afterwards: how the global model scores at a new client.

They get and send nothing in any round and have no part in the choice of the best round. The global model of that round
is scored on their test rows as it is (`UNSEEN`), and after `unseen_epochs` local epochs from it on their own training
rows with the task's loss, the run's optimiser and no message (`ADAPTED`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ...datasets.federation import Federation, GraphClient, NodeClient
from ...metrics import ADAPTED, UNSEEN
from ...registry import UserError
from . import measuring
from .backbones import Params
from .client_batch import ClientBatch, Skip
from .config import TrainConfig
from .evaluate import Diverged, Models
from .method import Arrangement, Method
from .outcome import Outcome
from .rng import stream
from .simulation import Simulation, client_batches
from .task import TASKS
from .views import hide_labels


class UnseenClients:
    """The clients that a run holds out. numbers: theirs in the federation, ascending. seen: what is trained on."""

    def __init__(self, federation: Federation, method: Method, config: TrainConfig, seed: int) -> None:
        """Raises Skip for a method without a model for such clients, UserError where no client would be left."""
        self.clients, self.method, self.epochs = len(federation.clients), method, config.unseen_epochs
        if self.clients < 2:
            raise UserError("training.unseen holds clients out of training, and there is one client: give more clients")
        if federation.task == "graph":
            raise Skip("graphs are clustered as one set: no client has a score of its own")
        if federation.domains:
            raise Skip("clients have features of their own: a new one has no first and last layers")
        if type(method).arrange is not Method.arrange:
            raise Skip(f"{method.name} pools the data of all clients, those that are held out too")
        if type(method).predict_own is not Method.predict_own:
            raise Skip(
                f"{method.name} predicts with what training leaves at a client, and an unseen one has none of it"
            )
        count = min(max(1, round(config.unseen * self.clients)), self.clients - 1)
        self.numbers = sorted(stream(seed, "unseen").permutation(self.clients)[:count].tolist())
        self._places = [k for k in range(self.clients) if k not in self.numbers]
        self.seen, self._held = _part(federation, self._places), _part(federation, self.numbers)

    @property
    def note(self) -> str:
        return f"held out of training: client {', '.join(map(str, self.numbers))}"

    def add_to(self, outcome: Outcome, simulation: Simulation, best: Models) -> None:
        """Add the clients' figures to those per client, in which every client then has its place (nan: no figure)."""
        figures = {name: self._among_all(self._places, values) for name, values in outcome.per_client.items()}
        outcome.per_client = figures | self._scores(simulation, best)
        outcome.notes = (*outcome.notes, self.note)

    def _scores(self, simulation: Simulation, best: Models) -> dict[str, list[float]]:
        """The test figures of each client by their names, nan at the seen ones.

        `ADAPTED` is there with `unseen_epochs`, for methods that learn and predict by the network's outputs. Raises
        Diverged where outputs are not finite.
        """
        server = best.server
        assert server is not None, "a run without a global model has ended before"
        batches = client_batches(hide_labels(self._held), simulation.server, simulation.config)
        task = TASKS[self._held.task]
        evaluator = task.evaluator(self.method, self._held, Arrangement(self._held), batches)

        def scores_of(models: Models, model: str) -> list[float]:
            try:
                scored = evaluator.score(models, model, "local")
            except Diverged as error:
                raise Diverged(f"{error} on the clients held out of training") from None
            assert scored is not None
            return self._among_all(self.numbers, scored.test.tolist())

        figures = {UNSEEN: scores_of(Models(server, None), "global")}
        if self.epochs and self.method.trains and type(self.method).predict is Method.predict:
            with measuring.counting():  # no step of the training that the row counts
                figures[ADAPTED] = scores_of(
                    Models(None, [self._adapted(clients, server) for clients in batches]), "personal"
                )
        return figures

    def _adapted(self, clients: ClientBatch, server: Params) -> Params:
        """The clients' models (K, ...) after local epochs from the global one."""
        clients.load({name: value.expand(len(clients), *value.shape) for name, value in server.items()})
        clients.fit(lambda batch: batch.loss(batch.forward().logits), self.epochs)
        return clients.params

    def _among_all(self, places: Sequence[int], values: Sequence[float]) -> list[float]:
        figures = [math.nan] * self.clients
        for place, value in zip(places, values, strict=True):
            figures[place] = value
        return figures


def _part(federation: Federation, places: Sequence[int]) -> Federation:
    """The federation of some of the clients: what no one of them holds is in no part of the split."""
    clients: list[Any] = [federation.clients[place] for place in places]
    held = torch.zeros(len(federation.whole.label), dtype=torch.bool)
    for client in clients:
        held[_rows(client)] = True
    masks = {part: mask & held for part, mask in federation.masks.items()}
    return replace(federation, clients=clients, masks=masks)


def _rows(client: NodeClient | GraphClient) -> torch.Tensor:
    """The nodes, or graphs, of a client by their places in the whole."""
    return client.global_id if isinstance(client, GraphClient) else client.graph.ndata["global_id"]
