"""Committed rows handed in once more, as their submitter would, to a results folder that has never seen them.

    python tests/benchmark/submission/honest.py [METHOD ...]

takes the rows of every method with committed rows (or of those named), puts another name on them, and goes the way of
docs/submitting.md with the commands themselves: `submit`, `validate --into` of the archive, and `validate --base` of
the folder that a pull request would bring. What is said beyond what the committed folder is told anyway is an alarm,
and an alarm about honest rows is a false one. Printed: how many alarms of each kind.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import fglbench
from fglbench.benchmark.cli import main
from fglbench.benchmark.store import Store, rowfile
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.submission import cells

RESULTS = Path(fglbench.__file__).parent / "results"
NAME = "An Honest Submitter"
META = {"paper": "unpublished", "code": "https://example.org/code", "licence": "MIT", "hardware": "2 cores"}
OPTIONS = [part for name, value in {**META, "contact": "me@example.org"}.items() for part in (f"--{name}", value)]
APART = ("tuning", ".locks", ".logs", ".studies")  # of a results folder; tables and figures are no rows either
RENDERED = ("tables", "figures")


def kind(line: str) -> str:
    """What a line of `validate` says, without place, names and numbers."""
    wrong = "warning" if line.startswith("warning: ") else "error"
    what = line.removeprefix("warning: ").partition(": ")[2].partition("; ")[0]
    return f"{wrong}: {re.sub(r'[0-9]+([.][0-9]+)?', 'n', what)}"


def said(*command: str) -> tuple[int, list[str]]:
    """(exit code, every line but the verdicts) of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(list(command))
    verdicts = re.compile(r": (submission|results folder)( against .*)?: [0-9]+ rows?|^wrote |: [0-9]+ rows added; ")
    return code, [line for line in out.getvalue().splitlines() if not verdicts.search(line)]


def methods_of(results: Path) -> list[str]:
    return sorted({row.method for row in Store(results).rows()})


def parted(results: Path, method: str, folder: Path) -> tuple[Path, Path]:
    """(results folder without a method's rows and all that belongs to them, one with nothing else) in `folder`."""
    base, mine = folder / "base", folder / "mine"
    rows, own = Store(results).rows(), dict[str, Row]()
    theirs = {row.environment for row in rows if row.method != method}
    for row in rows:
        if row.method == method:
            own[f"{row.suite}/history/{row.key}.json.gz"] = own[f"{row.suite}/embeddings/{row.key}.npz"] = row
            own[f"{row.suite}/{Store(results).file(row.suite, method).name}"] = row
            own[f"{row.suite}/curves/{Store(results).file(row.suite, method).stem}.npz"] = row
            own[f"environments/{row.environment}.json"] = row
            _append(mine, row.model_copy(update={"submitter": NAME}))
    for path in _files(results):
        name = path.relative_to(results).as_posix()
        if name not in own or (name.startswith("environments/") and path.stem in theirs):
            _put(path, base / name)
        if name in own and path.suffix != ".csv":
            _put(path, mine / name)
    return base, mine


def _files(results: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(results):
        folders[:] = [name for name in folders if name not in RENDERED and (place, name) not in _apart(results)]
        yield from (Path(place, name) for name in names if not name.endswith((".md", ".html")))


def _apart(results: Path) -> set[tuple[str, str]]:
    return {(str(results), name) for name in APART}


def _append(folder: Path, row: Row) -> None:
    path = Store(folder).file(row.suite, row.method)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((path.read_bytes() if path.exists() else rowfile.header()) + rowfile.line(row))


def _put(source: Path, target: Path) -> None:
    """As another name of the same file where that can be: side files are replaced and never written into."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if source.suffix == ".csv":
            raise OSError("rows are appended to")
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def alarms(results: Path, method: str, usual: Iterable[str]) -> list[str]:
    """What is said of a method's rows on their way in, beyond the kinds that are `usual`; `exit n` for a failure."""
    with tempfile.TemporaryDirectory(dir=results.parent) as place:
        folder = Path(place)
        base, mine = parted(results, method, folder)
        into = folder / "into"
        shutil.copytree(base, into, copy_function=lambda a, b: _put(Path(a), Path(b)))
        packed = str(folder / "packed.zip")
        steps = [
            ("submit", method, "--results", str(mine), "--out", packed, "--base", str(base), *OPTIONS),
            ("validate", packed, "--base", str(base), "--into", str(into)),
            ("validate", str(into), "--base", str(base)),
        ]
        found = list[str]()
        for step in steps:
            code, lines = said(*step)
            found += [f"{step[0]}: exit {code}"] if code else []
            found += [line for line in lines if kind(line) not in usual]
            if code:
                break
        return [line.replace(place, "") for line in found]


def usual(results: Path) -> set[str]:
    """The kinds of warnings that the folder as it stands is given."""
    return {kind(line) for line in said("validate", str(results))[1]}


@contextlib.contextmanager
def all_commits_known() -> Iterator[None]:
    """As they were when the rows came in: the repository's early history has since been made one commit."""
    before = cells.known_commits
    cells.known_commits = set
    try:
        yield
    finally:
        cells.known_commits = before


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place, all_commits_known():
        copy = Path(place) / "results"
        shutil.copytree(RESULTS, copy, ignore=shutil.ignore_patterns(*APART))
        known, counts = usual(copy), Counter[str]()
        names = sys.argv[1:] or methods_of(copy)
        for number, name in enumerate(names, start=1):
            found = alarms(copy, name, known)
            counts.update(map(kind, found))
            print(f"[{number}/{len(names)}] {name}: {len(found)} alarms", *found, sep="\n    ", flush=True)
        for what, count in sorted(counts.items()):
            print(f"{count:5d} {what}")
        print(f"{len(names)} methods, {sum(counts.values())} alarms")
