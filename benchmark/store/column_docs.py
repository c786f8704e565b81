"""docs/columns.md: every column of a row, from the model that rows are read by.

python -c "from fglbench.benchmark.store.column_docs import glossary; print(glossary(), end='')" > docs/columns.md
"""

from __future__ import annotations

import types
import typing

from tabulate import tabulate

from .schema import COLUMNS, RULES, Row

HEAD = """# The columns of a row

A row is one run of one cell: a line of `results/<suite>/<method>.csv`. This page is made from the model that every
row is read by (`benchmark/store/schema.py` and `metrics.py`), and a test keeps it fresh. An empty field means that the
figure does not exist for this run. Scores are fractions from 0 to 1. `fglbench.load_results("results")` gives the rows
as a data frame, and with `expand=True` a column for each setting in the place of the JSON texts.

"""
SECTIONS = {  # the first column of each part of a line
    "schema_version": "What was run",
    "score": "How it went",
    "peak_memory_mb": "How it was made",
}


def glossary() -> str:
    """The page."""
    parts, title, found = [HEAD.rstrip("\n")], "", dict[str, list[list[str]]]()
    for name in COLUMNS:
        title = SECTIONS.get(name, title)
        info = Row.model_fields[name]
        found.setdefault(title, []).append([f"`{name}`", _kind(name), info.description or ""])
    for title, lines in found.items():
        headers = ["Column", "Type", "Meaning"]
        table = tabulate([[cell.replace("|", "\\|") for cell in line] for line in lines], headers, tablefmt="github")
        parts.append(f"## {title}\n\n{table}")
    return "\n\n".join(parts) + "\n"


def _kind(name: str) -> str:
    """The type of a column in words."""
    if RULES[name].json:
        return "JSON"
    annotation = Row.model_fields[name].annotation
    if typing.get_origin(annotation) is typing.Literal:
        return ", ".join(map(str, typing.get_args(annotation)))
    several = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    words = {str: "text", int: "whole number", float: "number", bool: "True or False", types.NoneType: ""}
    return ", ".join(filter(None, (words[own] for own in map(_bare, several))))


def _bare(annotation: typing.Any) -> typing.Any:
    """A type without what is said of it."""
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is typing.Annotated else annotation
