"""The loss that nearly every method has: each client's mean cross-entropy, as one node of the graph of gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from .segment_ops import segment_sum

aten = torch.ops.aten
_NONE, _IGNORED = 0, -100  # of nll_loss: no reduction; the label that is left out


class _CrossEntropy(Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, rows: torch.Tensor, label: torch.Tensor, share: torch.Tensor,
        owner: torch.Tensor, clients: int,
    ) -> torch.Tensor:  # fmt: skip
        log = torch.log_softmax(logits.index_select(0, rows), 1)
        losses, total = aten.nll_loss_forward(log, label, None, _NONE, _IGNORED)
        ctx.save_for_backward(log, rows, label, share, owner, total)
        ctx.shape = logits.shape
        return segment_sum(losses * share, owner, clients)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        log, rows, label, share, owner, total = ctx.saved_tensors
        of_each = grad.index_select(0, owner).mul_(share)
        found = aten.nll_loss_backward(of_each, log, label, None, _NONE, _IGNORED, total)
        found = aten._log_softmax_backward_data(found, log, 1, log.dtype)
        return log.new_zeros(ctx.shape).index_copy_(0, rows, found), None, None, None, None, None


def cross_entropy(
    logits: torch.Tensor, rows: torch.Tensor, label: torch.Tensor, share: torch.Tensor, owner: torch.Tensor,
    clients: int,
) -> torch.Tensor:  # fmt: skip
    """(K,) sum over the given rows of share * -log softmax(logits)[label]: F.cross_entropy client by client.

    logits: (N, C). rows: (n,) row numbers, each once; label, share, owner: (n,) of each its class, its weight, and the
    position of the client that holds it. Its gradient has none of its own.
    """
    found: torch.Tensor = _CrossEntropy.apply(logits, rows, label, share, owner, clients)  # type: ignore[no-untyped-call]
    return found
