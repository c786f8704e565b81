"""Shared by the commands: options, parsing of comma lists, and output (tables, JSON, error messages)."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer import Argument, Option

from ...registry import UserError
from ..known import check_names, completions
from ..store.row_file import WRITTEN, reading
from ..suites.request import check_settings

if TYPE_CHECKING:
    from ..runner.job import Options
    from ..store.schema import Row, Standing


def completes(*kinds: str) -> Callable[[str], list[tuple[str, str]]]:
    """Complete a typer option or argument with names of these kinds and their descriptions.

    kinds: method, dataset, partition, split, backbone, suite, table. In a comma list, the last name is completed.
    """

    def complete(incomplete: str) -> list[tuple[str, str]]:
        before, comma, last = incomplete.rpartition(",")
        known = {name: what for kind in reversed(kinds) for name, what in completions(kind).items()}
        return [(before + comma + name, what) for name, what in sorted(known.items()) if name.startswith(last)]

    return complete


Names = list[str] | None


def _loaded(plugins: Names) -> list[str]:
    if not plugins:
        return []
    announce()
    from ..suites.plugins import load_plugins

    with _to_stderr():
        return list(load_plugins(plugins))


def apart(plugins: Names) -> tuple[str, ...]:
    """Import plug-ins in another process. Returns their names; see `suites.apart`."""
    if not plugins:
        return ()
    announce()
    from ...processes import warm_up

    warm_up()  # before the next line imports torch here
    from ..suites.apart import use

    return use(plugins)


def options(device: str, backend: str = "processes", **how: Any) -> Options:
    """How to run (fields of `Options`), with the device of this machine that `device` means. UserError if there is
    none."""
    from ..runner.job import Options
    from ..runner.system import resolved

    return Options(device=resolved(device, backend), backend=backend, **how)


def own_dataset(folder: str | None, settings: Iterable[str] = (), **wanted: Iterable[str]) -> str | None:
    """The name of the dataset of `--data`, or None; errors in its files are printed. It may take long: call it last.

    wanted: names by kind (method, partition, ...). They and settings (`--set`) are checked first, without torch.
    """
    check_names(wanted)
    check_settings(settings)
    if folder is None:
        return None
    from ...datasets.own_data import announce

    return announce(Path(folder), complain)


def _expanded(folder: Path) -> Path:
    try:
        return folder.expanduser()
    except RuntimeError:
        raise typer.BadParameter(f"there is no home folder {str(folder)!r}; give a whole path") from None


def found_folder(folder: Path | None, suite: str | None = None) -> Path:
    """Return the folder; by default the one that has rows (of the suite, if given)."""
    return reading(suite) if folder is None else _expanded(folder)


def naming(kind: str, *flags: str, metavar: str | None = "NAME[,NAME]", help: str) -> Any:
    """An option that takes names of a kind, and completes them."""
    return Option(*flags, metavar=metavar, help=help, autocompletion=completes(kind))


def named(*kinds: str, metavar: str = "NAME", help: str | None = None) -> Any:
    """An argument that takes names of these kinds, and completes them."""
    return Argument(metavar=metavar, help=help, autocompletion=completes(*kinds))


OTHERS = "only these; one that the suite lacks is added"
Methods = Annotated[Names, naming("method", "-m", "--method", metavar="METHOD[,METHOD]", help=OTHERS)]
Datasets = Annotated[Names, naming("dataset", "-d", "--dataset", metavar="DATASET[,...]", help=OTHERS)]
Partitions = Annotated[
    Names, naming("partition", "-p", "--partition", help="only these; rows of others: suite `custom`")
]
Backbones = Annotated[Names, naming("backbone", "-b", "--backbone", help="as -p; a+b: both, mixed over clients")]
Suites = Annotated[Names, naming("suite", "-s", "--suite", metavar="SUITE[,...]", help="only these suites")]
Splits = Annotated[Names, naming("split", "--split", help="as -p")]
Clients = Annotated[Names, Option("-k", "--clients", metavar="N[,N]", help="as -p: numbers of clients")]
Seeds = Annotated[str | None, Option("--seeds", metavar="N", help="a count (3), a list (0,4) or a range (3-5, 0-0)")]
Jobs = Annotated[
    int | None, Option("-j", "--jobs", min=1, metavar="N", help="worker processes (default: one per core)")
]
Threads = Annotated[int, Option(min=1, metavar="N", help="threads per worker")]
Device = Annotated[
    str, Option(metavar="NAME", help="cpu, cuda (one worker per GPU), cuda:N or auto (cuda if there is a GPU)")
]
Timeout = Annotated[float, Option(min=0, metavar="SECONDS", help="longest time of a run in seconds; 0: no limit")]
Memory = Annotated[float | None, Option(min=0.1, metavar="GIB", help="most memory of a worker in GiB")]
Backends = Annotated[str, Option(metavar="NAME", help="where runs are executed: processes (of this machine) or ray")]
Address = Annotated[str | None, Option(metavar="HOST:PORT", help="address of a running Ray cluster")]
Rerun = Annotated[Names, Option(metavar="KIND", help="run again: failed, timeout, oom, skipped, stale or all")]
DryRun = Annotated[bool, Option("--dry-run", help="print the plan and its cost; run nothing")]
Yes = Annotated[bool, Option("--yes", "-y", help="do not ask before more than one core-hour")]
Results = Annotated[Path, Option("--results", metavar="DIR", callback=_expanded, help="the results folder")]
ReadResults = Annotated[
    Path | None, Option("--results", metavar="DIR", help="the results folder [runs if it has rows, else results]")
]
Json = Annotated[bool, Option("--json", help="print JSON")]
ResultsOrSubmission = Annotated[Path, Argument(metavar="PATH", help="a results folder or a submission")]
Submitter = Annotated[str, Option(envvar="FGLBENCH_SUBMITTER", help="your name, for the rows")]
Settings = Annotated[
    Names, Option("--set", metavar="KEY=VALUE", help="change a setting: training.lr=0.1, method.mu=1 or mu=1")
]
Parameters = Annotated[Names, Option("--set", metavar="KEY=VALUE", help="a parameter, as in mu=0.1 or features=raw")]
MissingRows = Annotated[bool, Option("--record-missing", help="write a row for each run whose data is unavailable")]
Embeddings = Annotated[
    bool, Option("--embeddings", help="store test embeddings for the report's t-SNE and CKA figures")
]
SaveModels = Annotated[bool, Option("--save-models", help="store the models of the best round for fglbench.load_model")]
Data = Annotated[
    str | None,
    Option("--data", metavar="FOLDER", help="your own graph: a folder with nodes.csv and edges.csv, or graph.npz"),
]
Metric = Annotated[
    str | None,
    Option("--metric", metavar="NAME", help="with --data: accuracy, macro-f1, roc-auc or average-precision; also "
           "selects the best round"),
]  # fmt: skip
TunedFile = Annotated[
    Path | None,
    Option("--tuned", metavar="FILE", help="file of `fglbench tune`, instead of the suite's settings"),
]
PluginNames = Annotated[  # imported in another process only
    Names, Option("--plugin", metavar="FILE", help="a Python file or module that registers the methods, ...")
]
Plugins = Annotated[  # imported when the command starts
    Names, Option("--plugin", metavar="FILE", callback=_loaded,
                  help="a Python file or module that registers methods, datasets, ..."),
]  # fmt: skip


def names(values: Iterable[str] | None) -> tuple[str, ...]:
    """Parse `-m a,b -m c` as (a, b, c). UserError for commas without a name."""
    parts = tuple(dict.fromkeys(part.strip() for value in values or () for part in value.split(",") if part.strip()))
    if values and not parts:
        raise UserError(f"no name in {','.join(values)!r:.60}; give one, or leave the option out")
    return parts


def client_numbers(values: Iterable[str] | None) -> tuple[int, ...]:
    given = names(values)
    try:
        return tuple(int(value) for value in given)
    except ValueError:
        raise UserError(f"numbers of clients are whole numbers, as in 5,10; got {','.join(given)!r:.60}") from None


def parse_seeds(text: str | None) -> tuple[int, ...]:
    """Parse `3` as the first three seeds (0, 1, 2), and `4,7` or `4-7` as these seeds."""
    from ...registry import MOST_SEEDS, SEED_BOUND, seed_range

    if text is None:
        return ()
    try:
        if text.isdigit():
            seeds = seed_range(0, int(text) - 1)
        elif "-" in text:
            first, last = text.split("-")
            seeds = seed_range(int(first), int(last))
        else:
            seeds = [int(part) for part in text.split(",") if part]
    except ValueError:
        seeds = []
    if not seeds or not 0 <= min(seeds) <= max(seeds) < SEED_BOUND:
        most = f"at most {MOST_SEEDS}, each below {SEED_BOUND}"
        raise UserError(f"--seeds is a count (3), a list (0,4) or a range (3-5, 0-0), got {text!r:.60} ({most})")
    return tuple(seeds)


ENDLESS = 100_000  # characters of a line in a pipe, which is not broken
HEAVY = "torch"
NAMED = 3  # methods that a message names; for more it gives their number
DEFAULT = Path(WRITTEN)


def plain_console(*, stderr: bool = False) -> Console:
    """A console with the width of the terminal; in a pipe or file every record is one line, for any COLUMNS."""
    console = Console(stderr=stderr, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = ENDLESS
    return console


def plain_table(*columns: str, numeric: bool = False) -> Table:
    """A table; the first column is not broken. numeric: the others are right-aligned. Without columns: no header."""
    table = Table(box=None, show_header=bool(columns), pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns or ("", "")):
        table.add_column(column, justify="right" if numeric and place else "left", no_wrap=numeric or not place)
    return table


def facts_table(facts: Mapping[str, str]) -> Table:
    """A table without a header: names, and texts that are broken."""
    table = plain_table()
    table.columns[1].overflow = "fold"
    for fact in facts.items():
        table.add_row(*fact)
    return table


def records(table: Table) -> list[dict[str, str]]:
    """The rows of a table as dicts: header -> text."""
    headers = [str(column.header) for column in table.columns]
    lines = zip(*(column.cells for column in table.columns), strict=True)
    return [dict(zip(headers, map(str, cells), strict=True)) for cells in lines]


def print_json(document: Any) -> None:
    """Print one JSON document: unknown types as text, NaN and infinity as null."""
    known = json.loads(json.dumps(document, default=str), parse_constant=lambda _: None)
    typer.echo(json.dumps(known, indent=2, ensure_ascii=False))


@contextmanager
def _to_stderr() -> Iterator[None]:
    """Send all that the block prints to the error output, also from C."""
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(output, 1)
        os.close(output)


@contextmanager
def answer(json: bool) -> Iterator[dict[str, Any]]:
    """A dict for the result of a command.

    With `--json` it is printed at the end, also after `typer.Exit`, and all other text is on the error output. After an
    error the output is empty.
    """
    document: dict[str, Any] = {}
    ended: typer.Exit | None = None
    with _to_stderr() if json else nullcontext():
        try:
            yield document
        except typer.Exit as end:
            ended = end
    if json:
        print_json(document)
    if ended is not None:
        raise ended


def command(name: str, results: Path) -> str:
    """The command line that continues with a results folder."""
    return f"fglbench {name}" if results == DEFAULT else f"fglbench {name} --results {shlex.quote(str(results))}"


def why(rows: Iterable[Row | Standing], *, suites: bool = False) -> list[str]:
    """Why cells failed or were skipped: each reason once, by number of cells."""
    by_reason: dict[tuple[str, str], list[Row | Standing]] = {}
    for row in rows:
        by_reason.setdefault((row.status, row.error), []).append(row)
    lines = []
    for (state, error), group in sorted(by_reason.items(), key=lambda each: (each[0][0] == "skipped", -len(each[1]))):
        methods = list(dict.fromkeys(row.method for row in group))
        named = ", ".join(methods) if len(methods) <= NAMED else f"{len(methods)} methods"
        where = f" of {', '.join(dict.fromkeys(row.suite for row in group))}" if suites else ""
        lines.append(f"{named}: {state}: {error} ({len(group)} run{'s' * (len(group) > 1)}{where})")
    return lines


def complain(line: str) -> None:
    typer.echo(f"fglbench: {line}", err=True)


def announce() -> None:
    """Print on a terminal that torch and DGL are being loaded, unless they are loaded already."""
    if HEAVY not in sys.modules and sys.stderr.isatty():
        typer.echo("fglbench: loading torch and DGL ...", err=True)
