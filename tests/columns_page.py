"""The page docs/columns.md, made from the model of a row: `python tests/columns_page.py > docs/columns.md`."""

from __future__ import annotations

from tabulate import tabulate

from fglbench.benchmark.store.schema import COLUMNS, RULES, Row

HEAD = """# The columns of a row

A row is the result of one run: a line of `results/<suite>/<method>.csv`. This page is made from the model of a row
(`benchmark/store/schema.py` and `metrics.py`), and a test checks that it is up to date. An empty field means that the
run has no such value. Scores are fractions from 0 to 1; errors of regression have no upper limit.
`fglbench.load_results("results")` returns the rows as a data frame; with `expand=True` each setting is a column,
instead of the JSON texts.

"""
SECTIONS = {  # the first column of each part of a line
    "schema_version": "What was run",
    "score": "How it went",
    "peak_memory_mb": "How it was made",
}


SCHEMA = Row.model_json_schema()["properties"]


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
    schema = SCHEMA[name]
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    words = {"string": "text", "integer": "whole number", "number": "number", "boolean": "True or False"}
    return ", ".join(words[kind["type"]] for kind in schema.get("anyOf", [schema]) if kind["type"] != "null")


if __name__ == "__main__":
    print(glossary(), end="")
