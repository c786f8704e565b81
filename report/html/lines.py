"""A method's curves beside FedAvg's, one small panel a task, as lines of an SVG that the page draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

WIDTH, HEIGHT = 180, 92  # of a panel's field, in CSS pixels
POINTS = 41  # of a line: more cannot be told apart
START = 0.1  # of the rounds, whose scores may lie below the field


@dataclass(frozen=True)
class Panel:
    """Two lines over rounds. own, control: points of a polyline; low, high: percent at the foot and the top; ends: the
    last scores in percent."""

    task: str
    own: str
    control: str
    low: float
    high: float
    rounds: int
    ends: tuple[float, float]


def panels(curves: Mapping[str, Any] | None, entrant: str, control: str) -> list[Panel]:
    """curves: those of a board, as its convergence figure has them. A panel for each task with both lines."""
    found = []
    for each in curves["panels"] if curves else []:
        lines = {line["name"]: line for line in each["lines"]}
        if entrant in lines and control in lines:
            found.append(_panel(each["task"], lines[entrant], lines[control]))
    return found


def _panel(task: str, own: Mapping[str, Any], control: Mapping[str, Any]) -> Panel:
    pair = [(np.asarray(line["round"], dtype=float), 100 * np.asarray(line["mean"])) for line in (own, control)]
    late = np.concatenate([values[int(START * len(values)) :] for _, values in pair])
    low, high = float(np.nanmin(late)), float(np.nanmax(late))
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    last = max(rounds.max() for rounds, _ in pair)
    drawn = [_points(*line, low, high, last) for line in pair]
    ends = float(pair[0][1][-1]), float(pair[1][1][-1])
    return Panel(task, drawn[0], drawn[1], low, high, int(last), ends)


def _points(rounds: np.ndarray, values: np.ndarray, low: float, high: float, last: float) -> str:
    kept = np.unique(np.linspace(0, len(rounds) - 1, POINTS).round().astype(int))
    kept = kept[np.isfinite(values[kept])]
    across = WIDTH * rounds[kept] / max(last, 1)
    down = HEIGHT * (1 - (np.maximum(values[kept], low) - low) / (high - low))
    return " ".join(f"{x:.0f},{y:.1f}".removesuffix(".0") for x, y in zip(across, down, strict=True))
