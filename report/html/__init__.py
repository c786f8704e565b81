"""The leaderboard as a small site of HTML files: an index, one page for each board, method, dataset and paper.

The pages need no server and ask no other host for anything. `pages` puts them together from templates, `tables` makes
what only the site shows, `data` is what the script of a board's page draws from, `documents` turns markdown and
docstrings into HTML. Without the script all tables are there, in the order of rank.
"""

from __future__ import annotations

from .pages import Drawn, Whole, pages

__all__ = ["Drawn", "Whole", "pages"]
