"""`fglbench export`: rows as a table for another program, or for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...registry import UserError
from . import options as given
from .options import found_folder

FORMS = (".csv", ".tex", ".parquet")


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="what to write: .csv, .tex (LaTeX) or .parquet")],
    suite: given.Suites = None, method: given.Methods = None, dataset: given.Datasets = None,
    clients: given.Clients = None, partition: given.Partitions = None,
    metric: Annotated[str, typer.Option(metavar="NAME", help="of a LaTeX table: score, val or macro_f1")] = "score",
    results: given.ReadResults = None,
) -> None:  # fmt: skip
    """Write rows to a file: CSV or Parquet with a column for each setting, or a LaTeX table.

    The LaTeX table (booktabs) has methods by datasets, mean and standard deviation over seeds in percent, the best in
    bold. It needs one task for each dataset: choose by -s, -d, -k and -p.
    """
    from ..frames import to_latex
    from ..store import load_results

    if file.suffix not in FORMS:
        raise UserError(f"{str(file)!r}: the name ends in {', '.join(FORMS)}, which says the form")
    folder = found_folder(results)
    rows = load_results(folder, expand=file.suffix != ".tex")
    chosen = {"suite": suite, "method": method, "dataset": dataset, "partition": partition}
    for column, wanted in chosen.items():
        if wanted:
            rows = rows[rows[column].isin(given.names(wanted))]
    if clients:
        rows = rows[rows["clients"].isin(given.client_numbers(clients))]
    if rows.empty:
        raise UserError(f"no row under {str(folder)!r} fits; `fglbench status --results {folder}` shows what there is")
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".tex":
        file.write_text(to_latex(rows, metric), encoding="utf-8")
    elif file.suffix == ".csv":
        rows.to_csv(file, index=False)
    else:
        rows.to_parquet(file, index=False)
    typer.echo(f"{file}: {len(rows)} rows of {folder}")
