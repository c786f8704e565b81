"""LEADERBOARD.md: who is ahead on each board, by how much, and how sure the data can be of it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pandas as pd

from ..benchmark.suites.headers import is_board
from . import origins as provenance
from .board import Board
from .standings import Standings
from .tables import cell, legend
from .text import ABSENT, count, data_size, md, number, percent, slug, spans, table

NOTICE = "<!-- Made by `fglbench report` from the rows beside this file. Do not edit: your change would be lost. -->"
RANK = "Mean rank (95% interval)"
METHOD_NOTE = """## How ranks are made

- A score is the test metric at the round that *validation* chose. Scores are averaged over seeds first; the dataset is
  the unit of every comparison. Several tasks of one dataset on a board are averaged before datasets are ranked.
- Within a dataset the highest mean score has rank 1 and ties share their mean rank. *Mean rank* is the average over
  datasets; its 95% interval is a percentile bootstrap over datasets (10 000 draws, fixed seed).
- *Group*: methods that the datasets cannot tell apart from the group's leader share its number. Friedman's test comes
  first, then paired Wilcoxon tests with Holm's correction where the datasets suffice for them, else Nemenyi's critical
  difference; the sentence above each table says which. With too few datasets no groups are formed.
- *Wins*: datasets with the highest mean score; a tie counts for all who share it.
- Only methods that have a score for every task and seed of a board are ranked. Methods in *italics* are references that
  train on data which no federation has in one place; they are shown and never ranked.
- ✓n: the maintainers drew n rows of the method on this board at random and ran them again, and all came out the same
  (what that means: `docs/submitting.md`); ✗k/n: k of n did not. Without a mark none was run again.
- ± is the sample standard deviation over seeds. Traffic counts the bytes of all clients, up and down, to the best
  round; traffic and training seconds are medians over tasks.
"""


def leaderboard(
    boards: list[Standings],
    environments: dict[str, dict[str, Any]],
    figures: dict[str, list[tuple[str, str]]],
) -> str:
    """The whole file. `figures` gives, for each suite, (file name, caption) of the figures that it has."""
    parts = [NOTICE, "# Leaderboard", ""]
    if len(boards) > 1:
        parts += [f"- [{md(each.board.title)}](#{anchor(each.board.title)})" for each in boards] + [""]
    for each in boards:
        parts += [board_section(each, environments, figures.get(each.board.suite, []))]
    return "\n".join([*parts, METHOD_NOTE])


def anchor(title: str) -> str:
    """GitHub's link target for the heading of a board."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def board_section(standings: Standings, environments: dict[str, dict[str, Any]], figures: list[tuple[str, str]]) -> str:
    board = standings.board
    parts = [f"## {md(board.title)}", "", *provenance.settings(board), ""]
    parts += [outcome(standings), ""]
    if board.ranked:
        parts += [overall(standings), ""]
    parts += incomplete(board)
    if board.tasks:
        parts += ["### Per dataset", "", per_dataset(standings), "", legend(board), ""]
    if figures:
        parts += ["### Figures", ""]
        for file, caption in figures:
            name = file.removesuffix(".png").replace("_", " ")
            parts += [f"![{name}]({quote(f'{board.suite}/figures/{file}')})", "", md(caption, 400), ""]
    parts += provenance.foot(board, environments)
    return "\n".join(parts)


def outcome(standings: Standings) -> str:
    """What the ranking can say, or why there is none."""
    if standings.board.ranked:
        return standings.verdict.text
    if standings.board.is_sweep:
        return "A sweep: its entrants are settings of one method, so nothing is ranked."
    return "No method is complete on this board yet, so nothing is ranked."


def overall(standings: Standings) -> str:
    """The ranking as a markdown table, references below it."""
    board = standings.board
    covered = f"{len(board.tasks)}/{len(board.tasks)}"
    grouped = standings.verdict.test != "none"
    rows = [
        [
            str(row.position),
            str(row.group) if grouped else ABSENT,
            md(name) + mark(board, name),
            mean_rank(row),
            percent(row.score),
            str(row.wins),
            covered,
            data_size(row.traffic),
            number(row.seconds, 1),
        ]
        for name, row in standings.table.astype(object).iterrows()
    ]
    for name, row in standings.references.astype(object).iterrows():
        cost = [data_size(row.traffic), number(row.seconds, 1)]
        rows.append(["", "", f"*{md(name)}*{mark(board, name)}", "reference", percent(row.score), "", covered, *cost])
    headers = ["#", "Group", "Method", RANK, "Mean score, %", "Wins", "Tasks", "Traffic", "Train, s"]
    return table(rows, headers, "rclrrrrrr")


def mark(board: Board, name: str) -> str:
    """' ✓3' for an entrant of which the maintainers ran 3 rows again, all of which came out the same; ' ✗1/3' where one
    of 3 did not; nothing where none was run again."""
    passed, total = board.verified.get(name, (0, 0))
    return f" ✗{total - passed}/{total}" if passed < total else f" ✓{total}" if total else ""


def mean_rank(row: Any) -> str:
    interval = f" ({number(row.low, 1)}{ABSENT}{number(row.high, 1)})" if number(row.low) != ABSENT else ""
    return number(row.mean_rank) + interval


def per_dataset(standings: Standings) -> str:
    """Mean ± std of every entrant on every task: best in bold, those not told apart from the best with a mark."""
    board = standings.board
    headers = ["Method"]
    for task in board.tasks:
        headers.append(f"[{md(task)}]({quote(f'{board.suite}/tables/{slug(task)}.md')}), n={len(board.expected[task])}")
    rows = []
    for name in standings.order:
        shown = f"*{md(name)}*" if board.is_reference(name) else md(name)
        rows.append([shown, *(cell(standings, task, name) for task in board.tasks)])
    return table(rows, headers, "l" + "r" * len(board.tasks))


def incomplete(board: Board) -> list[str]:
    """Entrants that are not complete, with what is missing and why; and tasks that nobody could solve."""
    parts: list[str] = []
    total = sum(len(seeds) for seeds in board.expected.values())
    rows = []
    for name in board.entrants:
        if name not in board.complete and board.tasks:
            tasks, runs = int(board.full[name].sum()), int(board.counts[name].sum())
            coverage = [f"{tasks}/{len(board.tasks)}", f"{runs}/{total}"]
            rows.append([md(name), *coverage, "<br>".join(missing(board, name))])
    if rows:
        headers = ["Method", "Tasks", "Runs", "What is missing"]
        parts += ["### Incomplete, not ranked", "", table(rows, headers, "lrrl"), ""]
    if board.dead_tasks:
        parts += ["### Tasks without any score", ""]
        for task in board.dead_tasks:
            own = board.rows[board.rows["task_label"] == task]
            parts += [f"- {md(task)}: {'; '.join(reasons(own)) or 'no score was recorded'}"]
        parts += [""]
    return parts


def missing(board: Board, entrant: str) -> list[str]:
    """What an entrant lacks, one line a task: the seeds and why."""
    own = board.rows[board.rows["entrant"] == entrant]
    lines = []
    for task in board.tasks:
        if board.full.loc[task, entrant]:
            continue
        cells = own[(own["task_label"] == task) & own["seed"].isin(board.expected[task])]
        scored = cells["seed"][cells["score"].notna() & (cells["status"] == "ok")]
        lacking = set(board.expected[task]) - set(scored)
        why = reasons(cells[cells["seed"].isin(lacking)])
        absent = lacking - set(cells["seed"])
        if absent:
            why.append("not run" if len(absent) == len(board.expected[task]) else f"seed {spans(absent)} not run")
        lines.append(f"{md(task)}: {'; '.join(why)}")
    return lines


def reasons(rows: pd.DataFrame) -> list[str]:
    """Why rows have no score: 'failed (seed 1, 3): division by zero', with equal reasons told once."""
    found = []
    for (status, error), own in rows.groupby(["status", "error"], sort=True):
        word = "no score" if status == "ok" else status
        seeds = f" (seed {spans(own['seed'])})" if status != "skipped" else ""
        found.append(f"{word}{seeds}: {md(error, 160)}" if error else f"{word}{seeds}")
    return found


def readme_block(boards: list[Standings], leaderboard_link: str, top: int = 10) -> str:
    """The body of the README block: the head of every board of the benchmark, or of what there is (`quick` last)."""
    parts = []
    boards = [each for each in boards if not each.board.is_sweep]
    own = [each for each in boards if is_board(each.board.suite)]
    for standings in own or [each for each in boards if each.board.suite != "quick"] or boards:
        board = standings.board
        parts += [f"**{md(board.title)}** ({count(len(board.tasks), 'task')})", ""]
        if not board.ranked:
            parts += ["No method is complete on this board yet.", ""]
            continue
        rows = [
            [str(row.position), md(name) + mark(board, name), mean_rank(row), percent(row.score), str(row.wins)]
            for name, row in standings.table.head(top).astype(object).iterrows()
        ]
        parts += [table(rows, ["#", "Method", RANK, "Mean score, %", "Wins"], "rlrrr"), ""]
        if len(board.ranked) > top:
            parts += [f"… and {len(board.ranked) - top} more.", ""]
    if any(standings.board.verified for standings in own):
        parts += ["✓n: the maintainers drew n rows of the method, ran them again, and all came out the same.", ""]
    parts.append(f"[The whole leaderboard]({leaderboard_link}): groups, every dataset, what is incomplete.")
    return "\n".join(parts)
