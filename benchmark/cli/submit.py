"""`fglbench submit` packs the rows of a method, `fglbench validate` checks them; a pull request needs both."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from ...registry import UserError
from ..submission.listing import METADATA, Verdict
from . import common as given
from .common import answer, found_folder, names, print_json

if TYPE_CHECKING:
    from ..store import Store
    from ..submission.submit import Metadata

Text = str | None
Meta = Annotated[
    Path | None, Option("--meta", metavar="FILE", help="YAML or JSON: paper, code, licence, hardware, contact, notes")
]


def submit(
    name: Annotated[str, given.named("method", metavar="METHOD", help="the method whose rows are packed")],
    out: Annotated[
        Path | None, Option("--out", metavar="DIR", help="folder of the submission [METHOD-submission]")
    ] = None,
    suite: given.Suites = None, results: given.ReadResults = None, meta: Meta = None,
    tuned: Annotated[Path | None, Option("--tuned", metavar="FILE", help="file of settings of tuned rows")] = None,
    paper: Annotated[Text, Option(metavar="TEXT", help="citation or address; 'unpublished' if none")] = None,
    code: Annotated[Text, Option(metavar="TEXT", help="address of the code that made the rows")] = None,
    licence: Annotated[Text, Option(metavar="TEXT", help="licence of the code: MIT, Apache-2.0, ...")] = None,
    hardware: Annotated[Text, Option(metavar="TEXT", help="processor, cores, memory")] = None,
    contact: Annotated[Text, Option(metavar="TEXT", help="e-mail, address or @name")] = None,
    notes: Annotated[Text, Option(metavar="TEXT", help="other remarks")] = None,
    json: given.Json = False, plugin: given.Plugins = None,
) -> None:  # fmt: skip
    """Pack the rows of a method with curves, environments and metadata. An invalid submission is not written.

    Paper, code, licence, hardware and contact are required, as options or in the file. An option replaces the file's
    value.
    """
    from ..store import Store
    from ..submission import submit as pack

    typed = {"paper": paper, "code": code, "licence": licence, "hardware": hardware, "contact": contact, "notes": notes}
    fields = (pack.read_fields(meta) if meta else {}) | {key: value for key, value in typed.items() if value}
    if fields.setdefault("method", name) != name:
        raise UserError(f"{str(meta)!r} is about method {fields['method']!r:.60}, not {name!r}")
    about = pack.metadata(fields)
    with answer(json) as said:
        said |= packed(Store(found_folder(results)), about, out or Path(f"{name}-submission"), names(suite), tuned)
        if not said["valid"]:
            raise typer.Exit(1)


def packed(store: Store, about: Metadata, out: Path, suites: tuple[str, ...], tuned: Path | None) -> dict[str, Any]:
    """Write a submission of a method's rows if it is valid, and print the verdict. Returns the verdict as data.

    tuned: a file with the settings of the rows, if they are not those of the suite; by default the file of `fglbench
    compete` next to the rows. UserError as for the functions of `submission.submit`.
    """
    from ..store.row_file import safe_name
    from ..submission import submit as pack
    from ..submission.validate import validate

    rows = pack.rows_to_submit(store, about.method, suites)
    of_compete = store.root / f"{safe_name(about.method)}.tuned.yaml"
    settings = tuned or (of_compete if of_compete.is_file() else None)
    with suppress(typer.Exit), pack.placed(out) as folder:
        pack.write(store, rows, about, folder, settings)
        base = default_base()
        verdict = validate(folder, str(out), base, submission=True)
        tell(verdict, base)
        if not verdict.ok:
            raise typer.Exit(1)
    typer.echo(f"wrote {out}; next: fglbench validate {out}" if verdict.ok else "nothing was written")
    return verdict.as_data()


SHOWN = 200  # lines of problems
BASE = "a commit or folder whose rows must all be in PATH unchanged"


def validate(
    path: given.ResultsOrSubmission,
    base: Annotated[str | None, Option("--base", metavar="REF_OR_DIR", help=BASE)] = None,
    maintainer: Annotated[bool, Option("--maintainer", help="as a maintainer: allow new rows that are ranked")] = False,
    into: Annotated[
        Path | None, Option("--into", metavar="DIR", help="add a valid submission to this results folder")
    ] = None,
    json: given.Json = False,
) -> int:
    """Check results or a submission. Print one line per problem: file:line, problem, fix. Exit code 1 if there is one.

    Nothing under PATH is imported or run. Warnings do not make it invalid.
    """
    from ..submission.summary import verdicts

    if not path.is_dir():
        raise UserError(f"no folder at {str(path)!r}; give a results folder or a submission")
    if (path / METADATA).is_file():
        base = base or default_base(into)  # the results to which it is added
    elif into is not None:
        raise UserError(f"--into takes in submissions; {str(path)!r} is a results folder without submission.yaml")
    checked = list[Verdict]()
    for verdict in verdicts(path, str(path).rstrip("/"), base, maintainer=maintainer):
        checked.append(verdict)
        if not json:
            tell(verdict, base)
    if json:
        print_json([verdict.as_data() for verdict in checked])
    if not all(verdict.ok for verdict in checked):
        return 1
    if into is not None:
        from ..store import Store
        from ..submission import submit

        place, added = submit.take_in(checked[0].folder, into)
        report = f"; next: fglbench report --results {into}" if Store(into).suites() else ""  # it needs other rows
        typer.echo(f"{place}: {added} self-reported rows added{report}", err=json)
    return 0


def default_base(into: Path | None = None) -> str | None:
    """The results folder to which a submission is added: --into, or `results` if it exists."""
    folder = into or Path("results")
    return str(folder) if folder.is_dir() else None


def tell(checked: Verdict, base: str | None) -> None:
    """Print every problem on a line, then a summary of the folder."""
    from ...report.text import count, plain

    errors, warnings = checked.findings.errors, checked.findings.warnings
    findings = [*errors, *warnings]
    for finding in findings[:SHOWN]:
        typer.echo(plain(finding, 1000))
    if len(findings) > SHOWN:
        typer.echo(f"... and {len(findings) - SHOWN} more")
    submission = checked.folder.submission
    kind = "submission" if submission else "results folder"
    against = "" if base is None else f" against {base}"
    new = f", {checked.new.total()} new" if against and not submission else ""
    where = ", ".join(f"{plain(suite)} {number}" for suite, number in sorted(checked.new.items()))
    where = f" ({where})" if where else ""
    verdict = "valid" if checked.ok else "NOT valid: " + count(len(errors), "problem")
    warned = f", {count(len(warnings), 'warning')}" if warnings else ""
    typer.echo(f"{checked.folder.name}: {kind}{against}: {count(checked.rows, 'row')}{new}{where}: {verdict}{warned}")
