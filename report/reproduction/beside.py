"""The page of one reproduced table: ours beside the paper's in its own layout, its claims, what was ours to choose."""

from __future__ import annotations

from collections.abc import Sequence

from ..gaps import reasons
from ..papers import Place, Printed
from ..templating import document
from ..text import count, finite, literal, md, number, table as markdown
from .judging import MIN_SEEDS, Judged
from .match import difference, unit_values
from .view import View

MINUS = "\N{MINUS SIGN}"
FEW = 3  # figures that share a note on the page


def page(suite: str, views: Sequence[View], extra: str, provenance: Sequence[str]) -> str:
    """The whole page. views: one a reading of the protocol; extra: a table, or nothing."""
    known = {"suite": suite, "views": views, "paper": views[0].paper, "spec": views[0].table, "least": MIN_SEEDS}
    shown = {"extra": extra, "notes": _notes(views[0]), "missing": _missing(views), "facts": provenance}
    return document("reproduction.md", **known, **shown, beside=_beside, claims=_claims, tally=tally)


def _beside(view: View, block: Sequence[Place]) -> str:
    """Some columns of the table."""
    lines = [[view.row_label(line), *(_compared(view, line, place) for place in block)] for line in view.lines]
    return markdown(lines, ["", *map(view.heading, block)], "l" + "r" * len(block))


def _digits(figure: Printed) -> int:
    return 2 if figure.scale == 100 else 3


def _compared(view: View, line: str, column: Place) -> str:
    figure = view.figure(line, column)
    if figure is None:
        return ""
    ours, digits = view.ours[figure], _digits(figure)
    paper = "not legible" if figure.mean is None else number(figure.mean, digits)
    if figure.std is not None:
        paper += f" ± {number(figure.std, digits)}"
    if not ours.n:
        states = sorted(set(ours.rows["status"]) - {"ok"}) if len(ours.rows) else []
        word = "incomplete" if view.paper.is_mean(view.table, figure) and len(ours.rows) else ", ".join(states)
        return f"{paper}<br>*{word or 'not run'}*"
    mean, std = unit_values(figure, ours)
    spread = f" ± {number(std, digits)}" if finite(std) else ""
    gap = difference(figure, ours)
    apart = f"<br>**{signed(gap, digits)}**" if finite(gap) else ""
    return f"{paper}<br>*{number(mean, digits)}{spread}* (n={ours.n}){apart}"


def signed(value: float, digits: int) -> str:
    """With its sign, a typographic minus; zero has none."""
    text = f"{abs(value):.{digits}f}"
    return text if float(text) == 0 else f"{MINUS if value < 0 else '+'}{text}"


def _claims(view: View) -> list[str]:
    """The tables of what became of the claims."""
    by_pair: dict[tuple[str, str], dict[Place, Judged]] = {}
    for one in view.claims:
        better, worse = map(view.table.line, one.figures)
        by_pair.setdefault((better, worse), {})[view.table.column(one.figures[0])] = one
    found = []
    for block in view.blocks:
        shown = [place for place in block if any(place in own for own in by_pair.values())]
        rows = [
            [f"{view.row_label(better)} > {view.row_label(worse)}", *(_verdict(own.get(place)) for place in shown)]
            for (better, worse), own in by_pair.items()
            if own.keys() & set(shown)
        ]
        if rows:
            found.append(markdown(rows, ["Claim", *map(view.heading, shown)], "l" * (len(shown) + 1)))
    return found


def _verdict(one: Judged | None) -> str:
    if one is None:
        return ""
    if one.verdict in ("not run", "not claimed") or one.difference is None:
        return f"*{one.verdict}*"
    figure, gap = one.figures[0], one.difference
    scale, digits = figure.scale, _digits(figure)
    word = f"**{one.verdict}**" if one.verdict != "cannot be told" else one.verdict
    sure = f" ({signed(scale * gap.low, digits)} to {signed(scale * gap.high, digits)})"
    return f"{word}<br>{signed(scale * gap.mean, digits)}{sure if one.n >= MIN_SEEDS else f', n={one.n}'}"


def tally(claims: Sequence[Judged]) -> str:
    """'12 hold, 3 do not hold': claims by verdict, without those that the table itself does not make."""
    words = {"holds": "hold", "does not hold": "do not hold", "cannot be told": "cannot be told", "not run": "not run"}
    verdicts: list[str] = [one.verdict for one in claims]
    return ", ".join(f"{verdicts.count(v)} {word}" for v, word in words.items() if v in verdicts) or "none"


def _notes(view: View) -> list[str]:
    """What the facts say of single figures, equal notes told once; what holds for many is said elsewhere."""
    places: dict[str, list[str]] = {}
    for figure in view.figures:
        if figure.notes:
            where = ", ".join([view.table.line(figure), *view.table.column(figure)])
            places.setdefault(figure.notes, []).append(where)
    return [f"{'; '.join(found)}: {note}" for note, found in places.items() if len(found) <= FEW]


def _missing(views: Sequence[View]) -> list[str]:
    """Cells that have no score, or not for every seed that was run, and why, as markdown."""
    lines = []
    for view in views:
        reading = f" ({md(view.reading.name)})" if view.reading.name else ""
        for figure in view.figures:
            if view.paper.is_mean(view.table, figure):
                continue
            ours = view.ours[figure]
            where = f"{view.row_label(view.table.line(figure))}, {view.heading(view.table.column(figure))}{reading}"
            bad = ours.rows[ours.rows["status"] != "ok"] if len(ours.rows) else ours.rows
            if len(bad):
                lines.append(f"{where}: {literal('; '.join(reasons(bad)))}")
            if ours.settings > 1:
                lines.append(f"{where}: rows of {ours.settings} different settings; for each seed the latest is shown")
        absent = sum(not len(ours.rows) for ours in view.cells)
        if absent:
            lines.append(f"not run{reading}: {absent} of {count(len(view.cells), 'figure')}")
    return list(dict.fromkeys(lines))
