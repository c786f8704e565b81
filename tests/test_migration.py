"""tools/migrate_results.py: nothing is lost or changed, wherever it is killed, and a second run changes nothing."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fglbench.benchmark.store import Store, row_file
from fglbench.benchmark.store.schema import COLUMNS

from .benchmark.test_store import make_row

ROOT = Path(__file__).resolve().parents[1]
spec = importlib.util.spec_from_file_location("migrate_results", ROOT / "tools" / "migrate_results.py")
assert spec and spec.loader
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)

KEYS = ["a" * 16, "b" * 16, "c" * 16]
CURVES = {
    "history": {"round": [1, 2], "score": [0.5, 0.25], "val": [0.1, None], "upload_bytes": [5, 2**53 + 1]},
    "per_client": {"score": [0.25, None]},
    "label_counts": [[2, 0], [1, 1]],
}


def old_line(key: str, version: str, method: str) -> bytes:
    row = make_row(key, method=method, score=0.5, error='a "quoted", text')
    fields = row_file.fields_of(row_file.line(row)) or []
    width = tool.WIDTHS.get(version, len(COLUMNS))
    return row_file.record([version, *fields[1:width]])


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A results folder of version 0.1: rows of three schemas, curves of two runs in columns and of one in its file."""
    root = tmp_path / "old"
    store = Store(root)
    store.prepare(["s"])
    for method in ("global", "local"):
        lines = [old_line(key, version, method) for key, version in zip(KEYS, ("1", "3", "5"), strict=True)]
        store.file("s", method).write_bytes(row_file.header() + b"".join(lines))
    arrays: dict[str, Any] = {
        "keys": np.array(KEYS[:2]),
        "columns": np.array(["history.round", "history.score", "history.val", "history.upload_bytes",
                             "history.seconds", "per_client.score", "label_counts"]),
        "lengths": np.array([[2, 2, 2, 2, 2, 2, 4]] * 2, dtype=np.int32),
        "classes": np.array([2, 2], dtype=np.int32),
        "history.round": np.array([1, 2, 1, 2]),
        "history.score": np.array([0.5, 0.25] * 2),
        "history.val": np.array([0.1, np.nan] * 2),
        "history.upload_bytes": np.array([5, 2**53 + 1] * 2),
        "history.seconds": np.array([0.5, 1.5] * 2),
        "per_client.score": np.array([0.25, np.nan] * 2),
        "label_counts": np.array([2, 0, 1, 1] * 2),
    }  # fmt: skip
    (root / "s" / "curves").mkdir()
    np.savez_compressed(root / "s" / "curves" / "global.npz", **arrays)
    timed = {**CURVES, "history": {**CURVES["history"], "seconds": [0.5, 1.5]}}
    store.write_history("s", KEYS[2], timed)
    return root


def content(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".locks" not in path.parts
    }


def check(root: Path) -> None:
    """The folder is in the new form and has every row and value."""
    store = Store(root)
    assert {key: store.history("s", key) for key in KEYS} == dict.fromkeys(KEYS, CURVES)
    rows = store.rows("s")
    assert [(row.key, row.schema_version) for row in rows] == [*zip(KEYS, (1, 3, 5), strict=True)] * 2
    assert [row.reference for row in rows] == [True, False, False, False, False, False]
    assert all(row.score == 0.5 and row.error == 'a "quoted", text' for row in rows)
    assert not list(root.rglob("*.npz")) and not list(root.rglob("*.tmp"))


def test_rows_and_curves_are_converted_once(old: Path) -> None:
    before = [row_file.fields_of(line) or [] for line in (old / "s" / "local.csv").read_bytes().splitlines(True)]
    assert tool.migrate(old) == (4, 3)
    check(old)
    after = [row_file.fields_of(line) or [] for line in (old / "s" / "local.csv").read_bytes().splitlines(True)]
    assert all(new[: len(fields)] == fields for fields, new in zip(before, after, strict=True))
    done = content(old)
    assert tool.migrate(old) == (0, 0) and content(old) == done


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
def test_it_may_be_killed_at_any_step(old: Path, tmp_path: Path) -> None:
    """A child ends without cleaning up at its n-th operation on files, for every n; the next run finishes the work."""
    import shutil

    finished, step = False, 0
    while not finished:
        root = Path(shutil.copytree(old, tmp_path / f"copy{step}"))
        child = os.fork()
        if child == 0:
            left, place = step, str(root)

            def kill(event: str, arguments: tuple[Any, ...], place: str = place) -> None:
                nonlocal left
                about = event.split(".")[0] in ("open", "os", "shutil") and place in str(arguments)
                if about and (left := left - 1) < 0:
                    os._exit(9)

            sys.addaudithook(kill)
            try:
                tool.migrate(root)
                os._exit(0)
            except BaseException:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 9)
        finished = code == 0
        tool.migrate(root)
        check(root)
        shutil.rmtree(root)
        step += 1
    assert step > 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked process")
def test_it_may_end_at_any_byte(old: Path, tmp_path: Path) -> None:
    """No file can grow beyond a drawn size: the system kills the child at that byte, or the write fails as on a full
    disk."""
    import random
    import resource
    import shutil
    import signal

    whole = Path(shutil.copytree(old, tmp_path / "whole"))
    tool.migrate(whole)
    most = max(path.stat().st_size for path in whole.rglob("*") if path.is_file())
    rng = random.Random(0)
    for number in range(16):
        root, limit = Path(shutil.copytree(old, tmp_path / f"byte{number}")), rng.randrange(1, most)
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGXFSZ, (signal.SIG_DFL, signal.SIG_IGN)[number % 2])
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            try:
                tool.migrate(root)
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (-signal.SIGXFSZ, 1)[number % 2]
        tool.migrate(root)
        check(root)
        shutil.rmtree(root)


def test_a_folder_is_added_to_another_once(old: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"
    Store(target).append(make_row("z", method="local"))
    tool.migrate(old)
    assert tool.merge(old, target) == 6
    assert [row.key for row in Store(target).rows("s")] == [*KEYS, "z", *KEYS]
    assert {key: Store(target).history("s", key) for key in KEYS} == dict.fromkeys(KEYS, CURVES)
    done = content(target)
    assert tool.merge(old, target) == 0 and content(target) == done
