"""A whole run: phases, an evaluation after each round, and the outcome of the round that counts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch
from pydantic import Field, SkipValidation

from ...datasets.federation import Federation
from ...metrics import Metrics
from .backbones import Backbone
from .config import TrainConfig
from .evaluate import Diverged, Evaluator, Models
from .exchange import TASKS, Exchange
from .method import Method, Skip
from .policy import Round, Selection

OnRound = Callable[[int, dict[str, float]], None]
OnBest = Callable[[Evaluator, Models], None]


class Outcome(Metrics):
    """The figures of one run, and what lies behind them.

    history: per-round columns of equal length ("round", "val", "score", "val_loss", "train_loss", "upload_bytes",
    "download_bytes", "seconds"). per_client, at the best round: "val" and "score" (one entry where the whole graph or
    the union is scored), and on each client's own test nodes "global_on_local" and "personal_on_local", where there are
    such models. Neither is validated: bytes stay integers.
    """

    history: SkipValidation[dict[str, list[float]]] = Field(default_factory=dict)
    per_client: SkipValidation[dict[str, list[float]]] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()

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
) -> Outcome:
    """Train a method on a federation and score it.

    backbones: client k has entry k mod len. cohort_size: clients trained in one program (None: chosen for speed); the
    result does not depend on it but for float32 rounding. on_round: called after each scored round with its figures.
    on_best: called once, in the end, with what scores and the models of the best round.
    Raises Skip when the method does not apply, Diverged when its outputs are no longer finite.
    """
    begin = time.perf_counter()
    backbones = method.architecture(backbones)
    reason = method.skip(federation, backbones)
    if reason:
        raise Skip(reason)
    config = method.protocol(config)
    if not method.travels and config.score_on != "local":
        raise Skip(f"{method.name}'s models are bound to their client's own graph and cannot be scored on another")
    arrangement = method.arrange(federation)
    exchange = Exchange(method, arrangement, backbones, config, seed, cohort_size)
    evaluator = TASKS[federation.task].evaluator(method, federation, arrangement, exchange.cohorts)
    model = _scored_model(exchange)
    selection = _rounds(exchange, evaluator, model, on_round)
    outcome = _outcome(selection, model, evaluator, exchange)
    outcome.total_seconds = time.perf_counter() - begin
    if on_best is not None:
        on_best(evaluator, selection.best.models)
    return outcome


def _rounds(exchange: Exchange, evaluator: Evaluator, model: str, on_round: OnRound | None) -> Selection:
    """All rounds of all phases; a scored phase ends early where patience does."""
    selection = Selection(exchange.config)
    for phase in exchange.method.phases(exchange.config):
        for number in range(1, phase.length(exchange.server) + 1):
            exchange.round(phase, number)
            if not phase.scored:
                continue
            seen = _evaluated(evaluator, exchange, model, selection.rounds + 1)
            selection.add(seen)
            if on_round is not None:
                on_round(seen.number, seen.figures)
            if selection.stops:
                break
    return selection


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
    weights = scored.target.count("test").float()
    weighted = (scored.test.nan_to_num() * weights).sum() / weights.sum() if len(weights) == len(scored.test) else None
    return Outcome(
        score=_none_if_nan(best.figures["score"]),
        score_metric=evaluator.describe(model, exchange.config.score_on),
        val=_none_if_nan(best.figures["val"]),
        macro_f1=None if scored.predicted is None else _none_if_nan(scored.target.macro_f1(scored.predicted, "test")),
        score_weighted=None if weighted is None else _none_if_nan(float(weighted)),
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
    )


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
