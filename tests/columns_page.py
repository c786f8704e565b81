"""The page docs/columns.md, made from the model of a row: `python tests/columns_page.py > docs/columns.md`."""

from __future__ import annotations

import types
import typing

from tabulate import tabulate

from fglbench.benchmark.store.schema import COLUMNS, RULES, Row

HEAD = """# The columns of a row

A row is one run of one cell: a line of `results/<suite>/<method>.csv`. This page is made from the model of a row
(`benchmark/store/schema.py` and `metrics.py`), and a test checks that it is up to date. An empty field means that the
run has no such value. Scores are fractions from 0 to 1. `fglbench.load_results("results")` returns the rows as a data
frame; with `expand=True` each setting is a column, instead of the JSON texts.

"""
SECTIONS = {  # the first column of each part of a line
    "schema_version": "What was run",
    "score": "How it went",
    "peak_memory_mb": "How it was made",
}


def glossary() -> str:
    """The page docs/columns.md."""
    parts, title, sections = [HEAD.rstrip("\n")], "", dict[str, list[list[str]]]()
    for name in COLUMNS:
        title = SECTIONS.get(name, title)
        info = Row.model_fields[name]
        sections.setdefault(title, []).append([f"`{name}`", _kind(name), info.description or ""])
    for title, lines in sections.items():
        headers = ["Column", "Type", "Meaning"]
        table = tabulate([[cell.replace("|", "\\|") for cell in line] for line in lines], headers, tablefmt="github")
        parts.append(f"## {title}\n\n{table}")
    return "\n\n".join(parts) + "\n"


def _kind(name: str) -> str:
    if RULES[name].json:
        return "JSON"
    annotation = Row.model_fields[name].annotation
    if typing.get_origin(annotation) is typing.Literal:
        return ", ".join(map(str, typing.get_args(annotation)))
    kinds = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    words = {str: "text", int: "whole number", float: "number", bool: "True or False", types.NoneType: ""}
    return ", ".join(filter(None, (words[kind] for kind in map(_without_metadata, kinds))))


def _without_metadata(annotation: typing.Any) -> typing.Any:
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is typing.Annotated else annotation


if __name__ == "__main__":
    print(glossary(), end="")
