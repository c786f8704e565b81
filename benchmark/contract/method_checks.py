"""What every method must hold to, as checks that anyone can run on a method of their own.

Each check tries the method on small generated federations and raises ContractError with one line that says what is
wrong. `CHECKS` has them all by name; those on who may know what also run on a real dataset (`ON_REAL`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from torch.optim.optimizer import register_optimizer_step_pre_hook

from ...datasets.federation import Federation
from ...metrics import sign
from ..engine import MEASURES, METHODS, ClientBatch, Method, Step, Tree, train
from ..engine.optim import counting
from ..engine.simulation import Simulation
from .trial import Trial, drawn, perturbed, relabelled, scored_labels, swapped
from .verdicts import (
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
            problem = difference(run.of(others), other.of(others))
            demand(not problem, f"on {trial.name}: {problem} with the private data of client {victim}")
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
    """Neither training nor prediction uses the label of a node at a client for which it is no training node, nor of a
    graph."""
    for trial in fitting(method, among):
        moved = replace(trial, federation=relabelled(trial.federation))
        run, plain = guarded_run(method, moved), plain_run(method, trial)
        compare(plain, run, trial, "changes with labels that no client may know", exact=True)
        problem = difference(plain.predictions, run.predictions, exact=True)
        demand(not problem, f"on {trial.name}: {problem} changes with labels that no client may know")


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
    held = [len(scored_labels(client)) for client in federation.clients]
    return len(held) * max(1, min(held))


__all__ = ["CHECKS", "ON_REAL", "ContractError", "Inapplicable", "check", "results", "results_on_real"]


def repeats_itself(method: Method) -> None:
    """The same seed gives the same numbers, bit for bit; and other numbers with another seed."""
    for trial in fitting(method):
        run = plain_run(method, trial)
        if trial.federation.task == "node":  # a module may remember what it saw in another cell: it knows these labels
            guarded_run(method, replace(trial, federation=swapped(trial.federation)))
        compare(run, guarded_run(method, trial), trial, "differs between two runs with the same seed", exact=True)
        if method.trains:
            other = guarded_run(method, trial, seed=1)
            demand(difference(run.values, other.values, exact=True), f"on {trial.name}: another seed changes nothing")


def ignores_other_clients(method: Method) -> None:
    """Clients get the same numbers alone and in client batches of any size, all of them or half of them taking part."""
    for trial in fitting(method):
        size = len(trial.federation.clients) - 1  # and one client alone
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
    """Run checks on a method; what is wrong, by check. Empty: the method passes."""
    return {name: reason for name, verdict, reason in results(method, names) if verdict == "failed"}


def results(method: Method, names: Iterable[str] = CHECKS) -> Iterator[tuple[str, Judgement, str]]:
    """(check, verdict, reason) one by one. A check that fails in another way than it expects has failed too."""
    return judged({name: CHECKS[name] for name in names}, method)


def results_on_real(method: Method, trial: Trial) -> Iterator[tuple[str, Judgement, str]]:
    """The same on a real dataset, of the checks on who may know what."""
    where = trial.federation.whole.name
    return judged({f"{name}_on_{where}": partial(one, among=[trial]) for name, one in ON_REAL.items()}, method)
