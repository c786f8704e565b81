"""Files are written whole or not at all."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from fglbench.datasets import content
from fglbench.files import replacing, sweep, write_atomically


def test_a_file_is_replaced_whole_without_other_files_left(tmp_path: Path) -> None:
    path = tmp_path / "a/b/file.txt"
    for data in (b"old", b"new and longer"):
        write_atomically(path, data)
        assert path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [each.name for each in path.parent.iterdir()] == ["file.txt"]


def test_a_failed_write_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.txt"
    write_atomically(path, b"old")
    with pytest.raises(KeyboardInterrupt), replacing(path) as stream:  # noqa: PT012
        stream.write(b"half")
        (unfinished,) = tmp_path.glob(".*.tmp")  # a sweep finds it by its name
        assert unfinished.name.startswith(".file.txt.")
        raise KeyboardInterrupt

    def full(*paths: object) -> None:
        raise OSError("full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_content_and_folder_are_synced_before_the_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    sync, replace = os.fsync, os.replace

    def watched(handle: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(os, "replace", lambda *paths: (events.append("replace"), replace(*paths)))
    write_atomically(tmp_path / "file", b"x")
    assert events == ["file", "replace", "folder"]
    content.write({"label": np.arange(3)}, tmp_path / "data.npz")
    assert events == ["file", "replace", "folder"] * 2
    assert content.read(tmp_path / "data.npz")["label"].tolist() == [0, 1, 2]


def test_a_sweep_removes_files_of_dead_writers_only(tmp_path: Path) -> None:
    inner = tmp_path / "quick" / "history"
    inner.mkdir(parents=True)
    (tmp_path / "kept.csv").write_bytes(b"x")
    left = [tmp_path / ".a.csv.abc12345.tmp", inner / ".b.csv.abc12345.tmp"]
    for path in left:
        path.write_bytes(b"half")
    (tmp_path / ".folder.tmp").mkdir()
    with replacing(inner / "curves") as stream:
        stream.write(b"whole")
        sweep(tmp_path)
        assert len(list(inner.glob(".curves.*.tmp"))) == 1
    assert (inner / "curves").read_bytes() == b"whole"
    assert not any(path.exists() for path in left)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".folder.tmp", "kept.csv", "quick"]
    assert [path.name for path in inner.iterdir()] == ["curves"]


def test_writers_and_sweepers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    done = threading.Event()

    def sweeper() -> None:
        while not done.is_set():
            sweep(tmp_path)

    thread = threading.Thread(target=sweeper)
    thread.start()
    try:
        for number in range(200):
            write_atomically(tmp_path / f"{number}", b"x")
    finally:
        done.set()
        thread.join()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(map(str, range(200)))
