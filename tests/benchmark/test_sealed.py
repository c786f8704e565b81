"""The plain ways from a method to the labels of the datasets on disk, or to those in memory, end in a failed row."""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fglbench.benchmark.runner.execute import FederationCache, execute
from fglbench.benchmark.runner.sealed import sealed
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.selection import Request, select
from fglbench.methods.fedavg import FedAvg
from fglbench.registry import UserError

DISK, MEMORY = "reads the datasets on disk", "asks the garbage collector for objects"
WAYS: dict[str, tuple[Callable[[Path], object], str]] = {
    "open": (lambda path: path.open("rb"), DISK),
    "numpy": (np.load, DISK),
    "memory map": (lambda path: np.load(path, mmap_mode="r"), DISK),
    "descriptor": (lambda path: os.open(path, os.O_RDONLY), DISK),
    "bytes of a name": (lambda path: os.open(os.fsencode(path), os.O_RDONLY), DISK),
    "a way around": (lambda path: (path.parent / ".." / path.parent.name / path.name).read_bytes(), DISK),
    "a link": (lambda path: (path.parents[1] / "link").read_bytes(), DISK),
    "a hard link": (lambda path: os.link(path, path.parents[1] / "another"), DISK),
    "another name": (lambda path: path.rename(path.parents[1] / "another"), DISK),
    "a process": (lambda path: subprocess.check_output(["cat", str(path)]), DISK),
    "a shell": (lambda path: os.system(f"cat {path}"), DISK),
    "all objects": (lambda path: gc.get_objects(), MEMORY),
    "who refers": (lambda path: gc.get_referrers(path), MEMORY),
    "what is referred to": (lambda path: gc.get_referents(path), MEMORY),
}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the cache, to which a link leads."""
    path = tmp_path / "cache" / "data.npy"
    path.parent.mkdir()
    np.save(path, np.arange(3))
    (tmp_path / "link").symlink_to(path)
    monkeypatch.setenv("FGLBENCH_CACHE", str(path.parent))
    return path


@pytest.mark.parametrize("way", WAYS)
def test_a_way_to_the_labels_is_closed_while_a_method_runs(way: str, data: Path) -> None:
    go, what = WAYS[way]

    def method() -> None:
        with sealed(), pytest.raises(PermissionError):  # whoever lives with it fails in the end
            go(data)

    with pytest.raises(UserError, match=what):
        method()
    go(data)  # it is open again, and it is a way


def test_all_else_is_open(data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("own")
    (data.parent / "own_module.py").write_text("X = 1")
    with sealed():
        assert (tmp_path / "mine.txt").read_text() == "own"
        assert (data.parent / "own_module.py").read_text() == "X = 1"
        assert subprocess.check_output(["echo", "x"]) == b"x\n"


def test_a_cell_whose_method_looks_is_a_failed_row(
    data: Path, suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looks(method: FedAvg, cohort: object) -> None:
        with pytest.raises(PermissionError):
            data.read_bytes()

    _, cell = select(Request(suites=(suite,), methods=("fedavg",)))[0]
    found = []
    for _ in range(2):
        found.append(execute(cell, "tiny", Store(tmp_path), FederationCache(), {"environment": "0" * 12}))
        monkeypatch.setattr(FedAvg, "prepare", looks)
    assert [row.status for row in found] == ["ok", "failed"]
    assert found[1].error == "the method reads the datasets on disk, which it was not handed"
