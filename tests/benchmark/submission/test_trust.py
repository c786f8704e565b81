"""Submitted rows never rank, with any content; the run of the maintainers does."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.store import Store, row_file, verified
from fglbench.benchmark.store.folder import self_reported
from fglbench.benchmark.store.schema import Row
from fglbench.report import build

FIGURES = ("score", "val", "macro_f1", "score_weighted", "global_on_local", "global_on_global", "personal_on_local")


def better(gain: float) -> Callable[[Path], None]:
    """Raises all figures of all rows, their curves and their per-client figures consistently."""

    def forge(folder: Path) -> None:
        for row in (store := Store(folder)).rows("tiny"):
            stored = store.history("tiny", row.key)
            assert stored is not None
            best = (row.best_round or 1) - 1
            figures = {name: value + gain for name in FIGURES if (value := getattr(row, name)) is not None}
            for name in ("score", "val"):
                stored["history"][name] = [0.0] * (row.rounds or 0)
                stored["history"][name][best] = figures[name]
            for name in stored["per_client"]:
                stored["per_client"][name] = [figures[name]] * row.clients
            replace(folder, row, **figures)
            text = json.dumps(stored, separators=(",", ":")).encode()
            store.history_file("tiny", row.key).write_bytes(gzip.compress(text, mtime=0))

    return forge


def replace(folder: Path, row: Row, **values: Any) -> None:
    path = Store(folder).file(row.suite, row.method)
    path.write_bytes(path.read_bytes().replace(row_file.line(row), row_file.line(row.model_copy(update=values))))


def with_columns(**values: Any) -> Callable[[Path], None]:
    """Changes columns of all rows."""

    def forge(folder: Path) -> None:
        for row in Store(folder).rows("tiny"):
            replace(folder, row, **values)

    return forge


FORGED: dict[str, Callable[[Path], None]] = {
    "as it is": lambda folder: None,
    "+10 points": better(0.1),
    "in the maintainers' name": with_columns(submitter="fglbench"),
    "a reference": with_columns(reference=True),
}


def ranking(results: Path) -> Any:
    """The current rows that the report ranks."""
    return [(board.suite, sorted(board.rows["key"] + board.rows["method"])) for board in build.load_boards(results)]


@pytest.mark.parametrize("forgery", FORGED)
def test_rows_from_outside_never_rank(forgery: str, submission: Path, results: Path, workdir: Path, cli) -> None:
    shutil.copytree(results, workdir / "base")
    before, seen = ranking(results), Store(results).rows()
    FORGED[forgery](submission)
    taken = main(["validate", "packed", "--into", "results"]) == 0  # careful forgeries are valid
    assert ranking(results) == before and Store(results).rows() == seen
    assert len(self_reported(results)) == (2 if taken else 0)
    # copied to its place by hand, as in a pull request
    shutil.copytree(submission, results / "submissions" / "fedprox", dirs_exist_ok=True)
    assert ranking(results) == before and Store(results).rows() == seen
    # copied to the rows that rank
    shutil.copytree(submission / "tiny", results / "tiny", dirs_exist_ok=True)
    assert "tiny/fedprox.csv:2: a new row, which only the maintainers add" in cli("validate results --base base", 1)


def appended(file: str, **values: Any) -> Callable[[Path, Path], None]:
    """Appends the first submitted row to a file of the results."""

    def put(results: Path, packed: Path) -> None:
        row = Store(packed).rows("tiny")[0].model_copy(update=values)
        path = results / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((path.read_bytes() if path.exists() else row_file.header()) + row_file.line(row))

    return put


def copied(place: str) -> Callable[[Path, Path], None]:
    """Copies the submitted rows of the suite to another folder of the results."""
    return lambda results, packed: shutil.copytree(packed / "tiny", results / place, dirs_exist_ok=True) and None


def linked(results: Path, packed: Path) -> None:
    shutil.copytree(packed, results / "submissions" / "fedprox")
    (results / "tiny" / "fedprox.csv").symlink_to("../submissions/fedprox/tiny/fedprox.csv")


def superseded(results: Path, packed: Path) -> None:
    """Appends a row of the base with a better score: the later row counts."""
    row = Store(results).rows("tiny")[0]
    path = Store(results).file("tiny", row.method)
    path.write_bytes(path.read_bytes() + row_file.line(row.model_copy(update={"score": 0.99})))


def in_two_lines(results: Path, packed: Path) -> None:
    """Hides a row within a field of a row of the base."""
    path, row = results / "tiny" / "fedavg.csv", Store(packed).rows("tiny")[0]
    path.write_bytes(path.read_bytes().rstrip(b"\n") + b'"\n' + row_file.line(row).rstrip(b"\n") + b'"\n')


def verdict(results: Path, packed: Path) -> None:
    shutil.copytree(packed, results / "submissions" / "fedprox")
    row = Store(packed).rows("tiny")[0]
    same = row.model_dump(include={"suite", "key", "method", "method_version", "score"})
    fields = {"verdict": "passed", "ours": row.score, "bar": 0.01, "environment": row.environment, "by": "fglbench"}
    stamp = {"date": "2026-01-01T00:00:00Z", "git_sha": "a" * 40}
    verified.add(results, [verified.Verified(**same, **fields, **stamp)])


SMUGGLED: dict[str, Callable[[Path, Path], None]] = {
    "by a link": linked,
    "in a suite of another case": copied("Tiny"),
    "among rows with changed settings": copied("custom"),
    "in the file of another method": appended("tiny/fedavg.csv"),
    "under the name of another method": appended("tiny/fedavg.csv", method="fedavg"),
    "of a suite that does not exist": appended("better/fedprox.csv", suite="better"),
    "beside the submissions": appended("submissions/fedprox.csv"),
    "as trials of a submission": lambda results, packed: (
        shutil.copytree(packed, results / "submissions" / "fedprox"),
        copied("submissions/fedprox/tuning/tiny")(results, packed),
    )[1],
    "at the root": appended("fedprox.csv"),
    "as a later row of the base": superseded,
    "within a field": in_two_lines,
    "with a verdict": verdict,
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("attempt", SMUGGLED)
def test_a_pull_request_brings_no_row_into_a_ranking(
    attempt: str, submission: Path, results: Path, workdir: Path, cli
) -> None:
    shutil.copytree(results, workdir / "base")
    SMUGGLED[attempt](results, submission)
    cli("validate results --base base", 1)


@pytest.mark.parametrize("place", ["submissions/fedavg", "submissions/submissions/x", "tuning", "submissions/x y"])
def test_rows_in_folders_of_submissions_never_rank(place: str, submission: Path, results: Path) -> None:
    before = ranking(results)
    shutil.copytree(submission, results / place, dirs_exist_ok=True)
    assert ranking(results) == before


@pytest.mark.usefixtures("in_process")
def test_the_maintainers_run_ranks_and_the_difference_is_shown(
    submission: Path, results: Path, workdir: Path, capsys: pytest.CaptureFixture[str], cli
) -> None:
    better(0.1)(submission)
    cli("validate packed --into results")
    output = cli("adopt fedprox --dry-run")
    assert "fedprox: 4 runs left of tiny" in output and "about 0.1 core-minutes" in output
    assert not (results / "tiny" / "fedprox.csv").exists()
    assert main(["adopt", "fedprox", "-j", "1"]) in (0, 1)  # 1: a checkout with changes
    output = capsys.readouterr().out
    assert output.count("reported 0.") == 2 and "(+0.1000, 2 seeds)" in output
    ours = [row for row in Store(results).rows("tiny") if row.method == "fedprox"]
    assert {row.submitter for row in ours} == {"fglbench"} and len(ours) == 4
    cli("adopt fedprox -j 1")  # nothing is run twice
    assert len(Store(results).rows("tiny")) == 12
    cli("report --results results --no-figures")
    page = (results / "LEADERBOARD.md").read_text()
    assert "## Self-reported results" in page and "+10.0" in page
    report = build.make(results, None, figures=False)
    build.write_site(report, workdir / "site")
    shown = (
        (workdir / "site" / "index.html")
        .read_text()
        .partition('<section id="self-reported"')[2]
        .partition("</section>")[0]
    )
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in shown.splitlines() if line.startswith("<tr><td")]
    assert [len(line) for line in cells] == [7, 7] and [line[2] for line in cells] == ["fedprox"] * 2
    assert {line[6] for line in cells} == {"+10.0"} and "They have no rank" in shown


def test_without_submissions_there_is_no_list(results: Path, workdir: Path, cli) -> None:
    cli("report --results results --no-figures")
    assert "Self-reported" not in (results / "LEADERBOARD.md").read_text()
    build.write_site(build.make(results, None, figures=False), workdir / "site")
    assert "self-reported" not in (workdir / "site" / "index.html").read_text()
    assert "unknown submission of method 'fedprox'" in cli("adopt fedprox", 2)


@pytest.mark.parametrize(
    "name", ["tiny/notes.txt", "code.py", "tuning/tiny/x.json", "tuning/tuning/tiny/fedavg.csv", "submissions/x.csv"]
)
def test_other_files_in_results_are_refused(name: str, results: Path, workdir: Path, cli) -> None:
    path = results / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    assert f"results/{name}: unknown file" in cli("validate results", 1)
