"""Everything that the report writes, from the rows of a results folder: made in memory, then written or compared.

    results/LEADERBOARD.md
    results/<suite>/tables/<task>.md, .csv, robustness.csv
    results/<suite>/figures/<figure>.png, manifest.json    digests of each figure's data and drawing code
    results/REPRODUCTION.md, results/<suite>/REPRODUCTION.md   papers' tables (see reproduction/)
    README.md                                              the block between the two markers

`tables/` and `figures/` hold nothing but the report's own files: what is no longer made is removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import write_atomically
from ..registry import UserError
from . import reproduction
from .figures import Plot, found_figures
from .html import Card, Paperwork, Picture, Reproduced, page
from .leaderboard import leaderboard, readme_block, with_block
from .loading import environments, load_boards
from .papers import tables as papers_tables
from .ranking import Ranking
from .robustness import curves_csv
from .self_reported import lines as reported, section
from .tables import task_csv
from .templating import document
from .text import slug


@dataclass
class Report:
    """Texts by path, figures by path (plot, data), and the files that are no longer made; and what they show."""

    boards: list[Ranking] = field(default_factory=list)
    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    texts: dict[Path, str] = field(default_factory=dict)
    figures: dict[Path, tuple[Plot, dict[str, Any]]] = field(default_factory=dict)
    orphans: list[Path] = field(default_factory=list)


def make(results: Path, readme: Path | None, figures: bool = True) -> Report:
    """The whole report in memory, the pictures not yet drawn. Without `figures`, figure files are left alone."""
    found = load_boards(results)
    boards = [Ranking(board) for board in found if board.suite not in papers_tables()]
    report = Report(boards, environments(results))
    captions = {each.board.suite: _board(report, results, each, figures) for each in boards}
    report.texts |= reproduction.texts(results, found, report.environments)
    report.orphans += [path for path in reproduction.files(results) if path not in report.texts]
    if not boards:
        return report  # tables of papers only
    report.texts[results / "LEADERBOARD.md"] = leaderboard(boards, report.environments, captions) + section(results)
    if readme is not None:
        link = Path(os.path.relpath(results / "LEADERBOARD.md", readme.parent)).as_posix()
        report.texts[readme] = with_block(readme, readme_block(boards, link))
    return report


def _board(report: Report, results: Path, ranking: Ranking, figures: bool) -> list[tuple[str, str]]:
    """Add the files of a board's own folder; the file names and captions of the figures that it has."""
    suite = results / ranking.board.suite
    for task in ranking.board.plain.tasks:
        stem = suite / "tables" / slug(task)
        report.texts[Path(f"{stem}.md")] = document("task.md", ranking=ranking, board=ranking.board, task=task)
        report.texts[Path(f"{stem}.csv")] = task_csv(ranking, task)
    if not ranking.robustness.table.empty:
        report.texts[suite / "tables" / "robustness.csv"] = curves_csv(ranking.robustness)
    drawn = found_figures(ranking)
    if figures:
        report.figures |= {suite / "figures" / plot.file: (plot, found) for plot, found in drawn.items()}
        manifest = {plot.file: plot.digest(found) for plot, found in drawn.items()}
        report.texts[suite / "figures" / "manifest.json"] = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
        report.orphans += [p for p in sorted((suite / "figures").glob("*.png")) if p not in report.figures]
    tables = [p for p in sorted((suite / "tables").glob("*")) if p.suffix in (".md", ".csv")]
    report.orphans += [p for p in tables if p not in report.texts]
    return [(plot.file, plot.caption) for plot in drawn]


def stale(report: Report) -> list[Path]:
    """Files whose text differs, that are missing, that are left over, or whose figure was drawn otherwise."""
    found = [path for path, text in report.texts.items() if not path.exists() or path.read_bytes() != text.encode()]
    for path, (plot, data) in report.figures.items():
        if not path.exists() or _manifest(path.parent).get(plot.file) != plot.digest(data):
            found.append(path)
    return sorted({*found, *report.orphans})


def write(report: Report, progress: Callable[[Path], None] = lambda path: None) -> list[Path]:
    """Write and draw what has changed, remove what is no longer made. Returns these paths."""
    changed = stale(report)
    try:
        for path in changed:
            progress(path)
            if path in report.orphans:
                path.unlink(missing_ok=True)
            elif path in report.figures:
                plot, data = report.figures[path]
                write_atomically(path, plot.png(data))
        for path in changed:  # the manifest last: a crash between leaves figures stale, never falsely fresh
            if path in report.texts:
                write_atomically(path, report.texts[path].encode())
    except OSError as error:
        raise UserError(f"cannot write {str(error.filename or path)!r}: {error.strerror or error}") from None
    return changed


def write_page(report: Report, path: Path, cards: Mapping[str, Card]) -> int:
    """The HTML page of a report whose figures are drawn, with what `cards` say of the methods. Returns its bytes.

    Raises UserError where there is no board, or the file cannot be written.
    """
    if not report.boards:
        raise UserError("there is no board to show on a page: the rows belong to papers' tables only")
    pictures: dict[str, list[Picture]] = {}
    for place, (plot, _) in report.figures.items():
        name = plot.file.removesuffix(".png").replace("_", " ")
        pictures.setdefault(place.parent.parent.name, []).append(Picture(name, plot.caption, place.read_bytes()))
    content = page(report.boards, report.environments, pictures, cards, _paperwork(report)).encode()
    try:
        write_atomically(path, content)
    except OSError as error:
        raise UserError(f"cannot write {str(path)!r}: {error.strerror or error}; name a file: --html FILE") from None
    return len(content)


def _paperwork(report: Report) -> Paperwork:
    """The findings that lie beside the leaderboard, and the papers' tables."""
    folder = next(path.parent for path in report.texts if path.name == "LEADERBOARD.md")
    findings, index = folder / "FINDINGS.md", folder / reproduction.INDEX
    told = findings.read_text(encoding="utf-8", errors="replace") if findings.is_file() else ""
    pages = {path.parent: text for path, text in report.texts.items() if path.name == reproduction.INDEX}
    tables = [
        Reproduced(place.name, text, report.texts[place / "tables" / "reproduction.csv"])
        for place, text in pages.items()
        if place != folder
    ]
    return Paperwork(told, report.texts.get(index, ""), tables, reported(folder))


def _manifest(folder: Path) -> dict[str, str]:
    try:
        found = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
