"""`fglbench report`, `compare`, `export`, `pack`: make tables, figures, the leaderboard and other formats from rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ...files import write_atomically, writing
from ...registry import UserError, did_you_mean
from ..store.judged import Verdicts
from ..store.row_file import LOCKS, LOGS, SHIPPED, WRITTEN
from . import common as given
from .common import Json, ReadResults, Results, Suites, answer, client_numbers, found_folder, names, print_json, records
from .run import show_ranking

if TYPE_CHECKING:
    import pandas as pd

    from ...report.build import Report


def report(
    results: Annotated[
        Path | None,
        Option("--results", metavar="DIR", help="the results folder [runs while it has rows; --check: results]"),
    ] = None,
    readme: Annotated[
        Path | None,
        Option(help="the README with the leaderboard block (default: next to the results folder, if it has one)"),
    ] = None,
    check: Annotated[bool, Option("--check", help="write nothing; exit code 1 if a file is out of date")] = False,
    no_figures: Annotated[bool, Option("--no-figures", help="do not draw figures again")] = False,
    html: Annotated[bool, Option("--html", help="also write HTML pages")] = False,
    folder: Annotated[
        Path | None,
        Argument(metavar="[DIR]", help="with --html: folder of the pages (default: site in the results folder)"),
    ] = None,
    json: Json = False,
) -> int:
    """Rebuild the leaderboard, the tables, the figures and the README block from the rows."""
    if folder is not None and not html:
        raise UserError(f"unexpected argument {str(folder)!r}: a folder is only written with --html")
    if html and check:
        raise UserError("--check writes nothing and --html writes pages: use one of them")
    results = Path(SHIPPED) if results is None and check else found_folder(results)
    site = (folder or results / "site") if html else None
    made = partial(_made, results, readme, not no_figures)
    about = *map(str, (results.resolve(), readme, site)), no_figures, check
    with answer(json) as said:
        if check:
            return _check(results, made, about, said)
        if site is None:
            said |= _write(made(), results)
            return 0
        shown = Verdicts().of(
            _files(results, made=False), about, lambda: _write_site(made(), results, site),
            lambda: [*_files(results, made=True), *sorted(path for path in site.rglob("*") if path.is_file())],
        )  # fmt: skip
        said |= {"page": site / "index.html", **shown}
        typer.echo(f"{said['page']}: {shown['pages']} pages, the largest {shown['largest']}")
    return 0


def _check(results: Path, made: Callable[[], Report], about: tuple[object, ...], said: dict[str, Any]) -> int:
    """Print the stale files. Exit code 1 if there are any."""

    def judge() -> dict[str, Any]:
        from ...report import build

        report = made()
        return {"stale": list(map(str, build.stale(report))), "total": report.total}

    said |= Verdicts().of([*_files(results, made=False), *_files(results, made=True)], about, judge)
    for path in said["stale"]:
        typer.echo(f"stale: {path}")
    if said["stale"]:
        count = f"{len(said['stale'])} of {said['total']} files are stale"
        typer.echo(f"{count}; run `fglbench report --results {results}`")
        return 1
    typer.echo("everything is up to date")
    return 0


MADE, OTHER = {"tables", "figures"}, {"site", LOCKS, LOGS, ".studies"}  # folders of report files; folders to ignore


def _files(results: Path, *, made: bool) -> list[Path]:
    """The files of a results folder that the report reads, or that it makes (with README.md and docs/findings)."""
    paths = []
    for path in sorted(results.rglob("*")) if results.is_dir() else ():
        parts = path.relative_to(results).parts
        made_here = path.suffix in (".md", ".html") or not MADE.isdisjoint(parts[:-1])
        if made_here == made and OTHER.isdisjoint(parts) and path.suffix != ".tmp" and path.is_file():
            paths.append(path)
    around = results.resolve().parent
    pages = [around / "README.md", *sorted(around.glob("docs/findings/*.md"))]
    return [*paths, *(page for page in pages if made and page.is_file())]


def _made(results: Path, readme: Path | None, figures: bool) -> Report:
    from ...report import build
    from ...report.leaderboard import find_readme

    if readme is None and results != Path(WRITTEN):  # the README next to `runs` shows the committed board
        readme = find_readme(results)
    return build.make(results, readme, figures=figures)


def _write(made: Report, results: Path) -> dict[str, Any]:
    from ...report import build

    changed = build.write(made)
    head = results / ("LEADERBOARD.md" if made.boards else "REPRODUCTION.md")
    shown = [records(table) for ranking in made.boards[:1] for table in show_ranking(ranking)]
    typer.echo(f"{head}: {len(changed)} of {made.total} files renewed")
    return {"page": head, "tables": shown, "renewed": changed, "total": made.total}


def _write_site(made: Report, results: Path, site: Path) -> dict[str, Any]:
    from ...report import build
    from ...report.text import data_size

    _write(made, results)
    count, largest = build.write_site(made, site)
    return {"pages": count, "largest": data_size(largest)}


def compare(
    first: Annotated[str, given.named("method", metavar="METHOD", help="a method as the leaderboard names it")],
    second: Annotated[str, given.named("method", metavar="METHOD", help="the method to compare with")],
    suite: Annotated[str | None, given.naming("suite", "-s", "--suite", metavar=None, help="only this board")] = None,
    results: ReadResults = None,
    json: Json = False,
) -> None:
    """Show paired differences of two methods: on every dataset with intervals, and over datasets with a test."""
    from ...report.compare import as_data, as_text, comparisons

    results = found_folder(results, suite)
    compared = comparisons(first, second, suite, results)
    if json:
        print_json([as_data(comparison) for comparison in compared])
    else:
        typer.echo("\n\n".join(map(as_text, compared)))


FORMS = (".csv", ".tex", ".parquet")


def export(
    file: Annotated[Path, Argument(metavar="FILE", help="the file to write: .csv, .tex (LaTeX) or .parquet")],
    suite: given.Suites = None,
    method: Annotated[given.Names, given.naming("method", "-m", "--method", help="only these methods")] = None,
    dataset: Annotated[given.Names, given.naming("dataset", "-d", "--dataset", help="only these datasets")] = None,
    clients: given.Clients = None, partition: given.Partitions = None,
    metric: Annotated[str, Option(metavar="NAME", help="column for LaTeX: score, val or macro_f1")] = "score",
    results: given.ReadResults = None, json: Json = False,
) -> None:  # fmt: skip
    """Write rows to a file: CSV or Parquet with a column for each setting, or a LaTeX table.

    The LaTeX table (booktabs) has methods by datasets, mean and standard deviation over seeds in percent, the best in
    bold. It needs one task per dataset: select with -s, -d, -k and -p.
    """
    from ..api import to_latex
    from ..store import load_results

    if file.suffix not in FORMS:
        raise UserError(f"{str(file)!r}: the name ends in {', '.join(FORMS)}, which says the form")
    folder = found_folder(results)
    rows = load_results(folder, expand=file.suffix != ".tex")
    words = {"suite": suite, "method": method, "dataset": dataset, "partition": partition}
    chosen = {**{column: names(wanted) for column, wanted in words.items()}, "clients": client_numbers(clients)}
    known = {column: set(rows[column]) for column, wanted in chosen.items() if wanted}
    for column, present in known.items():
        if unknown := [str(value) for value in chosen[column] if value not in present]:
            kind = "number of clients" if column == "clients" else column
            raise did_you_mean(unknown[0], map(str, present), f"{kind} of the rows")
        rows = rows[rows[column].isin(chosen[column])]
    if rows.empty:
        raise UserError(f"no row under {str(folder)!r} fits; `fglbench status --results {folder}` shows what there is")
    if file.suffix == ".tex":
        content = to_latex(rows, metric).encode()
    elif file.suffix == ".csv":
        content = rows.to_csv(index=False).encode()
    else:
        content = rows.apply(_of_one_type).to_parquet(index=False)
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content)
    with answer(json) as said:
        said |= {"file": file, "rows": len(rows), "results": folder}
        typer.echo(f"{file}: {len(rows)} rows of {folder}")


def _of_one_type(column: pd.Series) -> pd.Series:
    """The column. Values of several types, and lists, become JSON texts: a column of Parquet has one type."""
    known = column.dropna()
    types = set(map(type, known))
    if len(types) < 2 and not types & {list, dict}:
        return column
    return column.where(column.isna(), known.map(partial(json.dumps, default=str)).reindex(column.index))


def pack(results: Results = Path("results"), suite: Suites = None, json: Json = False) -> None:
    """Pack the curves of finished rows, one file per row, into one compressed file per method and suite, or a few.

    Use it for results in version control: the curves then take a fifth of the space. Runs and reports work as before.
    Later runs write single files again; the next `fglbench pack` adds them.
    """
    from ...report.text import count
    from ..store import Store
    from ..store.packing import pack as put_together
    from ..store.row_file import APART

    stores = [Store(results).existing(), *([Store(results / APART)] if (results / APART).is_dir() else [])]
    known = {name for store in stores for name in store.suites()}
    for name in names(suite):
        if name not in known:
            raise did_you_mean(name, known, f"suite with rows under {str(results)!r}:")
    packed = []
    for store in stores:
        done = [put_together(store, name) for name in store.suites() if name in (names(suite) or known)]
        moved, left = (sum(numbers) for numbers in zip(*done, strict=True)) if done else (0, 0)
        kept = f", {left} left in files of their own" if left else ""
        packed.append({"results": store.root, "rows": moved, "left": left})
        typer.echo(f"{store.root}: the curves of {count(moved, 'row')} put into columns{kept}", err=json)
    if json:
        print_json(packed)
