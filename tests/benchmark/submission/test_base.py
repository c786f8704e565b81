"""Results against their base: rows are appended, never changed, and users do not certify their own rows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from fglbench.benchmark.store import Store

from ...conftest import git
from .conftest import META, edit, edit_curves

ROWS = "tiny/fedavg.csv"


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def curves(results: Path, line: int) -> Path:
    row = [row for row in Store(results).rows("tiny") if row.method == "fedavg"][line - 2]
    return Store(results).history_file("tiny", row.key)


CHANGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a changed score": (
        lambda r: edit(r / ROWS, 3, score="0.99"),
        "results/tiny/fedavg.csv: the row of fedavg on csbm, seed 1 (line 3 of the base) was changed; rows are never",
    ),
    "a removed row": (
        lambda r: (r / ROWS).write_bytes(b"".join(lines(r / ROWS)[:-1])),
        "results/tiny/fedavg.csv: the row of fedavg on csbm, seed 1 (line 5 of the base) was removed; rows are never",
    ),
    "a removed file": (
        lambda r: (r / ROWS).unlink(),
        "results/tiny/fedavg.csv: the row of fedavg on csbm, seed 0 (line 2 of the base) was removed; rows are never",
    ),
    "another order": (
        lambda r: (r / ROWS).write_bytes(b"".join([*lines(r / ROWS)[:1], *reversed(lines(r / ROWS)[1:])])),
        r"results/tiny/fedavg.csv: rows of the base are in another order",
    ),
    "other curves": (
        lambda r: edit_curves(curves(r, 2), lambda c: c["history"]["val"].reverse()),
        " were changed, but it has no new row",
    ),
    "a machine that is gone": (
        lambda r: next((r / "environments").iterdir()).unlink(),
        ".json: removed; take the file of the base",
    ),
    "verdicts of its own": (
        lambda r: (r / "verified.csv").write_text("suite,key\n"),
        "results/verified.csv: new; take the file of the base: only the maintainers change it",
    ),
    "a row of its own": (
        lambda r: (r / ROWS).write_bytes((r / ROWS).read_bytes() + lines(r / ROWS)[1]),
        "results/tiny/fedavg.csv:6: a new row, which only the maintainers add; rows of others are filed in submi",
    ),
}


def test_pages_of_the_base_need_not_be_here(base: Path, results: Path, cli) -> None:
    (base / "site").mkdir()
    (base / "site/index.html").write_text("made by `fglbench report --html`")
    cli("validate results --base base")


@pytest.mark.parametrize("change_name", CHANGED)
def test_a_change_of_the_base_is_refused(change_name: str, base: Path, results: Path, cli) -> None:
    assert cli("validate results --base base") == "results: results folder against base: 8 rows, 0 new: valid\n"
    change, line = CHANGED[change_name]
    change(results)
    assert any(line in text for text in cli("validate results --base base", 1).splitlines())


def test_a_results_folder_with_an_added_submission_is_valid(submission: Path, base: Path, results: Path, cli) -> None:
    assert "results/submissions/fedprox: 4 self-reported rows added" in cli("validate packed --into results")
    output = cli("validate results --base base").splitlines()
    assert output[0] == "results: results folder against base: 8 rows, 0 new: valid"
    assert any(line.startswith("results/submissions/fedprox: submission") and ": valid" in line for line in output)
    before = sorted(path.read_bytes() for path in results.rglob("*") if path.is_file())
    # a second time adds nothing
    assert "results/submissions/fedprox: 0 self-reported rows added" in cli("validate packed --into results")
    assert sorted(path.read_bytes() for path in results.rglob("*") if path.is_file()) == before


def test_an_existing_submission_is_only_appended_to(submission: Path, results: Path, workdir: Path, cli) -> None:
    cli("validate packed --into results")
    shutil.copytree(results, workdir / "base")
    path = results / "submissions" / "fedprox" / "tiny" / "fedprox.csv"
    edit(path, 2, notes="x")
    output = cli("validate results --base base", 1)
    assert "fedprox.csv: the row of fedprox on csbm, seed 0 (line 2 of the base) was changed" in output
    shutil.rmtree(results / "submissions" / "fedprox")
    assert "results/submissions/fedprox: removed" in cli("validate results --base base", 1)


def test_only_new_rows_can_make_a_pull_request_fail(base: Path, results: Path, cli) -> None:
    for folder in (base, results):
        edit(folder / ROWS, 2, git_dirty="True")
    assert "warning: results/tiny/fedavg.csv:2: made from a checkout with" in cli("validate results --base base")
    cli("validate results", 1)


def test_an_old_row_that_is_appended_again_is_a_new_one(base: Path, results: Path, cli) -> None:
    """Otherwise a superseded row could count again unnoticed."""
    for folder in (base, results):
        first = lines(folder / ROWS)[1]
        (folder / ROWS).write_bytes((folder / ROWS).read_bytes() + first)
        edit(folder / ROWS, 6, score="", status="failed", error="superseded")
    (results / ROWS).write_bytes((results / ROWS).read_bytes() + first)
    *_, summary = cli("validate results --base base --maintainer").splitlines()
    assert summary.startswith("results: results folder against base: 10 rows, 1 new (tiny 1): valid")


def commit(workdir: Path, place: str) -> None:
    """A repository with this folder."""
    git(workdir, "init", "-q")
    git(workdir, "add", place)
    git(workdir, "commit", "-qm", "before")


def test_the_base_may_be_a_commit(workdir: Path, results: Path, cli) -> None:
    commit(workdir, "results")
    assert "against HEAD: 8 rows, 0 new: valid" in cli("validate results --base HEAD")
    edit(results / ROWS, 3, score="0.99")
    git(workdir, "commit", "-qam", "after")
    assert "(line 3 of the base) was changed" in cli("validate results --base HEAD~1", 1)
    # the curves differ
    assert "was changed" not in cli("validate results --base HEAD", 1)
    for base in ("nowhere", "--output=x"):
        error = cli(f"validate results --base={base}", 2)
        assert "is no folder, and no commit of a git repository around 'results'" in error
    assert not (workdir / "x").exists()


def test_a_metadata_file_does_not_make_results_a_submission(workdir: Path, results: Path, cli) -> None:
    """Such a file at the root must not switch off the comparison with the base."""
    shutil.copytree(results / "tiny", results / "tuning" / "tiny")
    commit(workdir, "results")
    for folder in (results, results / "tuning"):
        (folder / "submission.yaml").write_text(yaml.safe_dump(META))
    (results / "tiny" / "fedavg.csv").unlink()
    (results / "tuning" / "tiny" / "fedavg.csv").unlink()
    output = cli("validate results --base HEAD", 1)
    for place in ("results/", "results/tuning/"):
        assert f"{place}submission.yaml: unknown file" in output, output
        assert re.search(rf"^{place}tiny/fedavg.csv: the row of .* was removed", output, flags=re.M)


def test_removed_trials_are_an_error_also_against_a_commit(workdir: Path, results: Path, cli) -> None:
    shutil.copytree(results / "tiny", results / "tuning" / "tiny")
    commit(workdir, "results")
    shutil.rmtree(results / "tuning")
    assert "results/tuning: removed" in cli("validate results --base HEAD", 1)


@pytest.mark.parametrize("place", ["results", "above/results"])
def test_a_link_has_no_base(workdir: Path, results: Path, place: str, cli) -> None:
    """Git knows the link only: compared with nothing, all rows would be new."""
    (workdir / "above").mkdir()
    shutil.move(results, workdir / place)
    commit(workdir, place)
    moved = workdir / place.split("/")[0]
    moved.rename(workdir / "other")
    moved.symlink_to("other")
    error = cli(f"validate {place} --base HEAD", 2)
    assert f"{str(moved)!r} is a link; --base 'HEAD' does not have its files" in error


def test_a_folder_that_the_base_lacks_is_all_new(workdir: Path, results: Path, cli) -> None:
    git(workdir, "init", "-q")
    git(workdir, "commit", "-qm", "empty", "--allow-empty")
    assert "against HEAD: 8 rows, 8 new (tiny 8): valid" in cli("validate results --base HEAD --maintainer")
