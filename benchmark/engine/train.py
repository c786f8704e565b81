"""A whole run: phases, evaluation after each round, the best round by validation, early stopping, the outcome."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from ...datasets.federation import Federation
from .backbones import Backbone
from .config import TrainConfig
from .evaluate import Diverged, Evaluator, Models, Scored
from .loop import Exchange
from .method import Method, Skip
from .outcome import Outcome
from .tasks import TASKS

OnRound = Callable[[int, dict[str, float]], None]
OnBest = Callable[[Evaluator, Models], None]


@dataclass
class _Best:
    """The round that validation chose."""

    value: float
    round: int
    scored: Scored
    models: Models
    upload: int
    download: int


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
    if not method.travels and config.data != "local":
        raise Skip(f"{method.name}'s models are bound to their client's own graph and cannot be scored on another")
    arrangement = method.arrange(federation)
    exchange = Exchange(method, arrangement, backbones, config, seed, cohort_size)
    evaluator = TASKS[federation.task].evaluator(method, federation, arrangement, exchange.cohorts)
    model = method.delivers if config.model == "auto" else config.model
    available = exchange.models()
    if model == "global" and available.server is None:
        model = "personal"  # a method without a global model is scored by its clients' models
    history: dict[str, list[float]] = {}
    best: _Best | None = None
    rounds = 0
    for phase in method.phases(config):
        for number in range(1, phase.length(exchange.server) + 1):
            exchange.round(phase, number)
            if not phase.scored:
                continue
            rounds += 1
            models = exchange.models()
            scored = _score(evaluator, models, model, config, rounds)
            figures = _figures(scored, exchange)
            for name, value in {"round": rounds, **figures}.items():
                history.setdefault(name, []).append(value)
            value = _selection_value(config, figures, rounds)
            if best is None or value > best.value:
                best = _Best(value, rounds, scored, _keep(models), *_traffic(exchange))
            if on_round is not None:
                on_round(rounds, figures)
            if config.patience is not None and rounds - best.round >= config.patience:
                break
    assert best is not None
    outcome = _outcome(best, model, config, evaluator, exchange, rounds, history, federation)
    outcome.total_seconds = time.perf_counter() - begin
    if on_best is not None:
        on_best(evaluator, best.models)
    return outcome


def _score(evaluator: Evaluator, models: Models, model: str, config: TrainConfig, rounds: int) -> Scored:
    try:
        scored = evaluator.score(models, model, config.data, with_loss=config.select == "val_loss")
    except Diverged as error:
        raise Diverged(f"{error} after round {rounds}: lower the learning rate or the method's loss weights") from None
    assert scored is not None, f"{evaluator.method.name} delivers no {model} model"
    return scored


def _mean(values: torch.Tensor) -> float:
    """Mean over the clients that have a figure; nan where none has."""
    return float(values.nanmean())


def _figures(scored: Scored, exchange: Exchange) -> dict[str, float]:
    upload, download = _traffic(exchange)
    figures = {
        "val": _mean(scored.val),
        "score": _mean(scored.test),
        "upload_bytes": upload,
        "download_bytes": download,
        "seconds": exchange.seconds,
    }
    return figures | ({"val_loss": scored.val_loss} if scored.val_loss is not None else {})


def _traffic(exchange: Exchange) -> tuple[int, int]:
    return sum(exchange.upload_bytes), sum(exchange.download_bytes)


def _selection_value(config: TrainConfig, figures: dict[str, float], rounds: int) -> float:
    """Larger is better; without a single validation node, or by choice, the last round wins."""
    value = -figures["val_loss"] if config.select == "val_loss" else figures["val"]
    return float(rounds) if config.select == "last" or math.isnan(value) else value


def _keep(models: Models) -> Models:
    """A snapshot: the next rounds may train the clients' models in place."""
    if models.personal is None:
        return models
    return Models(models.server, [{name: value.clone() for name, value in own.items()} for own in models.personal])


def _outcome(
    best: _Best,
    model: str,
    config: TrainConfig,
    evaluator: Evaluator,
    exchange: Exchange,
    rounds: int,
    history: dict[str, list[float]],
    federation: Federation,
) -> Outcome:
    matrix: dict[str, float | None] = {}
    local: dict[str, list[float]] = {}
    for kind in ("global", "personal"):
        for data in ("global", "local"):
            scored = evaluator.score(best.models, kind, data)
            matrix[f"{kind}_on_{data}"] = None if scored is None else _none_if_nan(_mean(scored.test))
            if scored is not None and data == "local":
                local[f"{kind}_on_local"] = scored.test.tolist()
    scored = best.scored
    weights = scored.target.count("test").float()
    weighted = (scored.test.nan_to_num() * weights).sum() / weights.sum() if len(weights) == len(scored.test) else None
    upload, download = _traffic(exchange)
    return Outcome(
        score=_none_if_nan(_mean(scored.test)),
        score_metric=evaluator.describe(model, config.data),
        val=_none_if_nan(_mean(scored.val)),
        macro_f1=None if scored.predicted is None else _none_if_nan(scored.target.macro_f1(scored.predicted, "test")),
        score_weighted=None if weighted is None else _none_if_nan(float(weighted)),
        **matrix,
        best_round=best.round,
        rounds=rounds,
        upload_bytes=upload,
        download_bytes=download,
        upload_bytes_best=best.upload,
        download_bytes_best=best.download,
        train_seconds=exchange.seconds,
        total_seconds=0.0,
        history=history,
        per_client={"val": scored.val.tolist(), "score": scored.test.tolist(), **local},
        notes=federation.notes,
    )


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value
