"""A whole run: phases, an evaluation after each round, and the outcome of the round that counts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch
from pydantic import Field, SkipValidation

from ...datasets.federation import Federation
from ...datasets.stress import Stress, stressed
from ...metrics import Metrics
from ...registry import UserError
from . import ledger
from .backbones import Backbone
from .blind import blind
from .capture import capturing
from .cohort import Skip
from .config import TrainConfig
from .device import HOST, on, on_host
from .evaluate import Diverged, Evaluator, Models, Scored
from .exchange import TASKS, Exchange
from .method import METHODS, Arrangement, Method
from .policy import Round, Selection

OnRound = Callable[[int, dict[str, float]], None]
OnBest = Callable[[Evaluator, Models], None]


class Outcome(Metrics):
    """The figures of one run, and what lies behind them.

    history: per-round columns of equal length ("round", "val", "score", "val_loss", "train_loss", "upload_bytes",
    "download_bytes", "seconds"). per_client, at the best round: "val" and "score" (one entry where the whole graph or
    the union is scored), and on each client's own test nodes "global_on_local" and "personal_on_local", where there are
    such models. Neither is validated: bytes stay integers. training: what ran, the method's own `protocol` applied.
    optimiser_steps: of the client that took most, in all phases and for whatever it trained. model_steps: the most that
    a client took on one parameter. budget_steps: those of plain FedAvg with all clients in every round of the protocol
    that the cell asks for. dp_epsilon: what was spent of client-level privacy (privacy.py); None: there is none.
    """

    history: SkipValidation[dict[str, list[float]]] = Field(default_factory=dict)
    per_client: SkipValidation[dict[str, list[float]]] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    training: SkipValidation[TrainConfig] = Field(default_factory=TrainConfig)
    optimiser_steps: int = 0
    model_steps: int = 0
    budget_steps: int = 0
    dp_epsilon: float | None = None

    @property
    def matrix(self) -> dict[str, float | None]:
        """The four model x data figures."""
        kinds = [f"{model}_on_{data}" for model in ("global", "personal") for data in ("global", "local")]
        return {kind: getattr(self, kind) for kind in kinds}


def train(
    federation: Federation,
    method: Method,
    backbones: Sequence[Backbone],
    config: TrainConfig,
    seed: int,
    *,
    cohort_size: int | None = None,
    on_round: OnRound | None = None,
    on_best: OnBest | None = None,
    device: torch.device = HOST,
) -> Outcome:
    """Train a method on a federation and score it.

    backbones: client k has entry k mod len. cohort_size: clients trained in one program (None: chosen for speed); the
    result does not depend on it but for float32 rounding. on_round: called after each scored round with its figures.
    on_best: called once, in the end, with what scores and the models of the best round. device: where it computes.
    Raises Skip when the method does not apply, Diverged when its outputs are no longer finite, UserError when it breaks
    a rule (see `begin`) or predicts what is no prediction.
    """
    start = time.perf_counter()
    with ledger.counting() as steps, on(device), capturing(device, METHODS.is_own(type(method))):
        run = Underway(federation, method, backbones, config, seed, cohort_size)
        for phase in method.phases(run.exchange.config):
            for number in range(1, phase.length(run.exchange.server) + 1):
                run.exchange.round(phase, number)
                if phase.scored and run.scored(on_round):
                    break
        outcome = run.outcome(steps)
    outcome.total_seconds = time.perf_counter() - start
    if on_best is not None:
        with on(device):
            on_best(run.evaluator, run.selection.best.models)
    return outcome


class Underway:
    """A run on its way: the exchange, what scores it, and its best round so far. Arguments and errors as of `train`."""

    def __init__(
        self,
        federation: Federation,
        method: Method,
        backbones: Sequence[Backbone],
        config: TrainConfig,
        seed: int,
        cohort_size: int | None = None,
    ) -> None:
        self.federation, self.asked = federation, config
        self.exchange, self.evaluator = begin(federation, method, backbones, config, seed, cohort_size)
        self.model = _scored_model(self.exchange)
        self.selection = Selection(self.exchange.config)

    def scored(self, on_round: OnRound | None) -> bool:
        """Score the round that has just ended; whether patience is at an end."""
        seen = _evaluated(self.evaluator, self.exchange, self.model, self.selection.rounds + 1)
        self.selection.add(seen)
        if on_round is not None:
            on_round(seen.number, seen.figures)
        return self.selection.stops

    def outcome(self, steps: ledger.Ledger) -> Outcome:
        """What came of it, but for the whole time. steps: those of the clients."""
        outcome = _outcome(self.selection, self.model, self.evaluator, self.exchange)
        outcome.dp_epsilon = self.exchange.privacy.epsilon
        outcome.optimiser_steps, outcome.model_steps = steps.most(), steps.most(of_a_parameter=True)
        epoch = TASKS[self.federation.task].epoch(self.federation, self.asked)
        outcome.budget_steps = self.asked.rounds * self.asked.local_epochs * epoch
        return outcome


def begin(
    federation: Federation,
    method: Method,
    backbones: Sequence[Backbone],
    config: TrainConfig,
    seed: int,
    cohort_size: int | None = None,
) -> tuple[Exchange, Evaluator]:
    """A run before its first round, and what scores it. Arguments as for `train`.

    The method is shown the federation, under the conditions of `config`, without the labels that it may not see. Raises
    Skip when it does not apply, UserError when it pools clients' data and is no reference of the package, or changes
    how it is scored.
    """
    federation = stressed(federation, config)
    shown = blind(federation)
    backbones = method.architecture(backbones)
    with on_host():
        reason = method.skip(shown, backbones)
    if reason:
        raise Skip(reason)
    config = _protocol(method, config)
    if not method.travels and config.score_on != "local":
        raise Skip(f"{method.name}'s models are bound to their client's own graph and cannot be scored on another")
    if federation.domains and config.score_on != "local":
        raise Skip("clients have classes of their own: there is no whole and no union to score a model on")
    arrangement = _arranged(method, shown, federation)
    exchange = Exchange(method, arrangement, backbones, config, seed, cohort_size)
    return exchange, TASKS[federation.task].evaluator(method, federation, arrangement, exchange.cohorts)


def _protocol(method: Method, config: TrainConfig) -> TrainConfig:
    """The training configuration the method runs with. It may not choose its own score."""
    own = method.protocol(config)
    scoring = ["score_model"] if method.task == "graph" else ["score_model", "score_on", "select_by"]
    scoring += ["failure", "straggle", "dp_clip", "dp_noise", "dp_delta", *Stress.model_fields]
    changed = [name for name in scoring if getattr(own, name) != getattr(config, name)]
    if changed:
        what = "how a run is scored, hindered and protected is the cell's"
        raise UserError(f"{method.name} changes {', '.join(changed)} in `protocol`: {what}")
    return own


def _arranged(method: Method, shown: Federation, federation: Federation) -> Arrangement:
    """What the method trains on: the federation as cut, unless it is a reference that the package itself registers."""
    with on_host():
        found = method.arrange(shown)
    if found.federation is shown and found.scored is None:
        return Arrangement(blind(federation))  # afresh: what the method wrote into the one that it was shown is lost
    if not (method.reference and METHODS.is_own(type(method))):
        raise UserError(
            f"{method.name} rearranges the clients' data: only the package's own references may (as `global` does); "
            "what a client makes of its own data belongs in `prepare`"
        )
    return found


def _scored_model(exchange: Exchange) -> str:
    """Whose model is scored, "global" or "personal": without a global one, the clients' own."""
    asked = exchange.config.score_model
    model = exchange.method.delivers if asked == "auto" else asked
    return "personal" if model == "global" and exchange.models().server is None else model


def _evaluated(evaluator: Evaluator, exchange: Exchange, model: str, number: int) -> Round:
    """The round that has just ended, scored."""
    config, models = exchange.config, exchange.models()
    try:
        scored = evaluator.score(models, model, config.score_on, with_loss=config.select_by == "val_loss")
    except Diverged as error:
        raise Diverged(f"{error} after round {number}: lower the learning rate or the method's loss weights") from None
    assert scored is not None, f"{evaluator.method.name} delivers no {model} model"
    figures = {
        "val": _mean(scored.val),
        "score": _mean(scored.test),
        "upload_bytes": sum(exchange.upload_bytes),
        "download_bytes": sum(exchange.download_bytes),
        "seconds": exchange.seconds,
    }
    loss = {} if scored.val_loss is None else {"val_loss": scored.val_loss}
    return Round(number, figures | loss, scored, models)


def _mean(values: torch.Tensor) -> float:
    """Mean over the clients that have a figure; nan where none has."""
    return float(values.nanmean())


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value


def _outcome(selection: Selection, model: str, evaluator: Evaluator, exchange: Exchange) -> Outcome:
    best, scored = selection.best, selection.best.scored
    matrix, local = _matrix(evaluator, best.models)
    return Outcome(
        score=_none_if_nan(best.figures["score"]),
        score_metric=evaluator.describe(model, exchange.config.score_on),
        val=_none_if_nan(best.figures["val"]),
        macro_f1=None if scored.predicted is None else _none_if_nan(scored.target.macro_f1(scored.predicted, "test")),
        roc_auc=None if scored.margin is None else _none_if_nan(_mean(scored.target.roc_auc(scored.margin, "test"))),
        score_weighted=_weighted(scored),
        **matrix,
        best_round=best.number,
        rounds=selection.rounds,
        upload_bytes=sum(exchange.upload_bytes),
        download_bytes=sum(exchange.download_bytes),
        upload_bytes_best=int(best.figures["upload_bytes"]),
        download_bytes_best=int(best.figures["download_bytes"]),
        train_seconds=exchange.seconds,
        history=selection.history,
        per_client={"val": scored.val.tolist(), "score": scored.test.tolist(), **local},
        notes=evaluator.original.notes,
        training=exchange.config,
    )


def _weighted(scored: Scored) -> float | None:
    """Mean over the clients that have a figure, weighted by their test nodes; None where there is none."""
    weights = scored.target.count("test").float()
    if len(weights) != len(scored.test):
        return None
    weights = weights * ~scored.test.isnan()
    return _none_if_nan(float((scored.test.nan_to_num() * weights).sum() / weights.sum()))


def _matrix(evaluator: Evaluator, models: Models) -> tuple[dict[str, float | None], dict[str, list[float]]]:
    """The four model x data figures, and those on local graphs client by client."""
    matrix: dict[str, float | None] = {}
    local: dict[str, list[float]] = {}
    for kind in ("global", "personal"):
        for data in ("global", "local"):
            scored = evaluator.score(models, kind, data)
            matrix[f"{kind}_on_{data}"] = None if scored is None else _none_if_nan(_mean(scored.test))
            if scored is not None and data == "local":
                local[f"{kind}_on_local"] = scored.test.tolist()
    return matrix, local
