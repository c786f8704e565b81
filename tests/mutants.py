"""Drawing random changes of the code by the operators of cosmic-ray, for tests/mutation.py."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (  # what is mutated
    "benchmark/engine", "benchmark/runner", "benchmark/store", "benchmark/suites", "datasets", "methods",
    "report/statistics.py",
)  # fmt: skip
SKIPPED = ("RemoveDecorator", "ExceptionReplacer", "VariableReplacer", "VariableInserter")  # mostly do not even import


class Mutant(NamedTuple):
    path: str
    operator: str
    occurrence: int
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column} {self.operator.rpartition('/')[2]} {self.occurrence}"


def files(room: str) -> list[str]:
    path = ROOT / room
    found = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [each.relative_to(ROOT).as_posix() for each in found]


def mutants(path: str) -> Iterator[Mutant]:
    """All that the operators make of a file, except for its annotations, which do nothing when the code runs."""
    text = (ROOT / path).read_text(encoding="utf-8")
    idle, nodes = annotations(text), [*ast_nodes(get_ast(text))]
    for name in operator_names():
        if not name.endswith(SKIPPED) and not (operator := get_operator(name)).arguments():
            places = [place for node in nodes for place in operator().mutation_positions(node)]
            for occurrence, ((line, column), _) in enumerate(places):
                if not any(start <= (line, column) < end for start, end in idle):
                    yield Mutant(path, name, occurrence, line, column)


def annotations(text: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """(start, end) of every annotation, each (line, column)."""
    found = []
    for node in ast.walk(ast.parse(text)):
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(note, ast.expr):
                found.append(((note.lineno, note.col_offset), (note.end_lineno or 0, note.end_col_offset or 0)))
    return found


def draw(seed: int, only: str | None) -> Iterator[Mutant]:
    """Mutants without end, no two of one place: a file by its length, a place in it, one of that place's operators."""
    source, known = random.Random(seed), dict[str, list[list[Mutant]]]()
    every = [path for room in ROOMS if only in (None, room) for path in files(room)]
    weights = [(ROOT / path).stat().st_size for path in every]
    while True:
        [path] = source.choices(every, weights)
        if path not in known:
            places: dict[tuple[int, int], list[Mutant]] = {}
            for mutant in mutants(path):
                places.setdefault((mutant.line, mutant.column), []).append(mutant)
            known[path] = list(places.values())
        if known[path]:
            yield source.choice(known[path].pop(source.randrange(len(known[path]))))


@cache
def scopes(path: str, line: int) -> list[range]:
    """The statement of a line and the function around it; neither for what runs at import."""
    inner, around = [], []
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            inner.append(range(node.lineno, (body[0].lineno if body else (node.end_lineno or 0) + 1)))
            if isinstance(node, ast.FunctionDef):
                around.append(range(node.body[0].lineno, (node.end_lineno or 0) + 1))
    within = [[each for each in many if line in each] for many in (inner, around)]
    return [max(each, key=lambda found: found.start) for each in within if each] if within[1] else []
