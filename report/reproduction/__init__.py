"""Compare our values with those of the papers: a page for every table with rows, and an index of all tables.

The files are results/<suite>/REPRODUCTION.md, results/<suite>/tables/reproduction.csv and results/REPRODUCTION.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from ...benchmark.store.schema import TAKEN_OVER, Row
from .. import provenance
from ..board import Board
from ..papers import Filter, Paper, Reading, papers, tables
from ..robustness import Robustness
from ..templating import document
from ..text import ABSENT, count, markdown_table as markdown, md, mean_std, spans
from .match import SuiteRows, chosen
from .page import page, signed
from .view import MIN_SEEDS, VERDICTS, View, counts, csv, views

INDEX = "REPRODUCTION.md"
HEADERS = [
    "Table", "Suite", "Reading", "Values", "Seeds", "Median difference", "Claims: supported", "contradicted",
    "inconclusive", "published gain in our interval",
]  # fmt: skip


def texts(
    results: Path, boards: Sequence[Board], environments: Mapping[str, dict[str, Any]]
) -> tuple[dict[Path, str], dict[str, list[View]]]:
    """Every reproduction file by path, and the views of each table by suite. Boards of other suites are ignored."""
    pages: dict[Path, str] = {}
    made: dict[str, list[View]] = {}
    for board in boards:
        if board.suite not in tables():
            continue
        rows = SuiteRows(board.rows, board.history)
        made[board.suite] = list(views(board.suite, rows))
        folder = results / board.suite
        facts = provenance.facts(Robustness(board), dict(environments))
        pages[folder / INDEX] = page(board.suite, made[board.suite], _extra_table(board.suite, rows), facts)
        pages[folder / "tables" / "reproduction.csv"] = csv(made[board.suite])
    return (pages | {results / INDEX: _index(made, boards)} if made else {}), made


def files(results: Path) -> list[Path]:
    """The files of an earlier report in the folders of the papers' suites."""
    folders = [results / suite for suite in tables()]
    fixed = [path for folder in folders for path in (folder / INDEX, folder / "figures" / "manifest.json")]
    drawn = [path for folder in folders for kind in ("tables", "figures") for path in (folder / kind).glob("*.*")]
    return sorted({path for path in [results / INDEX, *fixed, *drawn] if path.is_file()})


def coverage(suite: str, rows: Sequence[Row]) -> tuple[int, int]:
    """The number of printed figures for which we have a value under the base reading, and the number of all."""
    cells = next(views(suite, SuiteRows.of(rows))).cells
    return sum(ours.n > 0 for ours in cells), len(cells)


def _extra_table(suite: str, rows: SuiteRows) -> str:
    """The extra cells of a suite: a column for each dataset and number of clients; empty without such cells."""
    paper, spec = tables()[suite]
    base, *others = paper.readings_of(spec)
    lines: dict[tuple[str, ...], dict[tuple[str, int], str]] = {}
    for extra, reading in product(spec.extra, (base, *others)):
        options, known = (paper.cells(spec, each, extra.where) for each in (reading, base))
        if reading == base or options != known or reading.round != base.round:
            name = (extra.name, reading.id) if others else (extra.name,)
            if scores := _extra(rows, options, reading):
                lines.setdefault(name, {}).update(scores)
    if not lines:
        return ""
    places = sorted(set().union(*lines.values()))
    first = ["Ours, %", "Reading"] if others else ["Ours, %"]
    headers = [*first, *(f"{md(dataset)}, {count(clients, 'client')}" for dataset, clients in places)]
    cells = [[*map(md, names), *(line.get(place, ABSENT) for place in places)] for names, line in lines.items()]
    return markdown(cells, headers, "l" * len(first) + "r" * len(places))


def _extra(rows: SuiteRows, options: list[Filter], reading: Reading) -> dict[tuple[str, int], str]:
    """The scores of the rows that match the filters of a reading, by dataset and number of clients."""
    scores = {}
    admitted = pd.concat([rows.select(where, ["dataset", "clients"]) for where in options]).drop_duplicates()
    for dataset, clients in admitted.itertuples(index=False):
        place = str(dataset), int(clients)
        filters = [where | {"dataset": place[0], "clients": place[1]} for where in options]
        ours = chosen(rows, filters, reading, "score")
        if ours.n:
            scores[place] = f"{mean_std(ours.mean, ours.std)} (n={ours.n})"
    return scores


def _index(made: Mapping[str, Sequence[View]], boards: Sequence[Board]) -> str:
    claims = (claim for views in made.values() for view in _shown(views) for claim in view.affected_claims)
    seeds = [claim.n for claim in claims if claim.verdict in VERDICTS]
    return document(
        "reproductions.md",
        papers=papers(),
        runs=lambda paper: _runs(paper, made),
        claims=f"{len(seeds):,}",
        judged=f"{sum(n >= MIN_SEEDS for n in seeds):,}",
        least=MIN_SEEDS,
        cost=cost_table(boards),
    )


def _shown(views: Sequence[View]) -> list[View]:
    """The first reading, and the others that were run."""
    return [view for i, view in enumerate(views) if view.ran or not i]


def _runs(paper: Paper, made: Mapping[str, Sequence[View]]) -> str:
    """The tables of a paper: a line for each reading that was run, the first with the title, or a line of dashes."""
    rows = []
    for suite, spec in paper.tables.items():
        title = f"{md(spec.table)}: {md(spec.shows)}"
        shown = _shown(made.get(suite, ()))
        if not shown:
            rows.append([title, f"`{suite}`", "", "not run", *[ABSENT] * 6])
        for first, view in zip([title, *[""] * len(shown)], shown, strict=False):
            rows.append([first, f"[{suite}]({suite}/{INDEX})", *_line(view)])
    return markdown(rows, HEADERS, "lllrrrrrrr")


def _line(view: View) -> list[str]:
    ran = [ours for ours in view.cells if ours.n]
    return [
        md(view.reading.id) or ABSENT,
        f"{len(ran)}/{len(view.cells)}",
        spans(seed for ours in ran for seed in ours.seeds) or ABSENT,
        signed(view.gap, 2),
        *map(str, counts(view.claims)),
        str(sum(claim.size == "agrees" for claim in view.claims)),
    ]


HOUR = 3600.0  # seconds


def cost_table(boards: Sequence[Board]) -> str:
    """Rows and CPU hours of each suite and of all, most expensive first. A row counts for the suite where it was run,
    not where it is reused. For older rows without CPU time (one thread each), the training time counts."""
    lines = []
    for board in boards:
        rows = board.rows[~board.rows["notes"].astype(str).str.contains(rf"(?:^|; ){TAKEN_OVER}")]
        cpu, training = (pd.to_numeric(rows[clock], errors="coerce") for clock in ("cpu_seconds", "train_seconds"))
        lines.append((board.suite, len(rows), float(cpu.fillna(training).sum()) / HOUR))
    lines.sort(key=lambda line: (-line[2], line[0]))
    total = ("all", sum(rows for _, rows, _ in lines), sum(hours for *_, hours in lines))
    cells = [[md(suite), str(rows), f"{hours:.1f}"] for suite, rows, hours in (*lines, total)]
    return markdown(cells, ["Suite", "Rows run", "CPU hours"], "lrr")
