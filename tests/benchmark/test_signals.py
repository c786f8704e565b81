"""A run that is stopped by any signal at any moment: no row is lost, no process stays, a new run resumes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import fglbench
from fglbench.benchmark.runner.system import afterwards, as_interrupts
from fglbench.benchmark.store import Store
from fglbench.benchmark.submission.listing import Findings
from fglbench.benchmark.submission.read import read

CODE = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from fglbench.benchmark.cli import main; sys.exit(main())"
)
STOPPED = "fglbench: stopped; the same command continues from here\n"
CELLS = 12
POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX only")


@pytest.fixture(autouse=True)
def default_hangup() -> Iterator[None]:
    """Under nohup this signal is ignored, also by the runs that a test starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL) if os.name == "posix" else None
    yield
    if before is not None:
        signal.signal(signal.SIGHUP, before)


@pytest.fixture
def long_suite(tiny: str, tmp_path: Path) -> str:
    """A suite of CELLS cells, each of which takes a while."""
    path = tmp_path / "tiny.yaml"
    path.write_text(tiny.replace("rounds: 3", "rounds: 200").replace("seeds: 2", f"seeds: {CELLS // 2}"))
    return str(path)


class Driver:
    """A run in a new session; a variable of the environment marks its processes."""

    def __init__(self, suite: str, results: Path) -> None:
        self.word = f"{results}-{time.monotonic_ns()}"
        run = [sys.executable, "-c", CODE, "run", "-s", suite, "--results", str(results), "--jobs", "2"]
        environment = {**os.environ, "OF_THIS_RUN": self.word}
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(run, env=environment, start_new_session=True, **pipes)

    def alive(self) -> list[psutil.Process]:
        """All of its processes but resource trackers, which end by themselves."""
        return [process for process in psutil.process_iter() if self._ours(process)]

    def _ours(self, process: psutil.Process) -> bool:
        try:
            ours = process.environ().get("OF_THIS_RUN") == self.word and process.status() != psutil.STATUS_ZOMBIE
            return ours and "resource_tracker" not in str(process.cmdline())
        except psutil.Error:
            return False

    def send(self, number: int, *, group: bool) -> None:
        if self.process.poll() is None:
            (os.killpg if group else os.kill)(self.process.pid, number)


def wait_until(condition, what: str) -> None:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() - begun < 120, f"no {what}"
        time.sleep(0.05)


def check_ended(driver: Driver, results: Path) -> None:
    _, errors = driver.process.communicate(timeout=120)
    assert (driver.process.returncode, errors) == (130, STOPPED)
    wait_until(lambda: not driver.alive(), "end of its processes")
    check_folder(results)


def check_folder(results: Path) -> None:
    """All rows are ok, with their curves, once each; no other file is in the folder."""
    rows = Store(results).rows("tiny")
    assert [row.error for row in rows if row.status != "ok"] == []
    assert len(rows) == len({row.key for row in rows})
    assert all(Store(results).history("tiny", row.key) for row in rows)
    findings = Findings()
    read(results, "results", findings)
    assert findings.errors == []


def check_resumes(suite: str, results: Path) -> None:
    before = Store(results).rows("tiny")
    frame = fglbench.run(suites=[suite], results=results, in_process=True)
    assert list(frame["status"]) == ["ok"] * CELLS
    after = Store(results).rows("tiny")
    assert len(after) == CELLS and all(row in after for row in before)
    check_folder(results)
    assert not list(results.rglob(".*.tmp")) and not list((results / ".logs").glob("worker-*"))


def interrupted(suite: str, results: Path, number: int, *, group: bool, times: int = 1) -> None:
    """Stops a run in the middle of its cells."""
    store, driver = Store(results), Driver(suite, results)
    rows = len(store.rows("tiny")) if results.exists() else 0
    wait_until(lambda: results.exists() and len(store.rows("tiny")) > rows, "row")
    for _ in range(times):
        driver.send(number, group=group)
    check_ended(driver, results)


@POSIX
def test_a_closed_terminal_ends_a_run_without_losing_a_row(long_suite: str, tmp_path: Path) -> None:
    interrupted(long_suite, tmp_path / "results", signal.SIGHUP, group=True, times=2)
    check_resumes(long_suite, tmp_path / "results")


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize("group", [False, True])
def test_every_signal_ends_a_run_without_losing_a_row(long_suite: str, tmp_path: Path, group: bool) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        interrupted(long_suite, tmp_path / "results", number, group=group)
    check_resumes(long_suite, tmp_path / "results")


@POSIX
@pytest.mark.slow
def test_signals_at_any_moment_lose_no_row(long_suite: str, tmp_path: Path) -> None:
    """While it starts, too, where Python itself may be what a signal ends: then there is no farewell."""
    source, results = random.Random(0), tmp_path / "results"
    results.mkdir()
    for _ in range(10):
        driver = Driver(long_suite, results)
        time.sleep(source.uniform(0.5, 12))
        number, group = source.choice([signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]), source.random() < 0.5
        for _ in range(source.choice([1, 3])):
            driver.send(number, group=group)
            time.sleep(source.uniform(0, 0.2))
        _, errors = driver.process.communicate(timeout=120)
        assert driver.process.returncode in (0, 130, -number)
        assert "Traceback" not in errors
        wait_until(lambda: not driver.alive(), "end of its processes")  # noqa: B023
        check_folder(results)
    check_resumes(long_suite, results)


@POSIX
def test_a_signal_waits_for_the_end_of_a_protected_block() -> None:
    done = []

    def work() -> None:
        with afterwards():
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
                signal.raise_signal(number)
                done.append(number)
        done.append("never")

    with as_interrupts(), pytest.raises(KeyboardInterrupt):
        work()
    assert done == [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
    with as_interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    with as_interrupts():
        signal.raise_signal(signal.SIGHUP)
        with afterwards():
            signal.raise_signal(signal.SIGHUP)
    signal.signal(signal.SIGHUP, before)


@POSIX
def test_ignored_signals_are_not_blocked() -> None:
    code = (
        "import signal; from fglbench.processes import OF_TERMINALS, ignore; "
        "signal.pthread_sigmask(signal.SIG_BLOCK, OF_TERMINALS); ignore(); "
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, []) & set(OF_TERMINALS), "
        "{signal.getsignal(number) for number in OF_TERMINALS})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("set() {<Handlers.SIG_IGN")
