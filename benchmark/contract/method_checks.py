"""What every method must hold to, as checks that anyone can run on a method of their own.

Each check tries the method on small generated federations and raises ContractError with one line that says what is
wrong. `CHECKS` has them all by name; those on who may know what also run on a real dataset (`ON_REAL`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ...datasets.federation import Federation
from ...metrics import CURVES, METRICS
from ..engine import METHODS, Method, Outcome, Skip, TrainConfig, train
from ..engine.train import begin
from .altered import swapped
from .secrecy_checks import (
    counts_its_steps,
    knows_no_random_label,
    learns_nothing_from_scoring,
    reaches_only_its_own,
    sees_no_hidden_label,
    stays_local,
)
from .trial import Trial, graph_federation, labelled_graphs, node_federation, real_trial, scored_labels, trials
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
    refusal,
    says_what_it_is,
    whose,
)

__all__ = ["CHECKS", "ON_REAL", "ContractError", "Inapplicable", "check", "check_method", "results", "results_on_real"]

LEARNING = {
    "node": TrainConfig(rounds=40, local_epochs=3),
    "graph": TrainConfig(rounds=10, local_epochs=2, batch_size=16),
    "graph-classification": TrainConfig(rounds=40, local_epochs=3, batch_size=16),
}
EASY = {"node": node_federation, "graph": graph_federation, "graph-classification": labelled_graphs}


def documented(method: Method) -> None:
    """The class has a docstring of its own, and every hyper-parameter a description."""
    says_what_it_is(type(method), "paper, objective, server rule, messages")


def skips_with_a_reason(method: Method) -> None:
    """A federation of another task is refused in one line, by `skip` and before anything is trained."""
    reasons = {trial: refusal(method, trial) for trial in trials()}
    for trial, reason in reasons.items():
        if trial.federation.task in method.tasks():
            continue
        complaint = f"skip gives no one-line reason for {trial.name}, which are not its task: {reason!r}"
        demand(reason and "\n" not in reason, complaint)
        try:
            train(trial.federation, method, trial.backbones, trial.config, 0)
        except Skip as refused:
            if str(refused) == reason:
                continue
        raise ContractError(f"trains on {trial.name} although it skips them")
    every = "; ".join(f"{trial.name}: {reason}" for trial, reason in reasons.items())
    demand(None in reasons.values(), f"skips every trial: {every}")


def learns(method: Method, tasks: Collection[str] | None = None) -> None:
    """Far better than guessing on an easy federation; a clustering better than that of the untrained embedding.

    tasks: only these (None: all that it is for).
    """
    if not method.trains:
        raise Inapplicable("it is a reference without training")
    first = {trial.federation.task: trial for trial in reversed(fitting(method))}
    for task, trial in first.items():
        if tasks is not None and task not in tasks:
            continue
        federation = EASY[task]()
        outcome = train(federation, method, trial.backbones, LEARNING[task], 0)
        score = outcome.score if outcome.score is not None else math.nan
        if task == "graph":
            what, floor = "clusters no better than before training", _untrained(method, trial)
            needed = floor + 0.05
        else:
            what, floor = "does not learn", _guessing(federation)
            needed = floor + (1 - floor) / 3
        where = f"{what} on {trial.name}: score {score:.3f}"
        demand(score > needed, f"{where}, untrained or guessing {floor:.3f}, needed {needed:.3f}")


def _guessing(federation: Federation) -> float:
    """Accuracy of naming each client's most frequent class, a mean over clients."""
    labels = [scored_labels(client) for client in federation.clients]
    return sum(float(label.bincount().max() / len(label)) for label in labels) / len(labels)


def _untrained(method: Method, trial: Trial) -> float:
    """Clustering accuracy of the initial model."""
    exchange, evaluator = begin(trial.federation, method, trial.backbones, trial.config, 0)
    scored = evaluator.score(exchange.models(), method.delivers, "global")
    assert scored is not None
    return float(scored.test.mean())


def reports_all_figures(method: Method) -> None:
    """The outcome of a run is complete and consistent."""
    for trial in fitting(method):
        outcome = train(trial.federation, method, trial.backbones, trial.config, 0)
        wrong = next(_incomplete(outcome, trial.federation.task), None)
        demand(wrong is None, f"on {trial.name}: outcome with {wrong}")


def _incomplete(outcome: Outcome, task: str) -> Iterator[str]:
    """What is missing or impossible in an outcome, the most basic first."""
    always = [name for name, column in METRICS.items() if task in column.always.split()]
    if missing := [name for name in always if getattr(outcome, name) in (None, "")]:
        yield f"no {', '.join(missing)}"
    if set(outcome.matrix.values()) == {None}:
        yield f"matrix = {outcome.matrix}"
    lengths = {name: len(column) for name, column in outcome.history.items()}
    if set(lengths.values()) != {outcome.rounds} or not lengths.keys() >= set(CURVES):
        yield f"history columns {lengths} for {outcome.rounds} rounds"
    yield from _impossible(outcome)


def _impossible(outcome: Outcome) -> Iterator[str]:
    """What cannot be in a complete outcome."""
    if not 1 <= (outcome.best_round or 0) <= (outcome.rounds or 0):
        yield f"best round {outcome.best_round} of {outcome.rounds}"
    for sent in ("upload_bytes", "download_bytes"):
        best, total = getattr(outcome, f"{sent}_best"), getattr(outcome, sent)
        if not 0 <= best <= total == outcome.history[sent][-1]:
            yield f"{sent.replace('_', ' ')} {best} at the best round and {total} in the end"
    if not 0 < (outcome.train_seconds or 0) <= (outcome.total_seconds or 0):
        yield f"{outcome.train_seconds} s of training in {outcome.total_seconds} s"


def uploads_finite_numbers(method: Method) -> None:
    """Every upload and every final model is finite, also of a client without a training node."""
    for trial in fitting(method):
        for what, client, value in plain_run(method, trial).values:
            demand(torch.isfinite(value).all(), f"on {trial.name}: {whose(client)} {what} is not finite")


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


def ignores_the_cohort(method: Method) -> None:
    """Clients get the same numbers alone and in cohorts of any size, all of them or half of them taking part."""
    for trial in fitting(method):
        size = len(trial.federation.clients) - 1  # and one client alone
        part = guarded_run(method, trial, cohort_size=size)
        compare(plain_run(method, trial), part, trial, f"differs in cohorts of {size} and 1")
        half = replace(trial, config=trial.config.model_copy(update={"participation": 0.5}))
        part = guarded_run(method, half, cohort_size=1)
        compare(guarded_run(method, half), part, half, "differs in cohorts of 1 when half of the clients take part")


def copies_what_it_keeps(method: Method) -> None:
    """Nobody writes into a message after handing it over: a run whose messages are copied gives the same numbers."""
    for trial in fitting(method):
        run = guarded_run(method, trial, copies=True)
        complaint = "differs when messages are copied: someone writes into them"
        compare(plain_run(method, trial), run, trial, complaint, exact=True)


CHECKS = named(
    documented, skips_with_a_reason, learns, reports_all_figures, uploads_finite_numbers, repeats_itself,
    ignores_the_cohort, copies_what_it_keeps, learns_nothing_from_scoring, stays_local, reaches_only_its_own,
    counts_its_steps, sees_no_hidden_label, knows_no_random_label,
)  # fmt: skip
ON_REAL = {check.__name__: check for check in (
    stays_local, reaches_only_its_own, counts_its_steps, sees_no_hidden_label, knows_no_random_label,
)}  # fmt: skip


def check(method: Method, names: Iterable[str] = CHECKS) -> dict[str, str]:
    """Run checks on a method; what is wrong, by check. Empty: the method holds to the contract."""
    return _failed(results(method, names))


def check_method(
    name: str, params: Mapping[str, Any] | None = None, *, real: bool = True, tasks: Collection[str] | None = None
) -> dict[str, str]:
    """What is wrong with a registered method, by check, on generated data and, with `real`, on a real dataset.

    tasks: on which it has to learn (None: all), since a rate that was chosen for nodes need not suit sets of graphs.
    Empty: it holds to the contract. Raises UserError when the method is unknown, or the dataset cannot be had.
    """
    method = METHODS.build(name, params)
    wrong = _failed(judged(CHECKS | {"learns": partial(learns, tasks=tasks)}, method))
    return wrong | _failed(results_on_real(method, real_trial())) if real else wrong


def _failed(found: Iterable[tuple[str, Judgement, str]]) -> dict[str, str]:
    return {name: reason for name, verdict, reason in found if verdict == "failed"}


def results(method: Method, names: Iterable[str] = CHECKS) -> Iterator[tuple[str, Judgement, str]]:
    """(check, verdict, reason) one by one. A check that fails in another way than it expects has failed too."""
    return judged({name: CHECKS[name] for name in names}, method)


def results_on_real(method: Method, trial: Trial) -> Iterator[tuple[str, Judgement, str]]:
    """The same on a real dataset, of the checks on who may know what."""
    where = trial.federation.whole.name
    return judged({f"{name}_on_{where}": partial(one, among=[trial]) for name, one in ON_REAL.items()}, method)
