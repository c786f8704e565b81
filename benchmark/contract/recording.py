"""A short run of a method that records all messages, the final models and their predictions. Tools of the checks:
errors, demands, and the comparison of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, TypeVar

import numpy as np
import torch

from ...registry import UserError
from ..engine import ClientBatch, Diverged, Download, Each, Evaluator, Facts, Method, Server, Step, Tree, transform
from ..engine.graphs.clustering import ClusteringEvaluator
from ..engine.simulation import Simulation
from ..engine.train import set_up
from ..runner.execute import explain
from .trial import Trial, trials

Logged = tuple[str, int, torch.Tensor]  # description, client (-1: the server), value
Wrap = Callable[[Simulation, Step], Step]


@dataclass
class Record:
    """A recorded run: all uploads by client, all messages of the server, the final models and their predictions.

    traffic: per round, its phase, and the bytes that each client sent and received. lengths: rounds of each phase.
    """

    uploads: list[Logged] = field(default_factory=list)
    models: list[Logged] = field(default_factory=list)
    predictions: list[Logged] = field(default_factory=list)
    messages: list[Download] = field(default_factory=list)
    traffic: list[tuple[str, list[int], list[int]]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    @property
    def values(self) -> list[Logged]:
        return [*self.uploads, *self.models]

    def of(self, clients: set[int]) -> list[Logged]:
        return [logged for logged in self.values if logged[1] in clients]


def record(
    method: Method,
    trial: Trial,
    *,
    seed: int = 0,
    clients_per_batch: int | None = None,
    replay: Record | None = None,
    scored: bool = False,
    wrap: Wrap = lambda simulation, step: step,
) -> Record:
    """Run a method and record it.

    replay: clients get the server's messages of that run; the server half is not called, its model is not recorded, and
    nothing is predicted. scored: the models are scored after each scored round, as in a real run. wrap: replaces each
    step.
    """
    simulation, evaluator = set_up(trial.federation, method, trial.backbones, trial.config, seed, clients_per_batch)
    out, answers = Record(), iter(replay.messages) if replay else None
    for p, phase in enumerate(method.phases(simulation.config)):
        out.lengths.append(replay.lengths[p] if replay else phase.length(simulation.server))
        for number in range(1, out.lengths[-1] + 1):
            where = f"{phase.name} round {number}"
            steps = [
                _recorded(wrap(simulation, each), f"{where}, step {s}", out, answers)
                for s, each in enumerate(phase.steps, 1)
            ]
            before = np.array([simulation.upload_bytes, simulation.download_bytes])
            simulation.round(replace(phase, steps=tuple(steps)), number)
            up, down = np.array([simulation.upload_bytes, simulation.download_bytes]) - before
            out.traffic.append((phase.name, up.tolist(), down.tolist()))
            if scored and phase.scored:
                _predict(evaluator, simulation)
    server = {} if replay else method.global_model(simulation.server) or {}
    out.models = [(f"final parameter {name!r}", -1, value.clone()) for name, value in server.items()]
    out.models += _personal_models(simulation)
    out.predictions = [] if replay else _predict(evaluator, simulation)
    for log in (out.uploads, out.models):
        log.sort(key=lambda logged: logged[1])  # by client; stable, so rounds stay in order
    return out


def _recorded(step: Step, where: str, out: Record, answers: Iterator[Download] | None) -> Step:
    """The step, with its messages recorded. answers: messages of another run, sent instead of the server's."""

    def client(clients: ClientBatch) -> Tree:
        upload = step.client(clients)
        for position, number in enumerate(clients.ids):
            out.uploads += [(f"upload {path!r} in {where}", number, value) for path, value in _rows(upload, position)]
        return upload

    def server(server: Server, uploads: Tree) -> Download:
        if answers is not None:
            return _copied_message(next(answers))
        message = step.server(server, uploads)
        out.messages.append(_copied_message(message))
        return message

    return replace(step, client=client, server=server)


def _predict(evaluator: Evaluator, simulation: Simulation) -> list[Logged]:
    """The predictions of the models on the scored data: classes, or the global model's embeddings of graphs."""
    models = simulation.models()
    if isinstance(evaluator, ClusteringEvaluator):
        if models.server is None:
            return []
        network = simulation.client_batches[0].network.select([0])
        return [("embeddings", -1, evaluator.embeddings(models.expanded(1), network))]
    kinds = [("global", "local"), ("personal", "local"), ("global", "global"), ("global", "union")]
    scores = [(f"{kind} model on {data} data", evaluator.score(models, kind, data)) for kind, data in kinds]
    return [
        (f"prediction of the {what}", -1, scored.predicted)
        for what, scored in scores
        if scored and scored.predicted is not None
    ]


def _personal_models(simulation: Simulation) -> Iterator[Logged]:
    for clients, model in zip(simulation.client_batches, simulation.personal_models() or (), strict=False):
        for position, client in enumerate(clients.ids):
            for name, value in clients.network.take(model, [position]).items():
                yield f"final parameter {getattr(name, 'name', name)!r}", client, value[0]


def _rows(tree: Tree, position: int, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The values of one client in an upload, copied, with their paths."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _rows(value, position, f"{path}{key}.")
        else:
            yield f"{path}{key}", value[position].detach().clone()


def _copied(tree: Any) -> Any:
    return transform(tree, lambda leaf: [v.clone() for v in leaf] if isinstance(leaf, list) else leaf.clone())


def _copied_message(message: Download) -> Download:
    return Each(_copied(message.tree), message.clients) if isinstance(message, Each) else _copied(message)


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
