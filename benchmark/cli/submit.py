"""`fglbench submit`: a method's rows, with what must be known about them, in one folder or zip file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .completion import completes
from .options import Plugins, ReadResults, Suites, found_folder, names
from .validate import default_base, tell

Text = str | None
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="where to (.zip: one file) [METHOD-submission]")]
Packed = Annotated[
    str, typer.Argument(metavar="METHOD", help="the method whose rows are packed", autocompletion=completes("method"))
]
Meta = Annotated[Path | None, typer.Option("--meta", metavar="FILE", help="a YAML or JSON file with what follows")]


def submit(
    name: Packed,
    out: Out = None,
    suite: Suites = None,
    results: ReadResults = None,
    meta: Meta = None,
    paper: Annotated[Text, typer.Option(metavar="TEXT", help="citation or address; 'unpublished' if none")] = None,
    code: Annotated[Text, typer.Option(metavar="TEXT", help="address of the code that made the rows")] = None,
    licence: Annotated[Text, typer.Option(metavar="TEXT", help="of the code: MIT, Apache-2.0, ...")] = None,
    hardware: Annotated[Text, typer.Option(metavar="TEXT", help="processor, cores, memory")] = None,
    contact: Annotated[Text, typer.Option(metavar="TEXT", help="e-mail, address or @name")] = None,
    notes: Annotated[Text, typer.Option(metavar="TEXT", help="anything else")] = None,
    plugin: Plugins = None,
) -> None:
    """Pack a method's rows, their curves and environments and the metadata; only what validates is written.

    Paper, code, licence, hardware and contact are required, by option or in the file; an option wins over the file.
    """
    from ..store import Store
    from ..submission import submit as pack
    from ..submission.validate import validate

    given = {"paper": paper, "code": code, "licence": licence, "hardware": hardware, "contact": contact, "notes": notes}
    fields = (pack.read_fields(meta) if meta else {}) | {key: value for key, value in given.items() if value}
    about = pack.metadata(fields | {"method": name})
    store, out = Store(found_folder(results)), out or Path(f"{name}-submission")
    rows = pack.rows_to_submit(store, name, names(suite))
    with pack.placed(out) as folder:
        pack.write(store, rows, about, folder)
        base = default_base()
        found = validate(folder, str(out), base, submission=True)
        tell(found, base)
        if not found.ok:
            typer.echo("nothing was written")
            raise typer.Exit(1)
    typer.echo(f"wrote {out}; next: fglbench validate {out}")
