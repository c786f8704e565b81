"""The origin of a board's results: protocol, code versions, machines, dates, training settings, missing runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from ..benchmark.store.schema import mapping, parse
from ..metrics import sign
from .board import Board
from .cells import Cell, Column, Span, Table
from .groups import METHOD, display, family
from .robustness import Robustness
from .text import ABSENT, count, finite, md, plain, slug, spans

MACHINE = {  # fields of an environment; packages are shown after the first
    "python": "Python {}", "system": "{}", "cpu": "{}", "instructions": "{}", "cores": "{} cores",
    "memory_gib": "{} GiB", "threads": "threads a worker: {}", "products": "products by {}",
    "preloaded": "preloaded: {}",
}  # fmt: skip
KINDS = {"node": "node classification", "graph": "graph clustering"}  # others keep their name


def protocol(board: Board) -> list[str]:
    """The protocol of a board as list items."""
    rows = board.rows
    seeds = spans(board.scored["seed"]) or "none"
    numbers = sorted(int(n) for n in rows["clients"].unique())
    clients = ", ".join(map(str, numbers)) + (" clients" if numbers != [1] else " client")
    kinds = " and ".join(KINDS.get(task, task.replace("-", " ")) for task in sorted(rows["task"].unique())).capitalize()
    lines = [
        f"- Suite {md(board.suite)}. {kinds} tasks: "
        f"{len(board.tasks)} ({count(board.scored['dataset'].nunique(), 'dataset')}), "
        f"{_entrants(board)}, seeds {seeds}",
        f"- Partition: {_values(rows, 'partition')}, {clients}; split: {_values(rows, 'split')}",
        f"- Backbone: {_backbones(rows)}; training: {_training(rows)}",
    ]
    if sign(board.metric) < 0:
        lines.append("- Errors: lower is better. A point of a difference is 0.01 of the error's unit")
    synthetic = sorted(rows.loc[rows["synthetic"].astype(bool), "task_label"].unique())
    if synthetic:
        lines.append(f"- **Synthetic data**, made by a generator and not observed: {', '.join(map(md, synthetic))}")
    return lines


def task_sentence(board: Board, task: str) -> str:
    """Partition, clients, split and data of one task."""
    row = board.task_row(task)
    rows = board.rows_of(task)
    parts = [
        f"dataset {_named(row['dataset'], row['dataset_params'])}",
        f"partition {_named(row['partition'], row['partition_params'])} into {count(int(row['clients']), 'client')}",
        f"split {_named(row['split'], row['split_params'])}",
    ]
    fingerprints = sorted(set(rows["dataset_fingerprint"]) - {""})
    if fingerprints:
        parts.append(f"data fingerprint {', '.join(md(f[:16]) for f in fingerprints)}")
    if rows["synthetic"].astype(bool).any():
        parts.append("**synthetic**")
    return parts[0].capitalize()[:1] + "; ".join(parts)[1:] + "."


def facts(robustness: Robustness, environments: dict[str, dict[str, Any]]) -> list[str]:
    """Cautions, rows, dates, commits, submitters and machines of a board as list items."""
    rows = robustness.board.rows
    parts = cautions(robustness)
    schemas = ", ".join(map(md, sorted(set(rows["schema_version"]))))
    states = ", ".join(f"{n} {md(s)}" for s, n in sorted(rows["status"].value_counts().items()))
    parts.append(f"- Rows: {len(rows)} ({states}), result schema {schemas}")
    parts.append(f"- Started: {md(rows['started'].min())} to {md(rows['started'].max())}")
    commits = rows.groupby(rows["git_sha"].replace("", "not recorded"), sort=True).size()
    parts.append("- Commits: " + ", ".join(f"`{_code(sha)}` ({count(n, 'row')})" for sha, n in commits.items()))
    submitters = sorted(set(rows["submitter"]) - {""})
    if submitters:
        parts.append(f"- Submitted by: {', '.join(map(md, submitters))}")
    for digest, made_there in rows.groupby("environment", sort=True):
        about = describe(environments.get(str(digest)))
        devices = ", ".join(map(md, sorted(made_there["device"].unique())))
        parts.append(f"- Environment `{_code(digest)}` ({count(len(made_there), 'row')}, {devices}): {about}")
    return parts


def versions(board: Board) -> Table:
    """The source hashes of each method."""
    columns = [
        Column("Method", lambda of_method: Cell(plain(display(of_method[0]))), "text"),
        Column("Version", lambda of_method: _hashes(of_method[1]), "text"),
    ]
    hashes = board.rows.groupby("method", sort=True)["method_version"].unique().items()
    return Table.of(f"versions:{slug(board.suite)}", f"Code versions of board {board.suite}", columns, hashes)


def _hashes(versions: Iterable[str]) -> Cell:
    codes = (Span(_code(version), "code") for version in sorted(versions))
    return Cell(tuple(part for code in codes for part in (Span(", "), code))[1:])


def cautions(robustness: Robustness) -> list[str]:
    """Reasons why rows of the board are not fully comparable, as list items."""
    board = robustness.board
    rows, texts = board.rows, []
    for method, versions in board.scored.groupby("method", sort=True)["computed_with"].nunique().items():
        if versions > 1:
            texts.append(f"scores of {md(method)} come from {versions} versions of its code")
    texts += different_data(board.scored, md)
    if robustness.without_curve and board.plain is not board:
        texts.append("means over datasets include runs under conditions: compare the tables of the tasks")
    dirty = int(rows["git_dirty"].eq(True).sum())
    if dirty:
        texts.append(f"{count(dirty, 'row')} from a checkout with uncommitted changes")
    return [f"- **Caution**: {text}" for text in texts]


def different_data(rows: pd.DataFrame, shown: Callable[[object], str] = plain) -> list[str]:
    """Sentences on tasks whose rows had different data, or different partitions for one seed.

    rows: of `Board.scored`. shown: a task's label -> its text.
    """
    texts = []
    contents = rows.groupby("task_label", sort=True)["dataset_fingerprint"].nunique()
    partitions = rows.groupby(["task_label", "seed"])["partition_hash"].nunique().groupby("task_label").max()
    for label in contents.index[(contents > 1) | (partitions > 1)]:
        task = shown(label)
        if contents[label] > 1:
            texts.append(f"rows of {task} were made on different data (fingerprints differ)")
        if partitions[label] > 1:
            texts.append(f"on {task} methods with the same seed had different partitions: seeds are not paired")
    return texts


def describe(environment: dict[str, Any] | None) -> str:
    """One line about a machine and its packages."""
    if not environment:
        return "no description found"
    packages = environment.get("packages")
    packages = packages if isinstance(packages, dict) else {}
    parts = [(words, environment.get(name)) for name, words in MACHINE.items()]
    parts[1:1] = [(f"{name} {{}}", packages.get(name)) for name in ("fglbench", "torch", "dgl", "numpy")]
    return md(", ".join(words.format(value) for words, value in parts if value), 400)


def _values(rows: pd.DataFrame, column: str) -> str:
    """The values of a column, with their parameters if all rows of a value have the same."""
    texts = []
    for value, of_value in rows.groupby(column, sort=True):
        params = of_value[f"{column}_params"].unique()
        texts.append(_named(value, params[0]) if len(params) == 1 else f"{md(value)} (parameters vary)")
    return ", ".join(texts)


def _backbones(rows: pd.DataFrame) -> str:
    """The usual backbone, and others with their methods; all backbones if one method has several."""
    usual = rows["backbone"].mode()[0]
    unusual = rows[rows["backbone"] != usual]
    if not set(rows.loc[rows["backbone"] == usual, "method"]).isdisjoint(unusual["method"]):
        return _values(rows, "backbone")
    others = [
        f"{md(name)} for {', '.join(plain(display(method)) for method in sorted(methods))}"
        for name, methods in unusual.groupby("backbone")["method"].unique().items()
    ]
    return "; ".join([_values(rows[rows["backbone"] == usual], "backbone"), *others])


def _entrants(board: Board) -> str:
    """The numbers of ranked methods, complete references, and methods with missing runs; without a ranking, those of
    methods and entries."""
    if not board.ranked:
        methods = len(set(board.method_of.values()))
        return count(methods, "method") + f" with {len(board.entrants)} settings" * (len(board.entrants) > methods)
    references = len(board.references.intersection(board.complete))
    parts = [count(len(board.ranked), "ranked method"), count(references, "reference")]
    return ", ".join([*parts, *([f"{len(board.incomplete)} with missing runs"] if board.incomplete else [])])


def _named(name: object, params: object) -> str:
    return f"{md(name)} ({_params(params)})".removesuffix(" ()")


def _params(text: object) -> str:
    settings = parse(text)
    return md(text) if settings is None else _settings(settings)


def _settings(settings: dict[str, Any]) -> str:
    return md(", ".join(f"{key}={value}" for key, value in sorted(settings.items()) if value is not None), 300)


def _training(rows: pd.DataFrame) -> str:
    kinds = rows["training"].unique()
    if len(kinds) == 1:
        return _params(kinds[0])
    objects = [mapping(kind) for kind in kinds]
    values = {key: [settings.get(key) for settings in objects] for key in sorted(set().union(*objects))}
    varying = [key for key, values_of in values.items() if len(set(map(repr, values_of))) > 1]
    shared = _settings({key: values_of[0] for key, values_of in values.items() if key not in varying})
    return shared + f" (varies: {md(', '.join(varying))})" if varying else shared


def _code(text: object) -> str:
    return "".join(c for c in str(text)[:12] if c.isalnum() or c in "-_. ")


def missing(board: Board, entrant: str) -> list[str]:
    """The missing runs of an entry, one line per task: seeds and reasons."""
    rows = board.rows[board.rows["entrant"] == entrant]
    lines = []
    for task in board.tasks:
        if board.full.loc[task, entrant]:
            continue
        cells = rows[(rows["task_label"] == task) & rows["seed"].isin(board.expected[task])]
        scored = cells["seed"][cells["score"].notna() & (cells["status"] == "ok")]
        lacking = set(board.expected[task]) - set(scored)
        why = reasons(cells[cells["seed"].isin(lacking)])
        absent = lacking - set(cells["seed"])
        if absent:
            why.append("not run" if len(absent) == len(board.expected[task]) else f"seed {spans(absent)} not run")
        lines.append(f"{plain(task)}: {'; '.join(why)}")
    return lines


def reasons(rows: pd.DataFrame) -> list[str]:
    """Why rows have no score: 'failed (seed 1, 3): division by zero'."""
    texts = []
    for (status, error), of_reason in rows.groupby(["status", "error"], sort=True):
        word = "no score" if status == "ok" else status
        seeds = f" (seed {spans(of_reason['seed'])})" if status != "skipped" else ""
        texts.append(f"{word}{seeds}: {plain(error, 160)}" if error else f"{word}{seeds}")
    return texts


def failed_runs(rows: pd.DataFrame) -> list[str]:
    """The failed and skipped runs of a task, one line per entry and reason."""
    bad = rows[rows["status"] != "ok"]
    return [
        f"{plain(name)}: {status} (seed {spans(of_reason['seed'])})" + (f": {plain(error)}" if error else "")
        for (name, status, error), of_reason in bad.groupby(["entrant", "status", "error"], sort=True)
    ]


def tasks_without_score(board: Board) -> list[str]:
    """The tasks without any score, and why."""
    why = {task: "; ".join(reasons(board.rows_of(task))) for task in board.dead_tasks}
    return [f"{plain(task)}: {reason or 'no score was recorded'}" for task, reason in why.items()]


def scored_as(rows: pd.DataFrame) -> str:
    """The score metric of a task, as plain text; if there are several, with their methods."""
    kinds = rows[rows["status"] == "ok"].groupby("score_metric", sort=True)["entrant"].unique()
    names = [f" for {', '.join(map(plain, sorted(entrants)))}" if len(kinds) > 1 else "" for entrants in kinds]
    return f"Score: {'; '.join(plain(kind) + who for kind, who in zip(kinds.index, names, strict=True))}."


def training_settings(board: Board) -> Table:
    """One line per entry with a score: tuning, rounds, steps, network. References are included."""
    votes: dict[str, Counter[str]] = {}
    for text in board.scored.drop_duplicates(["method", "backbone_params"])["backbone_params"]:
        for key, value in mapping(text).items():
            votes.setdefault(key, Counter())[json.dumps(value)] += 1
    usual = {key: counter.most_common(1)[0][0] for key, counter in votes.items()}
    rows = {str(name): scored for name, scored in board.scored.groupby("entrant", sort=True)}
    columns = [
        METHOD,
        Column("Family", lambda name: Cell(family(board.method_of[name]), family(board.method_of[name])), "text"),
        Column("Settings", lambda name: Cell(tuning_text(rows[name], board.over_budget.get(name, ""))), "text"),
        Column("Rounds", lambda name: _median(rows[name]["rounds"])),
        Column("Optimiser steps", lambda name: _steps(rows[name])),
        Column("Not converged", lambda name: _rising(rows[name])),
        Column("Network", lambda name: Cell(network(rows[name], usual)), "text"),
    ]
    caption = f"What the methods of board {board.suite} ran with"
    return Table.of(f"footing:{slug(board.suite)}", caption, columns, rows, board.entry)


def tuning_text(rows: pd.DataFrame, excess: str = "") -> str:
    """Return 'tuned, 12 trials', or 'untuned' if no row names a study; and the budget that was exceeded, if any."""
    tuned = [mapping(text) for text in rows["tuning"] if text]
    trials = sorted({int(study["trials"]) for study in tuned if isinstance(study.get("trials"), int)})
    text = f"tuned, {' or '.join(map(str, trials)) or 'unknown number of'} trials" if tuned else "untuned"
    return f"{text}; over budget: {plain(excess)}" if excess else text


def network(rows: pd.DataFrame, usual: dict[str, str]) -> str:
    """The backbones of the rows, with the parameters that differ from the usual value of the board."""
    networks: dict[str, None] = {}
    for backbone, params in sorted(set(zip(rows["backbone"], rows["backbone_params"], strict=True))):
        settings = {key: json.dumps(value) for key, value in mapping(params).items()}
        other = ", ".join(f"{key}={value}" for key, value in sorted(settings.items()) if usual.get(key, value) != value)
        networks[f"{plain(backbone, 60)}, {plain(other, 60)}" if other else plain(backbone, 60)] = None
    return "; ".join(networks)


def _median(values: pd.Series) -> Cell:
    median = pd.to_numeric(values).dropna().median()  # pandas 2 warns of a column without a number
    return Cell(f"{median:.0f}", float(median)) if finite(median) else Cell(ABSENT)


def _steps(rows: pd.DataFrame) -> Cell:
    """The median, and the median share of the steps of all rounds and local epochs."""
    cell = _median(rows["optimiser_steps"])
    share = (pd.to_numeric(rows["optimiser_steps"]) / pd.to_numeric(rows["budget_steps"])).dropna().median()
    return Cell(f"{cell.text} ({share:.0%})", cell.value) if finite(share) else cell


def _rising(rows: pd.DataFrame) -> Cell:
    rising = int(rows["rising"].sum())
    return Cell(f"{rising}/{len(rows)}", rising / len(rows))
