"""The results folder: rows survive crashes, full disks and other processes; all commands read the same files."""

from __future__ import annotations

import csv
import errno
import gzip
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fglbench import files
from fglbench.benchmark.runner.plan import make_plan
from fglbench.benchmark.store import row_file, side_files as stores
from fglbench.benchmark.store.folder import Store, latest, load_results
from fglbench.benchmark.store.schema import COLUMNS, SCHEMA_VERSION, Row
from fglbench.benchmark.submission import validate as checks
from fglbench.benchmark.suites.select import Request, select
from fglbench.registry import UserError
from fglbench.report.loading import load_boards


def make_row(key="k0", *, suite="s", method="fedavg", status="ok", **values):
    return Row(
        key=key, suite=suite, task="node", dataset="cora", dataset_params="{}", partition="louvain",
        partition_params='{"a":1,"b":"x, y"}', clients=10, split="ratio", split_params="{}", backbone="gcn",
        backbone_params="{}", method=method, method_version="abc", method_params="{}", training="{}", seed=0,
        status=status, started="2026-01-01T00:00:00Z", environment="e", **values,
    )  # fmt: skip


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "results")
    store.prepare(["s"])
    return store


def test_rows_are_read_back_as_written(store):
    rows = [
        make_row("k0", score=0.1 + 0.2, git_dirty=True, best_round=3, error='a "quoted", line'),
        make_row("k1", status="failed", score=None, git_dirty=False, error="two\nlines\r"),
    ]
    for row in rows:
        store.append_row(row)
    read = store.rows("s")
    assert read[0] == rows[0]
    assert read[1] == rows[1].model_copy(update={"error": "two lines "})
    with store.file("s", "fedavg").open(newline="") as stream:  # any CSV reader agrees on the number of rows
        assert len(list(csv.DictReader(stream))) == 2


def test_a_later_row_supersedes_and_nothing_is_deleted(store):
    for row in (make_row("a", score=0.1), make_row("b", score=0.2), make_row("a", status="failed", error="x")):
        store.append_row(row)
    assert [row.key for row in store.rows("s")] == ["a", "b", "a"]
    assert latest(store.rows("s"))["a"].status == "failed"
    assert store.find("s", "fedavg", "a").error == "x"
    assert store.find("s", "fedavg", "nothing") is None
    frame = load_results(store.root)
    assert dict(zip(frame["key"], frame["status"], strict=True)) == {"a": "failed", "b": "ok"}
    assert list(frame.columns) == COLUMNS


@pytest.mark.parametrize("lost", [1, 20, 150, "a column", "20 columns"])
def test_a_half_row_is_moved_to_another_file(store, lost):
    """As after a power cut during the second append, or with columns left out."""
    store.append_row(make_row("a", score=0.5))
    path = store.file("s", "fedavg")
    whole, torn = path.read_bytes(), row_file.line(make_row("b", score=0.6))
    if isinstance(lost, int):
        torn = torn[:-lost]
    else:
        torn = b",".join(torn.split(b",")[: -20 if lost == "20 columns" else -1]) + b"\n"
    path.write_bytes(whole + torn)

    with pytest.warns(UserWarning, match=r"line 3 is damaged"):
        assert [row.key for row in store.rows("s")] == ["a"]
    assert path.read_bytes() == whole + torn  # reading changes nothing
    with pytest.warns(UserWarning, match=r"1 damaged line\(s\) moved to fedavg.csv.damaged"):
        store.append_row(make_row("c", score=0.7))
    assert [row.key for row in store.rows("s")] == ["a", "c"]
    assert path.with_name("fedavg.csv.damaged").read_bytes() == torn.removesuffix(b"\n") + b"\n"


def test_zeros_and_a_torn_header_are_damage(store):
    store.append_row(make_row("a"))
    path = store.file("s", "fedavg")
    sound = path.read_bytes()
    path.write_bytes(sound + bytes(40) + b"\n")
    with pytest.warns(UserWarning, match="moved"):
        store.prepare(["s"])
    assert path.read_bytes() == sound
    path.write_bytes(sound[:30])
    with pytest.warns(UserWarning, match="moved"):
        store.append_row(make_row("b"))
    assert [row.key for row in store.rows("s")] == ["b"]
    assert path.with_name("fedavg.csv.damaged").read_bytes() == bytes(40) + b"\n" + sound[:30] + b"\n"


def test_invalid_values_are_refused_by_column(store):
    store.append_row(make_row("a"))
    path = store.file("s", "fedavg")
    text = path.read_text()
    for old, new, message in (
        (",ok,", ",great,", r"column 'status': Input should be .*, got 'great'"),
        (",cora,", ",,", "column 'dataset': is empty"),
        (f"\n{SCHEMA_VERSION},", "\n99,", f"written in result schema 99; this fglbench reads up to {SCHEMA_VERSION}"),
    ):
        path.write_text(text.replace(old, new))
        with pytest.raises(UserError, match=f"fedavg.csv:2: {message}"):
            store.rows("s")


def test_a_full_disk_costs_no_finished_row(store, monkeypatch):
    store.append_row(make_row("a"))
    before = store.file("s", "fedavg").read_bytes()
    write = os.write

    def half_then_full(handle, data):
        if len(data) > 40:
            return write(handle, data[:40])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "write", half_then_full)
    with pytest.raises(UserError, match=r"no space left for results in .*; every finished row is kept"):
        store.append_row(make_row("b", error="x" * 23))
    monkeypatch.undo()
    assert store.file("s", "fedavg").read_bytes() == before
    assert [row.key for row in store.rows("s")] == ["a"]


def test_an_environment_has_one_text():
    assert stores.environment_text({"b": 1, "a": "x"}) == b'{\n  "a": "x",\n  "b": 1\n}\n'


def test_an_unusable_folder_is_one_line_before_any_run(tmp_path):
    (tmp_path / "file").write_text("")
    message = r"cannot write results to '[^']*': (Not a directory|File exists); use --results DIR"
    with pytest.raises(UserError, match=message):
        Store(tmp_path / "file").prepare(["s"])
    with pytest.raises(UserError, match="no results folder"):
        load_results(tmp_path / "absent")


def test_an_error_names_the_folder_of_a_temporary_file(tmp_path):
    message = f"cannot write results to '{tmp_path}': Permission denied"
    with pytest.raises(UserError, match=message), stores.clear_errors(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "tmp4f4lu76i"))
    with pytest.raises(UserError, match=f"'{tmp_path}': File name too long"), stores.clear_errors(tmp_path):
        (tmp_path / ("a" * 300)).touch()  # a name of which `Path.exists` raises, too


def test_a_claim_has_one_holder_and_ends_with_its_process(store):
    code = (
        "import sys, time; from fglbench.benchmark.store import Store\n"
        f"lock = Store({str(store.root)!r}).claim('s', 'k'); print(lock is not None, flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline().strip() == "True"
    assert store.claim("s", "k") is None
    free = store.claim("s", "another")
    store.unclaim(free)
    other.kill()
    other.wait()
    mine = store.claim("s", "k")
    store.unclaim(mine)
    assert store.claim("s", "k") is not None


def test_history_is_stored_next_to_the_rows(store):
    history = {"history": {"round": [1, 2], "val": [0.5, None]}, "per_client": {"score": [0.25]}}
    store.write_history("s", "k", history)
    first = store.history_file("s", "k").read_bytes()
    store.write_history("s", "k", history)
    assert store.history("s", "k") == history
    assert store.history_file("s", "k").read_bytes() == first
    assert store.history("s", "other") is None


def test_embeddings_are_read_back_and_their_bytes_depend_on_the_content_only(store):
    arrays = {"node": np.arange(3), "global": np.eye(3, dtype=np.float16), "note": np.array("none \N{EN DASH}")}
    assert store.embeddings("s", "k") is None
    store.write_embeddings("s", "k", arrays)
    before = store.embeddings_file("s", "k").read_bytes()
    read = store.embeddings("s", "k")
    assert list(read) == list(arrays)
    assert all(np.array_equal(read[name], value) and read[name].dtype == value.dtype for name, value in arrays.items())
    store.write_embeddings("s", "k", {name: value.copy() for name, value in arrays.items()})
    assert store.embeddings_file("s", "k").read_bytes() == before


def test_submitted_embeddings_cannot_run_code_or_fill_the_memory(store):
    path = store.embeddings_file("s", "k")
    path.parent.mkdir()
    np.savez(path, node=np.array([{"an": "object"}], dtype=object))  # numpy would unpickle it
    with pytest.raises(ValueError, match="pickle"):
        store.embeddings("s", "k")
    np.savez_compressed(path, node=np.zeros(5 * 2**20))
    assert path.stat().st_size < 2**20
    with pytest.raises(ValueError, match="more than 32 MiB"):
        store.embeddings("s", "k")


def test_a_side_file_that_is_too_large_or_too_deep_is_refused(store):
    path = store.history_file("s", "k")
    path.write_bytes(gzip.compress(b"[" + b"1," * (stores.HISTORY_BYTES // 2) + b"1]"))
    with pytest.raises(ValueError, match="more than 8 MiB unpacked"):
        store.history("s", "k")
    path.write_bytes(gzip.compress(b"[" * 100_000))
    with pytest.raises(ValueError, match="nested too deeply"):
        store.history("s", "k")
    store.environment_file("e").parent.mkdir()
    for content in ("[" * 100_000, "[1]", "{"):
        store.environment_file("e").write_text(content)
        assert store.environment("e") is None
    store.environment_file("e").write_text('{"cpu": "x"}')
    assert store.environment("e") == {"cpu": "x"}


@pytest.fixture
def results(tmp_path: Path, suite: str) -> Path:
    store = Store(tmp_path / "results")
    for name, cell in select(Request(suites=(suite,))):
        store.append_row(cell.row(name, status="ok", score=0.5, started="2026-01-01T00:00:00Z", environment="0" * 12))
    shutil.rmtree(store.root / ".locks")
    return store.root


def nothing(root: Path) -> None:
    pass


def stray(root: Path) -> None:
    for path in ("notes.txt", "tiny/page.html", "tiny/.fedavg.csv.abc.tmp", "tiny/fedavg.csv.damaged", "a.csv"):
        (root / path).write_text("x")
    for folder in ("empty", ".hidden", "environments", "deep/er"):
        (root / folder).mkdir(parents=True)
    for folder in (".hidden", "environments", "deep/er"):
        shutil.copy(root / "tiny" / "fedavg.csv", root / folder / "fedavg.csv")


def copied(root: Path) -> None:
    shutil.copytree(root / "tiny", root / "other")


def swapped(root: Path) -> None:
    (root / "tiny" / "local.csv").rename(root / "tiny" / "else.csv")


def header_only(root: Path) -> None:
    path = root / "tiny" / "local.csv"
    path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n")


def linked(root: Path) -> None:
    (root / "tiny" / "nowhere.csv").symlink_to("missing.csv")


@pytest.mark.parametrize(
    ("change", "rows"),
    [(nothing, 4), (stray, 4), (copied, 4), (swapped, 2), (header_only, 2), (linked, 4)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_all_commands_count_the_same_rows(results: Path, suite: str, change: Callable[[Path], None], rows: int) -> None:
    change(results)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about misplaced rows
        plan = make_plan(select(Request(suites=(suite,))), Store(results))
        boards = load_boards(results)
    verdict = checks.validate(results, "results", None)
    assert plan.counts()["done"] == rows
    assert {board.suite: len(board.rows) for board in boards} == {"tiny": rows}
    assert (verdict.rows, dict(verdict.new)) == (rows, {"tiny": rows})


def test_a_misplaced_row_is_reported_by_all_commands(results: Path, suite: str) -> None:
    copied(results)
    message = "rows that belong in tiny/fedavg.csv do not count here; move the file back"
    with pytest.warns(UserWarning, match=message):
        load_boards(results)
    errors = [str(error) for error in checks.validate(results, "results", None).findings.errors]
    assert any(
        "other/fedavg.csv:2: a row of suite 'tiny' and method 'fedavg'; it belongs in" in each for each in errors
    )


def test_a_folder_instead_of_a_file_of_rows_is_refused_by_all_commands(results: Path, suite: str) -> None:
    (results / "tiny" / "fedprox.csv").mkdir()
    message = r"tiny/fedprox\.csv is a folder, where a file of rows belongs"
    store = Store(results)
    for look in (
        lambda: make_plan(select(Request(suites=(suite,))), store), lambda: load_boards(results),
        lambda: store.prepare(["tiny"]),
    ):  # fmt: skip
        with pytest.raises(UserError, match=message):
            look()
    errors = [str(error) for error in checks.validate(results, "results", None).findings.errors]
    assert any("fedprox.csv: a folder, where a file of rows belongs" in each for each in errors)
