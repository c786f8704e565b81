"""`fglbench validate`: the check that a pull request has to pass."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Plugins

if TYPE_CHECKING:
    from ..submission.checks import Validation

SHOWN = 200  # lines of problems

PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="a results folder, a submission or a zip of one")]
Base = Annotated[
    str | None,
    typer.Option("--base", metavar="REF_OR_DIR", help="a commit or folder that PATH adds to (a submission: results)"),
]


Maintainer = Annotated[
    bool,
    typer.Option("--maintainer", help="you maintain this board: rows may be yours, and supersede those of others"),
]


def validate(
    path: PathArgument,
    base: Base = None,
    maintainer: Maintainer = False,
    into: Annotated[
        Path | None, typer.Option("--into", metavar="DIR", help="a sound submission goes into this results folder")
    ] = None,
    plugin: Plugins = None,
) -> int:
    """Check results or a submission: every problem is one line, file:line: what; fix. Exit code 1 if there is any.

    Nothing that lies under PATH is imported or run. Warnings do not make it invalid.
    """
    from ...registry import UserError
    from ..store.places import APART
    from ..submission import checks, pack

    with checks.opened(path) as (root, archive):
        base = base or pack.default_base(root, into)
        name, apart = str(path).rstrip("/"), root / APART
        found = checks.validate(root, name, base, archive=archive, maintainer=maintainer)
        tell(found, base)
        sound = found.ok
        if not found.folder.submission and apart.is_dir():
            before = str(Path(base) / APART) if base and Path(base).is_dir() else base
            trials = checks.validate(apart, f"{name}/{APART}", before, maintainer=maintainer)
            tell(trials, base)
            sound = sound and trials.ok
        if into is not None and not found.folder.submission:
            raise UserError(f"--into takes in submissions; {str(path)!r} is a results folder without submission.yaml")
        if not sound:
            return 1
        if into is not None:
            added = pack.take_in(found, into)
            typer.echo(f"{into}: {added} rows added; next: fglbench report --results {into}")
    return 0


def tell(found: Validation, base: str | None) -> None:
    """Every problem on a line of its own, then what was looked at."""
    from ...report.text import count, plain

    errors, warnings = found.findings.errors, found.findings.warnings
    every = [*errors, *warnings]
    for finding in every[:SHOWN]:
        typer.echo(plain(finding, 1000))
    if len(every) > SHOWN:
        typer.echo(f"... and {len(every) - SHOWN} more")
    kind = "submission" if found.folder.submission else "results folder"
    against = "" if base is None else f" against {base}"
    new = f", {len(found.fresh)} new" if against and not found.folder.submission else ""
    rows = Counter(line.row.suite for line in found.fresh)
    where = f" ({', '.join(f'{plain(suite)} {number}' for suite, number in sorted(rows.items()))})" if rows else ""
    verdict = "valid" if found.ok else "NOT valid: " + count(len(errors), "problem")
    warned = f", {count(len(warnings), 'warning')}" if warnings else ""
    typer.echo(f"{found.folder.name}: {kind}{against}: {count(len(found.lines), 'row')}{new}{where}: {verdict}{warned}")
