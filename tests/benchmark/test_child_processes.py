"""Child processes of a cell end with the cell, for every way to start them and every ending of the cell."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from fglbench.benchmark.runner import process, system
from fglbench.benchmark.runner.system import cpu_seconds, ended_with
from fglbench.benchmark.store import load_results
from fglbench.processes import MARK

LITTER = Path(__file__).with_name("litter.py")
ENDINGS = {"l-orphan": "ok", "l-exit": "failed", "l-fork": "failed", "l-hang": "timeout"}

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="orphans find a new parent on Linux only")


def asleep(seconds: str) -> list[int]:
    processes = psutil.process_iter(["cmdline"])
    return [process.pid for process in processes if process.info["cmdline"] == ["sleep", seconds]]


def test_no_process_outlives_its_cell(tmp_path: Path) -> None:
    seconds = str(10**6 + uuid.uuid4().int % 10**6)
    arguments = ["run", "-m", ",".join(ENDINGS), "-d", "csbm", "-p", "uniform", "-k", "3", "--seeds", "1"]
    arguments += ["--set", "dataset.nodes=60", "--set", "training.rounds=2", "--timeout", "10"]
    arguments += ["--jobs", "1", "--results", str(tmp_path / "results")]
    code = "import sys; from fglbench.benchmark.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--plugin", str(LITTER)],
        env={**os.environ, "LITTER": seconds, "FORKED": str(tmp_path / "pid")},
        capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    left = asleep(seconds)
    for pid in left:
        psutil.Process(pid).kill()
    rows = load_results(tmp_path / "results")
    assert dict(zip(rows["method"], rows["status"], strict=True)) == ENDINGS, done.stdout + done.stderr
    assert rows.set_index("method").loc["l-exit", "error"] == "the worker ended with exit code 3"
    assert left == []
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_a_process_without_its_environment_yet_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = process.WorkerProcess(tmp_path / "log", process.Options())
    child = subprocess.Popen(["sleep", "100"], env={MARK: worker.mark})
    looks: list[str] = []

    def end_marked(mark: str) -> None:  # as if the first look came before the child's environment
        looks.append(mark)
        if len(looks) > 1:
            system.end_marked(mark)

    monkeypatch.setattr(process, "end_marked", end_marked)
    worker.process.kill()
    worker.process.join()
    worker.kill()
    assert len(looks) == 2 and not psutil.pid_exists(child.pid)


def test_only_child_processes_of_the_block_end_with_it() -> None:
    before = subprocess.Popen(["sleep", "100"])
    spent = cpu_seconds()
    with ended_with():
        inside = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        while psutil.Process(inside.pid).cpu_times().user < 0.1:
            pass
    assert not psutil.pid_exists(inside.pid)
    assert before.poll() is None
    before.kill()
    before.wait()
    assert cpu_seconds() - spent >= 0.1
