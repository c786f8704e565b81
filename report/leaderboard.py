"""LEADERBOARD.md: who is ahead on each board, by how much, and how sure the data can be of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..benchmark.suites.headers import is_board
from .sheet import Sheet
from .standings import Standings
from .tables import GROUP, ranking
from .templating import document

README = ["#", "Method", "Mean rank (95% interval)", "Mean score, %", "Wins"]


def leaderboard(
    boards: list[Standings],
    environments: dict[str, dict[str, Any]],
    figures: dict[str, list[tuple[str, str]]],
) -> str:
    """The whole file. `figures` gives, for each suite, (file name, caption) of the figures that it has."""
    known = {"boards": boards, "environments": environments, "figures": figures}
    return document("leaderboard.md", **known, anchor=anchor, overall=overall)


def anchor(title: str) -> str:
    """GitHub's link target for the heading of a board."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def overall(standings: Standings) -> Sheet:
    """The ranking with each group beside the place."""
    sheet = ranking(standings)
    place, *rest = (title for title in sheet.titles if title != GROUP)
    return sheet.only([place, GROUP, *rest])


def readme_block(boards: list[Standings], leaderboard_link: str, top: int = 10) -> str:
    """The body of the README block: the head of every board of the benchmark, or of what there is (`quick` last)."""
    boards = [each for each in boards if not each.board.is_sweep]
    own = [each for each in boards if is_board(each.board.suite)]
    shown = own or [each for each in boards if each.board.suite != "quick"] or boards
    verified = any(each.board.verified for each in own)
    return document("readme.md", boards=shown, link=leaderboard_link, head=_head, top=top, verified=verified)


def _head(standings: Standings, top: int) -> Sheet:
    """The first lines of a ranking in the columns that a README has room for."""
    sheet = ranking(standings).only(README)
    return replace(sheet, lines=sheet.lines[: min(top, len(standings.board.ranked))])
