"""Checks for leakage: labels, other clients' data, and steps that are not counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from torch.optim.optimizer import register_optimizer_step_pre_hook

from ...datasets.federation import Federation
from ...metrics import sign
from ..engine import METHODS, Method, Step, Tree, train
from ..engine.client_batch import ClientBatch
from ..engine.evaluate import MEASURES
from ..engine.simulation import Simulation
from ..engine.step_counter import counting
from .altered import drawn, perturbed, relabelled
from .trial import Trial, scored_labels
from .verdicts import ContractError, Inapplicable, compare, demand, difference, fitting, guarded_run, plain_run


def learns_nothing_from_scoring(method: Method) -> None:
    """Being scored after each round, on graphs that no client has too, leaves no trace in what is trained."""
    for trial in fitting(method):
        run = guarded_run(method, trial, scored=True)
        compare(plain_run(method, trial), run, trial, "changes when the models are scored after each round", exact=True)


def stays_local(method: Method, among: Sequence[Trial] | None = None) -> None:
    """One client's private data has no part in another's uploads: those stay when only the former changes.

    The clients get the messages of the first run again, so that nothing reaches them through the server either.
    """
    for trial in fitting(method, among):
        _demand_apart(method)
        run, clients = plain_run(method, trial), range(len(trial.federation.clients))
        for victim in (clients[0], clients[-1]):
            moved = replace(trial, federation=perturbed(trial.federation, victim))
            other, others = guarded_run(method, moved, replay=run), {*clients} - {victim}
            found = difference(run.of(others), other.of(others))
            demand(not found, f"on {trial.name}: {found} with the private data of client {victim}")
            mine = run.of({victim}) if method.trains else []  # counts of labels may be the same with other labels
            moves = not mine or difference(mine, other.of({victim}))
            demand(moves, f"on {trial.name}: client {victim}'s data changes nothing, not even its uploads")


def _demand_apart(method: Method) -> None:
    """Inapplicable for a reference of the package that pools the clients' data; ContractError for any other method."""
    if type(method).arrange is Method.arrange:
        return
    if method.reference and METHODS.is_own(type(method)):
        raise Inapplicable("it pools the data of all clients, as a reference of the package may")
    raise ContractError("rearranges the clients' data, which only the package's own references may")


def counts_its_steps(method: Method, among: Sequence[Trial] | None = None) -> None:
    """Clients step the engine's optimisers, whose steps the row counts, and those of torch.optim in `TorchMethod.train`
    alone, where they are counted too."""
    for trial in fitting(method, among):
        stepped = Counter[str]()

        def wrap(simulation: Simulation, step: Step, stepped: Counter[str] = stepped) -> Step:
            def client(cohort: ClientBatch) -> Tree:
                hook = register_optimizer_step_pre_hook(lambda *_: stepped.update(["torch.optim"]))
                try:
                    return step.client(cohort)
                finally:
                    hook.remove()

            return replace(step, client=client)

        with counting() as counter:
            guarded_run(method, trial, scored=True, wrap=wrap)
        uncounted = stepped.total() - counter.of_torch
        demand(uncounted <= 0, f"on {trial.name}: steps an optimiser of torch.optim, which no row counts")


def sees_no_hidden_label(method: Method, among: Sequence[Trial] | None = None) -> None:
    """Neither training nor prediction uses the label of a node at a client for which it is no training node, nor of a
    graph."""
    for trial in fitting(method, among):
        moved = replace(trial, federation=relabelled(trial.federation))
        run, plain = guarded_run(method, moved), plain_run(method, trial)
        compare(plain, run, trial, "changes with labels that no client may know", exact=True)
        found = difference(plain.predictions, run.predictions, exact=True)
        demand(not found, f"on {trial.name}: {found} changes with labels that no client may know")


def knows_no_random_label(method: Method, among: Sequence[Trial] | None = None) -> None:
    """Where the labels to be predicted are drawn at random no method is right more often than chance has it: who is has
    seen them, or counts for itself. Numbers are drawn from 1 and -1, whose error is 1 where 0 is predicted."""
    for trial in [replace(trial, federation=drawn(trial.federation)) for trial in fitting(method, among)]:
        score = train(trial.federation, method, trial.backbones, trial.config, 0).score or 0.0
        scored, classes = _scored(trial.federation), trial.federation.num_classes
        if sign(MEASURES[trial.federation.scored_by]) < 0:
            # Predicting p, of size s, has the mean squared error 1 - 2 mean(p y) + s^2, and mean(p y) the deviation
            # s / sqrt(n): with six of these it is at least 1 - 36 / n.
            demand(score > max(0.0, 1 - 36 / scored) ** 0.5, f"on {trial.name}: an error of {score} in random numbers")
            continue
        bound = 1 / classes + 6 * (1 / classes * (1 - 1 / classes) / scored) ** 0.5
        demand(score < bound, f"on {trial.name}: {score} of labels drawn at random are right")


def _scored(federation: Federation) -> int:
    """Nodes or graphs that are scored: those of the client that has fewest count for as much as all others'."""
    if federation.task == "graph":
        return len(federation.whole.label)
    held = [len(scored_labels(own)) for own in federation.clients]
    return len(held) * max(1, min(held))
