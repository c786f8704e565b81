"""The file of a new method, partition, split or backbone, from its template."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from string import Template

from ...files import write_atomically
from ...registry import UserError

TEMPLATES = Path(__file__).parent / "templates"
METHODS_FOLDER = Path(__file__).resolve().parents[2] / "methods"
IMPORTS = """from {package}benchmark.engine import METHODS, ClientBatch, Params, Server
from {methods}fedavg import FedAvg"""
TORCH_IMPORTS = "from {package}benchmark.engine import METHODS, Client, TorchMethod"
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
