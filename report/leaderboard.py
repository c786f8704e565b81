"""LEADERBOARD.md: who is ahead on each board, by how much, and how sure the data can be of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..benchmark.suites.headers import is_board
from .sheet import Sheet
from .standings import Standings
from .tables import ranking
from .templating import document
from .text import count, plain

SHOWN = 6  # names of a tier in a sentence
README = ["Tier", "Method", "Mean rank (95% interval)", "Mean score, %"]


def leaderboard(
    boards: list[Standings],
    environments: dict[str, dict[str, Any]],
    figures: dict[str, list[tuple[str, str]]],
) -> str:
    """The whole file. `figures` gives, for each suite, (file name, caption) of the figures that it has."""
    known = {"boards": boards, "environments": environments, "figures": figures}
    return document("leaderboard.md", **known, anchor=anchor)


def anchor(title: str) -> str:
    """GitHub's link target for the heading of a board."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def readme_block(boards: list[Standings], leaderboard_link: str, top: int = 5) -> str:
    """The body of the README block: every board of the benchmark, or what there is (`quick` last), in a sentence.

    Of the first, what it answers and its first lines as well.
    """
    boards = [each for each in boards if not each.board.is_sweep]
    own = [each for each in boards if is_board(each.board.suite)]
    shown = own or [each for each in boards if each.board.suite != "quick"] or boards
    verified = any(each.board.verified for each in own[:1])
    known = {"boards": shown, "link": leaderboard_link, "head": _head, "first": _first, "top": top}
    return document("readme.md", **known, verified=verified)


def _first(standings: Standings) -> str:
    """Which methods are in tier 1, or that none is told below the first."""
    ranked = list(standings.table.index) if standings.board.ranked else []
    tiers = standings.contest.tiers if ranked else {}
    ahead = [name for name in ranked if tiers.get(name) == 1]
    if not ranked:
        return "no method is complete on this board yet."
    if not ahead or len(ahead) == len(ranked):
        return f"of {count(len(ranked), 'method')}, none is told below the first, {plain(ranked[0])}."
    names = ", ".join(map(plain, ahead[:SHOWN])) + (f" and {len(ahead) - SHOWN} more" if len(ahead) > SHOWN else "")
    first = "it" if len(ahead) == 1 else plain(ahead[0])
    return f"tier 1 of {count(len(ranked), 'method')}: {names}; all others are told below {first}."


def _head(standings: Standings, top: int) -> Sheet:
    """The first lines of a ranking in the columns that a README has room for."""
    sheet = ranking(standings)
    sheet = sheet.only([title for title in sheet.titles if title in README or title.startswith("Against")])
    return replace(sheet, lines=sheet.lines[: min(top, len(standings.board.ranked))])
