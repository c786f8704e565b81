"""A plug-in that replaces the accuracy of the engine in every worker that imports it."""

from __future__ import annotations

import os

import torch

import fglbench
from fglbench.benchmark.engine.target import Target
from fglbench.methods.fedavg import FedAvg
from fglbench.processes import MARK


@fglbench.register("p-on-import")
class OnImport(FedAvg):
    pass


if MARK in os.environ:
    Target.accuracy = lambda target, predicted, part: torch.ones(target.clients)
