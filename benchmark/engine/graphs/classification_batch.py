"""A client batch whose graphs are classified. Methods use it like a client batch of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from ..backbones import Params
from ..client_batch import ClientBatch
from ..method import crossing
from .clustering_batch import cut
from .rows import GraphRows, LabelledStack

Shown = tuple[GraphRows, tuple[GraphRows, ...]]  # the `batch` and `data`
NOBODY = np.empty(0, np.int64)


class LabelledClientBatch(ClientBatch):
    """Members are `GraphClient`s with masks. `batch` and `data` are all their graphs; in a step of `fit`, the graphs of
    that step's minibatch, which are training graphs.

    A client without a training graph takes no step, and one with fewer minibatches sits out the last ones.
    """

    def _collate(self) -> None:
        self.stacked = LabelledStack(self.members)
        trained = self.stacked.masks["train"].numpy()
        self._trained = [own[trained[own]] for own in self.stacked.held]
        self._at: slice | torch.Tensor = slice(None)
        self._full: Shown | None = None  # the minibatch of an epoch of one step
        self._show(self._batches(self.stacked.held))

    def _batches(self, picks: Sequence[np.ndarray]) -> Shown:
        """Some of the graphs, as `batch` and `data`. picks: for each client their numbers in the stack."""
        every = self.stacked.rows(picks)
        if not self.network.heterogeneous:
            return every, (every,)
        groups = [group.positions for group in self.network.groups]
        return every, tuple(self.stacked.rows([picks[p] for p in group], group) for group in groups)

    def _show(self, shown: Shown) -> None:
        self.batch, self.data = shown  # type: ignore[assignment]

    def _part(self, positions: Sequence[int]) -> ClientBatch:
        part = super()._part(positions)
        assert isinstance(part, LabelledClientBatch)
        if positions:
            part.stacked.stack.adopt(self.stacked.stack, np.concatenate([self.stacked.held[p] for p in positions]))
        return part

    def sq_distance(self, other: Params, params: Params | None = None) -> torch.Tensor:
        own = self.params if params is None else params
        return super().sq_distance(other, crossing(own) if any(self.stacked.classes) else own)

    @property
    def inputs(self) -> None:
        """Minibatches: other features in each step."""

    @property
    def at(self) -> slice | torch.Tensor:
        return self._at

    def of_a_step(self, value: torch.Tensor) -> torch.Tensor:
        value = super().of_a_step(value)
        many = [max(1, len(cut(own, self.config.batch_size))) for own in self._trained]
        return value / torch.tensor(many, dtype=value.dtype).view(-1, *[1] * (value.dim() - 1))

    def steps(self) -> Iterator[list[int] | None]:
        """An epoch of minibatches of `config.batch_size` training graphs, each client's order from its own stream.

        All clients' minibatches of a step are one batched computation.
        """
        chunks = [self._chunks(*own) for own in zip(self.streams("minibatches"), self._trained, strict=True)]
        before: Shown = (self.batch, self.data)  # type: ignore[assignment]
        try:
            for step in range(max(map(len, chunks))):
                picks = [own[step] if step < len(own) else NOBODY for own in chunks]
                active = [k for k, own in enumerate(picks) if len(own)]
                self._at = torch.from_numpy(np.concatenate(picks))
                self._show(self._minibatch(picks))
                yield None if len(active) == len(self) else active
        finally:
            self._show(before)
            self._at = slice(None)

    def _chunks(self, generator: np.random.Generator, own: np.ndarray) -> list[np.ndarray]:
        """The minibatches of a client's epoch; the order of a single one means nothing."""
        once = cut(own, self.config.batch_size) if len(own) else []
        return once if len(once) < 2 else cut(generator.permutation(own), self.config.batch_size)

    def _minibatch(self, picks: Sequence[np.ndarray]) -> Shown:
        if sum(map(len, picks)) < sum(map(len, self._trained)):
            return self._batches(picks)
        self._full = self._full or self._batches(picks)
        return self._full
