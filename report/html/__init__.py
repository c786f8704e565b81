"""The leaderboard as one HTML page that needs nothing but itself: no server, no other file, no other host.

It shows the boards and standings that LEADERBOARD.md is made from, in tables that can be sorted and filtered. `sheet`,
`boards` and `methods` arrange what is known for the templates, `prose` turns the report's own markdown and the methods'
docstrings into HTML, `page` puts everything together. The script only hides, shows and reorders what the page already
says, so that a reader without it misses nothing.
"""

from .methods import Card
from .page import Picture, page

__all__ = ["Card", "Picture", "page"]
