"""The contract of methods: checks of `fglbench check`.

Each check runs the method on small generated federations and raises ContractError with one line on the problem.
`CHECKS` has them by name; those on private data, labels and steps also run on a real dataset (`ON_REAL`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from torch.optim.optimizer import register_optimizer_step_pre_hook

from ...datasets.federation import Federation
from ...metrics import sign
from ..engine import MEASURES, METHODS, ClientBatch, Method, Step, Tree
from ..engine.optim import counting
from ..engine.simulation import Simulation
from ..engine.train import train
from .recording import (
    ContractError,
    Inapplicable,
    Judgement,
    compare,
    demand,
    difference,
    fitting,
    guarded_run,
    judged,
    named,
    plain_run,
)
from .trial import Trial, drawn, perturbed, relabelled, scored_labels, swapped


def learns_nothing_from_scoring(method: Method) -> None:
    """Scoring after each round, also on graphs that no client has, does not change the training."""
    for trial in fitting(method):
        run = guarded_run(method, trial, scored=True)
        compare(plain_run(method, trial), run, trial, "changes when the models are scored after each round", exact=True)


def stays_local(method: Method, among: Sequence[Trial] | None = None) -> None:
    """The uploads of a client do not change if only the private data of another client changes.

    In the second run clients get the server's messages of the first, so that the change cannot reach them indirectly.
    """
    for trial in fitting(method, among):
        _demand_separate_clients(method)
        run, clients = plain_run(method, trial), range(len(trial.federation.clients))
        for victim in (clients[0], clients[-1]):
            changed = replace(trial, federation=perturbed(trial.federation, victim))
            other, others = guarded_run(method, changed, replay=run), {*clients} - {victim}
            problem = difference(run.of(others), other.of(others))
            demand(not problem, f"on {trial.name}: {problem} with the private data of client {victim}")
            own = run.of({victim}) if method.trains else []  # counts of labels may be the same with other labels
            differs = not own or difference(own, other.of({victim}))
            demand(differs, f"on {trial.name}: client {victim}'s data changes nothing, not even its uploads")


def _demand_separate_clients(method: Method) -> None:
    """If a method pools the clients' data: Inapplicable for a reference of the package, else ContractError."""
    if type(method).arrange is Method.arrange:
        return
    if method.reference and METHODS.is_own(type(method)):
        raise Inapplicable("it pools the data of all clients, as a reference of the package may")
    raise ContractError("rearranges the clients' data, which only the package's own references may")


def counts_its_steps(method: Method, among: Sequence[Trial] | None = None) -> None:
    """All optimiser steps of clients are counted: those of the engine, and those of torch.optim in `TorchMethod.train`.
    Elsewhere, torch.optim is not allowed."""
    for trial in fitting(method, among):
        stepped = Counter[str]()

        def wrap(simulation: Simulation, step: Step, stepped: Counter[str] = stepped) -> Step:
            def client(clients: ClientBatch) -> Tree:
                hook = register_optimizer_step_pre_hook(lambda *_: stepped.update(["torch.optim"]))
                try:
                    return step.client(clients)
                finally:
                    hook.remove()

            return replace(step, client=client)

        with counting() as counter:
            guarded_run(method, trial, scored=True, wrap=wrap)
        uncounted = stepped.total() - counter.of_torch
        demand(uncounted <= 0, f"on {trial.name}: steps an optimiser of torch.optim, which no row counts")


def sees_no_hidden_label(method: Method, among: Sequence[Trial] | None = None) -> None:
    """Training and prediction use no labels except those of a client's own training nodes (graphs)."""
    for trial in fitting(method, among):
        changed = replace(trial, federation=relabelled(trial.federation))
        run, plain = guarded_run(method, changed), plain_run(method, trial)
        compare(plain, run, trial, "changes with labels that no client may know", exact=True)
        problem = difference(plain.predictions, run.predictions, exact=True)
        demand(not problem, f"on {trial.name}: {problem} changes with labels that no client may know")


def knows_no_random_label(method: Method, among: Sequence[Trial] | None = None) -> None:
    """If hidden labels are drawn at random, the score is not better than chance; else the method has seen them or has
    changed its score. Numbers are drawn from 1 and -1: predicting 0 has the error 1."""
    for trial in [replace(trial, federation=drawn(trial.federation)) for trial in fitting(method, among)]:
        score = train(trial.federation, method, trial.backbones, trial.config, 0).score or 0.0
        scored, classes = _scored(trial.federation), trial.federation.num_classes
        if sign(MEASURES[trial.federation.scored_by]) < 0:
            # Predictions p with mean square s^2 have the mean squared error 1 - 2 mean(p y) + s^2. mean(p y) has the
            # standard deviation s / sqrt(n); six of these give an error of at least 1 - 36 / n.
            demand(score > max(0.0, 1 - 36 / scored) ** 0.5, f"on {trial.name}: an error of {score} in random numbers")
            continue
        bound = 1 / classes + 6 * (1 / classes * (1 - 1 / classes) / scored) ** 0.5
        demand(score < bound, f"on {trial.name}: {score} of labels drawn at random are right")


def _scored(federation: Federation) -> int:
    """The number of scored nodes or graphs that determines the spread of the score: clients with the fewest times their
    number, because the score is the mean over clients."""
    if federation.task == "graph":
        return len(federation.whole.label)
    held = [len(scored_labels(client)) for client in federation.clients]
    return len(held) * max(1, min(held))


def repeats_itself(method: Method) -> None:
    """The same seed gives bitwise identical numbers, another seed gives other numbers."""
    for trial in fitting(method):
        run = plain_run(method, trial)
        if trial.federation.task == "node":  # a module that keeps data of a former run would know these labels
            guarded_run(method, replace(trial, federation=swapped(trial.federation)))
        compare(run, guarded_run(method, trial), trial, "differs between two runs with the same seed", exact=True)
        if method.trains:
            other = guarded_run(method, trial, seed=1)
            demand(difference(run.values, other.values, exact=True), f"on {trial.name}: another seed changes nothing")


def ignores_other_clients(method: Method) -> None:
    """Clients have the same numbers in client batches of any size, also if only half of the clients take part."""
    for trial in fitting(method):
        size = len(trial.federation.clients) - 1  # the last batch has one client
        part = guarded_run(method, trial, clients_per_batch=size)
        compare(plain_run(method, trial), part, trial, f"differs in client batches of {size} and 1")
        half = replace(trial, config=trial.config.model_copy(update={"participation": 0.5}))
        part = guarded_run(method, half, clients_per_batch=1)
        compare(
            guarded_run(method, half), part, half, "differs in client batches of 1 when half of the clients take part"
        )


CHECKS = named(
    repeats_itself, ignores_other_clients, learns_nothing_from_scoring, stays_local, counts_its_steps,
    sees_no_hidden_label, knows_no_random_label,
)  # fmt: skip
ON_REAL = {check.__name__: check for check in (
    stays_local, counts_its_steps, sees_no_hidden_label, knows_no_random_label,
)}  # fmt: skip


def check(method: Method, names: Iterable[str] = CHECKS) -> dict[str, str]:
    """Run checks on a method; return the problem of each failed check by its name."""
    return {name: reason for name, verdict, reason in results(method, names) if verdict == "failed"}


def results(method: Method, names: Iterable[str] = CHECKS) -> Iterator[tuple[str, Judgement, str]]:
    """(check, verdict, reason) one by one. Any other exception than ContractError also fails a check."""
    return judged({name: CHECKS[name] for name in names}, method)


def results_on_real(method: Method, trial: Trial) -> Iterator[tuple[str, Judgement, str]]:
    """The same for the checks `ON_REAL` on a real dataset."""
    where = trial.federation.whole.name
    return judged({f"{name}_on_{where}": partial(one, among=[trial]) for name, one in ON_REAL.items()}, method)
