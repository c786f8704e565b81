"""Tools of the checks: errors, demands, runs on trials, and the comparison of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, TypeVar

import torch

from ...registry import UserError
from ..engine import Diverged, Facts, Method
from ..runner.execute import explain
from .recording import Logged, Record, record
from .trial import Trial, trials

RTOL, ATOL = 1e-5, 1e-6  # rounding of float32 over a few rounds

Judgement = Literal["ok", "failed", "skipped"]
T = TypeVar("T")


class ContractError(Exception):
    """A method breaks the contract; the message is one line."""


class Inapplicable(Exception):
    """A check does not apply; the message is the reason."""


def demand(holds: object, complaint: str) -> None:
    """Raise ContractError with the complaint unless `holds`."""
    if not holds:
        raise ContractError(complaint)


def named(*checks: Callable[[T], None]) -> dict[str, Callable[[T], None]]:
    return {check.__name__: check for check in checks}


def refusal(method: Method, trial: Trial) -> str | None:
    return method.skip(Facts.of(trial.federation), method.architecture(trial.backbones))


def fitting(method: Method, among: Sequence[Trial] | None = None) -> list[Trial]:
    """The trials (None: the generated ones) that the method does not skip. Inapplicable if it skips all."""
    fits = [trial for trial in (trials() if among is None else among) if refusal(method, trial) is None]
    if not fits:
        raise Inapplicable("it skips every federation that there is to try it on")
    return fits


@lru_cache(maxsize=8)
def plain_run(method: Method, trial: Trial) -> Record:
    """The cached run with which others are compared."""
    return guarded_run(method, trial)


def guarded_run(method: Method, trial: Trial, **options: object) -> Record:
    """Record a run; ContractError if it diverges or breaks a rule."""
    try:
        return record(method, trial, **options)  # type: ignore[arg-type]
    except (Diverged, UserError, RuntimeError) as error:
        if isinstance(error, Diverged | UserError) or "after it was sent" in str(error):  # from payload
            raise ContractError(f"on {trial.name}: {error}") from None
        raise


def judged(checks: Mapping[str, Callable[[T], None]], subject: T) -> Iterator[tuple[str, Judgement, str]]:
    """(check, verdict, reason) of each check on a method or part."""
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


def whose(client: int) -> str:
    return "the server's" if client < 0 else f"client {client}'s"


def compare(a: Record, b: Record, trial: Trial, complaint: str, *, exact: bool = False) -> None:
    problem = difference(a.values, b.values, exact=exact)
    demand(not problem, f"on {trial.name}: {problem} {complaint}")


def difference(a: Sequence[Logged], b: Sequence[Logged], *, exact: bool = False) -> str | None:
    """The first entry in which two runs differ, in words, or None."""
    if [entry[:2] for entry in a] != [entry[:2] for entry in b]:
        return "what is uploaded"
    for (what, client, left), (_, _, right) in zip(a, b, strict=True):
        if left.shape != right.shape:
            return f"the shape of {whose(client)} {what}"
        if torch.equal(left, right) or (
            not exact and torch.allclose(left.double(), right.double(), rtol=RTOL, atol=ATOL, equal_nan=True)
        ):
            continue
        gap = float((left.double() - right.double()).abs().max())
        return f"{whose(client)} {what} (by up to {gap:.1e})"
    return None
