"""How often gradients are taken, by whatever way: what the ledger of steps is held against."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

# All ways to a gradient, torch.func's included, end in this one; how it is called is PyTorch's affair.
ENGINE = "torch.autograd._engine_run_backward"


@contextlib.contextmanager
def observed() -> Iterator[Counter[str]]:
    """Counts as the block runs: "gradients" (passes of autograd's engine) and "optimisers" (steps of torch.optim's)."""
    seen: Counter[str] = Counter()
    engine = torch.autograd._engine_run_backward

    def counted(*args: Any, **options: Any) -> Any:
        seen["gradients"] += 1
        return engine(*args, **options)

    def stepping(*_: Any) -> None:
        seen["optimisers"] += 1

    hook = register_optimizer_step_pre_hook(stepping)
    try:
        with mock.patch(ENGINE, counted):
            yield seen
    finally:
        hook.remove()
