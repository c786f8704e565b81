"""One table per paper: each of its claims over the columns of a table, under two readings of the protocol.

The table is a block of docs/findings/<paper>.md, between `BEGIN` and `END`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ..papers import Paper, papers
from ..statistics import stratified_difference
from ..text import ABSENT, markdown_table, md, points
from .view import MIN_SEEDS, VERDICTS, JudgedClaim, View

BEGIN = "<!-- claims:begin -->"
END = "<!-- claims:end -->"
HEADERS = ["Claim", "Published", "As stated: ours (95%)", "Columns", "Best other reading: ours (95%)", "Columns"]
LEGEND = f"""\
Gains in points: the mean over the columns where the paper has the first method above the second and both have
{MIN_SEEDS} seeds or more. The interval is for these columns and new seeds; the verdict is that of the mean. *Columns*:
supported / contradicted / inconclusive, each column alone. A dash: the reading changes nothing, or was not run."""
Claims = dict[tuple[str, str, str], list[JudgedClaim]]


def findings_pages(root: Path, made: Mapping[str, Sequence[View]]) -> Iterator[tuple[Path, str]]:
    """The pages below `root` that have room for a claim table, each with its table."""
    for paper in papers():
        page = root / "docs" / "findings" / f"{paper.name.lower()}.md"
        if page.is_file() and BEGIN.encode() in page.read_bytes() and any(suite in made for suite in paper.tables):
            yield page, claim_table(paper, made)


def claim_table(paper: Paper, made: Mapping[str, Sequence[View]]) -> str:
    """The claims of a paper's tables under the reading that is stated, and under the best other. Markdown."""
    parts = [LEGEND]
    for suite in paper.tables:
        if suite in made:
            stated, other = readings(paper, made[suite])
            named = f"as stated `{stated.reading.id}`" + (f", best other `{other.reading.id}`" if other else "")
            parts += [f"**Table {md(stated.table.table)}**, {named}:", f"    fglbench reproduce {suite} --seeds 3"]
            parts.append(_table(stated, other))
    return "\n\n".join(parts)


def readings(paper: Paper, views: Sequence[View]) -> tuple[View, View | None]:
    """The view of a table that follows what the paper states, and of the others the one that supports most claims, of
    equals the one that contradicts fewest. The second choice is made after the results."""
    stated = next((view for view in views if view.reading.id == paper.stated), views[0])
    others = [view for view in views if view is not stated and view.ran]
    return stated, max(others, key=_support, default=None)


def stated_counts(paper: Paper, made: Mapping[str, Sequence[View]]) -> tuple[int, int, int]:
    """The counts of a paper's claims over its tables under the reading that follows what it states."""
    stated = [readings(paper, made[suite])[0] for suite in paper.tables if suite in made]
    return counts([one for view in stated for one in view.own_claims])


def counts(claims: Iterable[JudgedClaim]) -> tuple[int, int, int]:
    """How many are supported, contradicted and inconclusive."""
    found: list[str] = [one.verdict for one in claims]
    supported, contradicted, inconclusive = map(found.count, VERDICTS)
    return supported, contradicted, inconclusive


def _support(view: View) -> tuple[int, int]:
    supported, contradicted, _ = counts(view.own_claims)
    return supported, -contradicted


def _table(stated: View, other: View | None) -> str:
    under = [_grouped(stated), _grouped(other) if other else {}]
    lines = []
    for key in dict.fromkeys([*under[0], *under[1]]):
        own, best = (each.get(key, []) for each in under)
        first, second, metric = key
        claim = f"{stated.row_label(first)} > {stated.row_label(second)}{metric}"
        published = points(_mean([one.gain for one in own or best]))
        lines.append([claim, published, *_judged(stated, own), *_judged(other, best)])
    return markdown_table(lines, HEADERS, "lrlrlr")


def _grouped(view: View) -> Claims:
    """The claims with enough seeds by what is above what; also by metric where a table has several."""
    several = len({figure.metric for figure in view.figures}) > 1
    found: Claims = {}
    for one in view.own_claims:
        if one.verdict != "not claimed" and one.n >= MIN_SEEDS:
            first, second = one.figures
            metric = f", {'macro-F1' if first.column == 'macro_f1' else 'accuracy'}" if several else ""
            found.setdefault((view.table.line(first), view.table.line(second), metric), []).append(one)
    return found


def _judged(view: View | None, claims: Sequence[JudgedClaim]) -> list[str]:
    """Verdict, mean difference and interval over the columns of one claim; the verdicts of the columns."""
    if view is None or not claims:
        return [ABSENT, ABSENT]
    strata = []
    for one in claims:
        first, second = (view.ours[figure].seeds for figure in one.figures)
        strata.append([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())])
    gain = stratified_difference(strata, [1 / len(strata)] * len(strata))
    verdict = "**supported**" if gain.low > 0 else "**contradicted**" if gain.high <= 0 else "inconclusive"
    text = f"{verdict}, {points(gain.mean)} ({points(gain.low)} to {points(gain.high)})"
    return [text, " / ".join(map(str, counts(claims)))]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
