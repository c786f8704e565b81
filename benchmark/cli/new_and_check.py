"""`fglbench new`: write a template of a method or another part. `fglbench check`: test it by the contract."""

from __future__ import annotations

import keyword
import re
import time
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ...files import write_atomically, writing
from ...registry import UserError, did_you_mean
from ..store.schema import PARTS
from .common import Json, Parameters, PluginNames, answer, named

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPLATES = Path(__file__).parent / "templates"
METHODS_FOLDER = Path(__file__).resolve().parents[2] / "methods"
IMPORTS = """from {package}benchmark.engine import METHODS, ClientBatch, Params, Server
from {methods}fedavg import FedAvg"""
TORCH_IMPORTS = "from {package}benchmark.engine import METHODS, Client, GraphConvolution, TorchMethod"
OUTSIDE, INSIDE = {"package": "fglbench.", "methods": "fglbench.methods."}, {"package": "..", "methods": "."}


def create(kind: str, name: str, folder: Path, *, torch: bool = False) -> Path:
    """Write the template of a method (or another kind) called `name` to `folder`, and return its path.

    torch: a method with an nn.Module and its training loop. In the methods folder of the package, imports are relative.
    Raises UserError for an invalid or used name, an existing file, and a folder that is missing or cannot be written.
    """
    from ..suites.plugins import REGISTRIES, installed

    if not re.fullmatch(r"[a-z][a-z0-9]*([-+][a-z0-9]+)*\+?", name):
        raise UserError(f"{name!r} is no name for a {kind}: lower-case letters, digits and '-', as in my-{kind}")
    if name in REGISTRIES[kind].names() or name in installed(REGISTRIES[kind]):
        raise UserError(f"there is a {kind} {name!r} already (fglbench show {name}); choose another name")
    module = name.replace("-", "_").replace("+", "_plus")
    if keyword.iskeyword(module):
        raise UserError(f"{name!r} is a word of Python and cannot name a file to import; choose another name")
    if not folder.is_dir():
        raise UserError(f"no folder {str(folder)!r}; make it, or give another --into DIR")
    path = folder / f"{module}.py"
    if path.exists() or path.is_symlink():
        raise UserError(f"{str(path)!r} exists already; choose another name, or another --into DIR")
    words = re.split(r"[-+]+", name.replace("+", "-plus-").strip("-"))
    cls, places = "".join(map(str.capitalize, words)), INSIDE if in_tree(folder) else OUTSIDE
    imports = (TORCH_IMPORTS if torch else IMPORTS).format(**places)
    template = Template((TEMPLATES / f"{'torch-' * torch}{kind}.txt").read_text(encoding="utf-8"))
    text = template.substitute(name=name, cls=cls, imports=imports)
    with writing(path):
        write_atomically(path, text.encode())
    return path


def in_tree(folder: Path) -> bool:
    """Whether a folder is the methods folder of the package."""
    return folder.resolve() == METHODS_FOLDER


app = typer.Typer(help="Start something new: a method, a partition, a split, a backbone.")


NewName = Annotated[str, Argument(metavar="NAME", help="its name in lower case, for example my-method")]
Into = Annotated[Path, Option("--into", metavar="DIR", help="the folder for the file")]


@app.command()
def method(
    name: NewName,
    into: Into = Path(),
    torch: Annotated[bool, Option("--torch", help="an nn.Module and a training loop, one client at a time")] = False,
    json: Json = False,
) -> None:
    """Write one file with a working method to start from, and print the next commands."""
    what = "your model, training loop and docstring" if torch else "your method's objective, server rule and docstring"
    _started("method", name, into, what, "--quick -m", json, torch=torch)
    typer.echo("CONTRIBUTING.md describes the way from there to results on the leaderboard", err=json)


def _add_command(kind: str, what: str, option: str) -> None:
    @app.command(kind, help=f"Write one file with a working {kind} to start from, and print the next commands.")
    def command(name: NewName, into: Into = Path(), json: Json = False) -> None:
        _started(kind, name, into, f"your {what} and docstring", f"--quick -m fedavg {option}", json)


_add_command("partition", "rule", "-p")
_add_command("split", "rule", "--split")
_add_command("backbone", "layer", "-b")


def _started(kind: str, name: str, into: Path, what: str, option: str, json: bool, *, torch: bool = False) -> None:
    path = create(kind, name, into, torch=torch)
    plugin = "" if in_tree(into) else f" --plugin {path}"
    commands = [f"fglbench check {name}{plugin}", f"fglbench run {option} {name}{plugin}"]
    steps = [f"replace the template's code by {what}", *commands]
    if in_tree(into):
        steps.append("make catalogue  (adds it to `list` and to the pages)")
    with answer(json) as said:
        said |= {"file": path, "next": steps}
        typer.echo(f"wrote {path}; next:")
        for number, step in enumerate(steps, 1):
            typer.echo(f"  {number}. {step}")


WIDTH = 35  # characters of the name of a check
REAL_DATA = "also check on a real dataset; fetch it if needed  [default: if it is in the cache]"


def check(
    name: Annotated[str, named(*PARTS, help="a method (or dataset, partition, split, backbone)")],
    set_: Parameters = None, plugin: PluginNames = None,
    real: Annotated[bool | None, Option(help=REAL_DATA)] = None, json: Json = False,
) -> int:  # fmt: skip
    """Run the contract on a method, dataset, partition, split or backbone: of the package, of a --plugin, or installed.

    One line per check: ok, failed with the problem, or skipped with the reason. Exit code 1 if a check fails. Code
    from outside the package is imported and checked in a separate process.
    """
    from ..runner.execute import in_child
    from ..suites.plugins import REGISTRIES
    from ..suites.request import parse_setting

    params = {setting.name: setting.value for setting in map(parse_setting, set_ or ())}
    here = not plugin and any(name in registry.names() for registry in REGISTRIES.values())
    begun, verdicts, checks = time.monotonic(), list[str](), list[dict[str, str]]()
    results = verdicts_on(name, params, real) if here else in_child(verdicts_on, plugin or (), name, params, real)
    with answer(json) as said:
        for what, verdict, reason in results:
            verdicts.append(verdict)
            checks.append({"check": what, "verdict": verdict, "reason": reason})
            typer.echo(f"{what.replace('_', ' '):{WIDTH}}  {verdict}{f': {reason}' if reason else ''}")
        failed, seconds = verdicts.count("failed"), f"{time.monotonic() - begun:.0f} s"
        said |= {"name": name, "passed": not failed, "checks": checks}
        if failed:
            typer.echo(f"{name}: {failed} of {len(verdicts)} checks failed ({seconds})")
        elif "ok" not in verdicts:
            typer.echo(f"{name}: no check applies ({seconds})")
        else:
            typer.echo(f"{name} passes the contract ({len(verdicts)} checks, {seconds})")
    return int(failed > 0)


def verdicts_on(name: str, params: dict[str, Any], real: bool | None) -> Iterator[tuple[str, str, str]]:
    """Yield (check, verdict, reason). real: check methods on a real dataset too; None: if it is in the cache."""
    from ..contract import method_checks, part_checks
    from ..contract.trial import REAL, real_trial
    from ..suites.plugins import REGISTRIES, kinds

    known = kinds()
    kind = known.get(name, "dataset" if ":" in name else None)  # a dataset such as tu:NAME is not listed
    if kind is None:
        unknown = did_you_mean(name, known, "method, dataset, partition, split or backbone")
        raise UserError(f"{unknown}; if a file of yours registers it, give --plugin FILE")
    spec = REGISTRIES[kind].build(name, params)
    if kind != "method":
        yield from part_checks.results(kind, spec)
        return
    trial = None
    if real is not False and "node" in spec.tasks:
        try:
            trial = real_trial(near=real is None)
        except UserError:
            if real:
                raise
            yield f"on {REAL}", "skipped", "it is not at hand: --real fetches it"
    yield from method_checks.results(spec)
    if trial is not None:
        yield from method_checks.results_on_real(spec, trial)
