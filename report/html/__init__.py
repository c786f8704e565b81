"""The leaderboard as one HTML page that needs nothing but itself: no server, no other file, no other host.

It shows the sheets that LEADERBOARD.md is made from, in tables that can be sorted and filtered. `sections` (boards) and
`cards` (methods) arrange what is known for the templates, `cells` sets what stands in a sheet, `prose` turns the
report's own sentences and the methods' docstrings into HTML, `page` puts everything together. The script only hides,
shows and reorders what the page already says, so that a reader without it misses nothing.
"""

from .cards import Card
from .page import Picture, page

__all__ = ["Card", "Picture", "page"]
