"""The cache of judged files: a changed file is always detected, and damaged entries are ignored."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.store import judged
from fglbench.benchmark.store.judged import Verdicts
from fglbench.benchmark.submission import summary


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FGLBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(judged, "METHODS", "no.such.module")
    return tmp_path / "cache" / "verdicts"


def counted(verdicts: Verdicts, files: list[Path], about: object = "") -> tuple[dict[str, Any], int]:
    """(the verdict, how often it was computed)."""
    calls: list[int] = []

    def judge() -> dict[str, Any]:
        calls.append(1)
        return {"size": [path.stat().st_size for path in files]}

    return verdicts.of(files, about, judge), len(calls)


def test_a_verdict_is_worked_out_once_for_the_same_bytes(cache: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    one.write_text("abc"), two.write_text("de")
    assert counted(Verdicts(), [one, two]) == ({"size": [3, 2]}, 1)
    assert counted(Verdicts(), [one, two]) == ({"size": [3, 2]}, 0)
    changes = [
        lambda: two.write_text("df"),  # the same size
        lambda: one.write_text("abcde"),
        lambda: (one.write_text("abcd"), two.write_text("e")),  # the same bytes in a row
    ]
    for change in changes:
        change()
        assert counted(Verdicts(), [one, two])[1] == 1
        assert counted(Verdicts(), [one, two])[1] == 0
    assert counted(Verdicts(), [one])[1] == counted(Verdicts(), [two, one])[1] == 1  # other files
    assert counted(Verdicts(), [one, two], "else")[1] == 1
    one.rename(tmp_path / "three.csv")
    assert counted(Verdicts(), [tmp_path / "three.csv", two])[1] == 1


def test_other_code_or_libraries_make_a_new_verdict(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "one.csv"
    file.write_text("abc")
    assert counted(Verdicts(), [file])[1] == 1
    root = tmp_path / "package"
    (root / "report").mkdir(parents=True)
    (root / "report" / "text.py").write_text("1")
    monkeypatch.setattr(judged, "ROOT", root)
    for change in (lambda: None, lambda: (root / "report" / "text.py").write_text("2")):
        change()
        judged._code.cache_clear()
        assert [counted(Verdicts(), [file])[1] for _ in range(2)] == [1, 0]
    monkeypatch.setattr(judged, "installed", lambda name: "9.9")
    judged._code.cache_clear()
    assert counted(Verdicts(), [file])[1] == 1
    monkeypatch.undo()
    judged._code.cache_clear()


def test_all_folders_of_the_package_are_in_the_hash() -> None:
    inits = {path.relative_to(judged.ROOT).parts[0] for path in judged.ROOT.glob("*/__init__.py")}
    assert inits - {"tests"} == set(judged.OWN)
    names = {path.relative_to(judged.ROOT).as_posix() for path in judged._own_files()}
    assert {"registry.py", "benchmark/suites/federations.csv", "report/templates/leaderboard.md"} <= names


def test_damaged_or_changed_files_are_judged_again(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.csv"
    file.write_text("abc")

    def slow() -> dict[str, Any]:
        file.write_text("abcd")
        return {"size": [3]}

    Verdicts().of([file], "", slow)
    assert not list(cache.glob("*"))
    file.write_text("abc")
    assert counted(Verdicts(), [file]) == ({"size": [3]}, 1)
    (kept,) = cache.glob("*.json")
    for text in ("", "[]", "{", "\0"):
        kept.write_text(text)
        assert counted(Verdicts(), [file]) == ({"size": [3]}, 1)
    assert Verdicts().of([tmp_path / "missing"], "", lambda: {"a": 1}) == {"a": 1}


def test_a_changed_product_is_made_again(cache: Path, tmp_path: Path) -> None:
    source, product, calls = tmp_path / "one.csv", tmp_path / "page.html", list[int]()
    source.write_text("abc")

    def judge() -> dict[str, Any]:
        calls.append(1)
        product.write_text("page")
        return {"pages": 1}

    def count() -> int:
        Verdicts().of([source], "", judge, lambda: tmp_path.glob("*.html"))
        return len(calls)

    assert [count(), count()] == [1, 1]
    product.write_text("pagE")
    assert [count(), count()] == [2, 2]
    product.unlink()
    assert [count(), count()] == [3, 3]
    (tmp_path / "other.html").write_text("")
    assert [count(), count()] == [4, 4]


def test_old_verdicts_are_removed(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged, "KEPT", 3)
    file = tmp_path / "one.csv"
    for number in range(6):
        file.write_text(str(number))
        counted(Verdicts(), [file])
    assert len(list(cache.glob("*"))) == 3


def test_a_process_with_methods_remembers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FGLBENCH_CACHE", str(tmp_path))
    monkeypatch.setitem(sys.modules, judged.METHODS, sys)
    file = tmp_path / "one.csv"
    file.write_text("abc")
    assert [counted(Verdicts(), [file])[1] for _ in range(2)] == [1, 1]


@pytest.mark.usefixtures("in_process", "cache")
def test_the_command_sees_a_changed_score_and_a_changed_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def outcome(*, read: bool = True) -> tuple[int, str]:
        """The exit code and the output of the command. read: whether it may read the files of the suite."""
        with monkeypatch.context() as patch:
            if not read:
                patch.setattr(summary, "_validated", pytest.fail)
            return main(["validate", "results"]), capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    run = "run -m fedavg -d csbm -k 2 --seeds 1 --set training.rounds=2 --jobs 1 --results results"
    assert main(run.split()) == 0
    (rows,) = (tmp_path / "results").glob("*/*.csv")
    (curve,) = (tmp_path / "results").glob("*/history/*")
    before, content = rows.read_text(), curve.read_bytes()
    capsys.readouterr()
    first = outcome()
    assert outcome(read=False) == first
    started = before.splitlines()[1].split("Z,")[0].rsplit(",", 1)[1]
    for change, message in (
        (lambda: rows.write_text(before.replace(started, "2001-01-01T00:00:0x")), "'started'"),
        (lambda: (rows.write_text(before), curve.write_bytes(content[:-9])), "cannot be read"),
        (lambda: curve.unlink(), "are missing"),
    ):
        change()
        code, output = outcome()
        assert code == 1 and message in output
    curve.write_bytes(content)
    assert outcome(read=False) == first
