"""Starting processes, in a package with nothing but `processes.py`, so that they start at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fglbench import processes
from fglbench.benchmark.runner.process import SERVER_ENDED, WorkerProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forks of a server on Linux only")
FORKED = "Fork" * (sys.version_info >= (3, 11))
SCRIPT = """
import multiprocessing, os, sys, threading
from concurrent.futures import ProcessPoolExecutor
from light.processes import MARK, THREADS, start

def report(pipe):
    preloaded = getattr(sys.modules.get("light.benchmark.runner.execute"), "PLACE", "")
    pipe.send((preloaded, os.environ.get(MARK), os.environ.get("NEW")))

def answer(pipe):
    pipe.send(os.getppid())
    pipe.send(pipe.recv())

def asked(mark=None):
    pipe, theirs = multiprocessing.Pipe()
    process = start(report, theirs, mark=mark)
    theirs.close()
    answer = pipe.recv()
    process.join()
    return answer

def seen(_):
    return os.environ.get(MARK), os.environ.get("NEW")

def users(method, function):
    with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as pool:
        return pool.submit(function, None).result()

if __name__ == "__main__":
"""


@pytest.fixture
def ran(tmp_path):
    """Run the end of a script, in a folder with another package of that name. Returns its output."""
    for name in ("here", "other"):
        folder = tmp_path / name / "light" / "benchmark" / "runner"
        folder.mkdir(parents=True)
        shutil.copy(processes.__file__, tmp_path / name / "light")
        (folder / "execute.py").write_text("PLACE = 'Fork'" if name == "here" else "PLACE = 'other'")
    script, package = tmp_path / "here" / "script.py", tmp_path / "here" / "light"

    def run(code: str, execute: str = "", **environment: str) -> str:
        if execute:
            (package / "benchmark" / "runner" / "execute.py").write_text(execute)
        script.write_text(SCRIPT + "".join(f"    {line}\n" for line in code.splitlines()))
        plain = {name: value for name, value in os.environ.items() if name not in processes.THREADS}
        done = subprocess.run(
            [sys.executable, str(script)], env=plain | environment, cwd=tmp_path / "other", capture_output=True,
            text=True, timeout=60,
        )  # fmt: skip
        assert not done.returncode, done.stderr
        return done.stdout

    return run


def test_the_fork_server_is_not_the_one_of_the_user(ran):
    mark = "1" * 32
    code = f"""users("forkserver", seen)
print(*asked({mark!r}))
os.environ["NEW"] = "new"
print(*users("forkserver", seen))
print(*users("fork", asked))"""
    assert ran(code).splitlines() == [f"{FORKED} {mark} None", "None None", f"{FORKED} None new"]


def test_processes_from_several_threads_leave_the_environment_as_it_is(ran):
    code = """threads = [threading.Thread(target=lambda: [asked() for _ in range(9)]) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print([name for name in (MARK, *THREADS) if name in os.environ])"""
    assert ran(code) == "[]\n"


def test_without_a_fork_server_processes_start_all_the_same(ran, tmp_path):
    long = tmp_path / ("long" * 25)
    long.mkdir()
    assert ran("print(*asked())", TMPDIR=str(long)) == " None None\n"
    broken = "import sys\nif 'forkserver' in sys.orig_argv[-1]: raise RuntimeError"
    assert ran("print(*asked())", broken) == " None None\n"


def test_a_worker_goes_on_without_its_fork_server(ran):
    code = """import signal
pipe, theirs = multiprocessing.Pipe()
process = start(answer, theirs)
os.kill(pipe.recv(), signal.SIGKILL)
process.join()
print(process.exitcode)
pipe.send("gone on")
print(pipe.recv())"""
    assert ran(code) == f"{SERVER_ENDED}\ngone on\n"


def test_a_cell_is_tried_again_if_only_the_fork_server_was_killed(tmp_path):
    worker = WorkerProcess.__new__(WorkerProcess)
    worker.oom_kills, worker.log = None, tmp_path / "none"
    for pid, again in ((os.getpid(), True), (2**22 + 1, False)):  # a process, and none
        worker.process = SimpleNamespace(is_alive=lambda: False, join=lambda: None, exitcode=SERVER_ENDED, pid=pid)
        assert worker.ended().outside == again
