"""The papers' own results, cell by cell, and what each of their tables is among our cells.

    tables.csv    1074 printed results: figures are facts, cited by paper and table; empty where a figure is not legible
    NAME.yaml     one paper: citation, the meaning of its words (`map`), its claims, its errors, our choices
                  and its readings

The suite of a table has the table's key in the YAML file (`fgssl-table1`) and is in benchmark/suites/.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

import yaml

from .models import Claim, Extra, Filter, Paper, Place, Printed, Reading, Table

__all__ = ["Claim", "Extra", "Filter", "Paper", "Place", "Printed", "Reading", "Table", "papers", "printed", "tables"]


@cache
def printed() -> tuple[Printed, ...]:
    """Every printed result, in the order of the papers' tables."""
    text = resources.files(__package__).joinpath("tables.csv").read_text(encoding="utf-8")
    return tuple(Printed.model_validate(row) for row in csv.DictReader(text.splitlines()))


@cache
def papers() -> tuple[Paper, ...]:
    files = sorted(
        (path for path in resources.files(__package__).iterdir() if path.name.endswith(".yaml")), key=lambda p: p.name
    )
    read = [Paper.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))) for path in files]
    return tuple(sorted(read, key=lambda paper: [row.paper for row in printed()].index(paper.name)))


@cache
def tables() -> dict[str, tuple[Paper, Table]]:
    """(paper, table) by the name of the table's suite."""
    return {suite: (paper, table) for paper in papers() for suite, table in paper.tables.items()}
