"""`fglbench report` and `fglbench compare`: from the rows on disk to tables, figures and the leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...registry import UserError, did_you_mean

Results = Annotated[Path, typer.Option("--results", help="the results folder", metavar="DIR")]


def report(
    results: Results = Path("results"),
    readme: Annotated[
        Path | None,
        typer.Option(help="the README whose block to renew (default: the one beside the results folder, if marked)"),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="write nothing; exit with 1 if anything is stale")] = False,
    no_figures: Annotated[bool, typer.Option("--no-figures", help="leave the figures as they are")] = False,
) -> None:
    """Rebuild the leaderboard, the tables, the figures and the README block from the rows."""
    from ...report import build, readme as readme_file

    made = build.make(results, readme or readme_file.find(results), figures=not no_figures)
    if check:
        old = build.stale(made)
        for path in old:
            typer.echo(f"stale: {path}")
        if old:
            typer.echo(f"{len(old)} of {len(made.texts) + len(made.figures)} files are stale; run `fglbench report`")
            raise typer.Exit(1)
        typer.echo("everything is up to date")
        return
    changed = build.write(made)
    total = len(made.texts) + len(made.figures)
    typer.echo(f"{results / 'LEADERBOARD.md'}: {len(changed)} of {total} files renewed")


def compare(
    first: Annotated[str, typer.Argument(help="a method as the leaderboard names it", metavar="METHOD")],
    second: Annotated[str, typer.Argument(help="another", metavar="METHOD")],
    suite: Annotated[str | None, typer.Option("-s", "--suite", help="only this board")] = None,
    results: Results = Path("results"),
) -> None:
    """Paired differences of two methods on every dataset, with intervals, and over datasets with a test."""
    from ...report.build import load_boards
    from ...report.compare import compare as duel, shown

    boards = load_boards(results)
    if suite is not None and suite not in {board.suite for board in boards}:
        raise did_you_mean(suite, [board.suite for board in boards], "suite with results")
    boards = [board for board in boards if suite in (None, board.suite)]
    for name in (first, second):
        known = {entrant for board in boards for entrant in board.entrants}
        if name not in known:
            raise did_you_mean(name, known, "method with results")
    met = [board for board in boards if {first, second} <= set(board.entrants)]
    duels = [found for board in met if (found := duel(board, first, second)) is not None]
    if not duels:
        raise UserError(f"{first!r} and {second!r} have no dataset and seed in common; run both on the same suite")
    typer.echo("\n\n".join(shown(found) for found in duels))
