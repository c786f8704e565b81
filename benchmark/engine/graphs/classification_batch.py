"""A client batch whose graphs are classified. Methods use it like a client batch of nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..backbones import Params
from ..client_batch import ClientBatch
from ..method import crossing
from ..minibatches import MinibatchClientBatch, Shown
from .rows import LabelledStack


class LabelledClientBatch(MinibatchClientBatch):
    """Members are `GraphClient`s with masks; a row is a graph."""

    def _collate(self) -> None:
        self.stacked = LabelledStack(self.members)
        trained = self.stacked.masks["train"].numpy()
        self._trained = [own[trained[own]] for own in self.stacked.held]
        self._full: Shown | None = None  # the minibatch of an epoch of one step
        self._show(self._batches(self.stacked.held))

    def _batches(self, picks: Sequence[np.ndarray]) -> Shown:
        """Some of the graphs, as `batch` and `data`. picks: for each client their numbers in the stack."""
        every = self.stacked.rows(picks)
        if not self.network.heterogeneous:
            return every, (every,)
        groups = [group.positions for group in self.network.groups]
        return every, tuple(self.stacked.rows([picks[p] for p in group], group) for group in groups)

    def _part(self, positions: Sequence[int]) -> ClientBatch:
        part = super()._part(positions)
        assert isinstance(part, LabelledClientBatch)
        if positions:
            part.stacked.stack.adopt(self.stacked.stack, np.concatenate([self.stacked.held[p] for p in positions]))
        return part

    def sq_distance(self, other: Params, params: Params | None = None) -> torch.Tensor:
        own = self.params if params is None else params
        return super().sq_distance(other, crossing(own) if any(self.stacked.classes) else own)

    def _minibatch(self, picks: Sequence[np.ndarray]) -> Shown:
        if sum(map(len, picks)) < sum(map(len, self._trained)):
            return self._batches(picks)
        self._full = self._full or self._batches(picks)
        return self._full
