"""The leaderboard as one HTML page that needs nothing but itself: no server, no other file, no other host.

It shows the sheets that LEADERBOARD.md is made from, in tables that can be sorted, filtered and saved. `sections`
(boards), `cards` and `histories` (methods) arrange what is known for the templates, `markup` sets what stands in a
table, `lines` draws a method beside FedAvg, `downloads` makes CSV files, `prose` turns the report's own sentences and
the methods' docstrings into HTML, `documents` its files, `page` puts everything together. The script only hides, shows
and reorders what the page already says, so that a reader without it misses nothing.
"""

from __future__ import annotations

from .documents import Paperwork, Reproduced
from .methods import Card
from .page import Picture, page

__all__ = ["Card", "Paperwork", "Picture", "Reproduced", "page"]
