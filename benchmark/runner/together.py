"""Cells that differ in their seed only, run as one program: which may, and how many at a time."""

from __future__ import annotations

# Methods whose client halves look at more than their own clients' rows, and so train alone; what they look at.
APART = {
    "adafgl": "the run's seed, of which the personal heads are drawn",
    "fed-pub": "the proxy graph that one client has been sent, which is every client's",
    "fedsage+": "who acts: clients take turns, one at a time",
}
