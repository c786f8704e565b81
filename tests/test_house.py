"""The house: what no linter says of names and lengths."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("benchmark", "datasets", "methods", "report")
LINES = 40  # of a function, signature and docstring included
# A command of the command line is called as what it does.
COMMANDS = ROOT / "benchmark" / "cli"


def sources() -> Iterator[Path]:
    for room in ROOMS:
        yield from (ROOT / room).rglob("*.py")
    yield from ROOT.glob("*.py")


def test_no_two_modules_share_a_name() -> None:
    places = defaultdict(list)
    for path in sources():
        if path.name != "__init__.py" and path.parent != COMMANDS:
            places[path.name].append(path.relative_to(ROOT).as_posix())
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_function_is_longer_than_a_screen() -> None:
    long = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno + 1 > LINES:
                long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert long == []


def test_no_two_classes_share_a_name() -> None:
    """Aliases of types too. A paper may name a partition and a method."""
    places = defaultdict(list)
    for path in sources():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1 and name != "FCLG"} == {}
