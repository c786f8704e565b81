"""A plug-in that makes workers report a GPU while they compute on the CPU, and a method that notes which GPUs its
worker sees and waits until a given number of runs have done so."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg
from fglbench.processes import MARK

if MARK in os.environ:  # a worker, and not the process of the test
    from fglbench.benchmark.runner import execute

    plain, train = torch.zeros, execute.train
    cards = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))

    def zeros(*size: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        if device is not None and torch.device(device).type == "cuda" and torch.device(device).index < cards:
            return plain(*size, **kwargs)
        return plain(*size, device=device, **kwargs)

    torch.zeros = zeros
    torch.cuda.get_device_properties = lambda device: SimpleNamespace(name="imagined", total_memory=2**30)
    torch.cuda.reset_peak_memory_stats = lambda device: None
    torch.cuda.max_memory_allocated = lambda device: 2**20
    execute.train = lambda *args, device, **kwargs: train(*args, **kwargs)


@METHODS.register("t-sees")
class Sees(FedAvg):
    """FedAvg that notes the GPUs of its worker."""

    def prepare(self, clients: Any) -> None:
        super().prepare(clients)
        folder, wanted = Path(os.environ["SEEN_FOLDER"]), int(os.environ["SEEN_BY"])
        (folder / str(clients.streams.seed)).write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
        deadline = time.monotonic() + 120
        while len(list(folder.iterdir())) < wanted and time.monotonic() < deadline:
            time.sleep(0.05)
