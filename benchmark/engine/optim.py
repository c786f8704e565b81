"""Losses and optimisers with a client axis, and the counter of all optimiser steps of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.optim.sgd import sgd

from .config import TrainConfig
from .device import HOST, section
from .features import rows_of, stored
from .kernels import active_kernels, applied
from .lazy import in_parts, whole
from .payload import architecture
from .segment_ops import of_shape, segment_sum

if TYPE_CHECKING:
    from .backbone import Network

aten = torch.ops.aten
_NO_REDUCTION, _IGNORED = 0, -100  # arguments of nll_loss; the second is the label that is left out


class _CrossEntropy(Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, rows: torch.Tensor, label: torch.Tensor, share: torch.Tensor,
        owner: torch.Tensor, clients: int,
    ) -> torch.Tensor:  # fmt: skip
        log = torch.log_softmax(logits.index_select(0, rows), 1)
        losses, total = aten.nll_loss_forward(log, label, None, _NO_REDUCTION, _IGNORED)
        ctx.save_for_backward(log, rows, label, share, owner, total)
        ctx.shape = logits.shape
        return segment_sum(losses * share, owner, clients)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        log, rows, label, share, owner, total = ctx.saved_tensors
        of_each = grad.index_select(0, owner).mul_(share)
        gradient = aten.nll_loss_backward(of_each, log, label, None, _NO_REDUCTION, _IGNORED, total)
        gradient = aten._log_softmax_backward_data(gradient, log, 1, log.dtype)
        return active_kernels().put(log.new_zeros(ctx.shape), rows, gradient), None, None, None, None, None


def cross_entropy(
    logits: torch.Tensor, rows: torch.Tensor, label: torch.Tensor, share: torch.Tensor, owner: torch.Tensor,
    clients: int,
) -> torch.Tensor:  # fmt: skip
    """(K,) sum over the given rows of share * -log softmax(logits)[label]: F.cross_entropy client by client.

    logits: (N, C). rows: (n,) different row numbers; label, share, owner: (n,) the class, the weight and the client's
    position of each row. There is no second derivative.
    """
    return applied(_CrossEntropy, logits, rows, label, share, owner, clients)


Tensors = dict[str, torch.Tensor]
Stack = list[torch.Tensor]
Rows = Mapping[int | None, list[int]]  # by architecture: see `Network.rows`, `Network.positions`
SLOTS = {"adam": ("mean", "square"), "sgd": ("momentum",)}  # the state of a parameter


@dataclass
class StackedOptimiser:
    """Adam or SGD with momentum over parameters (K, ...), with torch.optim's arithmetic, defaults and fused kernels.

    State is kept per name and client. steps: (K,) per name, each client's number of steps for Adam's bias correction;
    they differ with partial participation. clients: their ids in order, for the run's step counter. network: theirs, if
    they have several architectures.
    """

    config: TrainConfig
    state: dict[str, Tensors] = field(default_factory=dict)
    steps: Tensors = field(default_factory=dict)
    clients: tuple[int, ...] = ()
    network: Network | None = None

    def reset(self) -> None:
        """Forget all state, as a new optimiser would."""
        self.state, self.steps = {}, {}

    @torch.no_grad()
    @section("optimiser")
    def step(self, params: Tensors, grads: Tensors, active: list[int] | None = None) -> None:
        """Update `params` in place. grads: the same names; a parameter without a gradient does not change.

        active: positions of the clients that take the step (None: all); parameters and state of the others do not
        change.
        """
        count_step(self.clients, list(grads), active)
        # The fused kernels assume contiguous gradients: they would give wrong results for a view, without an error.
        grads = {
            name: grad if self._by_rows(name, params[name], grad, active) else whole(grad).contiguous()
            for name, grad in grads.items()
        }
        if self.config.grad_clip is not None:
            grads = clip_per_client(
                grads, self.config.grad_clip, None if self.network is None else self.network.positions
            )
        for name, grad in grads.items():
            if name not in self.state:
                self.state[name] = {slot: _zeros(grad) for slot in SLOTS[self.config.optimiser]}
                self.steps[name] = torch.zeros(len(grad), device=HOST)
        rows = self._rows(active)
        for name in grads:
            if rows is None:
                self.steps[name] += 1
            else:
                self.steps[name][rows[architecture(name)]] += 1
        self._move(params, grads, rows)

    def _by_rows(self, name: str, param: torch.Tensor, grad: torch.Tensor, active: list[int] | None) -> bool:
        """Whether parameter, gradient and state are all stored by rows, and all clients are at the same step.

        Then untouched rows change equally at all clients: their gradient is zero, and the effect of weight decay and
        moments depends only on the number of the step.
        """
        state = self.state.get(name, {})
        first, *columns = [rows_of(value) for value in (param, grad, *state.values())]
        same = first is not None and all(column is not None and column.touched is first.touched for column in columns)
        return same and active is None and (name not in self.steps or _equal(self.steps[name].tolist()))

    def _rows(self, active: list[int] | None) -> Rows | None:
        if active is None:
            return None
        return {None: active} if self.network is None else self.network.rows(active)

    def _move(self, params: Tensors, grads: Tensors, rows: Rows | None) -> None:
        """One call of torch's fused kernel for all parameters."""
        stacks: list[tuple[torch.Tensor, ...]] = []
        counts: list[float] = []
        for name, grad in grads.items():
            columns, steps = (params[name], grad, *self.state[name].values()), self.steps[name].tolist()
            of_parameter, numbers = self._stacks(columns, steps, None if rows is None else rows[architecture(name)])
            stacks += of_parameter
            counts += numbers
        moved = [[stack[column] for stack in stacks] for column in range(2 + len(SLOTS[self.config.optimiser]))]
        if self.config.optimiser == "adam":
            self._adam(moved[0], moved[1], moved[2], moved[3], counts)
        else:
            self._sgd(*moved)

    def _stacks(
        self, columns: Sequence[torch.Tensor], steps: list[float], active: list[int] | None
    ) -> tuple[list[tuple[torch.Tensor, ...]], list[float]]:
        """The tensors of one parameter for the kernel, and the step number of each: stacks of all clients if possible,
        else one entry per client.

        columns: parameter, gradient, the slots of the state. steps: each client's count, this step included.
        """
        by_rows = [column for column in map(rows_of, columns) if column is not None]
        if len(by_rows) == len(columns):
            return stored(by_rows), [steps[0]] * 2
        stack = tuple(map(whole, columns))
        if active is None and (self.config.optimiser == "sgd" or _equal(steps)):  # the usual case
            return [stack], steps[:1]
        clients = range(len(steps)) if active is None else active
        return [tuple(t[k] for t in stack) for k in clients], [steps[k] for k in clients]

    def _adam(self, weights: Stack, gradients: Stack, means: Stack, squares: Stack, counts: list[float]) -> None:
        """The kernel of torch.optim.adam.adam(fused=True), without its Python code, which is slow for small models."""
        numbers = {count: torch.full((), count) for count in set(counts)}
        torch._fused_adam_(
            weights, gradients, means, squares, [], [numbers[count] for count in counts], amsgrad=False, maximize=False,
            beta1=0.9, beta2=0.999, eps=1e-8, lr=self.config.lr, weight_decay=self.config.weight_decay,
        )  # fmt: skip

    def _sgd(self, weights: Stack, gradients: Stack, moments: Stack) -> None:
        # The first step with a zero buffer gives momentum * 0 + grad, as in torch.
        momentum = self.config.momentum
        buffers: list[torch.Tensor | None] = [moment if momentum else None for moment in moments]
        sgd(
            weights, gradients, buffers, fused=True, maximize=False,
            lr=self.config.lr, weight_decay=self.config.weight_decay, momentum=momentum, dampening=0.0, nesterov=False,
        )  # fmt: skip


def _equal(steps: list[float]) -> bool:
    return steps.count(steps[0]) == len(steps)


def _zeros(grad: torch.Tensor) -> torch.Tensor:
    """The initial state, stored like the gradient."""
    rows = rows_of(grad)
    return torch.zeros_like(grad) if rows is None else in_parts(rows.zeros())


def clip_per_client(grads: Tensors, bound: float, positions: Rows | None) -> Tensors:
    """Scale each client's gradient to a 2-norm of at most `bound` (torch's clip_grad_norm_, client by client).

    positions: as for `sum_squares`.
    """
    of_all = (bound / (sum_squares(grads, positions).sqrt() + 1e-6)).clamp(max=1.0)
    clipped = {}
    for name, grad in grads.items():
        by_rows = rows_of(grad)
        factor = of_all if positions is None else of_all[positions[architecture(name)]]
        clipped[name] = grad * of_shape(factor, grad) if by_rows is None else in_parts(by_rows.scaled(factor))
    return clipped


def sum_squares(params: Tensors, positions: Rows | None = None) -> torch.Tensor:
    """(K,) sum of squares over all parameters, client by client. positions: the clients of each architecture, if there
    are several."""
    gradients = {name: each for name, value in params.items() if (each := rows_of(value)) and each.shared is None}
    squares = {
        name: gradients[name].sum_squares() if name in gradients else value.flatten(1).square().sum(1)
        for name, value in params.items()
    }
    if positions is None:
        return torch.stack([*squares.values()]).sum(0)
    total = next(iter(squares.values())).new_zeros(len(positions[None]))
    for name, of_parameter in squares.items():
        total[positions[architecture(name)]] += of_parameter
    return total


_Entry = tuple[tuple[int, ...], tuple[str, ...]]  # the clients and the parameters of a step
EVERYONE = -1  # instead of a client's id: steps of an optimiser without `clients`
_open: StepCounter | None = None


class StepCounter:
    """The optimiser steps of a run, by clients and parameters."""

    def __init__(self) -> None:
        self._entries: Counter[_Entry] = Counter()
        self.of_torch = 0  # of these, the steps of optimisers of torch.optim

    def add(self, clients: tuple[int, ...], names: tuple[str, ...]) -> None:
        """Count a step of these clients (empty: all) on these parameters."""
        self._entries[clients, names] += 1

    @property
    def total(self) -> int:
        """Steps of all clients; a joint step of several clients counts once."""
        return self._entries.total()

    def most(self, *, of_a_parameter: bool = False) -> int:
        """The largest number of steps of a client; with `of_a_parameter`, of a client on one parameter.

        They differ if clients train several models: of two models with one step each, 2 and 1.
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
    """Count a step of a client batch's optimiser. active: positions of the clients that take it (None: all)."""
    if _open is not None:
        moved = tuple(clients) if active is None else tuple(clients[p] for p in active if clients)
        _open.add(moved, tuple(names))


def count_torch_step(client: int, names: Sequence[str]) -> None:
    """Count a step of an optimiser of torch.optim at one client (`TorchMethod`)."""
    if _open is not None:
        _open.of_torch += 1
        _open.add((client,), tuple(names))
