"""Our figures and verdicts as the cells of a markdown table: what every table of a page says alike."""

from __future__ import annotations

from ..papers import Printed
from ..text import finite, md, number
from .judging import MIN_SEEDS, Judged
from .match import difference, unit_values
from .view import View

MINUS = "\N{MINUS SIGN}"
SIZES = {"less": "less than", "agrees": "agrees with", "more": "more than"}


def signed(value: float, digits: int) -> str:
    """With its sign, a typographic minus; zero has none."""
    text = f"{abs(value):.{digits}f}"
    return text if float(text) == 0 else f"{MINUS if value < 0 else '+'}{text}"


def digits(figure: Printed) -> int:
    return 2 if figure.scale == 100 else 3


def printed(figure: Printed) -> str:
    """The paper's figure."""
    paper = "not legible" if figure.mean is None else number(figure.mean, digits(figure))
    return paper if figure.std is None else f"{paper} ± {number(figure.std, digits(figure))}"


def compared(view: View, figure: Printed) -> str:
    """Ours: mean ± standard deviation (n), and the difference from the paper's."""
    ours, places = view.ours[figure], digits(figure)
    if not ours.n:
        states = sorted({row.status for row in ours.rows} - {"ok"})
        word = "incomplete" if view.paper.is_mean(view.table, figure) and ours.rows else ", ".join(states)
        return f"*{word or 'not run'}*"
    mean, std = unit_values(figure, ours)
    spread = f" ± {number(std, places)}" if finite(std) else ""
    gap = difference(figure, ours)
    apart = f"<br>**{signed(gap, places)}**" if finite(gap) else ""
    picked = f"<br>{md(ours.chosen)}" if ours.chosen else ""
    return f"*{number(mean, places)}{spread}* (n={ours.n}){apart}{picked}"


def verdict(one: Judged | None) -> str:
    """What became of a claim: against zero with its interval, then against the gain that the paper prints."""
    if one is None:
        return ""
    if one.verdict in ("not run", "not claimed") or one.difference is None:
        return f"*{one.verdict}*"
    figure, gap = one.figures[0], one.difference
    scale, places = figure.scale, digits(figure)
    word = f"**{one.verdict}**" if one.verdict != "cannot be told" else one.verdict
    sure = f" ({signed(scale * gap.low, places)} to {signed(scale * gap.high, places)})"
    told = f"{word}<br>{signed(scale * gap.mean, places)}{sure if one.n >= MIN_SEEDS else f', n={one.n}'}"
    return f"{told}<br>{SIZES[one.size]} {gain(one)}" if one.size else told


def gain(one: Judged) -> str:
    """What the paper prints that a claim is worth."""
    return signed(one.figures[0].scale * one.gain, digits(one.figures[0]))
