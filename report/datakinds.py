"""What a dataset's edges are, and by what else the tasks of a board can be chosen. Data: datakinds.csv."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from .standings import Standings

OTHER = "other"  # a user's own dataset, or one of a plug-in


@cache
def _kinds() -> dict[str, str]:
    with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as stream:
        return {line["dataset"]: line["kind"] for line in csv.DictReader(stream)}


def kind_of_data(dataset: str) -> str:
    """citations, products, ...; OTHER for a dataset that is not the package's."""
    return _kinds().get(dataset, OTHER)


def groups_of(standings: Standings, task: str) -> tuple[str, ...]:
    """By what a task can be chosen: its kind of data, and how alike the labels of its clients are."""
    dataset = str(standings.board.task_row(task)["dataset"])
    alike = [name for name, datasets in standings.regimes.regimes.items() if dataset in datasets]
    return (kind_of_data(dataset), *(f"labels {name}" for name in alike))
