"""What the leaderboard's tasks that are most like a user's data say: which methods gain over training alone there."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...report.statistics import Difference, paired_difference
from ..suites.published import PublishedTask, published_tasks

NEAREST = 5  # datasets
BASELINE, ALONE = "fedavg", "local"
# Property -> how far apart two tasks are that differ by one unit of it: about a standard deviation over the board.
SCALES = {"adjusted_homophily": 0.35, "label_skew": 0.2, "majority": 0.2}
LABELS = math.log(4)  # four times the training nodes per class and client count as one unit


@dataclass(frozen=True)
class Evidence:
    """tasks: the nearest, one per dataset, the nearest first. gains: method -> difference from `local` over these
    datasets, fractions, the largest first. measure: what they are differences of."""

    tasks: Sequence[PublishedTask]
    gains: Mapping[str, Difference]
    measure: str

    def lines(self) -> list[str]:
        """The evidence in words."""
        where = ", ".join(map(str, self.tasks))
        best = [(name, gain) for name, gain in self.gains.items() if name != ALONE]
        lines = [f"Leaderboard tasks most like yours: {where}"]
        lines += [
            f"  {name}: {100 * gain.mean:+.1f} points of {self.measure} over training alone "
            f"(95% interval {100 * gain.low:+.1f} to {100 * gain.high:+.1f}, over {len(self.tasks)} datasets)"
            for name, gain in best[:4]
        ]
        told = [name for name, gain in best if gain.low > 0]
        if not told:
            lines.append("  No method is significantly better than training alone on these tasks.")
        return lines


def distance(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """How unlike two tasks are, by labels per class and client, adjusted homophily, label skew, largest class."""
    terms = [(one[name] - other[name]) / scale for name, scale in SCALES.items()]
    terms.append(math.log(max(one["labels"], 0.5) / max(other["labels"], 0.5)) / LABELS)
    return math.sqrt(sum(term**2 for term in terms))


def evidence_for(properties: Mapping[str, float], metric: str, without: Collection[str] = ()) -> Evidence:
    """What the tasks nearest to these properties say. without: datasets to leave out.

    Macro-F1 is compared where it is the user's metric, and the board's own measure (accuracy; ROC AUC of two datasets)
    otherwise. The unit is the dataset: of each the nearest task.
    """
    ordered = sorted(published_tasks(), key=lambda task: distance(properties, task.properties))
    nearest = {task.dataset: task for task in reversed(ordered) if task.dataset not in without}
    tasks = sorted(nearest.values(), key=lambda task: distance(properties, task.properties))[:NEAREST]
    column = "macro_f1" if metric == "macro-f1" else "score"
    names = set.intersection(*(set(task.methods) for task in tasks))
    alone = [task.methods[ALONE][column] for task in tasks]
    gains = {name: paired_difference([task.methods[name][column] for task in tasks], alone) for name in names - {ALONE}}
    ranked = dict(sorted(gains.items(), key=lambda each: (-each[1].mean, each[0])))
    return Evidence(tasks, ranked, "macro-F1" if column == "macro_f1" else "the leaderboard's score")
