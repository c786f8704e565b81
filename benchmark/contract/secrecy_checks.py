"""Checks on who may know what: labels, other clients' data, and steps that nobody counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...datasets.federation import Federation, GraphClient, NodeClient
from ..engine import METHODS, Download, Method, Server, Step, Tree, train
from ..engine.cohort import Cohort
from ..engine.exchange import Exchange
from ..engine.ledger import counting
from .altered import drawn, perturbed, relabelled
from .gradients import observed
from .reach import memory
from .recording import Wrap
from .trial import Trial, fresh_trial, scored_labels
from .verdicts import ContractError, Inapplicable, compare, demand, difference, fitting, guarded_run, plain_run, refusal


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
        _demand_apart(method, trial)
        run, clients = plain_run(method, trial), range(len(trial.federation.clients))
        for victim in (clients[0], clients[-1]):
            moved = replace(trial, federation=perturbed(trial.federation, victim))
            other, others = guarded_run(method, moved, replay=run), {*clients} - {victim}
            found = difference(run.of(others), other.of(others))
            demand(not found, f"on {trial.name}: {found} with the private data of client {victim}")
            mine = run.of({victim}) if method.trains else []  # counts of labels may be the same with other labels
            moves = not mine or difference(mine, other.of({victim}))
            demand(moves, f"on {trial.name}: client {victim}'s data changes nothing, not even its uploads")


def _demand_apart(method: Method, trial: Trial) -> None:
    """Inapplicable for a reference of the package that pools the clients' data; ContractError for any other method."""
    found = method.arrange(trial.federation)
    if found.federation is trial.federation and found.scored is None:
        return
    if method.reference and METHODS.is_own(type(method)):
        raise Inapplicable("it pools the data of all clients, as a reference of the package may")
    raise ContractError("rearranges the clients' data, which only the package's own references may")


def reaches_only_its_own(method: Method, among: Sequence[Trial] | None = None) -> None:
    """No object that a client half is handed leads to data of a client that is not part of it, nor to a true label."""
    for trial in fitting(method, among):
        _demand_apart(method, trial)
        half = replace(trial, config=trial.config.model_copy(update={"participation": 0.5}))
        for tried, size in ((trial, 1), (half, None)):
            guarded_run(method, tried, cohort_size=size, wrap=_looking(method, tried))


def _looking(method: Method, trial: Trial) -> Wrap:
    """Around steps: ContractError when a client half can reach what is not its own."""

    def wrap(exchange: Exchange, step: Step) -> Step:
        def client(cohort: Cohort) -> Tree:
            mine = set(cohort.clients)
            given = memory(cohort, step, method, _kept_in_class(method))
            found = given & memory(*_others(trial, exchange, cohort, mine))
            demand(not found, f"on {trial.name}: what the client half of clients {sorted(mine)} gets leads to others'")
            return step.client(cohort)

        return replace(step, client=client)

    return wrap


def _others(trial: Trial, exchange: Exchange, cohort: Cohort, mine: set[int]) -> Iterator[object]:
    """The data of all clients but some, as they were cut and as cohorts hold them; and the truth."""
    yield trial.federation.whole.label
    for client, own in enumerate[NodeClient | GraphClient](trial.federation.clients):
        truth = own.graph.ndata["label"] if isinstance(own, NodeClient) else own.label
        yield truth if client in mine else own
    for other in exchange.cohorts:
        yield [member for client, member in zip(other.clients, other.members, strict=True) if client not in mine]
        yield [
            vars(other).get(name) for name in ("batch", "data", "stack", "stacked", "minibatch") if other is not cohort
        ]


def _kept_in_class(method: Method) -> list[object]:
    """What a method's classes hold besides code."""
    held = [vars(cls).items() for cls in type(method).__mro__ if issubclass(cls, Method)]
    return [value for own in held for name, value in own if not name.startswith("__") and not callable(value)]


def counts_its_steps(method: Method, among: Sequence[Trial] | None = None) -> None:
    """Clients take gradients for the engine's optimisers alone, whose steps the row counts: one each."""
    for trial in fitting(method, among):
        with counting() as ledger, observed() as seen:
            guarded_run(method, trial, scored=True, wrap=_servers_apart(seen))
        demand(not seen["optimisers"], f"on {trial.name}: steps an optimiser of its own, which no row counts")
        extra = seen["gradients"] - ledger.total
        demand(extra <= 0, f"on {trial.name}: takes {extra} gradients more than steps of the engine's optimisers")


def _servers_apart(seen: Counter[str]) -> Wrap:
    """Around steps: what server halves add to the counts is taken away again."""

    def wrap(exchange: Exchange, step: Step) -> Step:
        def server(state: Server, uploads: Tree) -> Download:
            before = Counter(seen)
            message = step.server(state, uploads)
            seen.clear()
            seen.update(before)
            return message

        return replace(step, server=server)

    return wrap


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
    seen them, or counts for itself."""
    given = [replace(trial, federation=drawn(trial.federation)) for trial in fitting(method, among)]
    fresh = [trial for trial in [fresh_trial()] if among is None and refusal(method, trial) is None]
    for trial in [*given, *fresh]:
        outcome, classes = (
            train(trial.federation, method, trial.backbones, trial.config, 0),
            trial.federation.num_classes,
        )
        scored = _scored(trial.federation)
        bound = 1 / classes + 6 * (1 / classes * (1 - 1 / classes) / scored) ** 0.5
        demand((outcome.score or 0) < bound, f"on {trial.name}: {outcome.score} of labels drawn at random are right")


def _scored(federation: Federation) -> int:
    """Nodes or graphs that are scored: those of the client that has fewest count for as much as all others'."""
    if not federation.masks:
        return len(federation.whole.label)
    held = [len(scored_labels(own)) for own in federation.clients]
    return len(held) * max(1, min(held))
