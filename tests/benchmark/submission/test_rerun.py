"""Running rows again: what passes on the same machine and elsewhere, and what is written down of it."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.store import Store, verified
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.submission import rerun as verify
from fglbench.registry import UserError


@pytest.fixture
def rows(results: Path) -> list[Row]:
    """Two seeds of fedavg and of local on two datasets, with scores 0.5 and 0.54 in turn."""
    found = sorted(Store(results).rows("tiny"), key=lambda row: (row.method, row.dataset_params, row.seed))
    return [row.model_copy(update={"score": 0.5 + 0.04 * row.seed, "macro_f1": 0.5}) for row in found]


def changed(row: Row, **values: object) -> Row:
    return row.model_copy(update=values)


def test_a_sample_does_not_depend_on_the_order_and_holds_no_row_twice(rows: list[Row]) -> None:
    drawn = verify.sample(rows, 5, seed=3)
    assert verify.sample(rows[::-1], 5, seed=3) == drawn
    assert len({row.key for row in drawn}) == 5
    assert verify.sample(rows, 5, seed=4) != drawn
    assert len(verify.sample(rows, 99, seed=0)) == len(rows)
    with pytest.raises(UserError, match="no row has a score"):
        verify.sample([changed(row, status="failed", score=None, error="x") for row in rows], 1, seed=0)


def test_the_deviation_is_over_seeds_of_one_cell(rows: list[Row]) -> None:
    found = verify.deviations(rows)
    assert len(found) == 4
    for figures in found.values():
        assert figures["score"] == pytest.approx(0.02 * math.sqrt(2))  # of 0.50 and 0.54
        assert figures["macro_f1"] == 0
    assert verify.deviations(rows[:1]) == {verify.place(rows[0]): {}}


def test_the_same_machine_gives_the_same_numbers_or_fails(rows: list[Row]) -> None:
    row = rows[0]
    assert verify.compare(row, row, {"score": 0.02}, exact=True).passed
    rounding = changed(row, score=row.score + 5e-7)
    assert verify.compare(row, rounding, {}, exact=True).passed
    for values, said in (
        ({"score": row.score + 2e-6}, "score differs by more than 1e-06"),
        ({"macro_f1": 0.4}, "macro_f1 differs"),
        ({"best_round": 99}, "another best round"),
        ({"upload_bytes": 1}, "another upload bytes"),
        ({"partition_hash": "0"}, "another partition hash"),
        ({"method_version": "0"}, "another method version"),
    ):
        (problem,) = verify.compare(row, changed(row, **values), {"score": 0.02}, exact=True).problems
        assert problem.startswith(said)


def test_elsewhere_a_difference_may_be_three_deviations(rows: list[Row]) -> None:
    row = rows[0]
    near, far = changed(row, score=row.score + 0.059, best_round=1), changed(row, score=row.score + 0.061)
    assert verify.compare(row, near, {"score": 0.02}, exact=False).passed
    assert verify.compare(row, far, {"score": 0.02}, exact=False).problems == ("score differs by more than 0.06",)
    assert verify.compare(row, changed(row, score=row.score + 0.009), {}, exact=False).passed
    assert not verify.compare(row, changed(row, score=row.score + 0.011), {}, exact=False).passed
    assert verify.compare(row, changed(row, macro_f1=0.529), {}, exact=False).passed
    assert not verify.compare(row, changed(row, macro_f1=0.531), {}, exact=False).passed
    less = changed(row, upload_bytes=int(row.upload_bytes * 0.9))
    assert verify.compare(row, less, {}, exact=False).problems == ("upload bytes a round differ",)


def test_a_run_that_fails_or_cannot_be_made_does_not_pass(rows: list[Row]) -> None:
    failed = changed(rows[0], status="failed", score=None, error="diverged")
    assert verify.compare(rows[0], failed, {}, exact=False).problems == ("failed: diverged",)
    lost = verify.compare(rows[0], None, {}, exact=False)
    assert not lost.passed
    assert verify.verdict(lost, whole=True, date="d", git_sha="s", environment="e", by="b") is None


def test_a_small_gain_on_every_row_is_found_by_their_mean(rows: list[Row]) -> None:
    spread = verify.deviations(rows)
    gain = [
        verify.compare(row, changed(row, score=row.score - 0.04), spread[verify.place(row)], exact=False)
        for row in rows
    ]
    assert all(each.passed for each in gain)  # each by itself: 0.04 is less than 3 x 0.028
    mean, bar = verify.together(gain, spread)
    assert mean == pytest.approx(-0.04)
    assert bar == pytest.approx(3 * 0.02 * math.sqrt(2) / math.sqrt(8))  # equal deviations: 3 s / sqrt(n)
    assert abs(mean) > bar
    verdict = verify.verdict(gain[0], whole=False, date="d", git_sha="s", environment="e", by="b")
    assert verdict.verdict == "failed"
    honest = [verify.compare(row, row, {}, exact=True) for row in rows]
    assert verify.together(honest, spread) is None  # the same machine: each row answers for itself


def test_machines_are_of_one_type_by_what_computes() -> None:
    about = {
        "machine": "x86_64",
        "cpu": "A",
        "system": "Linux 6.1",
        "threads": 1,
        "cores": 2,
        "packages": {"torch": "2"},
    }
    assert verify.same_machine(about, {**about, "system": "Linux 6.2", "cores": 64})
    for other in ({"cpu": "B"}, {"threads": 2}, {"packages": {"torch": "3"}}, {"system": "Darwin 1"}, {"packages": 3}):
        assert not verify.same_machine(about, {**about, **other})
    assert not verify.same_machine(about, None)


@pytest.mark.parametrize("honest", [True, False])
def test_rows_are_run_again_and_the_verdicts_recorded(
    honest: bool,
    here: Path,
    results: Path,
    tools: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("fglbench.benchmark.store.provenance.git_state", lambda: ("b" * 40, False))
    if not honest:
        tools.edit(results / "tiny/fedavg.csv", None, score="0.001")
    arguments = ["verify", "results", "--sample", "2", "--seed", "0", "-m", "fedavg", "-j", "1", "--record", "results"]
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("fglbench: --record needs --by NAME")
    assert main([*arguments, "--by", "maintainer"]) == (0 if honest else 1)
    said = capsys.readouterr().out
    assert f"{2 if honest else 0} of 2 rows passed (drawn with --seed 0)" in said
    assert ("score differs by more than 1e-06" in said) == (not honest)
    verdicts = verified.read(results)
    assert {each.verdict for each in verdicts} == {"passed" if honest else "failed"}
    standing = {row.key: row for row in Store(results).rows("tiny")}
    for each in verdicts:
        assert each.score == standing[each.key].score
        assert (each.ours == each.score) == honest
        assert (each.by, each.git_sha, each.method_version) == (
            "maintainer", "b" * 40, standing[each.key].method_version,
        )  # fmt: skip
    assert main([*arguments, "--by", "another"]) in (0, 1)
    assert [each.by for each in verified.read(results)] == ["maintainer"] * 2 + ["another"] * 2
    assert sorted(path.name for path in here.iterdir()) == ["results"]


def test_only_a_clean_checkout_may_record(here: Path, results: Path) -> None:
    for dirty in (True, None):
        with pytest.raises(UserError, match="needs a clean checkout"):
            verify.may_record(results, "me", dirty)
    with pytest.raises(UserError, match="no results folder"):
        verify.may_record(here / "absent", "me", False)


def test_a_damaged_file_of_verdicts_is_one_line(results: Path) -> None:
    path = results / verified.FILE
    path.write_text("suite,key\n")
    with pytest.raises(UserError, match=r"verified.csv:1: the columns are not suite, key"):
        verified.read(results)
    path.write_text(",".join(verified.COLUMNS) + "\n" + ",".join("x" for _ in verified.COLUMNS) + "\n")
    with pytest.raises(UserError, match=r"verified.csv:2: Input should be a valid number"):
        verified.read(results)
