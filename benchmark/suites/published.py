"""What the leaderboard's rows say, in one small file that comes with the package: costs, and scores by task.

`tools/published.py` writes it from results/. `costs` is a fit (`runner/cost_estimate.py`). `tasks` are those of the
tuned node board: properties of the data and, of each method, mean figures over seeds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("published.json")
# Share of nodes that the published splits train on (the others are of the split `ratio`, which says it).
TRAINED = dict.fromkeys(("chameleon-filtered", "squirrel-filtered", "minesweeper", "tolokers"), 0.5) | {"actor": 0.48}


@dataclass(frozen=True)
class PublishedTask:
    """A task of the board. properties: `adjusted_homophily`, `label_skew`, `majority`, `labels` (training nodes per
    class and client), `nodes` (per client). methods: name -> "score", "macro_f1", fractions."""

    dataset: str
    partition: str
    clients: int
    metric: str
    properties: Mapping[str, float]
    methods: Mapping[str, Mapping[str, float]]

    def __str__(self) -> str:
        return f"{self.dataset} ({self.partition}, {self.clients} clients)"


@cache
def published() -> dict[str, Any]:
    """Return the content of the file."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def published_tasks() -> list[PublishedTask]:
    """Return the tasks of the tuned node board."""
    return [PublishedTask(**own) for own in published()["tasks"]]
