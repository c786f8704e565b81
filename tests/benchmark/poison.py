"""A plug-in with methods that change their process when they run with seed 0."""

from __future__ import annotations

import os
import threading
import time
from typing import ClassVar

import torch

from fglbench.benchmark.engine.target import Target
from fglbench.datasets import DATASETS
from fglbench.datasets.csbm import CSBM
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg

RAN: list[int] = []  # seeds that this process has run


def perfect(target, predicted, part):
    """Replaces the accuracy of the engine."""
    return torch.ones(target.clients)


class Poisons(FedAvg):
    """FedAvg that strikes with seed 0 after the training."""

    def open(self, server):
        RAN.append(server.seed)
        return super().open(server)

    def server(self, server, uploads):
        if server.round == 3 and RAN[-1] == 0:
            self.strike()
        return super().server(server, uploads)

    def strike(self):
        raise NotImplementedError


@METHODS.register("p-scores")
class Scores(Poisons):
    """Replaces the scoring of the engine."""

    def strike(self):
        Target.accuracy = perfect


@METHODS.register("p-torch")
class Torch(Poisons):
    """Replaces a function of torch."""

    def strike(self):
        torch.nn.functional.cross_entropy = lambda logits, label, **_: 0 * logits.sum(1)


@METHODS.register("p-class")
class Class(Poisons):
    """Replaces a function of a base class."""

    def strike(self):
        FedAvg.aggregate = lambda method, server, models: {name: 0 * value[0] for name, value in models.items()}


@METHODS.register("p-thread")
class Thread(Poisons):
    """Starts a thread that does not stop."""

    def strike(self):
        threading.Thread(target=self.forever, daemon=True).start()

    def forever(self):
        while True:
            Target.accuracy = perfect
            time.sleep(0.01)


@METHODS.register("p-remembers")
class Remembers(FedAvg):
    """Learns less the more cells its process has run."""

    runs: ClassVar[int] = 0

    def open(self, server):
        Remembers.runs += 1
        return super().open(server)

    def local_loss(self, clients):
        return super().local_loss(clients) / Remembers.runs**4


@DATASETS.register("p-data")
class Threaded(CSBM):
    """A dataset that leaves a thread running and records the process in which it was loaded."""

    def load(self):
        with open(os.environ["POISON_LOADS"], "a") as stream:
            stream.write(f"{os.getpid()}\n")
        if os.environ["POISON_THREAD"]:
            threading.Thread(target=time.sleep, args=(1000,)).start()
        return super().load()
