"""One run: set-up, training round by round, evaluation after each round, and the outcome of the best round."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...datasets.corruptions import reversed_labels, stressed
from ...datasets.federation import Federation, GraphClient
from ...metrics import ADAPTED, UNSEEN, sign
from ...registry import UserError
from .backbone import Backbone, Params
from .client_batch import ClientBatch, Skip
from .config import TrainConfig
from .device import HOST, on_host
from .evaluate import TASKS, Diverged, Evaluator, Models, steps_of_an_epoch
from .hostile import hostile_clients
from .method import METHODS, Arrangement, Method, effective_training
from .optim import counting
from .outcome import BestRound, Outcome, Round, matrix_of, mean, none_if_nan, scores
from .placing import on
from .rng import stream
from .sampled_batch import misfit
from .simulation import Simulation, client_batches
from .views import Facts, hide_labels

OnRound = Callable[[int, dict[str, float]], None]
OnBest = Callable[[Evaluator, Models], None]


def train(
    federation: Federation,
    method: Method,
    backbones: Sequence[Backbone],
    config: TrainConfig,
    seed: int,
    *,
    clients_per_batch: int | None = None,
    on_round: OnRound | None = None,
    on_best: OnBest | None = None,
    device: torch.device = HOST,
) -> Outcome:
    """Train a method on a federated dataset and score it.

    backbones: client k has entry k mod len. clients_per_batch: clients trained together (None: chosen for speed);
    the result does not depend on it except for float32 rounding. on_round: called after each scored round with its
    figures. on_best: called once, at the end, with the evaluator and the models of the best round. device: of the
    computation. With `config.unseen` a part of the clients is not trained on, and `per_client` has the scores of all
    (`UnseenClients`). If outputs are no longer finite, training ends, the best earlier round is scored, and `notes`
    says so.
    Raises Skip if the method does not apply, Diverged if outputs are not finite and no earlier round can be scored,
    UserError if the method breaks a rule (see `set_up`) or its predictions have a wrong type or shape.
    """
    start = time.perf_counter()
    with counting() as steps, on(device):
        unseen = UnseenClients(federation, method, config, seed) if config.unseen else None
        federation = unseen.seen if unseen else federation
        simulation, evaluator = set_up(federation, method, backbones, config, seed, clients_per_batch)
        selection, model, diverged = _rounds(simulation, evaluator, on_round)
        if not selection.rounds:
            raise UserError(f"{method.name}: `phases` has no round that is scored; give one phase scored=True")
        best = selection.best
        idle = "no client trained in any round: training.failure" if config.failure and not steps.most() else ""
        matrix, local = selection.matrix or matrix_of(evaluator, best.models)
        outcome = Outcome(
            score=none_if_nan(best.figures["score"]),
            score_metric=evaluator.describe(model, simulation.config.score_on),
            val=none_if_nan(best.figures["val"]),
            **scores(best.scored),
            **matrix,
            best_round=best.number,
            rounds=selection.rounds,
            upload_bytes=int(selection.history["upload_bytes"][-1]),
            download_bytes=int(selection.history["download_bytes"][-1]),
            upload_bytes_best=int(best.figures["upload_bytes"]),
            download_bytes_best=int(best.figures["download_bytes"]),
            train_seconds=simulation.seconds,
            optimiser_steps=steps.most(),
            model_steps=steps.most(of_a_parameter=True),
            budget_steps=config.total_epochs * steps_of_an_epoch(federation, config),
            dp_epsilon=simulation.privacy.epsilon,
            history=selection.history,
            per_client={"val": best.scored.val.tolist(), "score": best.scored.test.tolist(), **local},
            notes=(*evaluator.original.notes, *filter(None, [diverged, idle])),
            training=simulation.config,
        )
        if unseen:
            unseen.add_to(outcome, simulation, best.models)
        outcome.total_seconds = time.perf_counter() - start
        if on_best is not None:
            on_best(evaluator, best.models)
    return outcome


def _rounds(simulation: Simulation, evaluator: Evaluator, on_round: OnRound | None) -> tuple[BestRound, str, str]:
    """Train and score round by round. Return the selection, the scored model, and a note if the run diverged."""
    method, config = simulation.method, simulation.config
    selection, model = BestRound(config, sign(evaluator.describe("global", config.score_on))), ""
    for phase in method.phases(config):
        for number in range(1, phase.length(simulation.server) + 1):
            simulation.round(phase, number)
            if not phase.scored:
                continue
            models = simulation.models()
            model = model or _scored_model(method, config, models)
            now = selection.rounds + 1
            try:
                seen = _evaluate(evaluator, simulation, models, model, now)
            except Diverged as error:
                message = f"{error} after round {now}"
                if not selection.rounds or config.select_by == "last":
                    raise Diverged(f"{message}: lower the learning rate or the method's loss weights") from None
                return selection, model, f"{message}: round {selection.best.number} is scored, the best before"
            if selection.add(seen) and method.predicts_by_state:
                selection.matrix = matrix_of(evaluator, models)
            if on_round is not None:
                on_round(seen.number, seen.figures)
            if selection.stops:
                break
    return selection, model, ""


def set_up(
    federation: Federation,
    method: Method,
    backbones: Sequence[Backbone],
    config: TrainConfig,
    seed: int,
    clients_per_batch: int | None = None,
) -> tuple[Simulation, Evaluator]:
    """Return the simulation of a run before its first round, and its evaluator. Arguments as for `train`.

    The method trains on the federated dataset with the corruptions of `config`, without hidden labels. Raises Skip if
    it does not apply, UserError if it pools clients' data and is no reference of the package, or if it changes how it
    is scored.
    """
    federation = stressed(federation, config)
    hostile = hostile_clients(config.label_flip, len(federation.clients), seed)
    federation = reversed_labels(federation, hostile)
    backbones = method.architecture(backbones)
    reason = method.skip(Facts.of(federation), backbones)
    if reason:
        raise Skip(reason)
    config = effective_training(method, config)
    if not method.travels and config.score_on != "local":
        raise Skip(f"{method.name}'s models are bound to their client's own graph and cannot be scored on another")
    if reason := TASKS[federation.task].refused(config):
        raise Skip(reason)
    if federation.domains and config.score_on != "local":
        raise Skip("clients have classes of their own: there is no whole and no union to score a model on")
    if TASKS[federation.task].sampled and (reason := misfit(method, backbones, config)):
        raise Skip(reason)
    arrangement = _arranged(method, hide_labels(federation), config)
    simulation = Simulation(method, arrangement, backbones, config, seed, clients_per_batch)
    return simulation, TASKS[federation.task].evaluator(method, federation, arrangement, simulation.client_batches)


def _arranged(method: Method, visible: Federation, config: TrainConfig) -> Arrangement:
    """Return the data to train on: the dataset as partitioned, except for the package's own references.

    Raises Skip if such a reference pools the clients' data and `config` needs separate clients, UserError if another
    method rearranges data.
    """
    if type(method).arrange is Method.arrange:
        return Arrangement(visible)
    if not (method.reference and METHODS.is_own(type(method))):
        raise UserError(
            f"{method.name} rearranges the clients' data: only the package's own references may (as `global` does); "
            "change a client's own data in `prepare`"
        )
    if config.needs_clients:
        raise Skip(f"{method.name} pools the clients' data: {' and '.join(config.needs_clients)} cannot apply")
    with on_host():
        return method.arrange(visible)


def _scored_model(method: Method, config: TrainConfig, models: Models) -> str:
    """Return which model is scored, "global" or "personal"; "personal" if there is no global model.

    Raises Skip if unseen clients need a global model, or the configuration personal ones, and there is none.
    """
    if config.unseen and models.server is None:
        raise Skip(f"{method.name} has no global model: nothing serves a client that took no part")
    model = method.delivers if config.score_model == "auto" else config.score_model
    if model == "personal" and models.personal is None:
        raise Skip(f"{method.name} has no personal models: leave training.score_model out")
    return "personal" if model == "global" and models.server is None else model


def _evaluate(evaluator: Evaluator, simulation: Simulation, models: Models, model: str, number: int) -> Round:
    """Score the models of a round that has just ended."""
    config = simulation.config
    scored = evaluator.score(models, model, config.score_on, with_loss=config.select_by == "val_loss")
    assert scored is not None, f"{evaluator.method.name} delivers no {model} model"
    figures = {
        "val": mean(scored.val),
        "score": mean(scored.test),
        "upload_bytes": sum(simulation.upload_bytes),
        "download_bytes": sum(simulation.download_bytes),
        "seconds": simulation.seconds,
    }
    loss = {} if scored.val_loss is None else {"val_loss": scored.val_loss}
    return Round(number, figures | loss, scored, models)


class UnseenClients:
    """The clients held out of training. numbers: of these in the federation, ascending. seen: the other clients."""

    def __init__(self, federation: Federation, method: Method, config: TrainConfig, seed: int) -> None:
        """Raises Skip for a method without a model for unseen clients, UserError if there is only one client."""
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
        """Add the figures of unseen clients to `per_client`; its columns then have all clients (nan: no figure)."""
        figures = {name: self._among_all(self._places, values) for name, values in outcome.per_client.items()}
        outcome.per_client = figures | self._scores(simulation, best)
        outcome.notes = (*outcome.notes, self.note)

    def _scores(self, simulation: Simulation, best: Models) -> dict[str, list[float]]:
        """Columns of `per_client` with the test figures of unseen clients, nan for seen clients.

        With `unseen_epochs` there is a column `ADAPTED`, if the method trains and predicts by the network's outputs.
        Raises Diverged if outputs are not finite.
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
            with counting():  # these steps do not count as training
                figures[ADAPTED] = scores_of(
                    Models(None, [self._adapted(clients, server) for clients in batches]), "personal"
                )
        return figures

    def _adapted(self, clients: ClientBatch, server: Params) -> Params:
        """The clients' models (K, ...) after local epochs from the global model."""
        clients.load({name: value.expand(len(clients), *value.shape) for name, value in server.items()})
        clients.fit(lambda batch: batch.loss(batch.forward().logits), self.epochs)
        return clients.params

    def _among_all(self, places: Sequence[int], values: Sequence[float]) -> list[float]:
        figures = [math.nan] * self.clients
        for place, value in zip(places, values, strict=True):
            figures[place] = value
        return figures


def _part(federation: Federation, places: Sequence[int]) -> Federation:
    """The federation of some of the clients; rows that none of them has are in no part of the split."""
    clients: list[Any] = [federation.clients[place] for place in places]
    held = torch.zeros(len(federation.whole.label), dtype=torch.bool)
    for client in clients:
        held[client.global_id if isinstance(client, GraphClient) else client.graph.ndata["global_id"]] = True
    masks = {part: mask & held for part, mask in federation.masks.items()}
    return replace(federation, clients=clients, masks=masks)
