"""Make all files of the report in memory from the rows of a results folder; then write them, or compare them.

    results/LEADERBOARD.md, results/<suite>/LEADERBOARD.md
    results/<suite>/tables/<task>.md, .csv, robustness.csv
    results/<suite>/figures/<figure>.png, manifest.json    digests of each figure's data and drawing code
    results/REPRODUCTION.md, results/<suite>/REPRODUCTION.md   papers' tables (see reproduction/)
    README.md, docs/findings/<paper>.md                    the block between the two markers

`tables/` and `figures/` contain files of the report only: files that are no longer made are removed.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import write_atomically
from ..registry import UserError
from . import reproduction
from .board import Board
from .figures import Plot, found_figures
from .html.pages import Drawn, Whole, pages
from .leaderboard import leaderboard, readme_block, reported, reported_section, with_block
from .loading import environments, load_boards
from .papers import tables as papers_tables
from .ranking import Ranking
from .reproduction.page import BEGIN, END, findings_pages
from .reproduction.view import View
from .robustness import curves_csv
from .tables import task_csv
from .templating import document
from .text import count, slug


@dataclass
class Report:
    """texts and figures (plot, data): by path. orphans: files that are no longer made. boards, environments and views:
    the content."""

    results: Path
    boards: list[Ranking] = field(default_factory=list)
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)
    figures: dict[Path, tuple[Plot, dict[str, Any]]] = field(default_factory=dict)
    orphans: list[Path] = field(default_factory=list)
    views: dict[str, list[View]] = field(default_factory=dict)  # of papers' tables, by suite

    @property
    def total(self) -> int:
        return len(self.texts) + len(self.figures) + len(self.orphans)


def make(results: Path, readme: Path | None, figures: bool = True) -> Report:
    """Make the report in memory; pictures are not drawn yet. Without `figures`, figure files stay as they are."""
    loaded = load_boards(results)
    boards = [Ranking(board) for board in loaded if board.suite not in papers_tables()]
    report = Report(results, boards, environments(results))
    heads = {each.board.suite: _board(report, each, figures) for each in boards}
    texts, report.views = reproduction.texts(results, loaded, report.environments)
    report.texts |= texts
    report.orphans += [path for path in reproduction.files(results) if path not in report.texts]
    for board in loaded:
        if lost := _lost(board):
            what = f"curves or embeddings of {count(len(lost), 'run')} cannot be read"
            first, fix = ": ".join(next(iter(lost.items()))), "restore the files from git, or run again (--rerun all)"
            warnings.warn(f"{results / board.suite}: {what} ({first}); {fix}", stacklevel=2)
    if not boards:
        return report  # tables of papers only
    text = leaderboard(boards, heads) + reported_section(results)
    report.texts[results / "LEADERBOARD.md"] = text
    if readme is not None:
        link = Path(os.path.relpath(results / "LEADERBOARD.md", readme.parent)).as_posix()
        report.texts[readme] = with_block(readme, readme_block(boards, link))
        for page, table in findings_pages(readme.parent, report.views):
            report.texts[page] = with_block(page, f"{table}\n", BEGIN, END)
    return report


def _board(report: Report, ranking: Ranking, figures: bool) -> str:
    """Add the files of a board to the report. Returns the text of its ranking."""
    suite = report.results / ranking.board.suite
    for task in ranking.tasks:
        stem = suite / "tables" / slug(task)
        report.texts[Path(f"{stem}.md")] = document("task.md", ranking=ranking, board=ranking.board, task=task)
        report.texts[Path(f"{stem}.csv")] = task_csv(ranking, task)
    if not ranking.robustness.table.empty:
        report.texts[suite / "tables" / "robustness.csv"] = curves_csv(ranking.robustness)
    drawn = found_figures(ranking)
    if figures:
        report.figures |= {suite / "figures" / plot.file: (plot, data) for plot, data in drawn.items()}
        manifest = {plot.file: plot.digest(data) for plot, data in drawn.items()}
        report.texts[suite / "figures" / "manifest.json"] = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
        if not _lost(ranking.board):
            report.orphans += [p for p in sorted((suite / "figures").glob("*.png")) if p not in report.figures]
    tables = [p for p in sorted((suite / "tables").glob("*")) if p.suffix in (".md", ".csv")]
    report.orphans += [p for p in tables if p not in report.texts]
    shown = {plot.file: plot.text(data) for plot, data in drawn.items()}
    captions = {file: text for file, text in shown.items() if figures or (suite / "figures" / file).is_file()}
    known = {"each": ranking, "board": ranking.board, "environments": report.environments}
    head = document("ranking.md", **known)
    report.texts[suite / "LEADERBOARD.md"] = document("suite.md", **known, head=head, figures=captions)
    return head


def _lost(board: Board) -> dict[str, str]:
    """Key -> reason, of runs with a score whose curves or embeddings are missing or damaged."""
    missing = {key: "no curves" for key in map(str, board.scored["key"]) if board.read.get(key) == {}}
    return board.damaged | {key: reason for key, reason in missing.items() if key not in board.damaged}


def stale(report: Report) -> list[Path]:
    """Return the files with another text or with a figure of other data or code, missing files, and orphans."""
    paths = [path for path, text in report.texts.items() if not path.exists() or path.read_bytes() != text.encode()]
    for path, (plot, data) in report.figures.items():
        if not path.exists() or _manifest(path.parent).get(plot.file) != plot.digest(data):
            paths.append(path)
    return sorted({*paths, *report.orphans})


def write(report: Report) -> list[Path]:
    """Write and draw what has changed, and remove orphans. Return these paths. UserError if writing fails."""
    changed = stale(report)
    try:
        for path in changed:
            if path in report.orphans:
                path.unlink(missing_ok=True)
            elif path in report.figures:
                plot, data = report.figures[path]
                write_atomically(path, plot.png(data))
        for path in changed:  # the manifest after the figures: after a crash the figures are still stale
            if path in report.texts:
                write_atomically(path, report.texts[path].encode())
    except OSError as error:
        raise UserError(f"cannot write {str(error.filename or path)!r}: {error.strerror or error}") from None
    return changed


SHOWN = ("tiers", "cost", "rank_heatmap", "robustness", "privacy", "sensitivity")  # figures of a board's page


def write_site(report: Report, folder: Path) -> tuple[int, int]:
    """Write the pages of a site and their figures. Return the number of pages, and the size of the largest in bytes.

    Raises UserError if there is no board, or if a file cannot be written.
    """
    if not report.boards:
        raise UserError("there is no board to show on a site: the rows belong to papers' tables only")
    results, drawn = report.results, dict(_drawings(report))
    home = Path(os.path.relpath(results, folder)).as_posix()
    findings = f"{home}/FINDINGS.md" if (results / "FINDINGS.md").is_file() else ""
    whole = Whole(report.boards, report.environments, list(drawn), report.views, reported(results), home, findings)
    made = {name: text.encode() for name, text in pages(whole).items()}
    figures = {one.file: plot.svg(data) for one, (plot, data) in drawn.items()}
    try:
        for name, content in {**figures, **made}.items():
            write_atomically(folder / name, content)
    except OSError as error:
        raise UserError(f"cannot write {str(folder)!r}: {error.strerror or error}; name a folder: --html DIR") from None
    return len(made), max(map(len, made.values()))


def _drawings(report: Report) -> Iterator[tuple[Drawn, tuple[Plot, dict[str, Any]]]]:
    """The figures of the site: those of boards, and the convergence curves of each dataset."""
    boards = {each.board.suite: each.board for each in report.boards}
    for place, (plot, data) in report.figures.items():
        suite, stem = place.parent.parent.name, place.stem
        if stem in SHOWN:
            yield Drawn(f"{slug(suite)}-{stem}.svg", suite, plot.text(data)), (plot, data)
        if stem != "convergence":
            continue
        panels: dict[str, list[Any]] = {}
        for panel in data["panels"]:
            panels.setdefault(str(boards[suite].task_row(panel["task"])["dataset"]), []).append(panel)
        for dataset, of_dataset in panels.items():
            caption = f"{boards[suite].title}. {plot.text(data)}"
            drawn = Drawn(f"{slug(suite)}-{slug(dataset)}.svg", suite, caption, dataset)
            yield drawn, (plot, {**data, "panels": of_dataset})


def _manifest(folder: Path) -> dict[str, str]:
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}
