"""Curves in columns: packing loses nothing, and validation treats them like separate files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.store import Store, curves, packing

from .conftest import OPTIONS, edit_curves


def validate_lines(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    capsys.readouterr()
    main(["validate", *args])
    *problems, _ = capsys.readouterr().out.splitlines()
    return problems


def errors(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith("warning: ")]


def keys(folder: Path) -> list[str]:
    return [row.key for row in Store(folder).rows("tiny")]


def altered(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """A file of columns whose first run was changed."""
    table = curves.read_curves(path)
    runs = {key: table.stored(key) for key in table.keys}
    change(runs[table.keys[0]])
    path.write_bytes(curves.packed(runs))


def first(part: str, name: str, value: float) -> Callable[[dict[str, Any]], object]:
    return lambda run: run[part][name].__setitem__(0, value)


WRONG: dict[str, tuple[Any, str]] = {
    "endless bytes": (first("history", "val", float("inf")), "other than lists of num"),
    "another score": (first("history", "score", 1.5), "score or val is outside [0, 1]"),
    "a curve too short": (lambda run: run["history"]["val"].pop(), "does not have one value of"),
}


@pytest.mark.parametrize("change_name", WRONG)
def test_changed_columns_are_errors(
    change_name: str, workdir: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["pack", "--results", "results"])
    change, line = WRONG[change_name]
    altered(results / "tiny" / "curves" / "local.parquet", change)
    assert any(line in each and not each.startswith("warning") for each in validate_lines(capsys, "results"))


def test_links_are_errors_and_not_followed(workdir: Path, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["pack", "--results", "results"])
    key, suite = keys(results)[0], results / "tiny"
    (suite / "curves" / "zero.parquet").symlink_to("/dev/zero")
    (suite / "history" / f"{key}.json.gz").symlink_to("/dev/zero")
    lines = validate_lines(capsys, "results")
    assert sum("a link or device, not a file" in line for line in lines) == 2 == len(lines)


@pytest.mark.parametrize("name", ["local@1", "local@02", "local@", "local@2@3", "@2"])
def test_parts_are_numbered_from_two(results: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    packing.pack(Store(results), "tiny")
    (results / "tiny" / "curves" / "local.parquet").rename(results / "tiny" / "curves" / f"{name}.parquet")
    assert any(f"{name}.parquet: unknown file" in line for line in validate_lines(capsys, str(results)))


@pytest.mark.parametrize("name", ["x" * 70_000, "\ud800", "a b"])
def test_a_run_with_an_invalid_column_name_stays_unpacked(results: Path, name: str) -> None:
    path = sorted((results / "tiny" / "history").iterdir())[0]
    edit_curves(path, lambda curves: curves["history"].update({name: [1.0, 2.0]}))
    packing.pack(Store(results), "tiny")
    assert [file.name for file in (results / "tiny" / "history").iterdir()] == [path.name]


def test_submissions_of_packed_and_loose_rows_are_equal(workdir: Path, submission: Path, mine: Path, cli) -> None:
    main(["pack", "--results", "mine"])
    assert not list((mine / "tiny" / "history").iterdir())
    cli(["submit", "fedprox", "--results", "mine", "--out", "again", *OPTIONS])
    one, other = ({p.relative_to(f): p.read_bytes() for p in f.rglob("*.gz")} for f in (submission, workdir / "again"))
    assert one == other and len(one) == 4


def test_a_submission_brings_no_columns(workdir: Path, submission: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (submission / "tiny" / "curves").mkdir()
    (submission / "tiny" / "curves" / "fedprox.parquet").write_bytes(b"")
    assert any("fedprox.parquet: unknown file" in line for line in validate_lines(capsys, "packed"))


class TestAgainstABase:
    """The base is loose or packed; the change is packed."""

    def test_only_maintainers_may_pack(self, base: Path, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
        main(["pack", "--results", "results"])
        assert not errors(validate_lines(capsys, "results", "--base", "base", "--maintainer"))
        lines = errors(validate_lines(capsys, "results", "--base", "base"))
        columns = {f"results/tiny/curves/{m}.parquet" for m in ("fedavg", "local")}
        assert columns <= {line.split(": ")[0] for line in lines}

    @pytest.mark.parametrize("packed", [False, True])
    def test_a_changed_figure_is_an_error(
        self, packed: bool, base: Path, results: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        if packed:
            main(["pack", "--results", "base"])
        main(["pack", "--results", "results"])
        assert not errors(validate_lines(capsys, "results", "--base", "base", "--maintainer"))
        altered(results / "tiny" / "curves" / "local.parquet", first("history", "val", 0.125))
        lines = validate_lines(capsys, "results", "--base", "base", "--maintainer")
        assert any("were changed, but it has no new row" in line and "local.parquet" in line for line in errors(lines))

    def test_a_removed_run_is_an_error(self, base: Path, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for folder in ("base", "results"):
            main(["pack", "--results", folder])
        store, path = Store(results), results / "tiny" / "curves" / "local.parquet"
        removed, *rest = curves.parse(path.read_bytes()).keys
        kept = {key: store.history("tiny", key) or {} for key in rest}
        path.write_bytes(curves.packed(kept))
        lines = validate_lines(capsys, "results", "--base", "base", "--maintainer")
        assert any(f"the curves of {removed} were removed" in line for line in errors(lines))

    def test_a_file_next_to_columns_of_the_base_needs_a_new_row(
        self, base: Path, results: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Also one with equal content: the file may hold more than the fields that are read."""
        for folder in ("base", "results"):
            main(["pack", "--results", folder])
        key = keys(results)[0]
        Store(results).write_history("tiny", key, Store(results).history("tiny", key) or {})
        lines = validate_lines(capsys, "results", "--base", "base")
        assert any(f"{key}.json.gz: new" in line for line in errors(lines))
