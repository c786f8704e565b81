"""What every method must hold to, as checks that anyone can run on a method of their own.

Each check tries the method on small generated federations and raises ContractError with one line that says what is
wrong. `CHECKS` has them all by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal, TypeVar

import torch

from ...datasets.federation import Federation, NodeClient
from ...metrics import CURVES, METRICS
from ...registry import Spec
from ..engine import Diverged, Method, Outcome, Skip, TrainConfig, train
from ..engine.exchange import Exchange
from ..engine.graphs.clustering import ClusteringEvaluator
from ..runner.execute import explain
from .trial import Logged, Record, Trial, node_federation, perturbed, record, relabelled, trials

LEARNING = {
    "node": TrainConfig(rounds=40, local_epochs=3),
    "graph": TrainConfig(rounds=10, local_epochs=2, batch_size=16),
}
RTOL, ATOL = 1e-5, 1e-6  # rounding of float32 over a few rounds

Judgement = Literal["ok", "failed", "skipped"]
T = TypeVar("T")


class ContractError(Exception):
    """A method breaks the contract; the message is one line."""


class Inapplicable(Exception):
    """A check has nothing to look at; the message is the reason."""


def demand(holds: object, complaint: str) -> None:
    """ContractError with the complaint unless something holds."""
    if not holds:
        raise ContractError(complaint)


def named(*checks: Callable[[T], None]) -> dict[str, Callable[[T], None]]:
    return {check.__name__: check for check in checks}


def _refusal(method: Method, trial: Trial) -> str | None:
    return method.skip(trial.federation, method.architecture(trial.backbones))


def fitting(method: Method) -> list[Trial]:
    """The trials that the method does not skip. Inapplicable when it skips all."""
    found = [trial for trial in trials() if _refusal(method, trial) is None]
    if not found:
        raise Inapplicable("it skips every federation that there is to try it on")
    return found


@lru_cache(maxsize=8)
def _plain(method: Method, trial: Trial) -> Record:
    """The run that others are compared with."""
    return _guarded(method, trial)


def _guarded(method: Method, trial: Trial, **options: object) -> Record:
    try:
        return record(method, trial, **options)  # type: ignore[arg-type]
    except (Diverged, RuntimeError) as error:
        if isinstance(error, Diverged) or "handed over" in str(error):  # by the engine's seal on messages
            raise ContractError(f"on {trial.name}: {error}") from None
        raise


def documented(method: Method) -> None:
    """The class has a docstring of its own, and every hyper-parameter a description."""
    says_what_it_is(type(method), "paper, objective, server rule, messages")


def says_what_it_is(cls: type[Spec], what: str) -> None:
    """ContractError unless a class has a docstring (`what`: what belongs there), and its parameters descriptions."""
    demand((cls.__dict__.get("__doc__") or "").strip(), f"has no docstring: {what}")
    bare = [name for name, info in cls.model_fields.items() if not (info.description or "").strip()]
    demand(not bare, f"does not describe its parameters {', '.join(bare)}: Field(default, description=...)")


def skips_with_a_reason(method: Method) -> None:
    """A federation of another task is refused in one line, by `skip` and before anything is trained."""
    reasons = {trial: _refusal(method, trial) for trial in trials()}
    for trial, reason in reasons.items():
        if trial.federation.task == method.task:
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


def learns(method: Method) -> None:
    """Far better than guessing on an easy federation; a clustering better than that of the untrained embedding."""
    trial = fitting(method)[0]
    federation = node_federation() if trial.federation.task == "node" else trial.federation
    outcome = train(federation, method, trial.backbones, LEARNING[federation.task], 0)
    score = outcome.score if outcome.score is not None else math.nan
    if federation.task == "graph":
        what, floor = "clusters no better than before training", _untrained(method, trial)
        needed = floor + 0.05
    else:
        what, floor = "does not learn", _guessing(federation)
        needed = floor + (1 - floor) / 3
    demand(score > needed, f"{what}: score {score:.3f}, untrained or guessing {floor:.3f}, needed {needed:.3f}")


def _guessing(federation: Federation) -> float:
    """Accuracy of naming each client's most frequent class, a mean over clients."""
    held = [client.graph.ndata for client in federation.clients if isinstance(client, NodeClient)]
    labels = [data["label"][data["test_mask"].bool()] for data in held]
    return sum(float(label.bincount().max() / len(label)) for label in labels) / len(labels)


def _untrained(method: Method, trial: Trial) -> float:
    """Clustering accuracy of the initial model."""
    arrangement = method.arrange(trial.federation)
    exchange = Exchange(method, arrangement, method.architecture(trial.backbones), trial.config, 0)
    evaluator = ClusteringEvaluator(method, trial.federation, arrangement, exchange.cohorts)
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
    always = [name for name, column in METRICS.items() if task in column.always]
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
        for what, client, value in _plain(method, trial).values:
            demand(torch.isfinite(value).all(), f"on {trial.name}: {_whose(client)} {what} is not finite")


def repeats_itself(method: Method) -> None:
    """The same seed gives the same numbers, bit for bit; and other numbers with another seed."""
    for trial in fitting(method):
        run = _plain(method, trial)
        _compare(run, _guarded(method, trial), trial, "differs between two runs with the same seed", exact=True)
        other = _guarded(method, trial, seed=1)
        demand(_difference(run.values, other.values, exact=True), f"on {trial.name}: another seed changes nothing")


def ignores_the_cohort(method: Method) -> None:
    """Clients get the same numbers alone and in cohorts of any size, all of them or half of them taking part."""
    for trial in fitting(method):
        size = len(trial.federation.clients) - 1  # and one client alone
        part = _guarded(method, trial, cohort_size=size)
        _compare(_plain(method, trial), part, trial, f"differs in cohorts of {size} and 1")
        half = replace(trial, config=trial.config.model_copy(update={"participation": 0.5}))
        part = _guarded(method, half, cohort_size=1)
        _compare(_guarded(method, half), part, half, "differs in cohorts of 1 when half of the clients take part")


def copies_what_it_keeps(method: Method) -> None:
    """Nobody writes into a message after handing it over: a run whose messages are copied gives the same numbers."""
    for trial in fitting(method):
        run = _guarded(method, trial, copies=True)
        complaint = "differs when messages are copied: someone writes into them"
        _compare(_plain(method, trial), run, trial, complaint, exact=True)


def stays_local(method: Method) -> None:
    """One client's private data has no part in another's uploads: those stay when only the former changes.

    The clients get the messages of the first run again, so that nothing reaches them through the server either.
    """
    apart = [trial for trial in fitting(method) if not _pools(method, trial)]
    if not apart:
        raise Inapplicable("it pools the data of all clients, as a reference may")
    for trial in apart:
        run, clients = _plain(method, trial), range(len(trial.federation.clients))
        for victim in (clients[0], clients[-1]):
            moved = replace(trial, federation=perturbed(trial.federation, victim))
            other, others = _guarded(method, moved, replay=run), {*clients} - {victim}
            found = _difference(run.of(others), other.of(others))
            demand(not found, f"on {trial.name}: {found} with the private data of client {victim}")
            moves = not run.of({victim}) or _difference(run.of({victim}), other.of({victim}))
            demand(moves, f"on {trial.name}: client {victim}'s data changes nothing, not even its uploads")


def _pools(method: Method, trial: Trial) -> bool:
    """Whether the method is a reference that pools the clients' data."""
    return len(method.arrange(trial.federation).federation.clients) != len(trial.federation.clients)


def sees_no_hidden_label(method: Method) -> None:
    """Training never uses the label of a node at a client for which it is not a training node, nor of a graph."""
    for trial in fitting(method):
        moved = replace(trial, federation=relabelled(trial.federation))
        run = _guarded(method, moved)
        _compare(_plain(method, trial), run, trial, "changes with labels that no client may know", exact=True)


CHECKS = named(
    documented, skips_with_a_reason, learns, reports_all_figures, uploads_finite_numbers, repeats_itself,
    ignores_the_cohort, copies_what_it_keeps, stays_local, sees_no_hidden_label,
)  # fmt: skip


def check(method: Method, names: Iterable[str] = CHECKS) -> dict[str, str]:
    """Run checks on a method; what is wrong, by check. Empty: the method holds to the contract."""
    return {name: reason for name, verdict, reason in results(method, names) if verdict == "failed"}


def results(method: Method, names: Iterable[str] = CHECKS) -> Iterator[tuple[str, Judgement, str]]:
    """(check, verdict, reason) one by one. A check that fails in another way than it expects has failed too."""
    return judged({name: CHECKS[name] for name in names}, method)


def judged(checks: Mapping[str, Callable[[T], None]], subject: T) -> Iterator[tuple[str, Judgement, str]]:
    """(check, verdict, reason) of each check on a method or dataset: what it raises is what is wrong."""
    for name, check in checks.items():
        try:
            check(subject)
        except Inapplicable as reason:
            yield name, "skipped", str(reason)
        except ContractError as error:
            yield name, "failed", str(error)
        except Exception as error:
            yield name, "failed", explain(error)
        else:
            yield name, "ok", ""


def _whose(client: int) -> str:
    return "the server's" if client < 0 else f"client {client}'s"


def _compare(a: Record, b: Record, trial: Trial, complaint: str, *, exact: bool = False) -> None:
    found = _difference(a.values, b.values, exact=exact)
    demand(not found, f"on {trial.name}: {found} {complaint}")


def _difference(a: Sequence[Logged], b: Sequence[Logged], *, exact: bool = False) -> str | None:
    """The first entry in which two runs differ, in words, or None."""
    if [entry[:2] for entry in a] != [entry[:2] for entry in b]:
        return "what is uploaded"
    for (what, client, left), (_, _, right) in zip(a, b, strict=True):
        if left.shape != right.shape:
            return f"the shape of {_whose(client)} {what}"
        if torch.equal(left, right) or (
            not exact and torch.allclose(left.double(), right.double(), rtol=RTOL, atol=ATOL, equal_nan=True)
        ):
            continue
        gap = float((left.double() - right.double()).abs().max())
        return f"{_whose(client)} {what} (by up to {gap:.1e})"
    return None
