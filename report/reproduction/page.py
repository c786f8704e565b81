"""The page of one reproduced table: ours beside the paper's in its own layout, its claims, what was ours to choose."""

from __future__ import annotations

from collections.abc import Sequence

from ..gaps import reasons
from ..papers import Printed
from ..text import count, finite, literal, md, number, table as markdown
from .claims import MIN_SEEDS, RULE, Judged
from .match import difference, unit_values
from .view import Place, View

NOTICE = "<!-- Made by `fglbench report`. Do not edit. -->"
MINUS = "\N{MINUS SIGN}"
FEW = 3  # figures that share a note on the page


def page(suite: str, views: Sequence[View], extras: Sequence[str], provenance: Sequence[str]) -> str:
    """The whole page; `views` has one entry a reading of the protocol."""
    paper, spec = views[0].paper, views[0].table
    parts = [
        NOTICE,
        f"# {paper.name}, Table {spec.table}",
        "",
        f"{md(spec.shows)}. {md(paper.citation)}. The paper has {md(paper.seeds)}.",
        "",
        f"Run with `fglbench reproduce {suite}`. All tables: [REPRODUCTION.md](../REPRODUCTION.md). The same figures as"
        " CSV: [tables/reproduction.csv](tables/reproduction.csv).",
        "",
        "In each cell: the paper's figure; *ours*, mean ± standard deviation over n seeds;"
        f" **ours {MINUS} the paper's**.",
        "",
    ]
    for view in views:
        if view.reading.name:
            parts += [f"## With {md(view.reading.name)}", ""]
        for block in view.blocks:
            headers = ["", *(view.heading(place) for place in block)]
            lines = [[view.row_label(line), *(_cell(view, line, place) for place in block)] for line in view.lines]
            parts += [markdown(lines, headers, "l" + "r" * len(block)), ""]
        parts += _claims(view)
    if extras:
        parts += ["## Beside the table", "", *extras, ""]
    parts += ["## How claims are judged", "", RULE, ""]
    parts += _listed("What was ours to choose", _told([*paper.choices, *spec.choices]))
    parts += _listed("Errors and oddities of the paper", _told([*spec.errors, *_notes(views[0])]))
    parts += _listed("Cells without a figure of ours", _missing(views))
    parts += ["## Provenance", "", *provenance, ""]
    return "\n".join(parts)


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *(f"- {line}" for line in lines), ""] if lines else []


def _told(lines: Sequence[str]) -> list[str]:
    return [md(line, 2000) for line in lines]


def _digits(figure: Printed) -> int:
    return 2 if figure.scale == 100 else 3


def _cell(view: View, line: str, column: Place) -> str:
    figure = view.figure(line, column)
    if figure is None:
        return ""
    ours, digits = view.ours[figure], _digits(figure)
    paper = "not legible" if figure.mean is None else number(figure.mean, digits)
    if figure.std is not None:
        paper += f" ± {number(figure.std, digits)}"
    if not ours.n:
        states = sorted(set(ours.rows["status"]) - {"ok"}) if len(ours.rows) else []
        word = "incomplete" if view.is_mean(figure) and len(ours.rows) else ", ".join(states)
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
    if not view.claims:
        return []
    by_pair: dict[tuple[str, str], dict[Place, Judged]] = {}
    for one in view.claims:
        by_pair.setdefault((one.better, one.worse), {})[view.column(one.figures[0])] = one
    parts = [f"### Claims ({tally(view.claims)})", ""]
    for block in view.blocks:
        shown = [place for place in block if any(place in found for found in by_pair.values())]
        rows = [
            [f"{view.row_label(a)} > {view.row_label(b)}", *(_verdict(found.get(place)) for place in shown)]
            for (a, b), found in by_pair.items()
            if found.keys() & set(shown)
        ]
        if rows:
            parts += [markdown(rows, ["Claim", *map(view.heading, shown)], "l" * (len(shown) + 1)), ""]
    return parts


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
            where = ", ".join([figure.place[view.table.rows[0]], *view.column(figure)])
            places.setdefault(figure.notes, []).append(where)
    return [f"{'; '.join(found)}: {note}" for note, found in places.items() if len(found) <= FEW]


def _missing(views: Sequence[View]) -> list[str]:
    """Cells that have no score, or not for every seed that was run, and why, as markdown."""
    lines = []
    for view in views:
        reading = f" ({md(view.reading.name)})" if view.reading.name else ""
        for figure in view.figures:
            if view.is_mean(figure):
                continue
            ours = view.ours[figure]
            where = f"{view.row_label(view.line(figure))}, {view.heading(view.column(figure))}{reading}"
            bad = ours.rows[ours.rows["status"] != "ok"] if len(ours.rows) else ours.rows
            if len(bad):
                lines.append(f"{where}: {literal('; '.join(reasons(bad)))}")
            if ours.settings > 1:
                lines.append(f"{where}: rows of {ours.settings} different settings; for each seed the latest is shown")
        absent = sum(not len(ours.rows) for ours in view.cells)
        if absent:
            lines.append(f"not run{reading}: {absent} of {count(len(view.cells), 'figure')}")
    return list(dict.fromkeys(lines))
