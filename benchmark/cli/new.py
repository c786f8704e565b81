"""`fglbench new`: the file that a new method, partition, split or backbone starts from."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from ...files import write_atomically
from ...registry import UserError
from .options import Json
from .output import answer

TEMPLATES = Path(__file__).parent / "templates"
METHODS_FOLDER = Path(__file__).resolve().parents[2] / "methods"
IMPORTS = """from {package}benchmark.engine import METHODS, ClientBatch, Params, Server
from {methods}fedavg import FedAvg"""
TORCH_IMPORTS = "from {package}benchmark.engine import METHODS, Client, GraphConvolution, TorchMethod"
OUTSIDE, INSIDE = {"package": "fglbench.", "methods": "fglbench.methods."}, {"package": "..", "methods": "."}


def create(kind: str, name: str, folder: Path, *, torch: bool = False) -> Path:
    """Write the file of a method (or ...) called `name` in `folder`, and return its path.

    torch: a method with an nn.Module and a training loop of its own. In the package's own folder of methods the file
    imports relatively. Raises UserError for a name that it cannot have or that is taken, for a file that exists, and
    for a folder that is none or cannot be written.
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
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise UserError(f"cannot write {str(path)!r}: {error.strerror or error}") from None
    return path


def in_tree(folder: Path) -> bool:
    """Whether a folder is the package's own folder of methods."""
    return folder.resolve() == METHODS_FOLDER


app = typer.Typer(help="Start something new: a method, a partition, a split, a backbone.")


Name = Annotated[str, typer.Argument(metavar="NAME", help="as it will be called: lower case, as in my-method")]
Into = Annotated[Path, typer.Option("--into", metavar="DIR", help="the folder for the file")]


@app.command()
def method(
    name: Name,
    into: Into = Path(),
    torch: Annotated[
        bool, typer.Option("--torch", help="an nn.Module and a training loop, one client at a time")
    ] = False,
    json: Json = False,
) -> None:
    """Write one file with a working method to start from, and say what comes next."""
    what = "your model, training loop and docstring" if torch else "your method's objective, server rule and docstring"
    _started("method", name, into, what, "--quick -m", json, torch=torch)
    typer.echo("CONTRIBUTING.md describes the way from there to results on the leaderboard", err=json)


@app.command()
def partition(name: Name, into: Into = Path(), json: Json = False) -> None:
    """Write one file with a working partition to start from, and say what comes next."""
    _started("partition", name, into, "your rule and docstring", "--quick -m fedavg -p", json)


@app.command()
def split(name: Name, into: Into = Path(), json: Json = False) -> None:
    """Write one file with a working split to start from, and say what comes next."""
    _started("split", name, into, "your rule and docstring", "--quick -m fedavg --split", json)


@app.command()
def backbone(name: Name, into: Into = Path(), json: Json = False) -> None:
    """Write one file with a working backbone to start from, and say what comes next."""
    _started("backbone", name, into, "your layer and docstring", "--quick -m fedavg -b", json)


def _started(kind: str, name: str, into: Path, what: str, option: str, json: bool, *, torch: bool = False) -> None:
    path = create(kind, name, into, torch=torch)
    plugin = "" if in_tree(into) else f" --plugin {path}"
    commands = [f"fglbench check {name}{plugin}", f"fglbench run {option} {name}{plugin}"]
    steps = [f"replace the template's code by {what}", *commands]
    with answer(json) as said:
        said |= {"file": path, "next": steps}
        typer.echo(f"wrote {path}; next:")
        for number, step in enumerate(steps, 1):
            typer.echo(f"  {number}. {step}")
