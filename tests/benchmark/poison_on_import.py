"""A plug-in that replaces the accuracy of the engine in every worker that imports it."""

from __future__ import annotations

import os

import torch

from fglbench.benchmark.engine.target import Target
from fglbench.processes import MARK

if MARK in os.environ:
    Target.accuracy = lambda target, predicted, part: torch.ones(target.clients)
