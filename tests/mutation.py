"""How much the tests notice: random changes of the code, one at a time, and the tests that should see each of them.

    pip install -e '.[dev,mutation]' && python tests/mutation.py 200 --seed 1 [--only methods] [--again]

Draws mutants of the rooms below by cosmic-ray's operators and applies each to a copy of the tree. A process that has
imported torch, DGL and the other libraries, but nothing of fglbench, forks for each; the fork runs the tests that reach
the changed statement, those that mirror the file and the quickest first, until one fails. Which tests reach what is
traced once (coverage.py) and kept in runs/mutation, as are the verdicts; an interrupted run continues; `--again`
judges those that went unnoticed once more. docs/testing.md says what to do with them. Not part of CI: it takes an hour.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import importlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import coverage
import pytest
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from mutants import ROOMS, ROOT, Mutant, draw, files, scopes

PINNED = ("tests/test_defaults.py", "tests/test_records.py")  # what a class says of itself, which no line reads
TESTS = (  # what may notice
    *PINNED, "tests/methods", "tests/benchmark/engine", "tests/datasets", "tests/report/test_statistics.py",
    "tests/tune/test_study.py", "tests/tune/test_tuned_suites.py", "tests/test_documents.py",
    "tests/report/test_robustness.py", "tests/benchmark/submission/test_provenance.py",
    *(f"tests/benchmark/test_{name}.py" for name in (
        "plan", "identity", "versions", "schema", "store", "suite", "headers", "tuned", "plugins", "agree", "api",
        "backends", "cheats", "code_version", "embeddings", "expense", "gpus", "offspring",
        "packed_curves", "reproduce", "runner", "signals", "cli",
    )),
)  # fmt: skip
UNTRACED = {  # tests whose workers run the code in processes of their own, where nothing is traced
    "benchmark/runner": ("test_runner.py", "test_backends.py", "test_offspring.py", "test_cli.py"),
    "benchmark/store": ("test_store.py", "test_cli.py"),
    "benchmark/suites": ("test_plugins.py", "test_cli.py"),
}
LIBRARIES = (
    "torch", "dgl", "pandas", "scipy.stats", "sklearn", "networkx", "matplotlib.pyplot", "seaborn", "typer",
    "hypothesis", "optuna", "opacus", "pydantic.json_schema", "pooch", "jinja2", "markdown_it", "yaml", "tabulate",
    "filelock",
)  # fmt: skip
LIMIT = 120.0  # seconds that the tests of a mutant may have taken when they were traced; the slower ones are left out
FIRST = 16  # tests that are tried before the files of all others are read
MEMORY = 16 * 2**30  # bytes that a fork may ask for
PATIENCE = 300.0  # seconds, and ten times what it took: after that a test hangs, which is noticed


class Traced(NamedTuple):
    """What one file of tests reaches: seconds a test, and file -> line -> tests."""

    seconds: dict[str, float]
    lines: dict[str, dict[str, list[str]]]


def tests() -> list[str]:
    found = [each for name in TESTS for each in files(name)]
    return [each for each in dict.fromkeys(found) if Path(each).name.startswith("test_")]


# -- processes


def prepare(folder: Path) -> Path:
    """A copy of the tree that is imported as fglbench from now on, here and in what the tests start."""
    copy, path = folder / "copy", folder / "path"
    out = shutil.ignore_patterns(".git", ".venv", "runs", "cache", ".*_cache", "__pycache__")
    shutil.copytree(ROOT, copy, ignore=out)
    path.mkdir()
    (path / "fglbench").symlink_to(copy)
    os.chdir(copy)
    sys.path[0] = str(path)  # instead of this folder, whose rooms have the names of libraries
    os.environ |= {"PYTHONPATH": str(path)} | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    importlib.import_module("fglbench")  # itself imports next to nothing, and has to come before DGL
    for name in LIBRARIES:
        importlib.import_module(name)
    own = {name for name in sys.modules if name.startswith("fglbench.")}
    assert own == {"fglbench.foundations"}, own  # the rest is what a fork imports, changed
    sys.dont_write_bytecode = False
    fork(lambda: run(["--collect-only", *tests()]), folder / "log.txt")  # leaves everything compiled
    return copy


def fork(task: Callable[[], int], log: Path) -> int:
    """Run a task in a fork, its output in a file; its exit code, negative if a signal ended it."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
            with log.open("w") as stream:
                for number in (1, 2):
                    os.dup2(stream.fileno(), number)
            code = task()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what a test started and left behind
    return code


def run(arguments: list[str], plugin: object = None) -> int:
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *arguments], [plugin] if plugin else []))


# -- tracing


class Tracer:
    """Notes what each test reaches, and how long it takes."""

    def __init__(self, copy: Path) -> None:
        self.copy, self.seconds, self.bad = copy, dict[str, float](), set[str]()
        self.coverage = coverage.Coverage(data_file=None, config_file=False, source=[str(copy)], omit=["*/tests/*"])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        began = time.perf_counter()
        result = yield
        self.seconds[item.nodeid] = time.perf_counter() - began
        self.coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:  # it shows nothing of a mutant
            self.bad.add(report.nodeid)

    def __call__(self, path: str, target: Path) -> int:
        self.coverage.start()
        run(["--maxfail=1000", path], self)
        self.coverage.stop()
        good = {name: seconds for name, seconds in self.seconds.items() if name not in self.bad}
        data, lines = self.coverage.get_data(), {}
        for each in data.measured_files():
            if (name := Path(each).relative_to(self.copy).as_posix()).startswith(ROOMS):
                found = data.contexts_by_lineno(each).items()
                lines[name] = {line: by for line, tests in found if (by := [test for test in tests if test in good])}
        target.write_text(json.dumps([good, lines]), encoding="utf-8")
        return 0


def trace(copy: Path, kept: Path) -> dict[str, Traced]:
    """What the files of tests reach, traced for those that are new or changed, or if the code is."""
    digest = hashlib.sha256()
    for each in sorted([*files("tests"), *(path for room in ROOMS for path in files(room))]):
        if not Path(each).name.startswith(("test_", "mutation.py", "mutants.py")):
            digest.update((copy / each).read_bytes())
    found = {}
    for path in tests():
        own = digest.copy()
        own.update((copy / path).read_bytes())
        target = kept / f"{path.replace('/', '-')}-{own.hexdigest()[:12]}.json"
        if not target.exists():
            began = time.perf_counter()
            code = fork(lambda path=path, target=target: Tracer(copy)(path, target), kept / "log.txt")
            print(f"traced {path} ({time.perf_counter() - began:.0f} s, exit code {code})", flush=True)
        found[path] = Traced(*json.loads(target.read_text(encoding="utf-8")))
    return found


# -- judging


def reaching(mutant: Mutant, traced: dict[str, Traced]) -> dict[str, float]:
    """The tests of a mutant in their order, with the seconds they took: those that reach it, then its file's own."""
    found = set[str]()
    around = scopes(mutant.path, mutant.line)
    for scope in [*around, range(10**6)]:
        hits = [one.lines.get(mutant.path, {}).items() for one in traced.values()]
        found = found or {name for many in hits for line, names in many if int(line) in scope for name in names}
    first = (f"/test_{Path(mutant.path).stem}.py::", *(() if around else PINNED))
    more = [f"/{name}::" for room, names in UNTRACED.items() if mutant.path.startswith(room) for name in names]
    seconds = {name: each for one in traced.values() for name, each in one.seconds.items()}
    found |= {name for name in seconds if not around and name.startswith(PINNED)}
    wanted = [name for name in seconds if name in found or any(each in name for each in (*first, *more))]
    order = {name: (name not in found, not any(each in name for each in first), seconds[name]) for name in wanted}
    total, chosen = 0.0, {}
    for name in sorted(wanted, key=order.__getitem__):
        total += seconds[name]
        if total <= LIMIT or not chosen:
            chosen[name] = seconds[name]
    return chosen


class Judge:
    """Runs the given tests in the given order; `said` has the one that runs."""

    def __init__(self, chosen: dict[str, float], said: Path) -> None:
        self.chosen, self.said = {name: (place, chosen[name]) for place, name in enumerate(chosen)}, said

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        wanted = [each for each in items if each.nodeid in self.chosen]
        items[:] = sorted(wanted, key=lambda each: self.chosen[each.nodeid])

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.said.write_text(item.nodeid, encoding="utf-8")
        signal.setitimer(signal.ITIMER_REAL, PATIENCE + 10 * self.chosen[item.nodeid][1])  # its signal ends the fork

    def __call__(self) -> int:
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        self.said.write_text("import", encoding="utf-8")
        return run(list(dict.fromkeys(name.partition("::")[0] for name in self.chosen)), self)


def judge(copy: Path, kept: Path, mutant: Mutant, traced: dict[str, Traced]) -> dict[str, Any] | None:
    """Who noticed, or "", with the change; nothing where the operator changes nothing."""
    target, said = copy / mutant.path, kept / "said.txt"
    text = target.read_text(encoding="utf-8")
    changed = mutate_code(text, get_operator(mutant.operator)(), mutant.occurrence)
    if changed is None or changed == text:
        return None
    chosen, began, code = reaching(mutant, traced), time.perf_counter(), 0
    for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
        compiled.unlink()
    target.write_text(changed, encoding="utf-8")
    for part in (dict([*chosen.items()][:FIRST]), dict([*chosen.items()][FIRST:])):
        if part and code in (0, 5):
            code = fork(Judge(part, said), kept / "log.txt")
    target.write_text(text, encoding="utf-8")
    by = "" if code in (0, 5) else said.read_text(encoding="utf-8") + (" (no end)" if code == -signal.SIGALRM else "")
    diff = [*difflib.unified_diff(text.splitlines(), changed.splitlines(), n=0, lineterm="")][2:]
    return {"by": by, "tests": len(chosen), "seconds": round(time.perf_counter() - began, 1), "diff": diff}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("number", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=ROOMS)
    parser.add_argument("--again", action="store_true", help="judge once more what went unnoticed")
    given = parser.parse_args()
    kept = ROOT / "runs" / "mutation"
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, (kept / "verdicts.jsonl").open("a+", encoding="utf-8") as verdicts:
        verdicts.seek(0)
        known = {each["mutant"]: each for each in map(json.loads, verdicts)}
        copy, noticed, total = prepare(Path(folder)), 0, 0
        traced = trace(copy, kept)
        for mutant in draw(given.seed, given.only):
            name = f"{mutant} of {hashlib.sha256((ROOT / mutant.path).read_bytes()).hexdigest()[:8]}"
            found = known.get(name)
            if found is None or (given.again and not found["by"]):
                if (found := judge(copy, kept, mutant, traced)) is None:
                    continue
                verdicts.write(json.dumps({"mutant": name} | found) + "\n")
                verdicts.flush()
            noticed, total = noticed + bool(found["by"]), total + 1
            print(f"[{total}/{given.number}] {mutant}: {found['by'] or 'NOT NOTICED'}", flush=True)
            if not found["by"]:
                print("\n".join(found["diff"]), flush=True)
            if total >= given.number:
                break
    print(f"{noticed} of {total} noticed ({noticed / max(total, 1):.0%})")


if __name__ == "__main__":
    main()
