"""`fglbench validate`: the check that a pull request has to pass."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json
from .output import print_json

if TYPE_CHECKING:
    from ..submission.validate import Validation

SHOWN = 200  # lines of problems

PathArgument = Annotated[Path, typer.Argument(metavar="PATH", help="a results folder or a submission")]
Base = Annotated[
    str | None,
    typer.Option("--base", metavar="REF_OR_DIR", help="a commit or folder that PATH may only add to"),
]


Maintainer = Annotated[
    bool,
    typer.Option("--maintainer", help="you maintain this board: rows that rank may be added"),
]


def validate(
    path: PathArgument,
    base: Base = None,
    maintainer: Maintainer = False,
    into: Annotated[
        Path | None, typer.Option("--into", metavar="DIR", help="a sound submission goes into this results folder")
    ] = None,
    json: Json = False,
) -> int:
    """Check results or a submission: every problem is one line, file:line: what; fix. Exit code 1 if there is any.

    Nothing under PATH is imported or run. Warnings do not make it invalid.
    """
    from ...registry import UserError
    from ..submission import read, submit
    from ..submission.validate import validate_all

    if not path.is_dir():
        raise UserError(f"no folder at {str(path)!r}; give a results folder or a submission")
    if (path / read.METADATA).is_file():
        base = base or default_base(into)  # the results that it is to join
    found = []
    for each in validate_all(path, str(path).rstrip("/"), base, maintainer=maintainer):
        found.append(each)
        if not json:
            tell(each, base)
    if json:
        print_json([as_data(each) for each in found])
    if into is not None and not found[0].folder.submission:
        raise UserError(f"--into takes in submissions; {str(path)!r} is a results folder without submission.yaml")
    if not all(each.ok for each in found):
        return 1
    if into is not None:
        place, added = submit.take_in(found[0].folder, found[0].lines, into)
        typer.echo(f"{place}: {added} self-reported rows added; next: fglbench report --results {into}", err=json)
    return 0


def as_data(found: Validation) -> dict[str, Any]:
    """A validation for programs."""
    return {
        "folder": str(found.folder.name), "valid": found.ok, "rows": len(found.lines), "new": len(found.fresh),
        "errors": list(map(str, found.findings.errors)), "warnings": list(map(str, found.findings.warnings)),
    }  # fmt: skip


def default_base(into: Path | None = None) -> str | None:
    """The results folder that a submission joins: --into, or the one here if there is one."""
    folder = into or Path("results")
    return str(folder) if folder.is_dir() else None


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
