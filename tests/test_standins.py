"""Commands that only name things import nothing that computes, and say what they say with everything imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fglbench import standins

ROOT = Path(standins.__file__).parent
RUN = """
import sys
from fglbench.benchmark.cli import main
code = main()
heavy = {name for name in ("torch", "dgl", "scipy", "sklearn", "sknetwork", "pandas", "matplotlib", "seaborn")
         if getattr(sys.modules.get(name), "__file__", None)}
print("IMPORTED", *sorted(heavy))
sys.exit(code)
"""
WHOLE = "import sys; from fglbench.benchmark.cli import main; sys.exit(main(sys.argv[1:]))"
NAMING = [
    ["list", "methods"],
    ["list", "datasets"],
    ["list", "backbones"],
    ["show", "fedsage+"],
    ["show", "louvain"],
    ["validate", "{results}"],
    ["status", "-s", "quick", "--results", "{results}"],
]


def run(code: str, arguments: list[str]) -> tuple[str, str]:
    """(what a process prints, what it imports of what computes)."""
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    text, _, imported = done.stdout.partition("IMPORTED")
    return text, imported.strip()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the rows of one board."""
    folder = tmp_path_factory.mktemp("light") / "results"
    folder.mkdir()
    for name in ("quick", "environments"):
        (folder / name).symlink_to(ROOT / "results" / name)
    return str(folder)


@pytest.mark.parametrize("arguments", NAMING, ids=" ".join)
def test_what_only_names_things_computes_nothing(arguments: list[str], results: str) -> None:
    arguments = [argument.format(results=results) for argument in arguments]
    text, imported = run(RUN, arguments)
    assert imported == ""
    assert text == run(WHOLE, arguments)[0]


def test_a_check_of_the_report_draws_nothing(results: str) -> None:
    _, imported = run(RUN, ["report", "--check", "--results", results])
    assert not {"torch", "dgl", "sklearn", "matplotlib", "seaborn"} & set(imported.split())


def test_with_a_plugin_everything_is_imported(tmp_path: Path) -> None:
    """Code from outside may do with torch what it likes when it is imported."""
    plugin = tmp_path / "own.py"
    plugin.write_text("import torch\nassert torch.ones(2).sum() == 2\n")
    text, imported = run(RUN, ["list", "methods", "--plugin", str(plugin)])
    assert "fedavg" in text
    assert "torch" in imported


def test_a_stand_in_declares_and_does_not_compute() -> None:
    done = subprocess.run([sys.executable, "-c", DECLARED], capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr


DECLARED = """
from fglbench.standins import leave_out
leave_out("torch")
import torch, torch.nn.functional as F
from torch.autograd import Function

class Product(Function):
    @staticmethod
    def forward(ctx): ...

@torch.no_grad()
def score(): return 3

Tensors = dict[str, torch.Tensor]
Either = torch.Tensor | None
assert score() == 3 and Product.__mro__ == (Product, object)
for compute in (lambda: torch.ones(2) + 1, lambda: len(torch.ones(2)), lambda: list(torch.ones(2)),
                lambda: float(F.relu(1.0)), lambda: torch.ones(2) < 1, lambda: isinstance(1, torch.Tensor)):
    try:
        compute()
    except (TypeError, AttributeError):
        continue
    raise SystemExit("computed")
print("ok")
"""


def complete(words: str) -> tuple[list[str], str]:
    """(what bash is offered for the last of `words`, what of the packages that compute was imported for it)."""
    asked = {"_FGLBENCH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    code = """
import atexit, sys
packages = ("torch", "dgl", "scipy", "sklearn", "sknetwork", "pandas", "matplotlib", "seaborn")
atexit.register(lambda: print("IMPORTED", *(n for n in packages if getattr(sys.modules.get(n), "__file__", None))))
from fglbench.benchmark.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True)
    text, _, imported = done.stdout.partition("IMPORTED")
    assert done.stderr == ""
    return text.split(), imported.strip()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("fglbench run -m fedpro", ["fedproto", "fedprox", "fedprox-mlp"]),
        ("fglbench run -m fedavg,fedy", ["fedavg,fedyogi"]),
        ("fglbench run -d coauthor-", ["coauthor-cs", "coauthor-physics"]),
        ("fglbench run -p metis", ["metis"]),
        ("fglbench status -s heterog", ["heterogeneous", "heterogeneous-depth"]),
        ("fglbench show quic", ["quick"]),
        ("fglbench list met", ["methods"]),
        ("fglbench reproduce fclg", ["fclg-table2"]),
        ("fglbench data info cor", ["cora"]),
    ],
)
def test_a_shell_completes_names_and_imports_nothing_that_computes(words: str, offered: list[str]) -> None:
    found, imported = complete(words)
    assert [name for name in found if name in offered] == offered
    assert all(name.startswith(words.rpartition(" ")[2]) for name in found)
    assert imported == ""
