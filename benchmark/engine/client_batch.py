"""A client batch: clients that train together, with their data, models, private state and streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...registry import UserError
from .backbone import Forward, Network, Params
from .batch import Batch, collate
from .config import TrainConfig
from .device import section
from .features import Features, Touched, rows_of, spread
from .lazy import Lazy
from .optim import StackedOptimiser, Tensors, cross_entropy, sum_squares
from .payload import Tree, architecture
from .rng import Streams
from .segment_ops import is_shared, of_shape, segment_sum

Loss = Callable[["ClientBatch"], torch.Tensor]
Adjust = Callable[["ClientBatch", Tensors], Tensors]
STATISTICS = ("running_mean", "running_var")


class Skip(Exception):
    """A method does not apply to a federation; the message is the reason."""


class ClientBatch:
    """K clients in one batch: data, models, private state, optimisers, random streams.

    ids: numbers of the clients in the federation. batch: all their data in client order; data: the same, one batch per
    architecture. sums_first: see `Batch`.
    params: the clients' models, (K, ...). state: values that a method keeps at its clients between rounds, a tree whose
    leaves have one entry per client. received: the last download, leaves (K, ...). shared: the result of `Step.shared`.
    cache: values computed from data and state, which can be computed again; a selection starts with an empty cache.
    epochs: the number of local epochs of each client in this round, if clients straggle; None: all local epochs.
    """

    def __init__(
        self,
        members: Sequence[Any],
        network: Network,
        config: TrainConfig,
        streams: Streams,
        classes: int,
        features: int,
        *,
        sums_first: bool = False,
    ) -> None:
        self.members: list[Any] = list(members)  # `NodeClient`s, unless a subclass holds other data
        self.network, self.config, self.streams = network, config, streams
        self.classes, self.features, self.sums_first = classes, features, sums_first
        self.ids = network.clients
        self._collate()
        self.params: Params = {}
        self.state: dict[str, Any] = {}
        self.received: Tree = {}
        self.shared: Any = None
        self.cache: dict[str, Any] = {}
        self.epochs: tuple[int, ...] | None = None
        self.round = 0  # 1-based, within the phase
        self._optimisers: dict[str, StackedOptimiser] = {}
        self._parts: dict[tuple[int, ...], ClientBatch] = {}
        self._needed_whole: set[str] = set()  # parameters that training cannot use by rows

    def _collate(self) -> None:
        """Put the members' data in one batch."""
        self.batch: Batch = self._batch_of(self.members)
        self.data: tuple[Batch, ...] = (
            tuple(self._batch_of([self.members[p] for p in group.positions]) for group in self.network.groups)
            if self.network.heterogeneous
            else (self.batch,)
        )

    def _batch_of(self, members: Sequence[Any]) -> Batch:
        """Return the data of some of the members as one batch."""
        return replace(collate(members), sums_first=self.sums_first)

    def __len__(self) -> int:
        return len(self.ids)

    # -- partial participation ------------------------------------------------------------------------------------

    def select(self, positions: Sequence[int]) -> ClientBatch:
        """A client batch of some of the clients, with copies of their models and state; `absorb` copies them back."""
        key = tuple(positions)
        if key not in self._parts:
            if len(self._parts) >= 8:  # enough for small K, where subsets recur; for large K each round has a new one
                self._parts.pop(next(iter(self._parts)))
            self._parts[key] = self._part(key)
        part = self._parts[key]
        part._needed_whole = self._needed_whole
        part.params = self.network.take(self.params, key)
        part.state = self.network.take(self.state, key)
        part._optimisers = {
            name: part._new_optimiser(self.network.take(stacked.state, key), self.network.take(stacked.steps, key))
            for name, stacked in self._optimisers.items()
        }
        return part

    def _part(self, positions: Sequence[int]) -> ClientBatch:
        """A new client batch of some of the clients, with data, network and streams, without models and state."""
        return type(self)(
            [self.members[p] for p in positions],
            self.network.select(positions),
            self.config,
            self.streams.select(positions),
            self.classes,
            self.features,
            sums_first=self.sums_first,
        )

    def absorb(self, part: ClientBatch, positions: Sequence[int]) -> None:
        """Copy the models, state and optimisers of a selection back."""
        self.params = self.network.put(self.params, positions, part.params)
        self.state = self.network.put(self.state, positions, part.state)
        for name, optimiser in part._optimisers.items():
            mine = self._optimiser(name)
            mine.state = self.network.put(mine.state, positions, optimiser.state)
            mine.steps = self.network.put(mine.steps, positions, optimiser.steps)

    def learner(self, lr: float, weight_decay: float = 0.0, members: Sequence[Any] | None = None) -> ClientBatch:
        """The same clients, to train another model: Adam with this rate and weight decay, state kept across rounds, no
        clipping. members: other data of the same clients."""
        config = self.config.model_copy(
            update={"optimiser": "adam", "lr": lr, "weight_decay": weight_decay}
            | {"keep_optimiser": True, "grad_clip": None}
        )
        data = self.members if members is None else members
        size = self.classes, self.features
        return type(self)(data, self.network, config, self.streams, *size, sums_first=self.sums_first)

    # -- models -----------------------------------------------------------------------------------------------------

    def forward(self, params: Params | None = None, *, training: bool = True) -> Forward:
        """The clients' models (or `params` of the same shapes) on their own data."""
        streams = self.streams if training else None
        return self.network.forward(self.params if params is None else params, self.data, streams)

    @section("aggregation")
    def load(self, values: Params) -> None:
        """Replace parameters (all or some names) by copies of `values`.

        Equal input weights for all clients are stored by the rows that each client's data touch (`features`), unless
        training has needed them whole before.
        """
        self.params = self.params | {
            name: value.clone() if touched is None else spread(value[0], touched)
            for name, value in values.items()
            for touched in (self._touched(name, value),)
        }

    def _touched(self, name: str, value: torch.Tensor) -> Touched | None:
        """The input rows that the clients touch, if storing this parameter by rows takes less memory; else None."""
        equal = value.dim() == 3 and value.dtype == torch.float32 and not isinstance(value, Lazy) and is_shared(value)
        x = self.inputs
        if not equal or name in self._needed_whole or x is None or not x.sparse or value.shape[1] != x.width:
            return None
        return x.touched if x.touched.worthwhile else None

    @property
    def at(self) -> slice | torch.Tensor:
        """The rows of the current step among all rows: an index into values that were computed for all rows before
        training. Here all rows."""
        return slice(None)

    def of_a_step(self, value: torch.Tensor) -> torch.Tensor:
        """Divide `value` (K, ...), a sum over each client's steps of a round, by the client's steps per epoch (here 1),
        and by (epochs done) / E for a straggler. The result, divided by E, is the mean per step."""
        if self.epochs is None:
            return value
        done = torch.tensor(self.epochs, dtype=value.dtype) / self.config.local_epochs
        return value / of_shape(done, value)

    @property
    def inputs(self) -> Features | None:
        """The input features of all clients; None if each step has other features."""
        return self.batch.x

    def sq_distance(self, other: Params, params: Params | None = None) -> torch.Tensor:
        """(K,) squared 2-norm of the models (or `params`) minus `other`, which gets no gradient."""
        model = self.shareable(self.params if params is None else params)
        return sum_squares({n: v - other[n].detach() for n, v in model.items() if not is_statistic(n)})

    def shareable(self, params: Params) -> Params:
        """The parameters that can be sent: all, or not the first and last layers if features or classes differ."""
        return params

    # -- training ---------------------------------------------------------------------------------------------------

    def optimiser(self, name: str = "model") -> StackedOptimiser:
        """The optimiser of this name, for steps that a method takes itself. Skip if clients straggle."""
        if self.epochs is not None:
            raise Skip("its clients take optimiser steps outside of `ClientBatch.fit`, where no client can straggle")
        return self._optimiser(name)

    def _optimiser(self, name: str) -> StackedOptimiser:
        return self._optimisers.setdefault(name, self._new_optimiser({}, {}))

    def _new_optimiser(self, state: dict[str, Tensors], steps: Tensors) -> StackedOptimiser:
        network = self.network if self.network.heterogeneous else None
        return StackedOptimiser(self.config, state, steps, self.ids, network)

    def fit(
        self,
        loss: Loss,
        epochs: int | None = None,
        *,
        params: Params | None = None,
        name: str = "model",
        adjust: Adjust | None = None,
        each_epoch: Callable[[], None] | None = None,
    ) -> torch.Tensor:
        """Train `params` (the models by default) in place for local epochs; return the last losses (K,).

        loss: client batch -> (K,). The sum is differentiated: client k's parameters appear in loss k only, so each
        client gets the gradient of its own loss. adjust: changes the gradients before the optimiser step (control
        variates). each_epoch: called at the start of every epoch.
        A straggler (`epochs`) trains in the first epochs only, but draws random numbers in all: the draws of a client
        depend neither on stragglers nor on its client batch.
        """
        trained = self.params if params is None else params
        optimiser = self._optimiser(name)
        if not self.config.keep_optimiser:
            optimiser.reset()
        count = self.config.local_epochs if epochs is None else epochs
        losses = torch.zeros(len(self))
        for value in trained.values():
            value.requires_grad_(True)
        try:
            for epoch in range(count):
                if each_epoch is not None:
                    each_epoch()
                losses = self._epoch(loss, trained, optimiser, adjust, self._done(epoch, count))
        finally:
            for name, value in trained.items():
                value.requires_grad_(False)
                if isinstance(value, Lazy) and rows_of(value) is None:
                    self._needed_whole.add(name)
        return losses.detach()

    def _epoch(
        self, loss: Loss, trained: Params, optimiser: StackedOptimiser, adjust: Adjust | None, done: list[int]
    ) -> torch.Tensor:
        """One epoch of `fit`; returns its last losses (K,). done: positions of clients that draw but do not train."""
        losses = torch.zeros(len(self))
        statistics = [name for name in trained if done and is_statistic(name)]  # which a forward pass changes
        rows = self.network.rows(done) if statistics else {}
        kept = {name: trained[name][rows[architecture(name)]].detach().clone() for name in statistics}
        for active in self.steps():
            with section("objective"):
                losses = self._checked(loss(self), loss)
            if done:
                losses = losses.index_fill(0, torch.tensor(done), 0.0)  # no gradient
                active = [k for k in (range(len(self)) if active is None else active) if k not in done]
            if active is None or active:
                grads = _gradients(losses, trained)
                optimiser.step(trained, adjust(self, grads) if adjust else grads, active)
        with torch.no_grad():
            for name, value in kept.items():
                trained[name][rows[architecture(name)]] = value
        return losses

    def _checked(self, losses: Any, loss: Loss) -> torch.Tensor:
        """The result of `loss`. UserError unless it has one loss per client."""
        if not isinstance(losses, torch.Tensor) or losses.shape != (len(self),):
            got = type(losses).__name__ + (f" of shape {tuple(losses.shape)}" if hasattr(losses, "shape") else "")
            name = getattr(loss, "__qualname__", "the loss")
            raise UserError(f"{name} returns {got}: return one loss per client, a tensor of shape ({len(self)},)")
        return losses

    def _done(self, epoch: int, count: int) -> list[int]:
        """The positions of stragglers that have done their share of `count` epochs before epoch `epoch` (0-based)."""
        full = self.config.local_epochs
        return [k for k, epochs in enumerate(self.epochs or ()) if epoch * full >= epochs * count]

    def steps(self) -> Iterator[list[int] | None]:
        """The optimiser steps of one epoch: yields the positions of the clients that take each step (None: all). Here
        one step, on the full batch."""
        yield None

    def loss(self, logits: torch.Tensor) -> torch.Tensor:
        """(K,) the loss of the task: cross-entropy, unless a subclass overrides it."""
        return self.cross_entropy(logits)

    @section("loss")
    def cross_entropy(self, logits: torch.Tensor) -> torch.Tensor:
        """(K,) mean cross-entropy over each client's training nodes; 0 for a client that has none."""
        batch, rows = self.batch, self.batch.rows["train"]
        label, owner = batch.label.index_select(0, rows), batch.owner.index_select(0, rows)
        return cross_entropy(logits, rows, label, batch.shares["train"], owner, len(self))

    def mean_over(self, values: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """(n,) values of the given rows -> (K,) each client's mean; 0 for a client without a row."""
        owner = self.batch.owner[rows]
        # The same as torch.bincount, which would wait for CUDA to read back the largest entry.
        count = segment_sum(torch.ones_like(owner), owner, len(self)).clamp(min=1)
        return segment_sum(values / count[owner], owner, len(self))


@section("backward")
def _gradients(losses: torch.Tensor, params: Params) -> Tensors:
    """The gradients of the sum of the losses, for the parameters that it depends on."""
    gradients = torch.autograd.grad(losses.sum(), list(params.values()), allow_unused=True)
    return {name: grad for name, grad in zip(params, gradients, strict=True) if grad is not None}


def is_statistic(name: str) -> bool:
    """Whether a parameter is a running statistic of BatchNorm: sent and averaged, but not trained."""
    return name.endswith(STATISTICS)
