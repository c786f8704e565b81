"""The best round of a run: chosen by validation, with its figures, the history and the scores per client."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from pydantic import Field, SkipValidation

from ...metrics import Metrics
from ...registry import UserError
from .backbone import Params
from .config import TrainConfig
from .evaluate import Diverged, Evaluator, Models, Scored


@dataclass(frozen=True)
class Round:
    """A scored round: its number (1-based, among scored rounds), figures, evaluation and models."""

    number: int
    figures: dict[str, float]
    scored: Scored
    models: Models


class BestRound:
    """Selects the first of the best rounds by validation.

    history: one column per figure, one entry per round. matrix: of the best round, as of `matrix_of`, for methods that
    predict by their state (`Method.predicts_by_state`).
    """

    best: Round
    matrix: tuple[dict[str, float | None], dict[str, list[float]]] | None = None

    def __init__(self, config: TrainConfig, sign: int = 1) -> None:
        """sign: -1 if lower figures are better."""
        self.config, self.sign = config, sign
        self.rounds = 0
        self.history: dict[str, list[float]] = {}
        self._highest = -math.inf

    def add(self, seen: Round) -> bool:
        """Add the next round. Return whether it is the best so far."""
        self.rounds = seen.number
        for name, figure in {"round": seen.number, **seen.figures}.items():
            self.history.setdefault(name, []).append(figure)
        value = self._value(seen)
        better = seen.number == 1 or value > self._highest
        if better:
            self._highest, self.best = value, replace(seen, models=_snapshot(seen.models))
        return better

    def _value(self, seen: Round) -> float:
        """The value that is maximised; the round number without validation nodes or with `select_by` "last"."""
        by_loss = self.config.select_by == "val_loss"
        if by_loss and "val_loss" not in seen.figures:
            raise UserError("training.select_by=val_loss: the task computes no validation loss; leave it out")
        value = -seen.figures["val_loss"] if by_loss else self.sign * seen.figures["val"]
        return float(seen.number) if self.config.select_by == "last" or math.isnan(value) else value

    @property
    def stops(self) -> bool:
        """Whether there was no better round for `patience` rounds."""
        return self.config.patience is not None and self.rounds - self.best.number >= self.config.patience


def _snapshot(models: Models) -> Models:
    """Copy the models: methods may change theirs in place."""

    def copied(model: Params) -> Params:
        return {name: value.clone() for name, value in model.items()}

    server = None if models.server is None else copied(models.server)
    return Models(server, None if models.personal is None else list(map(copied, models.personal)))


class Outcome(Metrics):
    """The figures of one run, with its history and the scores per client.

    history: per-round columns of equal length ("round", "val", "score", "val_loss", "train_loss", "upload_bytes",
    "download_bytes", "seconds"). per_client, at the best round: "val" and "score" (one entry if the whole graph or the
    union is scored), and on each client's own test nodes "global_on_local" and "personal_on_local", if there are such
    models. Neither is validated: bytes stay integers. training: the configuration after the method's `protocol`.
    optimiser_steps: the largest number of steps of a client, in all phases, for all its models. model_steps: the
    largest number of steps of a client on one parameter. budget_steps: the steps of FedAvg with all clients in every
    round of the suite's protocol. dp_epsilon: the client-level privacy budget spent; None without privacy.
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

    def columns(self) -> dict[str, Any]:
        """Return the figures as columns of a result row. Raises Diverged if one of them is not finite."""
        figures = {name: getattr(self, name) for name in type(self).model_fields if name not in NO_COLUMNS}
        wild = [name for name, value in figures.items() if isinstance(value, float) and not math.isfinite(value)]
        if wild:
            raise Diverged(f"training diverged: {', '.join(wild)} is not finite")
        return {**figures, "dp_delta": None if self.dp_epsilon is None else self.training.dp_delta}


NO_COLUMNS = ("history", "per_client", "notes", "training")  # written to side files and texts


def mean(values: torch.Tensor) -> float:
    """Return the mean over the clients that have a figure; nan if no client has one."""
    return float(values.nanmean())


def none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value


def scores(scored: Scored) -> dict[str, float | None]:
    """Return the secondary scores of the evaluation of the best round."""
    return {
        "macro_f1": None if scored.predicted is None else none_if_nan(scored.target.macro_f1(scored.predicted, "test")),
        "roc_auc": None if scored.margin is None else none_if_nan(mean(scored.target.roc_auc(scored.margin, "test"))),
        "score_weighted": _weighted(scored),
    }


def _weighted(scored: Scored) -> float | None:
    """Return the mean over the clients that have a figure, weighted by their test nodes; None if there is none."""
    weights = scored.target.count("test").float()
    if len(weights) != len(scored.test):
        return None
    weights = weights * ~scored.test.isnan()
    return none_if_nan(float((scored.test.nan_to_num() * weights).sum() / weights.sum()))


def matrix_of(evaluator: Evaluator, models: Models) -> tuple[dict[str, float | None], dict[str, list[float]]]:
    """Return the four model x data figures, and those on local graphs per client."""
    matrix: dict[str, float | None] = {}
    local: dict[str, list[float]] = {}
    for kind in ("global", "personal"):
        for data in ("global", "local"):
            scored = evaluator.score(models, kind, data)
            matrix[f"{kind}_on_{data}"] = None if scored is None else none_if_nan(mean(scored.test))
            if scored is not None and data == "local":
                local[f"{kind}_on_local"] = scored.test.tolist()
    return matrix, local
