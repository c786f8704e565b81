"""Signals that ask a run to end: the driver alone answers them, and not in the middle of what has to be done whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Ctrl-C, a terminal that is closed and Ctrl-\ reach all processes of a terminal.
OF_TERMINALS = [getattr(signal, name) for name in ("SIGINT", "SIGHUP", "SIGQUIT") if hasattr(signal, name)]
ENDING = [*OF_TERMINALS, signal.SIGTERM]


@contextmanager
def as_interrupts() -> Iterator[None]:
    """What asks a run to end stops it as Ctrl-C does: workers end, what is finished is kept. nohup stays nohup."""
    before = {number: signal.getsignal(number) for number in ENDING if number != signal.SIGINT}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def afterwards() -> Iterator[None]:
    """A signal that Python handles and that comes during the block is handled after it: a row is stored whole, and all
    workers are ended, however often somebody asks."""
    if threading.current_thread() is not threading.main_thread():  # which alone handles signals
        yield
        return
    came: list[int] = []
    before = {number: handler for number in ENDING if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def deaf_children() -> Iterator[None]:
    """A process that the block starts gets no signal of a terminal before it calls `ignore`."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_TERMINALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore() -> None:
    """Leave signals of the terminal to the driver, as a process that was started with `deaf_children`."""
    for number in OF_TERMINALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_TERMINALS)
