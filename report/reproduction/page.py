"""The page of each table (values, claims, readings), and the claim tables of each paper: every claim over the columns
of a table under two readings. The claim tables are a block of docs/findings/<paper>.md, between `BEGIN` and `END`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import pandas as pd

from ..papers import Paper, Place, Printed, papers
from ..provenance import reasons
from ..statistics import stratified_difference
from ..templating import document
from ..text import ABSENT, count, finite, literal, markdown_table, md, number, points, with_bounds
from .match import difference
from .view import MIN_SEEDS, VERDICTS, JudgedClaim, View, counts, ruling

MINUS = "\N{MINUS SIGN}"
SIZES = {"less": "less than", "agrees": "agrees with", "more": "more than"}


def signed(value: float, digits: int) -> str:
    """The number with its sign, with a typographic minus; zero has no sign; a dash for NaN."""
    if not finite(value):
        return ABSENT
    text = f"{abs(value):.{digits}f}"
    return text if float(text) == 0 else f"{MINUS if value < 0 else '+'}{text}"


def digits(figure: Printed) -> int:
    return 2 if figure.scale == 100 else 3


def printed_text(figure: Printed) -> str:
    """The value of the paper: mean ± standard deviation."""
    mean = "not legible" if figure.mean is None else number(figure.mean, digits(figure))
    return mean if figure.std is None else f"{mean} ± {number(figure.std, digits(figure))}"


def our_text(view: View, figure: Printed) -> str:
    """Our value: mean ± standard deviation (n seeds), and the difference from the paper."""
    ours, places = view.ours[figure], digits(figure)
    if not ours.n:
        states = sorted({row.status for row in ours.rows} - {"ok"})
        word = "incomplete" if view.paper.is_mean(view.table, figure) and ours.rows else ", ".join(states)
        return f"*{word or 'not run'}*"
    mean, std = figure.scale * ours.mean, figure.scale * ours.std
    spread = f" ± {number(std, places)}" if finite(std) else ""
    gap = difference(figure, ours)
    shown_gap = f"<br>**{signed(gap, places)}**" if finite(gap) else ""
    setting = f"<br>{md(ours.chosen)}" if ours.chosen else ""
    return f"*{number(mean, places)}{spread}* (n={ours.n}){shown_gap}{setting}"


def verdict_text(claim: JudgedClaim | None) -> str:
    """The verdict on a claim with the difference and its interval, then the comparison with the published gain."""
    if claim is None:
        return ""
    if claim.verdict in ("not run", "not claimed") or claim.difference is None:
        return f"*{claim.verdict}*"
    figure, gap = claim.figures[0], claim.difference
    scale, places = figure.scale, digits(figure)
    interval = f" ({signed(scale * gap.low, places)} to {signed(scale * gap.high, places)})"
    basis = interval if claim.n >= MIN_SEEDS else f", n={claim.n}"
    text = f"{_stressed(claim.verdict)}<br>{signed(scale * gap.mean, places)}{basis}"
    return f"{text}<br>{SIZES[claim.size]} {gain_text(claim)}" if claim.size else text


def _stressed(verdict: str) -> str:
    return verdict if verdict == "inconclusive" else f"**{verdict}**"


def gain_text(claim: JudgedClaim) -> str:
    """The published gain of a claim."""
    return signed(claim.figures[0].scale * claim.gain, digits(claim.figures[0]))


LONG = 2000  # characters of a sentence


def definitions(views: Sequence[View]) -> list[str]:
    """A line for each reading: meaning and source; empty if there is one reading only."""
    lines = []
    for view in views if len(views) > 1 else ():
        reading = view.reading
        note = "" if view.ran else " *Not run.*" if view.affected else " *It changes no figure of this table.*"
        meaning, source = md(reading.meaning, LONG), md(reading.source, LONG)
        lines.append(f"**{md(reading.id)}**: {meaning} Source: {source}{note}")
    return lines


def figures_by_reading(base: View, others: Sequence[View]) -> str:
    """The figures that a reading changes: the published value, then ours under each. others: readings that were run."""
    lines = []
    for figure in base.figures:
        if any(view.ours[figure].n for view in others if figure in view.affected):
            ours = (our_text(view, figure) if figure in view.affected else ABSENT for view in (base, *others))
            lines.append([_place(base, figure), printed_text(figure), *ours])
    headings = ["", "paper", *(md(view.reading.id) for view in (base, *others))]
    return markdown_table(lines, headings, "l" + "r" * (len(others) + 2)) if lines else ""


def claims_by_reading(base: View, others: Sequence[View]) -> str:
    """The claims about these figures: the verdict under each reading, and the readings that support them."""
    by_reading = [{claim.figures: claim for claim in view.affected_claims} for view in (base, *others)]
    names = [view.reading.id for view in (base, *others)]
    lines = []
    for figures, first in by_reading[0].items():
        judged = [claims.get(figures) for claims in by_reading]
        if first.verdict == "not claimed" or all(claim is None or claim.difference is None for claim in judged[1:]):
            continue
        support = [name for name, claim in zip(names, judged, strict=True) if claim and claim.verdict == "supported"]
        text = f"{md(base.row_label(base.table.line(figures[0])))} > {_place(base, figures[1])}"
        verdicts = [verdict_text(claim) or ABSENT for claim in judged]
        lines.append([text, gain_text(first), *verdicts, md(", ".join(support)) or "none"])
    headings = ["Claim", "published", *map(md, names), "supported under"]
    return markdown_table(lines, headings, "lr" + "l" * (len(others) + 2)) if lines else ""


def _place(view: View, figure: Printed) -> str:
    return md(f"{view.row_label(view.table.line(figure))}, {view.heading(view.table.column(figure))}")


FEW = 3  # a note on more figures than this is not shown


def page(suite: str, views: Sequence[View], extra: str, provenance: Sequence[str]) -> str:
    """The page of a table. views: one per reading, the base first. extra: a table, or empty."""
    base, others = views[0], [view for view in views[1:] if view.ran]
    return document(
        "reproduction.md", suite=suite, view=base, paper=base.paper, spec=base.table, least=MIN_SEEDS, extra=extra,
        readings=definitions(views), by_figure=figures_by_reading(base, others),
        by_claim=claims_by_reading(base, others), notes=_notes(base), missing=_missing(views), facts=provenance,
        columns=_columns, claims=_claims, tally=tally,
    )  # fmt: skip


def _columns(view: View, block: Sequence[Place]) -> str:
    lines = [[md(view.row_label(line)), *(_compared(view, line, place) for place in block)] for line in view.lines]
    return markdown_table(lines, ["", *_headings(view, block)], "l" + "r" * len(block))


def _headings(view: View, block: Sequence[Place]) -> list[str]:
    return [md(view.heading(place)) for place in block]


def _compared(view: View, line: str, column: Place) -> str:
    figure = view.figure(line, column)
    return f"{printed_text(figure)}<br>{our_text(view, figure)}" if figure is not None else ""


def _claims(view: View) -> list[str]:
    by_pair: dict[tuple[str, str], dict[Place, JudgedClaim]] = {}
    for claim in view.claims:
        better, worse = map(view.table.line, claim.figures)
        by_pair.setdefault((better, worse), {})[view.table.column(claim.figures[0])] = claim
    texts = []
    for block in view.blocks:
        shown = [place for place in block if any(place in claims for claims in by_pair.values())]
        rows = [
            [_beats(view, *pair), *(verdict_text(claims.get(place)) for place in shown)]
            for pair, claims in by_pair.items()
            if claims.keys() & set(shown)
        ]
        if rows:
            texts.append(markdown_table(rows, ["Claim", *_headings(view, shown)], "l" * (len(shown) + 1)))
    return texts


def _beats(view: View, better: str, worse: str) -> str:
    return f"{md(view.row_label(better))} > {md(view.row_label(worse))}"


def tally(claims: Sequence[JudgedClaim]) -> str:
    """'12 supported, 3 contradicted': the number of claims by verdict, without those that are not claimed."""
    verdicts: list[str] = [claim.verdict for claim in claims]
    return ", ".join(f"{verdicts.count(v)} {v}" for v in (*VERDICTS, "not run") if v in verdicts) or "none"


def _notes(view: View) -> list[str]:
    """The notes on single figures, equal notes once; notes on more than FEW figures are left out."""
    places: dict[str, list[str]] = {}
    for figure in view.figures:
        if figure.notes:
            where = ", ".join([view.table.line(figure), *view.table.column(figure)])
            places.setdefault(figure.notes, []).append(where)
    return [f"{'; '.join(noted)}: {note}" for note, noted in places.items() if len(noted) <= FEW]


def _missing(views: Sequence[View]) -> list[str]:
    """Figures without a score, or with failed seeds, and the reasons, as markdown."""
    lines = []
    for view in views:
        reading = f" ({md(view.reading.id)})" if view.reading.id else ""
        for figure in view.figures:
            if figure not in view.affected or view.paper.is_mean(view.table, figure):
                continue
            ours = view.ours[figure]
            where = f"{_place(view, figure)}{reading}"
            if bad := [row for row in ours.rows if row.status != "ok"]:
                lines.append(f"{where}: {literal('; '.join(reasons(pd.DataFrame(bad))))}")
            if ours.settings > 1:
                lines.append(f"{where}: rows of {ours.settings} different settings; for each seed the latest is shown")
        absent = sum(not ours.rows for ours in view.cells)
        if absent and (view.ran or view is views[0]):
            lines.append(f"not run{reading}: {absent} of {count(len(view.cells), 'figure')}")
    return list(dict.fromkeys(lines))


BEGIN = "<!-- claims:begin -->"
END = "<!-- claims:end -->"
HEADERS = ["Claim", "Published", "As stated: ours (95%)", "Columns", "Best other reading: ours (95%)", "Columns"]
LEGEND = f"""\
Gains in points: the mean over the columns where the paper has the first method above the second and both have at least
{MIN_SEEDS} seeds. The interval applies to these columns and new seeds; the verdict is that of the mean. *Columns*: the
numbers of columns supported / contradicted / inconclusive. Values that a reading does not change are those of the
table's first reading. A dash: not run."""
Claims = dict[tuple[str, str, str], list[JudgedClaim]]


def findings_pages(root: Path, made: Mapping[str, Sequence[View]]) -> Iterator[tuple[Path, str]]:
    """The pages below `root` with markers for a claim table, each with its table."""
    for paper in papers():
        page = root / "docs" / "findings" / f"{paper.name.lower()}.md"
        if page.is_file() and BEGIN.encode() in page.read_bytes() and any(suite in made for suite in paper.tables):
            yield page, claim_table(paper, made)


def claim_table(paper: Paper, made: Mapping[str, Sequence[View]]) -> str:
    """The claims of a paper's tables under the stated reading, and under the best other reading. Markdown."""
    parts = [LEGEND]
    for suite in paper.tables:
        if suite in made:
            stated, other = readings(paper, made[suite])
            named = f"as stated `{stated.reading.id}`" + (f", best other `{other.reading.id}`" if other else "")
            parts += [f"**Table {md(stated.table.table)}**, {named}:", f"    fglbench reproduce {suite} --seeds 3"]
            parts.append(_table(stated, other))
    return "\n\n".join(parts)


def readings(paper: Paper, views: Sequence[View]) -> tuple[View, View | None]:
    """The view of the stated reading, and of the others the one that supports most claims, of equals the one that
    contradicts fewest. Only claims that were run as stated count; readings with more of them go first. The second is
    chosen after the results are known."""
    stated = next((view for view in views if view.reading.id == paper.stated), views[0])
    others = [view for view in views if view is not stated and view.ran]
    same = {claim.figures for claim in stated.claims if claim.verdict in VERDICTS}
    return stated, max(others, key=partial(_support, same), default=None)


def stated_counts(paper: Paper, made: Mapping[str, Sequence[View]]) -> tuple[int, ...]:
    """The `counts` of a paper's claims over its tables under the stated reading."""
    stated = [readings(paper, made[suite])[0] for suite in paper.tables if suite in made]
    return counts(claim for view in stated for claim in view.claims)


def _support(same: Container[tuple[Printed, Printed]], view: View) -> tuple[int, int, int]:
    supported, contradicted, inconclusive = counts(claim for claim in view.claims if claim.figures in same)
    return supported + contradicted + inconclusive, supported, -contradicted


def _table(stated: View, other: View | None) -> str:
    of_stated, of_other = _by_pair(stated), _by_pair(other) if other else {}
    lines = []
    for key in of_stated | of_other:
        claims, best = of_stated.get(key, []), of_other.get(key, [])
        published = points(fmean(claim.gain for claim in claims or best))
        text = _beats(stated, *key[:2]) + key[2]
        lines.append([text, published, *_judged(stated, claims), *_judged(other, best)])
    return markdown_table(lines, HEADERS, "lrlrlr")


def _by_pair(view: View) -> Claims:
    """The claims with enough seeds, by pair of methods, and by metric if a table has several."""
    several = len({figure.metric for figure in view.figures}) > 1
    grouped: Claims = {}
    for claim in view.claims:
        if claim.verdict != "not claimed" and claim.n >= MIN_SEEDS:
            first, second = claim.figures
            metric = f", {'macro-F1' if first.column == 'macro_f1' else 'accuracy'}" if several else ""
            grouped.setdefault((view.table.line(first), view.table.line(second), metric), []).append(claim)
    return grouped


def _judged(view: View | None, claims: Sequence[JudgedClaim]) -> list[str]:
    """Verdict, mean difference and interval of a claim over its columns; the counts of verdicts of the columns."""
    if view is None or not claims:
        return [ABSENT, ABSENT]
    strata = []
    for claim in claims:
        first, second = (view.ours[figure].seeds for figure in claim.figures)
        strata.append([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())])
    gain = stratified_difference(strata, [1 / len(strata)] * len(strata))
    return [f"{_stressed(ruling(gain))}, {with_bounds(gain)}", " / ".join(map(str, counts(claims)))]
