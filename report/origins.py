"""Where the figures of a board come from: settings, code versions, machines, dates, and what does not fit together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from ..benchmark.store.jsoncolumn import mapping, parse
from .board import Board
from .sheet import Sheet, SheetCell, SheetColumn, SheetLine, Span
from .text import count, md, plain, slug, spans

# What is said of an environment; its packages come second.
MACHINE = {
    "python": "Python {}", "system": "{}", "cpu": "{}", "instructions": "{}", "cores": "{} cores",
    "memory_gib": "{} GiB", "threads": "threads a worker: {}", "preloaded": "preloaded: {}",
}  # fmt: skip


KINDS = {"node": "node classification", "graph": "graph clustering", "graph-classification": "graph classification"}


def settings(board: Board) -> list[str]:
    """The protocol of a board in a few lines."""
    rows = board.rows
    seeds = spans(seed for own in board.expected.values() for seed in own) or "none"
    kinds = " and ".join(KINDS[task] for task in sorted(rows["task"].unique())).capitalize()
    lines = [
        f"- Suite {md(board.suite)}. {kinds} tasks: "
        f"{len(board.tasks)} ({count(board.scored['dataset'].nunique(), 'dataset')}), "
        f"{count(len(board.entrants), 'method')}, seeds {seeds}",
        f"- Partition: {_values(rows, 'partition')}, {_clients(rows)}; split: {_values(rows, 'split')}",
        f"- Backbone: {_values(rows, 'backbone')}; training: {_training(rows)}",
    ]
    synthetic = sorted(rows.loc[rows["synthetic"].astype(bool), "task_label"].unique())
    if synthetic:
        lines.append(f"- **Synthetic data**, made by a generator and not observed: {', '.join(map(md, synthetic))}")
    return lines


def task_sentence(board: Board, task: str) -> str:
    """Partition, clients, split and data of one task."""
    row = board.task_row(task)
    own = board.rows_of(task)
    parts = [
        f"dataset {_named(row['dataset'], row['dataset_params'])}",
        f"partition {_named(row['partition'], row['partition_params'])} into {count(int(row['clients']), 'client')}",
        f"split {_named(row['split'], row['split_params'])}",
    ]
    fingerprints = sorted(set(own["dataset_fingerprint"]) - {""})
    if fingerprints:
        parts.append(f"data fingerprint {', '.join(md(f[:16]) for f in fingerprints)}")
    if own["synthetic"].astype(bool).any():
        parts.append("**synthetic**")
    return parts[0].capitalize()[:1] + "; ".join(parts)[1:] + "."


def facts(board: Board, environments: dict[str, dict[str, Any]]) -> list[str]:
    """Cautions, rows, dates, commits, submitters and machines, one list item a line."""
    rows = board.rows
    parts = [f"- **Caution**: {line}" for line in cautions(board)]
    schemas = ", ".join(map(md, sorted(set(rows["schema_version"]))))
    states = ", ".join(f"{n} {md(s)}" for s, n in sorted(rows["status"].value_counts().items()))
    parts.append(f"- Rows: {len(rows)} ({states}), result schema {schemas}")
    parts.append(f"- Started: {md(rows['started'].min())} to {md(rows['started'].max())}")
    commits = rows.groupby(rows["git_sha"].replace("", "not recorded"), sort=True).size()
    parts.append("- Commits: " + ", ".join(f"`{_code(sha)}` ({count(n, 'row')})" for sha, n in commits.items()))
    submitters = sorted(set(rows["submitter"]) - {""})
    if submitters:
        parts.append(f"- Submitted by: {', '.join(map(md, submitters))}")
    for digest, own in rows.groupby("environment", sort=True):
        about = describe(environments.get(str(digest)))
        devices = ", ".join(map(md, sorted(own["device"].unique())))
        parts.append(f"- Environment `{_code(digest)}` ({count(len(own), 'row')}, {devices}): {about}")
    return parts


def versions(board: Board) -> Sheet:
    """The source hashes of each method."""
    name = SheetColumn("Method", lambda own: SheetCell(plain(own[0])), "text")
    columns = [name, SheetColumn("Version", _hashes, "text")]
    found = board.rows.groupby("method", sort=True)["method_version"].unique().items()
    lines = [SheetLine([column.cell(own) for column in columns]) for own in found]
    return Sheet(f"versions:{slug(board.suite)}", f"Code versions of board {board.suite}", columns, lines)


def _hashes(own: tuple[str, Iterable[str]]) -> SheetCell:
    codes = [Span(_code(version), "code") for version in sorted(own[1])]
    return SheetCell(tuple(part for code in codes for part in (Span(", "), code))[1:])


def cautions(board: Board) -> list[str]:
    """What makes rows of one board not quite comparable."""
    rows, found = board.rows, []
    for method, versions in board.scored.groupby("method", sort=True)["computed_with"].nunique().items():
        if versions > 1:
            found.append(f"scores of {md(method)} come from {versions} versions of its code")
    for task, own in board.scored.groupby("task_label", sort=True):
        if own["dataset_fingerprint"].nunique() > 1:
            found.append(f"rows of {md(task)} were made on different data (fingerprints differ)")
        if (own.groupby("seed")["partition_hash"].nunique() > 1).any():
            found.append(f"on {md(task)} methods with the same seed had different partitions: seeds are not paired")
    dirty = int(rows["git_dirty"].eq(True).sum())
    if dirty:
        found.append(f"{count(dirty, 'row')} from a checkout with uncommitted changes")
    return found


def describe(environment: dict[str, Any] | None) -> str:
    """One line about a machine and its packages."""
    if not environment:
        return "no description found"
    packages = environment.get("packages")
    packages = packages if isinstance(packages, dict) else {}
    told = [(words, environment.get(name)) for name, words in MACHINE.items()]
    told[1:1] = [(f"{name} {{}}", packages.get(name)) for name in ("fglbench", "torch", "dgl", "numpy")]
    return md(", ".join(words.format(value) for words, value in told if value), 400)


def _values(rows: pd.DataFrame, column: str) -> str:
    """The values of a column with their parameters where these are one and the same."""
    found = []
    for value, own in rows.groupby(column, sort=True):
        params = own[f"{column}_params"].unique()
        found.append(_named(value, params[0]) if len(params) == 1 else f"{md(value)} (parameters vary)")
    return ", ".join(found)


def _named(name: object, params: object) -> str:
    return f"{md(name)} ({_params(params)})" if _params(params) else md(name)


def _params(text: object) -> str:
    found = parse(text)
    return md(text) if found is None else _told(found)


def _told(settings: dict[str, Any]) -> str:
    return md(", ".join(f"{key}={value}" for key, value in sorted(settings.items()) if value is not None), 300)


def _training(rows: pd.DataFrame) -> str:
    kinds = rows["training"].unique()
    if len(kinds) == 1:
        return _params(kinds[0])
    objects = [mapping(kind) for kind in kinds]
    values = {key: [found.get(key) for found in objects] for key in sorted(set().union(*objects))}
    varying = [key for key, own in values.items() if len(set(map(repr, own))) > 1]
    shared = _told({key: own[0] for key, own in values.items() if key not in varying})
    return shared + f" (varies: {md(', '.join(varying))})" if varying else shared


def _clients(rows: pd.DataFrame) -> str:
    numbers = sorted(int(n) for n in rows["clients"].unique())
    return f"{', '.join(map(str, numbers))} client{'' if numbers == [1] else 's'}"


def _code(text: object) -> str:
    """A short hash for a code span, in which backslashes do not escape."""
    return "".join(c for c in str(text)[:12] if c.isalnum() or c in "-_. ")
