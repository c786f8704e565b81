"""LEADERBOARD.md: who is ahead on each board, by how much, and how sure the data can be of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import quote

from ..benchmark.suites.headers import is_board
from . import origins as provenance
from .gaps import dead
from .markdown import markdown
from .standings import Standings
from .tables import GROUP, legend, per_dataset, ranking, unranked
from .text import count, literal, md

NOTICE = "<!-- Made by `fglbench report` from the rows beside this file. Do not edit: your change would be lost. -->"
README = ["#", "Method", "Mean rank (95% interval)", "Mean score, %", "Wins"]
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
    parts = [f"## {md(board.title)}", "", *provenance.settings(board), "", standings.outcome, ""]
    if board.ranked:
        parts += [overall(standings), ""]
    if board.incomplete:
        parts += ["### Incomplete, not ranked", "", markdown(unranked(standings)), ""]
    if board.dead_tasks:
        parts += ["### Tasks without any score", "", *(f"- {literal(line)}" for line in dead(board)), ""]
    if board.tasks:
        parts += ["### Per dataset", "", markdown(per_dataset(standings)), "", legend(board), ""]
    if figures:
        parts += ["### Figures", ""]
        for file, caption in figures:
            name = file.removesuffix(".png").replace("_", " ")
            parts += [f"![{name}]({quote(f'{board.suite}/figures/{file}')})", "", md(caption, 400), ""]
    parts += provenance.foot(board, environments)
    return "\n".join(parts)


def overall(standings: Standings) -> str:
    """The ranking with each group beside the place."""
    sheet = ranking(standings)
    place, *rest = (title for title in sheet.titles if title != GROUP)
    return markdown(sheet.only([place, GROUP, *rest]))


def readme_block(boards: list[Standings], leaderboard_link: str, top: int = 10) -> str:
    """The body of the README block: the head of every board of the benchmark, or of what there is (`quick` last)."""
    boards = [each for each in boards if not each.board.is_sweep]
    own = [each for each in boards if is_board(each.board.suite)]
    parts = []
    for standings in own or [each for each in boards if each.board.suite != "quick"] or boards:
        parts += [f"**{md(standings.board.title)}** ({count(len(standings.board.tasks), 'task')})", ""]
        parts += _head(standings, top)
    if any(standings.board.verified for standings in own):
        parts += ["✓n: the maintainers drew n rows of the method, ran them again, and all came out the same.", ""]
    parts.append(f"[The whole leaderboard]({leaderboard_link}): groups, every dataset, what is incomplete.")
    return "\n".join(parts)


def _head(standings: Standings, top: int) -> list[str]:
    """The first lines of a ranking in the columns that a README has room for."""
    ranked = len(standings.board.ranked)
    if not ranked:
        return ["No method is complete on this board yet.", ""]
    sheet = ranking(standings).only(README)
    more = [f"… and {ranked - top} more.", ""] if ranked > top else []
    return [markdown(replace(sheet, lines=sheet.lines[: min(top, ranked)])), "", *more]
