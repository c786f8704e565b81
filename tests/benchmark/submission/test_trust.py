"""Rows from outside never rank, with any content; the maintainers' own run does."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.store import Store, row_file
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.store.self_reported import self_reported
from fglbench.report import build

FIGURES = ("score", "val", "macro_f1", "score_weighted", "global_on_local", "global_on_global", "personal_on_local")


def better(gain: float) -> Callable[[Path], None]:
    """All figures of all rows, their curves and their clients' figures raised together, so that all of them agree."""

    def forge(folder: Path) -> None:
        for row in (store := Store(folder)).rows("tiny"):
            stored = store.history("tiny", row.key)
            assert stored is not None
            best = (row.best_round or 1) - 1
            own = {name: value + gain for name in FIGURES if (value := getattr(row, name)) is not None}
            for name in ("score", "val"):
                stored["history"][name] = [0.0] * (row.rounds or 0)
                stored["history"][name][best] = own[name]
            for name in stored["per_client"]:
                stored["per_client"][name] = [own[name]] * row.clients
            replace(folder, row, **own)
            text = json.dumps(stored, separators=(",", ":")).encode()
            store.history_file("tiny", row.key).write_bytes(gzip.compress(text, mtime=0))

    return forge


def replace(folder: Path, row: Row, **values: Any) -> None:
    path = Store(folder).file(row.suite, row.method)
    path.write_bytes(path.read_bytes().replace(row_file.line(row), row_file.line(row.model_copy(update=values))))


def says(**values: Any) -> Callable[[Path], None]:
    """Columns of all rows changed."""

    def forge(folder: Path) -> None:
        for row in Store(folder).rows("tiny"):
            replace(folder, row, **values)

    return forge


FORGED: dict[str, Callable[[Path], None]] = {
    "as it is": lambda folder: None,
    "+0.4 points": better(0.004),
    "+1 point": better(0.01),
    "+10 points": better(0.1),
    "times of nothing": says(train_seconds=1e-3, total_seconds=1e-3, cpu_seconds=1e-3),
    "steps of the budget": says(optimiser_steps=8, model_steps=8, budget_steps=8),
    "on a GPU": says(device="cuda"),
    "little memory": says(peak_memory_mb=60.0),
    "another version": says(method_version="f" * 12),
    "in the maintainers' name": says(submitter="fglbench"),
    "nearly in the maintainers' name": says(submitter="fglbench maintainers"),
    "with a mark": says(submitter="\u2713 verified by fglbench"),
    "by a look-alike": says(submitter="fglbenc\u1e25"),
    "by nobody": says(submitter=""),
    "bytes of nothing": says(upload_bytes=0, download_bytes=0, upload_bytes_best=0, download_bytes_best=0),
    "another score": says(score_metric="roc auc/global model/local test/mean over clients"),
    "a reference": says(reference=True),
    "markup": says(notes="<script>alert(1)</script>"),
}


def ranking(results: Path) -> Any:
    """The current rows that the report ranks."""
    return [(board.suite, sorted(board.rows["key"] + board.rows["method"])) for board in build.load_boards(results)]


@pytest.mark.parametrize("what", FORGED)
def test_rows_from_outside_never_rank(
    what: str, submission: Path, results: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(results, here / "base")
    before, seen = ranking(results), Store(results).rows()
    FORGED[what](submission)
    taken = main(["validate", "packed", "--into", "results"]) == 0  # careful forgeries are valid: nothing follows
    assert ranking(results) == before and Store(results).rows() == seen
    assert len(self_reported(results)) == (2 if taken else 0)
    # put into its place by hand, as in a pull request
    shutil.copytree(submission, results / "submissions" / "fedprox", dirs_exist_ok=True)
    assert ranking(results) == before and Store(results).rows() == seen
    # put among the rows that rank
    shutil.copytree(submission / "tiny", results / "tiny", dirs_exist_ok=True)
    capsys.readouterr()
    assert main(["validate", "results", "--base", "base"]) == 1
    assert "tiny/fedprox.csv:2: a new row, which only the maintainers add" in capsys.readouterr().out


@pytest.mark.usefixtures("in_process")
def test_the_maintainers_run_ranks_and_the_difference_is_shown(
    submission: Path, results: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    better(0.1)(submission)
    assert main(["validate", "packed", "--into", "results"]) == 0
    capsys.readouterr()
    assert main(["adopt", "fedprox", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "fedprox: 4 cells to run of tiny" in said and "core-hours" in said
    assert not (results / "tiny" / "fedprox.csv").exists()
    assert main(["adopt", "fedprox", "-j", "1"]) in (0, 1)  # 1: a checkout with changes is no matter here
    said = capsys.readouterr().out
    assert said.count("reported 0.") == 2 and "(+0.1000, 2 seeds)" in said
    ours = [row for row in Store(results).rows("tiny") if row.method == "fedprox"]
    assert {row.submitter for row in ours} == {"fglbench"} and len(ours) == 4
    assert main(["adopt", "fedprox", "-j", "1"]) == 0  # nothing is run twice
    assert len(Store(results).rows("tiny")) == 12
    assert main(["report", "--results", "results", "--no-figures"]) == 0
    page = (results / "LEADERBOARD.md").read_text()
    assert "## Self-reported results" in page and "+10.0" in page
    made = build.make(results, None, figures=False)
    build.write_page(made, here / "page.html", {})
    shown = (here / "page.html").read_text().partition('<section id="self-reported"')[2].partition("</section>")[0]
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", line) for line in shown.splitlines() if line.startswith("<tr><td")]
    assert [len(line) for line in cells] == [7, 7] and [line[2] for line in cells] == ["fedprox"] * 2
    assert {line[6] for line in cells} == {"+10.0"} and "They have no rank" in shown


def test_without_submissions_there_is_no_list(results: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--results", "results", "--no-figures"]) == 0
    assert "Self-reported" not in (results / "LEADERBOARD.md").read_text()
    build.write_page(build.make(results, None, figures=False), here / "page.html", {})
    assert "self-reported" not in (here / "page.html").read_text()
    assert main(["adopt", "fedprox"]) == 2
    assert "unknown submission of method 'fedprox'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["tiny/notes.txt", "code.py", "tuning/tiny/x.json", "tuning/tuning/tiny/fedavg.csv"])
def test_other_files_in_results_are_refused(
    name: str, results: Path, here: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    path = results / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    assert main(["validate", "results"]) == 1
    assert f"results/{name}: unknown file" in capsys.readouterr().out
