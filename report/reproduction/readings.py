"""The readings of a protocol side by side: a column each, and under which of them a claim holds."""

from __future__ import annotations

from collections.abc import Sequence

from ..papers import Printed
from ..text import ABSENT, md, table as markdown
from .judging import Judged
from .view import View
from .wording import compared, gain, printed, verdict

LONG = 2000  # characters of a sentence


def definitions(views: Sequence[View]) -> list[str]:
    """A line for each reading: what it is and where it comes from; none where there is one only."""
    return [_definition(view) for view in views] if len(views) > 1 else []


def _definition(view: View) -> str:
    own = view.reading
    told = f"**{md(own.id)}**: {md(own.meaning, LONG)} Source: {md(own.source, LONG)}"
    if not view.own:
        return f"{told} *It changes no figure of this table.*"
    return told if view.ran else f"{told} *Not run.*"


def figures_by_reading(base: View, others: Sequence[View]) -> str:
    """The figures that some reading changes: the paper's, then ours under each. others: readings that were run."""
    changed = [figure for figure in base.figures if any(_ran(view, figure) for view in others)]
    if not changed:
        return ""
    lines = [
        [_place(base, figure), printed(figure), *(_ours(view, figure) for view in (base, *others))]
        for figure in changed
    ]
    return markdown(lines, ["", "paper", *_headings(base, others)], "l" + "r" * (len(others) + 2))


def claims_by_reading(base: View, others: Sequence[View]) -> str:
    """The claims about these figures, judged under each reading, and the readings under which they hold."""
    under = [{one.figures: one for one in view.own_claims} for view in (base, *others)]
    names = [view.reading.id for view in (base, *others)]
    lines = []
    for figures, first in under[0].items():
        judged = [own.get(figures) for own in under]
        if first.verdict == "not claimed" or all(one is None or one.difference is None for one in judged[1:]):
            continue
        holds = [name for name, one in zip(names, judged, strict=True) if one and one.verdict == "holds"]
        claim = f"{base.row_label(base.table.line(figures[0]))} > {_place(base, figures[1])}"
        lines.append([claim, gain(first), *map(_verdict, judged), md(", ".join(holds)) or "none"])
    headings = ["Claim", "printed", *_headings(base, others), "holds under"]
    return markdown(lines, headings, "lr" + "l" * (len(others) + 2)) if lines else ""


def _headings(base: View, others: Sequence[View]) -> list[str]:
    return [md(view.reading.id) for view in (base, *others)]


def _ran(view: View, figure: Printed) -> bool:
    return figure in view.own and view.ours[figure].n > 0


def _place(view: View, figure: Printed) -> str:
    return f"{view.row_label(view.table.line(figure))}, {view.heading(view.table.column(figure))}"


def _ours(view: View, figure: Printed) -> str:
    return compared(view, figure) if figure in view.own else ABSENT


def _verdict(one: Judged | None) -> str:
    return verdict(one) or ABSENT
