"""A plug-in with methods that start processes and leave them behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg

SLEEP = ["sleep", os.environ.get("LITTER", "1000")]


class Litter(FedAvg):
    """FedAvg that drops something in its first round."""

    def server(self, server, uploads):
        if server.round == 1:
            self.drop()
        return super().server(server, uploads)

    def drop(self):
        raise NotImplementedError


@METHODS.register("l-orphan")
class Orphan(Litter):
    """A grandchild without an environment, whose parent has gone: a daemon."""

    def drop(self):
        code = f"import os; os.fork() or (os.setsid(), os.execve('/bin/sleep', {SLEEP!r}, {{}}))"
        subprocess.run([sys.executable, "-c", code], check=True)


@METHODS.register("l-exit")
class LeavesToo(Litter):
    """A child in a session of its own, and then the worker itself goes."""

    def drop(self):
        subprocess.Popen(SLEEP, start_new_session=True)
        os._exit(3)


@METHODS.register("l-hang")
class HangsToo(Litter):
    """A daemon, and then the worker has to be killed."""

    def drop(self):
        Orphan.drop(self)
        time.sleep(3600)


@METHODS.register("l-fork")
class Forks(Litter):
    """A child without another program, in a session of its own, and then the worker itself goes."""

    def drop(self):
        if child := os.fork():
            Path(os.environ["FORKED"]).write_text(str(child))
            os._exit(3)
        os.setsid()
        time.sleep(3600)
