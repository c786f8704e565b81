"""How much the tests notice: random changes of the code, one at a time, and the tests that should see each of them.

    pip install -e '.[dev,mutation]' && python tests/mutation.py 200 --seed 1 [--only methods]

Draws mutants of the rooms below by cosmic-ray's operators, applies each to a copy of the tree, and runs the tests that
mirror the file, the quickest first, until one fails. Prints a line a mutant and at the end the share that was noticed;
those that were not come with their diff. docs/testing.md says what to do with them. Not part of CI: it takes hours.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {  # what is mutated, and the tests that should notice; those called after the file come first
    "benchmark/engine": ["tests/benchmark/engine", "tests/methods/test_contract.py"],
    "benchmark/runner": [f"tests/benchmark/test_{name}.py" for name in ("plan", "runner", "cli")],
    "benchmark/store": [
        f"tests/benchmark/test_{name}.py" for name in ("store", "schema", "versions", "identity", "cli")
    ],
    "benchmark/suites": [f"tests/benchmark/test_{name}.py" for name in ("suite", "identity", "plugins", "cli")],
    "datasets": ["tests/datasets"],
    "methods": ["tests/methods"],
    "report/statistics.py": ["tests/report/test_statistics.py", "tests/report"],
}
ALWAYS = ["tests/test_defaults.py"]
SKIPPED = ("RemoveDecorator", "ExceptionReplacer", "VariableReplacer", "VariableInserter")  # mostly do not even import
LIMIT = 900.0  # seconds for the tests of a mutant; one that hangs is noticed


class Mutant(NamedTuple):
    path: str
    operator: str
    occurrence: int
    line: int
    column: int


def files(room: str) -> list[str]:
    path = ROOT / room
    found = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return [each.relative_to(ROOT).as_posix() for each in found]


def mutants(path: str) -> Iterator[Mutant]:
    """All that the operators make of a file, but for its annotations, which do nothing when the code runs."""
    text = (ROOT / path).read_text(encoding="utf-8")
    idle, tree = annotations(text), get_ast(text)
    for name in operator_names():
        if not name.endswith(SKIPPED) and not (operator := get_operator(name)).arguments():
            places = [place for node in ast_nodes(tree) for place in operator().mutation_positions(node)]
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


def draw(number: int, seed: int, only: str | None) -> list[Mutant]:
    """So many mutants, no two of one place: a file by its length, a place in it, then one of that place's operators."""
    source = random.Random(seed)
    every = [path for room in ROOMS if only in (None, room) for path in files(room)]
    weights, known, found = [(ROOT / path).stat().st_size for path in every], dict[str, list[list[Mutant]]](), []
    for path in source.choices(every, weights, k=number):
        if path not in known:
            places: dict[tuple[int, int], list[Mutant]] = {}
            for mutant in mutants(path):
                places.setdefault((mutant.line, mutant.column), []).append(mutant)
            known[path] = list(places.values())
        if known[path]:
            found.append(source.choice(known[path].pop(source.randrange(len(known[path])))))
    return found


def tests_of(path: str) -> list[str]:
    """Tests in the order in which they are tried."""
    room = next(room for room in ROOMS if path.startswith(room))
    stem = Path(path).stem
    own = sorted(each.relative_to(ROOT).as_posix() for each in (ROOT / "tests").rglob(f"test_{stem}.py"))
    return list(dict.fromkeys([*ALWAYS, *own, *ROOMS[room]]))


def noticed(copy: Path, tests: list[str]) -> str:
    """The first of the tests that fails, or nothing."""
    own = {"PYTHONPATH": str(copy.parent / "path"), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    for each in tests:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", each]
        try:
            done = subprocess.run(
                command, cwd=copy, env=os.environ | own, capture_output=True, timeout=LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            return f"{each} (no end)"
        if done.returncode not in (0, 5):  # 5: there was no test
            return each
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("number", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=ROOMS)
    given = parser.parse_args()
    judged, drawn = Counter[bool](), draw(given.number, given.seed, given.only)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "runs", "cache", ".*_cache"))
        (Path(folder) / "path").mkdir()
        (Path(folder) / "path" / "fglbench").symlink_to(copy)
        for number, mutant in enumerate(drawn, 1):
            target, operator = copy / mutant.path, get_operator(mutant.operator)()
            text = target.read_text(encoding="utf-8")
            changed = mutate_code(text, operator, mutant.occurrence)
            if changed is None or changed == text:
                continue
            target.write_text(changed, encoding="utf-8")
            by = noticed(copy, tests_of(mutant.path))
            target.write_text(text, encoding="utf-8")
            judged[bool(by)] += 1
            name = mutant.operator.rpartition("/")[2]
            print(f"[{number}/{len(drawn)}] {mutant.path}:{mutant.line} {name}: {by or 'NOT NOTICED'}", flush=True)
            if not by:
                diff = difflib.unified_diff(text.splitlines(), changed.splitlines(), n=0, lineterm="")
                print("\n".join([*diff][2:]), flush=True)
    print(f"{judged[True]} of {judged.total()} noticed ({judged[True] / max(judged.total(), 1):.0%})")


if __name__ == "__main__":
    main()
