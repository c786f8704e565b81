"""The house rules of methods/: one face of the engine, papers apart, parts that several share."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import fglbench.methods

ROOT = Path(fglbench.methods.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def imported(path: Path) -> Iterator[tuple[str, ...]]:
    """What a file imports from the package, as parts of absolute names below it."""
    here = path.relative_to(ROOT.parent).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            own = node.module.split(".") if node.module else []
            if node.level:
                yield (*here[: len(here) + 1 - node.level], *own)
            elif own[0] == "fglbench":
                yield tuple(own[1:])


def paper(path: Path) -> str:
    """The file's or folder's name below methods/."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def test_methods_import_one_module_of_the_engine() -> None:
    found = {name for path in FILES for name in imported(path) if name[0] == "benchmark"}
    assert found == {("benchmark", "engine")}


def test_a_folder_is_its_papers_own() -> None:
    """Others may import what its `__init__` names, not a file within."""
    for path in FILES:
        for name in imported(path):
            if len(name) > 2 and name[0] == "methods" and name[1] != "parts":
                assert name[1] == paper(path), f"{path} imports {'.'.join(name)}"


def test_parts_are_what_several_papers_share() -> None:
    users: dict[str, set[str]] = {path.stem: set() for path in (ROOT / "parts").glob("[a-z]*.py")}
    for path in FILES:
        for name in imported(path):
            if name[:2] == ("methods", "parts") and len(name) == 3:
                users[name[2]].add(path.stem if paper(path) == "parts" else paper(path))
    assert {part: own for part, own in users.items() if len(own) < 2} == {}
