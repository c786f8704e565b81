"""`fglbench doctor`: the conditions of a run on this machine. `fglbench profile`: time and memory of rounds."""

from __future__ import annotations

import multiprocessing
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from tabulate import tabulate
from typer import Option

from ...files import cache_dir
from ...processes import THREADS
from ...registry import UserError
from ..store.provenance import check_packages, environment, git_output, installed, now
from . import common as given
from .common import Json, Results, announce, answer, facts_table, plain_console, print_json

if TYPE_CHECKING:
    from ..profile.speed import Line

GIB = 2**30
SHOWN = 8  # datasets of one source on one line


def doctor(results: Results = Path("results"), json: Json = False) -> int:
    """Show the conditions of a run: packages, threads, device, folders, free disk, and the source of each dataset.

    Nothing is fetched and nothing is written. Exit code 1 if torch and DGL do not work together here.
    """
    announce()
    problem = ""
    try:
        check_packages()
    except UserError as error:
        problem = str(error)
    facts = {**_packages(), "torch and DGL": problem or "work together", **({} if problem else _device())}
    facts |= _folders(results)
    sources = {} if problem else _sources()
    if json:
        print_json({"facts": facts, "sources": sources, "sound": not problem})
        return int(bool(problem))
    table = facts_table(facts)
    for source in dict.fromkeys(sources.values()):
        datasets = [name for name, where in sources.items() if where == source]
        for place in range(0, len(datasets), SHOWN):
            table.add_row("" if place else f"from {source}", ", ".join(datasets[place : place + SHOWN]))
    plain_console().print(table)
    return int(bool(problem))


def _packages() -> dict[str, str]:
    missing = "not installed"
    return {
        "fglbench": f"{installed('fglbench') or missing} in {Path(__file__).resolve().parents[2]}",
        "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{name: installed(name) or missing for name in ("torch", "dgl", "numpy", "scipy", "pandas")},
        "optuna": installed("optuna") or f"{missing}: only `fglbench tune` needs it (pip install 'fglbench[tune]')",
    }


def _device() -> dict[str, str]:
    import psutil
    import torch

    memory = psutil.virtual_memory()
    limits = ", ".join(f"{name}={os.environ[name]}" for name in THREADS if name in os.environ)
    limits = f"; {limits}" if limits else ""
    cards = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        "cores": f"{os.cpu_count()} (a worker process each, unless -j says otherwise)",
        "memory": f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB free",
        "threads": f"torch would take {torch.get_num_threads()}; a worker takes --threads (1){limits}",
        "device": ", ".join(["cpu", *cards]),
    }


def _folders(results: Path) -> dict[str, str]:
    mirror = os.environ.get("FGLBENCH_MIRROR", "")
    missing = "" if Path(mirror).expanduser().is_dir() else ": there is no such folder"
    return {
        "cache": _folder(cache_dir(), "FGLBENCH_CACHE"),
        "mirror": f"{mirror} (FGLBENCH_MIRROR){missing}" if mirror else "none (FGLBENCH_MIRROR is not set)",
        "results": _folder(results.resolve(), "--results"),
    }


def _folder(path: Path, setting: str) -> str:
    existing = next(place for place in (path, *path.parents) if place.exists())
    free = shutil.disk_usage(existing).free / GIB
    state = "" if path.exists() else ", made when needed"
    access = "" if os.access(existing, os.W_OK) else ", NOT writable"
    return f"{path} ({setting}{state}{access}; {free:.1f} GiB free)"


def _sources() -> dict[str, str]:
    """Dataset -> first source that may have it. Folders are searched; the package index and upstream are not
    contacted."""
    from ...datasets import DATASETS
    from ...datasets.sources import Mirror, Unavailable, cache_file

    sources = {}
    for name in DATASETS.names():
        routes = DATASETS.cls(name).routes
        sources[name] = "cache" if cache_file(name).is_file() else "nowhere" if routes else "generator"
        for route in routes if sources[name] == "nowhere" else ():
            with suppress(Unavailable):
                if isinstance(route, Mirror):
                    route.fetch(Path())
                sources[name] = route.kind
                break
    return sources


T = TypeVar("T")
CASES = ("cora:10", "cora:20", "cora:100", "pubmed:10")
HEAD = """# Speed

Made by `{command}` on {machine}, {threads} threads, {when}.

A round of FedAvg with GCN-64 (local epochs E = {epochs}, every client's validation and test scored) against E epochs of
a centralised GCN-64 on the uncut graph in plain PyTorch (CSR features and adjacency, torch's dropout, torch's Adam, no
evaluation). All columns of a row were measured in alternation in one process: medians of {rounds} rounds, quartiles in
brackets. Compare the ratios: milliseconds depend on the machine.
"""
RACE = """Made by `{command}` on {machine}, threads: {threads}, {when}; {title} {commit} with {peer}.

A round of every method of both, with local epochs E = {epochs} and the evaluation of each package after it, and the
ratio without evaluation: GCN-64 on the same clients and splits of Cora, 10 clients. CPU time of the process of each, in
alternation: medians of {rounds} turns of {row} rounds, quartiles in brackets. Compare the ratios: milliseconds depend
on the machine.

"""
PEAK = "The peak is that of the process, including data and libraries, while the client batch trains.\n\n"
ALTERNATION = """\
Each method alternates with FedAvg in the same process; phases that prepare another phase were timed when they ran. The
total is for all rounds of a phase in a run, from their mean; the milliseconds of a round are the median.

"""
SECTION = "\n## "
TABLES = (("A round", ""), ("Where the time goes, ms a round (share)", ""), ("Memory", PEAK))  # of measure_case


def profile(
    case: Annotated[list[str] | None, Option("--case", help="DATASET:CLIENTS; may be repeated")] = None,
    rounds: Annotated[int, Option(min=2, help="measured rounds (with --peer: turns), after warm-up")] = 21,
    epochs: Annotated[int, Option(min=1, help="local epochs per round")] = 3,
    threads: Annotated[int, Option(min=1, help="threads of the measuring process")] = os.cpu_count() or 1,
    device: given.Device = "cpu",
    all_methods: Annotated[
        bool, Option("--all-methods", help="every method, next to FedAvg, on Cora, 10 clients")
    ] = False,
    method: Annotated[
        given.Names,
        Option("-m", "--method", metavar="METHOD[,METHOD]", help="these, next to FedAvg, on Cora, 10 clients"),
    ] = None,
    output: Annotated[
        Path | None, Option(help="also write the tables to this Markdown file, whose other sections stay")
    ] = None,
    peer: Annotated[
        str | None, Option(metavar="NAME=PATH", help="instead: compare with openfgl or fedgb on Cora, 10 clients")
    ] = None,
    peer_python: Annotated[
        Path | None, Option(metavar="FILE", help="Python with the packages of the peer (default: this one)")
    ] = None,
    json: given.Json = False, plugin: given.PluginNames = None,
) -> None:  # fmt: skip
    """Measure rounds of a client batch, of single clients and of centralised training, side by side."""
    names = () if all_methods else given.names(method)
    if not plugin:
        given.check_names({"method": names})  # after the imports below nothing is checked
    from ..profile.speed import measure_case, measure_methods
    from ..runner.system import resolved

    if peer is not None:
        with answer(json) as said:
            return _keep(_race(peer, peer_python, rounds, threads, epochs, given.names(method), said), output)
    device = resolved(device)
    wanted, measured = [_parse(text) for text in (case or (() if all_methods or method else CASES))], []
    for dataset, clients in wanted:
        typer.echo(f"measuring {dataset} with {clients} clients ...", err=True)
        measured.append(_apart(measure_case, dataset, clients, rounds, threads, epochs, device))
    tables = [
        (title, about, list(lines)) for (title, about), lines in zip(TABLES, zip(*measured, strict=True), strict=False)
    ]
    if all_methods or names:
        which = ", ".join(names) or "all methods"
        typer.echo(f"measuring {which} on cora with 10 clients ...", err=True)
        lines = _apart(measure_methods, "cora", 10, rounds, threads, epochs, device, names, tuple(plugin or ()))
        tables.append((f"{'Methods' if names else 'Every method'}, Cora, 10 clients", ALTERNATION, lines))
    flags = [f"--case {dataset}:{clients}" for dataset, clients in wanted] + ["--all-methods"] * all_methods
    flags += [f"-m {','.join(names)}"] * bool(names) + [f"--plugin {file}" for file in plugin or ()]
    flags += [f"--device {device}"] * (device != "cpu")
    command = " ".join(["fglbench profile", *flags, f"--rounds {rounds}", f"--epochs {epochs}"])
    about: dict[str, Any] = {"command": command, "machine": _machine(device), "when": now()[:10]}
    about |= {"threads": threads, "epochs": epochs, "rounds": rounds}
    with answer(json) as said:
        said |= {**about, "tables": {title: lines for title, _, lines in tables}}
        _keep("\n".join([HEAD.format(**about), *(_table(*parts) for parts in tables)]), output)


def _race(
    peer: str, python: Path | None, rounds: int, threads: int, epochs: int, methods: Sequence[str], said: dict[str, Any]
) -> str:
    """The output of `--peer`. said: gets the same as data."""
    from ..profile.peer import IN_A_ROW, PEERS, race

    name, _, path = peer.partition("=")
    checkout = Path(path).resolve()
    if name not in PEERS or not path or not (checkout / name).is_dir():
        raise UserError(f"--peer {peer!r:.200} is not openfgl=PATH or fedgb=PATH with a checkout of it at PATH")
    versions, lines = _apart(race, checkout, python, "cora", 10, rounds, threads, epochs, name, methods)
    packages = ", ".join(f"{package} {version}" for package, version in versions.items()) or "it did not start"
    chosen = f" -m {','.join(methods)}" * bool(methods)
    command = f"fglbench profile --peer {name}=PATH{chosen} --rounds {rounds} --epochs {epochs} --threads {threads}"
    about = {"threads": threads, "epochs": epochs, "rounds": rounds, "row": IN_A_ROW, "peer": packages}
    commit = git_output("rev-parse", "--short", "HEAD", folder=checkout)
    about |= {"title": PEERS[name], "commit": commit.decode().strip() if commit else "no commit"}
    about |= {"machine": _machine(), "when": now()[:10]}
    said |= {"command": command, **about, "tables": {"Rounds": lines}}
    return RACE.format(command=command, **about) + _table("Rounds", "", lines, "")


def _machine(device: str = "cpu") -> str:
    here = environment(1, device)[1]
    return f"{here['cpu'] or here['machine']}, {here['cores']} cores" + (f", {here['gpu']}" if "gpu" in here else "")


def _keep(text: str, output: Path | None) -> None:
    """Print a text, and write it to `output`. Other sections of that file are kept."""
    typer.echo(text)
    if output is not None:
        try:
            before = output.read_text(encoding="utf-8") if output.is_file() else ""
            output.write_text(_joined(before, text), encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise UserError(f"cannot write {output}: {why}; choose another --output") from None


def _joined(before: str, text: str) -> str:
    """`text` with the other sections of `before`, each after the section that it followed."""
    sections = text.split(SECTION)
    place, titles = 0, [_title(part) for part in sections]
    for part in before.split(SECTION)[1:]:
        if _title(part) in titles:
            place = titles.index(_title(part))
        else:
            place += 1
            sections.insert(place, part.strip("\n") + "\n")
            titles.insert(place, _title(part))
    return SECTION.join(part.strip("\n") + "\n" for part in sections)


def _title(section: str) -> str:
    return section.split("\n", 1)[0]


def _parse(text: str) -> tuple[str, int]:
    name, _, clients = text.rpartition(":")
    if not clients.isdigit() or int(clients) < 1:
        raise UserError(f"--case {text!r} is not DATASET:CLIENTS, for example cora:10")
    from ...datasets import DATASETS

    DATASETS.cls(name)
    return name, int(clients)


def _apart(work: Callable[..., T], *args: object) -> T:
    """Run each case in a new process, so that peak memory and caches are those of this case."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args).result()


def _table(title: str, about: str, lines: Iterable[Line], absent: str = "0.00 (0%)") -> str:
    """A section with one table. absent: text of a part of a round that a case lacks. The column `other` is last."""
    import pandas as pd

    frame = pd.DataFrame(lines).fillna(absent)
    if "other" in frame:
        frame["other"] = frame.pop("other")
    text = tabulate(frame, "keys", tablefmt="github", disable_numparse=True, showindex=False)
    return f"## {title}\n\n{about}{text}\n"
