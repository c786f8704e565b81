"""How a worker ended, as its cell's row will say it."""

from __future__ import annotations

from typing import NamedTuple

UNGUARDED = 64  # exit code of a worker that imports a script which calls `run` on import


class Ending(NamedTuple):
    """How a worker ended: the status and error of its cell's row.

    outside: it was killed, and by nothing that its cell did, as far as can be known. The cell has another try.
    """

    status: str
    reason: str
    outside: bool = False
