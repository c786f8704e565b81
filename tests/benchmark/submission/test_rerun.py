"""Running rows again: what passes on the same machine and elsewhere, and what is written down of it."""

from __future__ import annotations

import hashlib
import math
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.store import Store, verified
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.submission import bars, rerun as verify
from fglbench.benchmark.submission.bars import Comparison, Run
from fglbench.metrics import METRICS
from fglbench.registry import UserError


@pytest.fixture
def rows(results: Path) -> list[Row]:
    """Two seeds of fedavg and of local on two datasets, with scores 0.5 and 0.54 in turn."""
    found = sorted(Store(results).rows("tiny"), key=lambda row: (row.method, row.dataset_params, row.seed))
    scores = ((row, 0.5 + 0.04 * row.seed) for row in found)
    return [
        row.model_copy(update={"score": score, row.score_metric.split()[1] + "_on_local": score, "macro_f1": 0.5})
        for row, score in scores
    ]


def changed(row: Row, **values: object) -> Row:
    return row.model_copy(update=values)


def test_a_sample_is_of_whole_cells_and_does_not_depend_on_the_order(rows: list[Row]) -> None:
    drawn = verify.sample(rows, 2, seed=3)
    assert verify.sample(rows[::-1], 2, seed=3) == drawn
    assert len({row.key for row in drawn}) == 4  # two cells of two seeds
    assert len({verify.place(row) for row in drawn}) == 2
    assert len({tuple(row.key for row in verify.sample(rows, 2, seed=seed)) for seed in range(20)}) > 1
    assert len(verify.sample(rows, 99, seed=0)) == len(rows)
    with pytest.raises(UserError, match="no row has a score"):
        verify.sample([changed(row, status="failed", score=None, error="x") for row in rows], 1, seed=0)


def test_what_lacks_a_score_is_drawn_first(rows: list[Row]) -> None:
    """Two cells of four lack something: one a seed, which is the first to be looked at, the other both."""
    places = sorted({verify.place(row) for row in rows})
    lost = {"status": "failed", "score": None, "error": "x", "best_round": None}
    half, none = places[1], places[2]
    rows = [
        changed(row, **lost) if verify.place(row) == none or (verify.place(row) == half and row.seed == 0) else row
        for row in rows
    ]
    for seed in range(5):
        drawn = verify.sample(rows, 1, seed=seed)
        assert {verify.place(row) for row in drawn[:2]} == {half}
        assert verify.place(drawn[2]) in (places[0], places[3])
        assert {verify.place(row) for row in verify.sample(rows, 2, seed=seed)[2:4]} == {none}


def test_the_draw_is_that_of_the_commit(here: Path, results: Path) -> None:
    assert verify.seed_of(results)[1] == "chance"

    def commit() -> str:
        for words in (["add", "-A"], ["commit", "-qm", "rows", "--allow-empty"]):
            who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
            subprocess.run(["git", "-C", str(here), *who, *words], check=True)
        return subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True).stdout

    subprocess.run(["git", "init", "-q", str(here)], check=True)
    sha = commit().strip()
    seed, origin = verify.seed_of(results)
    assert origin == f"commit {sha[:12]}"
    assert seed == int(hashlib.sha256(sha.encode()).hexdigest()[:8], 16)
    (results / "more").write_text("x")
    commit()
    assert verify.seed_of(results)[0] != seed


def test_the_deviation_is_over_seeds_and_never_that_of_the_method_itself(rows: list[Row]) -> None:
    cell = [row for row in rows if verify.place(row) == verify.place(rows[0])]
    assert bars.deviations(cell)["score"] == pytest.approx(0.02 * math.sqrt(2))  # of 0.50 and 0.54
    assert bars.deviations(cell)["macro_f1"] == 0
    assert bars.deviations(cell[:1]) == {}
    wide = [changed(row, score=0.9 * row.seed) if row.method == "local" else row for row in rows]
    known, where = bars.spreads(wide), bars.task(rows[0])
    assert bars.usual(known, where, "local")["score"] == pytest.approx(0.02 * math.sqrt(2))
    assert bars.usual(known, where, "fedavg")["score"] == pytest.approx(0.9 / math.sqrt(2))
    assert bars.usual(bars.spreads(cell), where, cell[0].method) == {}
    assert bars.smaller({"score": 0.015}, {"score": 0.3}) == {"score": 0.015}
    assert bars.smaller({"score": 0.4}, {"score": 0.3}) == {"score": bars.CAP}
    assert bars.smaller({}, {"score": 0.01}) == {"score": 0.01}


def against(theirs: Row, ours: Row | None, spread: float = 0.0, stored: tuple[dict, dict] | None = None) -> Comparison:
    one, other = stored or (None, None)
    return bars.compare(Run(theirs, other), Run(ours, one) if ours else None, dict.fromkeys(bars.SHARES, spread))


def test_a_row_may_lie_above_ours_by_a_part_of_what_seeds_do(rows: list[Row]) -> None:
    row = rows[0]
    assert against(row, row).passed
    assert against(row, changed(row, score=row.score - 0.009)).passed
    assert against(row, changed(row, score=row.score - 0.011)).problems == ("score is more than 0.01 above ours",)
    assert against(row, changed(row, score=row.score - 0.049), 0.02).passed
    assert against(row, changed(row, score=row.score - 0.051), 0.02).problems == ("score is more than 0.05 above ours",)
    assert against(row, changed(row, macro_f1=row.macro_f1 - 0.029)).passed
    assert not against(row, changed(row, macro_f1=row.macro_f1 - 0.031)).passed


def test_who_says_less_than_we_find_is_told_and_passes(rows: list[Row]) -> None:
    found = against(rows[0], changed(rows[0], score=rows[0].score + 0.3))
    assert found.passed
    assert found.notes == ("the score lies 0.3000 below ours",)


@pytest.mark.parametrize("figure", bars.SHARES)
def test_every_share_of_a_row_is_compared(figure: str, rows: list[Row]) -> None:
    row = changed(rows[0], **{figure: 0.5})
    assert against(row, row).passed
    (problem,) = against(row, changed(row, **{figure: 0.4})).problems
    assert problem.startswith(f"{figure} is more than")
    (problem,) = against(row, changed(row, **{figure: None})).problems
    assert problem.startswith(f"{figure} is more than")


def test_shares_and_counts_are_all_figures_but_times_and_texts() -> None:
    rest = {name for name in METRICS if name not in (*bars.SHARES, *bars.COUNTS)}
    assert {"score", "val", "macro_f1", "score_weighted", "global_on_global", "personal_on_local"} <= set(bars.SHARES)
    assert {"rounds", "upload_bytes", "download_bytes"} <= set(bars.COUNTS)
    assert {"train_seconds", "total_seconds", "score_metric"} <= rest


def test_data_code_and_rounds_are_the_same(rows: list[Row]) -> None:
    for name, value in (("partition_hash", "0"), ("method_version", "0"), ("dataset_fingerprint", "0")):
        assert against(rows[0], changed(rows[0], **{name: value})).problems == (f"another {name.replace('_', ' ')}",)
    moved = against(rows[0], changed(rows[0], best_round=rows[0].best_round + 1))
    assert moved.passed  # rounding may make another round the best
    assert moved.notes[0].startswith("another best round")


def stored(scores: list[float], up: list[int], clients: list[float]) -> dict:
    rounds = list(range(1, len(scores) + 1))
    history = {"round": rounds, "score": scores, "val": scores, "upload_bytes": up, "download_bytes": up}
    return {"history": history, "per_client": {"score": clients, "val": clients}, "label_counts": [[1, 2], [3, 4]]}


def test_curves_bytes_clients_and_labels_are_compared(rows: list[Row]) -> None:
    ours = stored([0.5, 0.6, 0.7], [10, 20, 30], [0.6, 0.8])
    for theirs, said in (
        (stored([0.6, 0.7, 0.7], [10, 20, 30], [0.6, 0.8]), "the curve of score is more than 0.01 above ours"),
        (stored([0.5, 0.6, 0.7], [9, 18, 27], [0.6, 0.8]), "upload_bytes of 3 rounds: 27, and 30 here"),
        (stored([0.5, 0.6, 0.7], [10, 20, 30], [0.8, 0.6]), "score of the clients is 0.200 from ours"),
        (stored([0.5, 0.6, 0.7], [10, 20, 30], [0.7]), "score of other clients"),
        ({**ours, "label_counts": [[2, 1], [3, 4]]}, "other label counts"),
        ({**ours, "per_client": {}}, "score of the clients is there once only"),
    ):
        assert against(rows[0], rows[0], stored=(ours, ours)).passed
        assert said in against(rows[0], rows[0], stored=(ours, theirs)).problems
    wild, near = stored([0.5, 0.6, 0.7, 0.7], [10, 23, 31, 50], [0.6]), stored([0.5, 0.6, 0.7], [10, 23, 31], [0.6])
    near["history"]["upload_bytes"][-1] = near["history"]["download_bytes"][-1] = 31.3
    assert against(rows[0], rows[0], stored=(wild, near)).passed  # what is sent depends on what is computed


def test_a_run_that_fails_or_cannot_be_made_does_not_pass(rows: list[Row]) -> None:
    failed = changed(rows[0], status="failed", score=None, error="diverged")
    assert against(rows[0], failed).problems == ("failed: diverged",)
    assert against(failed, failed).passed
    (bought,) = against(failed, rows[0]).problems
    assert bought == "failed (diverged), but here it has a score of 0.5000"
    lost = against(rows[0], None)
    assert not lost.passed
    assert verify.verdict(lost, whole=True, date="d", git_sha="s", by="b") is None


def test_a_small_gain_on_every_row_is_found_by_their_mean(rows: list[Row]) -> None:
    gain = [against(row, changed(row, score=row.score - 0.04), 0.02) for row in rows]
    assert all(each.passed for each in gain)  # each by itself: 0.04 is less than 2.5 x 0.02
    mean, bar = bars.together(gain)
    assert mean == pytest.approx(-0.04)
    assert bar == pytest.approx(0.02 / math.sqrt(8))  # equal deviations: s / sqrt(n)
    run = verify.Verification(gain, (mean, bar), {})
    assert not run.sound
    assert not run.passed
    assert verify.Verification(gain, (-mean, bar), {}).passed  # one side only
    verdict = verify.verdict(gain[0], whole=False, date="d", git_sha="s", by="b")
    assert verdict.verdict == "failed"


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
        tools.edit(results / "tiny/fedavg.csv", None, score="0.999", global_on_local="0.999")
    options = ["--sample", "2", "--seed", "0", "-m", "fedavg", "-j", "1", "--no-contract"]
    arguments = ["verify", "results", *options, "--record", "results"]
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("fglbench: --record needs --by NAME")
    assert main([*arguments, "--by", "maintainer"]) == (0 if honest else 1)
    said = capsys.readouterr().out
    assert f"{4 if honest else 0} of 4 rows passed (drawn with --seed 0, from the command)" in said
    assert ("score is more than 0." in said) == (not honest)
    assert f"{4 if honest else 0} of 4 scores are equal to rounding" in said
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
    assert [each.by for each in verified.read(results)] == ["maintainer"] * 4 + ["another"] * 4
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


@pytest.mark.parametrize("wrong", [{}, {"sees_no_hidden_label": "what is uploaded differs"}])
def test_methods_of_rows_are_held_to_the_contract_on_real_data(
    wrong: dict[str, str],
    here: Path,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = []

    def check_method(name: str, params: dict[str, object], *, real: bool, tasks: set[str]) -> dict[str, str]:
        asked.append((name, tasks, real))
        return wrong

    monkeypatch.setattr("fglbench.benchmark.contract.method_checks.check_method", check_method)
    arguments = ["verify", "results", "--sample", "1", "--seed", "0", "-m", "fedavg", "-j", "1"]
    assert main(arguments) == (1 if wrong else 0)
    assert asked == [("fedavg", {"node"}, True)]
    said = capsys.readouterr().out
    assert f"fedavg {'does NOT hold' if wrong else 'holds'} to the contract" in said
    assert ("sees no hidden label: what is uploaded differs" in said) == bool(wrong)
