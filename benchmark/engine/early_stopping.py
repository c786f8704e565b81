"""Which round of a run counts, when to stop looking for a better one, and what is kept of all rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .config import TrainConfig
from .evaluate import Models, Scored


@dataclass(frozen=True)
class Round:
    """A scored round: its number (1-based, among the scored ones), figures, evaluation and models."""

    number: int
    figures: dict[str, float]
    scored: Scored
    models: Models


class BestRound:
    """The first of the best rounds by validation; `history` has a column per figure, one entry per round."""

    best: Round

    def __init__(self, config: TrainConfig, sign: int = 1) -> None:
        """sign: -1 where lower figures are better."""
        self.config, self.sign = config, sign
        self.rounds = 0
        self.history: dict[str, list[float]] = {}
        self._highest = -math.inf

    def add(self, seen: Round) -> None:
        """Take note of the next round."""
        self.rounds = seen.number
        for name, figure in {"round": seen.number, **seen.figures}.items():
            self.history.setdefault(name, []).append(figure)
        value = self._value(seen)
        if seen.number == 1 or value > self._highest:
            self._highest, self.best = value, replace(seen, models=_snapshot(seen.models))

    def _value(self, seen: Round) -> float:
        """Larger is better; without a single validation node, or by choice, the last round wins."""
        value = -seen.figures["val_loss"] if self.config.select_by == "val_loss" else self.sign * seen.figures["val"]
        return float(seen.number) if self.config.select_by == "last" or math.isnan(value) else value

    @property
    def stops(self) -> bool:
        """Whether patience is at an end."""
        return self.config.patience is not None and self.rounds - self.best.number >= self.config.patience


def _snapshot(models: Models) -> Models:
    """The next rounds may train the clients' models in place."""
    if models.personal is None:
        return models
    return Models(models.server, [{name: value.clone() for name, value in own.items()} for own in models.personal])
