"""Losses and optimisers with a client axis. Every optimiser step of a run is counted, where it is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.optim.sgd import sgd

from .config import TrainConfig
from .device import HOST, section
from .kernels import active_kernels
from .lazy import in_parts, whole
from .row_sparse import rows_of, stored
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
        gradient = aten.nll_loss_backward(of_each, log, label, None, _NONE, _IGNORED, total)
        gradient = aten._log_softmax_backward_data(gradient, log, 1, log.dtype)
        return active_kernels().put(log.new_zeros(ctx.shape), rows, gradient), None, None, None, None, None


def cross_entropy(
    logits: torch.Tensor, rows: torch.Tensor, label: torch.Tensor, share: torch.Tensor, owner: torch.Tensor,
    clients: int,
) -> torch.Tensor:  # fmt: skip
    """(K,) sum over the given rows of share * -log softmax(logits)[label]: F.cross_entropy client by client.

    logits: (N, C). rows: (n,) row numbers, each once; label, share, owner: (n,) of each its class, its weight, and the
    position of the client that holds it. Its gradient has none of its own.
    """
    losses: torch.Tensor = _CrossEntropy.apply(logits, rows, label, share, owner, clients)  # type: ignore[no-untyped-call]
    return losses


Tensors = dict[str, torch.Tensor]
Stack = list[torch.Tensor]
SLOTS = {"adam": ("mean", "square"), "sgd": ("momentum",)}  # what a parameter's state holds


@dataclass
class StackedOptimiser:
    """Adam or SGD with momentum over parameters (K, ...), arithmetic and defaults of torch.optim, fused.

    State is kept per name and client: `steps` (K,) counts each client's own steps, because under partial participation
    they differ, and Adam's bias correction needs them. clients: whose, in order, for the run's step counter.
    """

    config: TrainConfig
    state: dict[str, Tensors] = field(default_factory=dict)
    steps: Tensors = field(default_factory=dict)
    clients: tuple[int, ...] = ()

    def reset(self) -> None:
        """Forget all state, as a new optimiser would."""
        self.state, self.steps = {}, {}

    @torch.no_grad()
    @section("optimiser")
    def step(self, params: Tensors, grads: Tensors, active: list[int] | None = None) -> None:
        """Update `params` in place. grads: the same names; a parameter without a gradient is left alone.

        active: positions of the clients that take the step; neither the parameters nor the state of the others move.
        """
        count_step(self.clients, list(grads), active)
        # The fused kernels walk memory and take a gradient for dense: a view, as of one of several parameters that
        # are used as one, would be misread without a word.
        grads = {
            name: grad if self._by_rows(name, params[name], grad, active) else whole(grad).contiguous()
            for name, grad in grads.items()
        }
        if self.config.grad_clip is not None:
            grads = clip_per_client(grads, self.config.grad_clip)
        for name, grad in grads.items():
            if name not in self.state:
                self.state[name] = {slot: _zeros(grad) for slot in SLOTS[self.config.optimiser]}
                self.steps[name] = torch.zeros(len(grad), device=HOST)
        for name in grads:
            if active is None:
                self.steps[name] += 1
            else:
                self.steps[name][active] += 1
        self._move(params, grads, active)

    def _by_rows(self, name: str, param: torch.Tensor, grad: torch.Tensor, active: list[int] | None) -> bool:
        """Whether parameter, gradient and state are all stored by rows, and all clients are at the same step.

        Then the rows that no client touches move equally everywhere: they get no gradient, and what decay and moments
        do to them depends on the step's number alone.
        """
        state = self.state.get(name, {})
        first, *columns = [rows_of(value) for value in (param, grad, *state.values())]
        alike = first is not None and all(column is not None and column.touched is first.touched for column in columns)
        return alike and active is None and (name not in self.steps or _equal(self.steps[name].tolist()))

    def _move(self, params: Tensors, grads: Tensors, active: list[int] | None) -> None:
        """One call of torch's fused kernel for all parameters."""
        stacks: list[tuple[torch.Tensor, ...]] = []
        counts: list[float] = []
        for name, grad in grads.items():
            columns, steps = (params[name], grad, *self.state[name].values()), self.steps[name].tolist()
            movers, numbers = self._stacks(columns, steps, active)
            stacks += movers
            counts += numbers
        moved = [[stack[column] for stack in stacks] for column in range(2 + len(SLOTS[self.config.optimiser]))]
        if self.config.optimiser == "adam":
            self._adam(moved[0], moved[1], moved[2], moved[3], counts)
        else:
            self._sgd(*moved)

    def _stacks(
        self, columns: Sequence[torch.Tensor], steps: list[float], active: list[int] | None
    ) -> tuple[list[tuple[torch.Tensor, ...]], list[float]]:
        """What to move of one parameter, and the step's number of each: whole stacks if it can be, else by client.

        columns: parameter, gradient, the slots of the state. steps: each client's count, the coming step included.
        """
        by_rows = [column for column in map(rows_of, columns) if column is not None]
        if len(by_rows) == len(columns):
            return stored(by_rows), [steps[0]] * 2
        stack = tuple(map(whole, columns))
        if active is None and (self.config.optimiser == "sgd" or _equal(steps)):  # the usual case
            return [stack], steps[:1]
        movers = range(len(steps)) if active is None else active
        return [tuple(t[k] for t in stack) for k in movers], [steps[k] for k in movers]

    def _adam(self, weights: Stack, gradients: Stack, means: Stack, squares: Stack, counts: list[float]) -> None:
        """What torch.optim.adam.adam(fused=True) does, without its Python, which takes longer than a small model."""
        numbers = {count: torch.full((), count) for count in set(counts)}
        torch._fused_adam_(
            weights, gradients, means, squares, [], [numbers[count] for count in counts], amsgrad=False, maximize=False,
            beta1=0.9, beta2=0.999, eps=1e-8, lr=self.config.lr, weight_decay=self.config.weight_decay,
        )  # fmt: skip

    def _sgd(self, weights: Stack, gradients: Stack, moments: Stack) -> None:
        # A zero buffer gives momentum * 0 + grad at the first step: what torch starts from.
        momentum = self.config.momentum
        buffers: list[torch.Tensor | None] = [moment if momentum else None for moment in moments]
        sgd(
            weights, gradients, buffers, fused=True, maximize=False,
            lr=self.config.lr, weight_decay=self.config.weight_decay, momentum=momentum, dampening=0.0, nesterov=False,
        )  # fmt: skip


def _equal(steps: list[float]) -> bool:
    return steps.count(steps[0]) == len(steps)


def _zeros(grad: torch.Tensor) -> torch.Tensor:
    """A state's start, stored as the gradient is."""
    rows = rows_of(grad)
    return torch.zeros_like(grad) if rows is None else in_parts(rows.zeros())


def clip_per_client(grads: Tensors, bound: float) -> Tensors:
    """Scale each client's whole gradient to a 2-norm of at most `bound` (torch's clip_grad_norm_, client by client)."""
    norm = sum_squares(grads).sqrt()
    factor = (bound / (norm + 1e-6)).clamp(max=1.0)
    return {
        name: g * factor.view(-1, *[1] * (g.dim() - 1)) if rows is None else in_parts(rows.scaled(factor))
        for name, g in grads.items()
        for rows in (rows_of(g),)
    }


def sum_squares(params: Tensors) -> torch.Tensor:
    """(K,) sum of squares over all parameters, client by client."""
    gradients = {name: rows for name, value in params.items() if (rows := rows_of(value)) and rows.shared is None}
    return torch.stack(
        [
            gradients[name].sum_squares() if name in gradients else value.flatten(1).square().sum(1)
            for name, value in params.items()
        ]
    ).sum(0)


_Entry = tuple[tuple[int, ...], tuple[str, ...]]  # clients, and the parameters that a step moved
EVERYONE = -1  # in the place of a client: steps of an optimiser that does not say whose it is
_open: StepCounter | None = None


class StepCounter:
    """Steps of a run, by clients and parameters."""

    def __init__(self) -> None:
        self._entries: Counter[_Entry] = Counter()
        self.of_torch = 0  # steps of optimisers of torch.optim among them

    def add(self, clients: tuple[int, ...], names: tuple[str, ...]) -> None:
        """A step of these clients on these parameters. No client named: all of them."""
        self._entries[clients, names] += 1

    @property
    def total(self) -> int:
        """Steps of all clients: those of clients that step together count once."""
        return self._entries.total()

    def most(self, *, of_a_parameter: bool = False) -> int:
        """Steps of the client that took most; or the most that a client took on one parameter.

        Clients that train two models side by side, each for an epoch, take twice the steps that a parameter gets.
        """
        steps: Counter[tuple[int, str]] = Counter()
        for (clients, names), count in self._entries.items():
            for client in clients or (EVERYONE,):
                for name in names if of_a_parameter else ("",):
                    steps[client, name] += count
        return max((n + steps[EVERYONE, p] * (client != EVERYONE) for (client, p), n in [*steps.items()]), default=0)


@contextmanager
def counting() -> Iterator[StepCounter]:
    """Yield a new step counter that counts every optimiser step inside the block."""
    global _open
    before, _open = _open, StepCounter()
    try:
        yield _open
    finally:
        _open = before


def count_step(clients: Sequence[int], names: Sequence[str], active: Sequence[int] | None) -> None:
    """Count a step of a client batch's optimiser; active: positions of the clients that take it (None: all)."""
    if _open is not None:
        moved = tuple(clients) if active is None else tuple(clients[p] for p in active if clients)
        _open.add(moved, tuple(names))


def count_torch_step(client: int, names: Sequence[str]) -> None:
    """A step of an optimiser of torch.optim at one client (`TorchMethod`)."""
    if _open is not None:
        _open.of_torch += 1
        _open.add((client,), tuple(names))
