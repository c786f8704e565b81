"""Invalid command lines and files: the answer is short, and no stored file is changed."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings, strategies as st

from fglbench.benchmark.cli import main

from .conftest import META

LONG = "x" * 5000
WORDS = [
    "", " ", "-", "--", "-1", "0", "1", "9" * 30, "9" * 5000, "1e308", "nan", "inf", "-inf", "0x1f", "1_0", "²",
    "1,2,,3", ",", "+", "a+b", "gcn+", "tiny", "fedavg", "fedprox", "csbm", "uniform", "ratio", "gcn", "quick",
    "custom", "failed", "all", "training.lr=1", "training.rounds=0", "lr=", "=", "==", "x=y", ".=1",
    "hidden=[1", "hidden={a: 1, a: 2}", "mu=!!python/none x", "*a", "&a [*a]", "[" * 3000, "{a: " * 500, "null",
    "~", "~nobody", "a/b", ".", "folder", "file", "file/below", "missing.yaml", "folder.yaml", "results",
    "results/tiny", "results/tiny/fedavg.csv", LONG, "a\nb", "\x1b[31m", "\u202e", "é", "\ud800", "\0", "%s{0}",
    "$(ls)", "*", "?", "a[b]", "'", '"', "🙂", "tiny.csv", "3-5", "5-3", "0-9", "1:2", "con", "history",
    "environments", "-s", "--help",
]  # fmt: skip
NAMES = st.one_of(
    st.sampled_from(WORDS), st.text(max_size=20).map(lambda text: text.replace("/", "").replace("..", ""))
)
RUN = "-s -m -d -p -k --split -b --seeds --set -j --threads --timeout --memory-limit".split()  # noqa: SIM905
COMMANDS: list[tuple[list[str], int, list[str]]] = [  # first words, number of arguments, options
    (["run", "--dry-run"], 0, [*RUN, "--data", "--rerun", "--results", "--submitter"]),
    (["run", "-s", "tiny", "--dry-run"], 0, [*RUN[1:], "--rerun", "--results"]),
    (["reproduce", "--dry-run"], 1, ["--only", "-k", "--split", "--seeds", "--results"]),
    (["status", "-s", "tiny", "--json"], 0, ["--results"]),
    (["status"], 0, ["-s", "--results"]),
    (["list"], 1, []),
    (["show"], 1, []),
    (["doctor"], 0, ["--results"]),
    (["report", "--check", "--no-figures"], 0, ["--results", "--readme"]),
    (["compare"], 2, ["--results", "-s"]),
    (["submit"], 1, ["--out", "-s", "--results", "--meta", "--paper", "--code", "--licence", "--contact", "--base"]),
    (["validate"], 1, ["--base", "--into"]),
    (["check"], 1, ["--set"]),
    *((["new", kind], 1, ["--into"]) for kind in ("method", "partition", "split", "backbone")),
    (["data", "fetch"], 1, []),
    (["data", "info"], 1, []),
    ([], 2, []),
]
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(-10, 10), st.sampled_from([10**17, 0.5, 1e308]), NAMES)
TREES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=5
)
QUICK = settings(
    derandomize=True, deadline=None, database=None, max_examples=8,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    begin, count, options = draw(st.sampled_from(COMMANDS))
    given_ = [draw(NAMES) for _ in range(count)]
    if begin in (["check"], ["data", "fetch"], ["data", "info"]):  # no real names: the command would run
        given_ = [f"no {word}" for word in given_]
    for option in draw(st.lists(st.sampled_from(options), max_size=3)) if options else []:
        given_ += [option, draw(NAMES)]
    return [*begin, *given_]


@pytest.fixture
def place(ran: SimpleNamespace) -> Iterator[Path]:
    """A folder to work in, with results, a file and a folder."""
    before, folder = Path.cwd(), Path(tempfile.mkdtemp())
    shutil.copytree(ran.results, folder / "results")
    (folder / "file").write_text("text")
    (folder / "folder").mkdir()
    (folder / "folder.yaml").mkdir()
    os.chdir(folder)
    yield folder
    os.chdir(before)
    shutil.rmtree(folder)


def stored(folder: Path) -> dict[str, bytes]:
    """The files that runs have stored, without those of a report."""
    kept = [path for path in folder.rglob("*") if path.is_file() and ".locks" not in path.parts]
    return {str(path): path.read_bytes() for path in kept if path.suffix in (".csv", ".gz", ".json")}


def output_of(arguments: list[str]) -> tuple[int, str]:
    """The exit code and the output; an exception fails the test."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = main(arguments)
    assert code in (0, 1, 2), (arguments, code)
    assert "Traceback" not in output.getvalue()
    if code == 2:
        complaints = [line for line in output.getvalue().splitlines() if not line.startswith("fglbench: warning")]
        assert len(complaints) >= 1 and len(complaints[-1]) < 3100, arguments
    return code, output.getvalue()


@QUICK
@given(arguments=command_lines())
def test_any_command_line(place: Path, arguments: list[str]) -> None:
    before = stored(place / "results")
    output_of(arguments)
    assert stored(place / "results") == before


def replaced(tree: Any, path: list[int], value: Any) -> Any:
    """The tree with another value at a place that the numbers choose level by level."""
    if not path or not isinstance(tree, dict | list) or not tree:
        return value
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    key, copy = keys[path[0] % len(keys)], tree.copy()
    copy[key] = replaced(tree[key], path[1:], value)
    return copy


PLACES = st.lists(st.integers(0, 9), max_size=5)


@QUICK
@given(where=PLACES, value=TREES, raw=st.none() | NAMES)
def test_any_suite_file(place: Path, suites: Path, where: list[int], value: Any, raw: str | None) -> None:
    tree = replaced(yaml.safe_load((suites / "tiny.yaml").read_text()), where, value)
    text = yaml.safe_dump(tree) if raw is None else (suites / "tiny.yaml").read_text() + raw
    (place / "mine.yaml").write_text(text, errors="surrogatepass")
    output_of(["run", "-s", "mine.yaml", "--dry-run", "--seeds", "1"])
    output_of(["status", "-s", "mine.yaml"])


@QUICK
@given(data=st.data(), where=PLACES, value=TREES, raw=st.binary(max_size=40))
def test_any_file_of_a_results_folder(
    place: Path, data: st.DataObject, where: list[int], value: Any, raw: bytes
) -> None:
    """Rows, curves, an environment or metadata, with a value replaced and bytes added at the end."""
    about = place / "folder" / "submission.yaml"
    about.write_text(yaml.safe_dump({**META, "method": "fedavg"}))
    kinds = ("results/tiny/fedavg.csv", "results/tiny/history/*", "results/environments/*", "folder/submission.yaml")
    path = min(place.glob(data.draw(st.sampled_from(kinds))))
    content = path.read_bytes()
    if path.suffix == ".csv":
        text = io.StringIO()
        rows = replaced(list(csv.reader(io.StringIO(content.decode()))), where, str(value))
        csv.writer(text, lineterminator="\n").writerows(rows)
        changed = text.getvalue().encode(errors="surrogatepass") + raw
    elif path.suffix == ".gz":
        tree = replaced(json.loads(gzip.decompress(content)), where, value)
        changed = gzip.compress(json.dumps(tree).encode()) + raw
    else:
        changed = json.dumps(replaced(yaml.safe_load(content), where, value)).encode() + raw
    try:
        path.write_bytes(changed)
        before = stored(place / "results")
        for folder in ("results", "folder"):
            output_of(["validate", folder])
        for command in ("status -s tiny", "compare fedavg local", "report --check --no-figures"):
            output_of(command.split())
        shutil.rmtree(place / "fedavg-submission", ignore_errors=True)
        output_of(["submit", "fedavg", "--meta", str(about)])
        assert stored(place / "results") == before
    finally:
        path.write_bytes(content)
