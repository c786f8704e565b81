"""The page of one reproduced table: ours beside the paper's in its own layout, its claims, what was ours to choose."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ..gaps import reasons
from ..papers import Place
from ..templating import document
from ..text import count, literal, md, table as markdown
from .judging import MIN_SEEDS, Judged
from .readings import claims_by_reading, definitions, figures_by_reading
from .view import View
from .wording import compared, printed, verdict

FEW = 3  # figures that share a note on the page


def page(suite: str, views: Sequence[View], extra: str, provenance: Sequence[str]) -> str:
    """The whole page. views: one a reading of the protocol, the base first; extra: a table, or nothing."""
    base, others = views[0], [view for view in views[1:] if view.ran]
    known = {"suite": suite, "view": base, "paper": base.paper, "spec": base.table, "least": MIN_SEEDS}
    readings = {
        "readings": definitions(views),
        "by_figure": figures_by_reading(base, others),
        "by_claim": claims_by_reading(base, others),
    }
    shown = {"extra": extra, "notes": _notes(base), "missing": _missing(views), "facts": provenance}
    return document("reproduction.md", **known, **readings, **shown, beside=_beside, claims=_claims, tally=tally)


def _beside(view: View, block: Sequence[Place]) -> str:
    """Some columns of the table."""
    lines = [[view.row_label(line), *(_compared(view, line, place) for place in block)] for line in view.lines]
    return markdown(lines, ["", *map(view.heading, block)], "l" + "r" * len(block))


def _compared(view: View, line: str, column: Place) -> str:
    figure = view.figure(line, column)
    return f"{printed(figure)}<br>{compared(view, figure)}" if figure is not None else ""


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
            [f"{view.row_label(better)} > {view.row_label(worse)}", *(verdict(own.get(place)) for place in shown)]
            for (better, worse), own in by_pair.items()
            if own.keys() & set(shown)
        ]
        if rows:
            found.append(markdown(rows, ["Claim", *map(view.heading, shown)], "l" * (len(shown) + 1)))
    return found


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
        reading = f" ({md(view.reading.id)})" if view.reading.id else ""
        for figure in view.figures:
            if figure not in view.own or view.paper.is_mean(view.table, figure):
                continue
            ours = view.ours[figure]
            where = f"{view.row_label(view.table.line(figure))}, {view.heading(view.table.column(figure))}{reading}"
            if bad := [row for row in ours.rows if row.status != "ok"]:
                lines.append(f"{where}: {literal('; '.join(reasons(pd.DataFrame(bad))))}")
            if ours.settings > 1:
                lines.append(f"{where}: rows of {ours.settings} different settings; for each seed the latest is shown")
        absent = sum(not ours.rows for ours in view.cells)
        if absent and (view.ran or view is views[0]):
            lines.append(f"not run{reading}: {absent} of {count(len(view.cells), 'figure')}")
    return list(dict.fromkeys(lines))
