"""What every method must hold to, as checks that anyone can run on a method of their own.

Each check tries the method on small generated federations and raises ContractError with one line that says what is
wrong. `CHECKS` has them all by name; those on who may know what also run on a real dataset (`ON_REAL`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from ..engine import Method
from .altered import swapped
from .secrecy_checks import (
    counts_its_steps,
    knows_no_random_label,
    learns_nothing_from_scoring,
    sees_no_hidden_label,
    stays_local,
)
from .trial import Trial
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


def ignores_the_cohort(method: Method) -> None:
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
    repeats_itself, ignores_the_cohort, learns_nothing_from_scoring, stays_local, counts_its_steps,
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
