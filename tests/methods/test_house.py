"""Import rules of methods/: only the engine's interface, separate papers, parts with several users."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import fglbench.methods

ROOT = Path(fglbench.methods.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def imported(path: Path) -> Iterator[tuple[str, ...]]:
    """The imports of a file from the package, as parts of absolute names."""
    here = path.relative_to(ROOT.parent).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
            if node.level:
                yield (*here[: len(here) + 1 - node.level], *module)
            elif module[0] == "fglbench":
                yield tuple(module[1:])


def paper(path: Path) -> str:
    """The file's or folder's name below methods/."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_methods_import_one_module_of_the_engine() -> None:
    modules = {name for path in FILES for name in imported(path) if name[0] == "benchmark"}
    assert modules == {("benchmark", "engine")}


def test_other_papers_import_no_file_of_a_papers_folder() -> None:
    """Other papers may import only names of its `__init__`."""
    for path in FILES:
        for name in imported(path):
            if len(name) > 2 and name[0] == "methods" and name[1] != "parts":
                assert name[1] == paper(path), f"{path} imports {'.'.join(name)}"


def test_each_part_is_used_by_several_papers() -> None:
    users: dict[str, set[str]] = {path.stem: set() for path in (ROOT / "parts").glob("[a-z]*.py")}
    for path in FILES:
        for name in imported(path):
            if name[:2] == ("methods", "parts") and len(name) == 3:
                users[name[2]].add(path.stem if paper(path) == "parts" else paper(path))
    assert {part: papers for part, papers in users.items() if len(papers) < 2} == {}
