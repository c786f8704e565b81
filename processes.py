"""Start processes that know the package: workers, and the process that imports plug-ins.

On Linux, from Python 3.11, they are forks of a fork server of multiprocessing, which has imported torch and the
package: they start in 0.05 s instead of 2. The server starts with the first of them and ends with this process. If it
cannot start, they are spawned.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import forkserver, resource_tracker, spawn
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

UNGUARDED = 64  # exit code of a process that imports a script which calls `run` on import
GUARD = 'each worker imports the script, which calls `run` again; put the calls under `if __name__ == "__main__":`'
MARK = "FGLBENCH_WORKER"  # environment variable of a worker and of all processes that it starts
UNMARKED = "0" * 32  # its value in the fork server; a mark has the same length
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# Ctrl-C, a closed terminal and Ctrl-\ send signals to all processes of the terminal.
OF_TERMINALS = [getattr(signal, name) for name in ("SIGINT", "SIGHUP", "SIGQUIT") if hasattr(signal, name)]
_one_at_a_time = threading.RLock()  # for changes of the environment


def start(function: Callable[..., object], *arguments: Any, threads: int = 1, mark: str | None = None) -> BaseProcess:
    """Start a module-level function in a new process with this environment. It ignores the signals of terminals.

    threads: of OpenMP and linear algebra, whose libraries start them when they are loaded: a process with several is no
    fork. mark: value of `MARK`, as long as `UNMARKED`, in the environment of the process and of its descendants.
    """
    variables = dict.fromkeys(THREADS, str(threads)) | ({MARK: mark} if mark else {})
    _importable_main()
    resource_tracker.ensure_running()  # before a marked process starts it
    with _one_at_a_time:
        forked = warm_up(threads)
        entered = (function, arguments, {**os.environ, **variables})
        if forked:
            with suppress(EOFError, ConnectionError), _own_server():  # without it, if it has ended
                return _started("forkserver", entered)
        with _environment(variables):
            return _started("spawn", entered)


def _started(method: str, entered: tuple[Any, ...]) -> BaseProcess:
    context: Any = multiprocessing.get_context(method)
    process: BaseProcess = context.Process(target=_enter, args=entered, daemon=True)
    with _deaf_children():
        process.start()
    return process


def warm_up(threads: int = 1) -> bool:
    """Start the fork server, if processes with this number of threads are its forks. Return whether they are."""
    if sys.platform != "linux" or threads != 1:  # elsewhere, a fork of a process with torch is not safe
        return False
    if sys.version_info < (3, 11) or sys.flags.ignore_environment:  # the server would import from the current folder
        return False
    resource_tracker.ensure_running()  # it would unblock the signals that are blocked below
    modules = os.pathsep.join(map(str, spawn.get_preparation_data("")["sys_path"]))
    variables = {**dict.fromkeys(THREADS, "1"), MARK: UNMARKED, "PYTHONPATH": modules, "PYTHONSAFEPATH": "1"}
    try:
        with _one_at_a_time, _environment(variables), _deaf_children():
            _server(os.getpid()).ensure_running()
    except OSError:  # no folder for its socket, or one with a long path
        return False
    return True


@cache
def _server(pid: int) -> forkserver.ForkServer:
    """The server of this process. A process that the user forks needs another."""
    server = forkserver.ForkServer()
    server.set_forkserver_preload([f"{__name__.rpartition('.')[0]}.benchmark.runner.execute"])
    return server


@contextmanager
def _own_server() -> Iterator[None]:
    """Replace multiprocessing's own server, which is the user's: with other modules and another environment."""
    users = forkserver.connect_to_new_process
    forkserver.connect_to_new_process = _server(os.getpid()).connect_to_new_process
    try:
        yield
    finally:
        forkserver.connect_to_new_process = users


def _enter(function: Callable[..., object], arguments: Any, environment: Mapping[str, str]) -> None:
    ignore()
    if os.environ.get(MARK) == UNMARKED:  # a fork
        _write_mark(environment.get(MARK, UNMARKED))
    os.environ.clear()
    os.environ.update(environment)
    function(*arguments)


def _write_mark(mark: str) -> None:
    """Replace `UNMARKED` in the memory that the system shows as the environment of this process, and of its forks."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    if place := libc.getenv(MARK.encode()):  # else the script of the user has removed it
        ctypes.memmove(place, mark.encode(), len(UNMARKED))


def _importable_main() -> None:
    """Prevent new processes from importing a script from standard input, which has no file."""
    main = sys.modules["__main__"]
    if not Path(getattr(main, "__file__", None) or __file__).exists():
        del main.__file__


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables that a new process inherits."""
    before = {name: os.environ[name] for name in values if name in os.environ}
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Block the terminal's signals in processes that the block starts, until they call `ignore`."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_TERMINALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore() -> None:
    """Ignore the terminal's signals, which the process that started this one handles."""
    for number in OF_TERMINALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_TERMINALS)
