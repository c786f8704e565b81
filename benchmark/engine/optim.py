"""Local optimisers for a whole cohort: state carries the client axis, so every client has an optimiser of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from .config import TrainConfig
from .timing import section

Tensors = dict[str, torch.Tensor]
SLOTS = {"adam": ("mean", "square"), "sgd": ("momentum",)}  # what a parameter's state holds


@dataclass
class StackedOptimiser:
    """Adam or SGD with momentum over parameters (K, ...), arithmetic and defaults of torch.optim, fused.

    State is kept a name and a client: `steps` (K,) counts each client's own steps, because under partial participation
    they differ, and Adam's bias correction needs them.
    """

    config: TrainConfig
    state: dict[str, Tensors] = field(default_factory=dict)
    steps: Tensors = field(default_factory=dict)

    def reset(self) -> None:
        """Forget all state, as a new optimiser would."""
        self.state, self.steps = {}, {}

    @torch.no_grad()
    @section("optimiser")
    def step(self, params: Tensors, grads: Tensors, active: list[int] | None = None) -> None:
        """Update `params` in place. grads: the same names; a parameter without a gradient is left alone.

        active: positions of the clients that take the step; neither the parameters nor the state of the others move.
        """
        # The fused kernels walk memory and take a gradient for dense: a view, as of one of several parameters that
        # are used as one, would be misread without a word.
        grads = {name: grad.contiguous() for name, grad in grads.items()}
        if self.config.grad_clip is not None:
            grads = clip_per_client(grads, self.config.grad_clip)
        for name, grad in grads.items():
            if name not in self.state:
                self.state[name] = {slot: torch.zeros_like(grad) for slot in SLOTS[self.config.optimiser]}
                self.steps[name] = torch.zeros(len(grad))
        if self.config.optimiser == "adam":
            self._adam(params, grads, active)
        else:
            self._sgd(params, grads, active)
        for name in grads:
            if active is None:
                self.steps[name] += 1
            else:
                self.steps[name][active] += 1

    def _adam(self, params: Tensors, grads: Tensors, active: list[int] | None) -> None:
        rows: list[tuple[torch.Tensor, ...]] = []
        for name, grad in grads.items():
            slots, steps, taken = self.state[name], self.steps[name], self.steps[name].tolist()
            stack = (params[name], grad, slots["mean"], slots["square"])
            if active is None and taken.count(taken[0]) == len(taken):  # the usual case: one call updates the stack
                rows.append((*stack, steps[0].clone()))
            else:
                movers = range(len(steps)) if active is None else active
                rows += [(*(t[k] for t in stack), steps[k].clone()) for k in movers]
        weights, gradients, means, squares, counts = ([row[column] for row in rows] for column in range(5))
        adam(
            weights, gradients, means, squares, [], counts, fused=True, amsgrad=False, maximize=False,
            beta1=0.9, beta2=0.999, eps=1e-8, lr=self.config.lr, weight_decay=self.config.weight_decay,
        )  # fmt: skip

    def _sgd(self, params: Tensors, grads: Tensors, active: list[int] | None) -> None:
        # A zero buffer gives momentum * 0 + grad at the first step: what torch starts from.
        momentum = self.config.momentum
        weights, gradients = [params[name] for name in grads], list(grads.values())
        moments = [self.state[name]["momentum"] for name in grads]
        if active is not None:
            weights, gradients, moments = ([t[k] for t in own for k in active] for own in (weights, gradients, moments))
        buffers: list[torch.Tensor | None] = [own if momentum else None for own in moments]
        sgd(
            weights, gradients, buffers, fused=True, maximize=False,
            lr=self.config.lr, weight_decay=self.config.weight_decay, momentum=momentum, dampening=0.0, nesterov=False,
        )  # fmt: skip


def clip_per_client(grads: Tensors, bound: float) -> Tensors:
    """Scale each client's whole gradient to a 2-norm of at most `bound` (torch's clip_grad_norm_, client by client)."""
    norm = sum_squares(grads).sqrt()
    factor = (bound / (norm + 1e-6)).clamp(max=1.0)
    return {name: g * factor.view(-1, *[1] * (g.dim() - 1)) for name, g in grads.items()}


def sum_squares(params: Tensors) -> torch.Tensor:
    """(K,) sum of squares over all parameters, client by client."""
    return torch.stack([value.flatten(1).square().sum(1) for value in params.values()]).sum(0)
