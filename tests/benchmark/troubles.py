"""A plug-in with methods that fail in every way a cell can fail."""

from __future__ import annotations

import os
import signal
import time

import torch

from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg


class Trouble(FedAvg):
    """FedAvg until the second round ends."""

    def server(self, server, uploads):
        if server.round == 2:
            self.strike()
        return super().server(server, uploads)

    def strike(self):
        raise NotImplementedError


@METHODS.register("t-killed")
class Killed(Trouble):
    """As with kill -9."""

    def strike(self):
        os.kill(os.getpid(), signal.SIGKILL)


@METHODS.register("t-killed-once")
class KilledOnce(Trouble):
    """Killed by a user once."""

    def strike(self):
        if not os.path.exists(os.environ["TROUBLES_MARK"]):
            open(os.environ["TROUBLES_MARK"], "x").close()
            os.kill(os.getpid(), signal.SIGKILL)


@METHODS.register("t-painted")
class Painted(Trouble):
    """An exception with control characters for the terminal and for text direction."""

    def strike(self):
        raise ValueError("\x1b[31mred\x1b[0m \u202eback\u202c\x07 \x1b]0;title\x07" + "x" * 3000)


@METHODS.register("t-hang")
class Hang(Trouble):
    """Never ends."""

    def strike(self):
        time.sleep(3600)


@METHODS.register("t-bug")
class Bug(Trouble):
    """An exception of two lines."""

    def strike(self):
        raise ValueError("first line\nsecond line")


@METHODS.register("t-memory-error")
class OutOfMemory(Trouble):
    """The exception of Python."""

    def strike(self):
        raise MemoryError


@METHODS.register("t-allocation")
class Allocation(Trouble):
    """The exception of torch."""

    def strike(self):
        torch.empty(1 << 50)


@METHODS.register("t-hungry")
class Hungry(Trouble):
    """Holds a GiB of memory."""

    def strike(self):
        held = bytearray(b"x") * (1 << 30)
        time.sleep(3600)
        del held


@METHODS.register("t-diverges")
class Diverges(Trouble):
    """A model with nan."""

    def aggregate(self, server, models):
        return {name: value * float("nan") for name, value in super().aggregate(server, models).items()}

    def strike(self):
        pass


@METHODS.register("t-skips")
class Skips(FedAvg):
    """Is skipped."""

    def skip(self, facts, backbones):
        return "needs a moon"
