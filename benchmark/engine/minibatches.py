"""A client batch that trains on some of its rows a step: what minibatches of nodes and of graphs have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from .client_batch import ClientBatch

Shown = tuple[Any, tuple[Any, ...]]  # the `batch` and `data` of a client batch
NOBODY = np.empty(0, np.int64)


class MinibatchClientBatch(ClientBatch):
    """`batch` and `data` are all rows; in a step of `fit`, the rows of that step's minibatch, which are training rows.

    A client without a training row takes no step, and one with fewer minibatches sits out the last ones. Subclasses set
    `_trained`, each client's training rows, in `_collate`, and make the minibatch of some of them.
    """

    _trained: list[np.ndarray]
    _at: slice | torch.Tensor = slice(None)

    def _minibatch(self, picks: Sequence[np.ndarray]) -> Shown:
        """`batch` and `data` of a step. picks: for each client its rows of the step, or none."""
        raise NotImplementedError

    def _show(self, shown: Shown) -> None:
        self.batch, self.data = shown

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
        """An epoch of minibatches of `config.batch_size` training rows, each client's order from its own stream.

        All clients' minibatches of a step are one batched computation.
        """
        chunks = [self._chunks(*own) for own in zip(self.streams("minibatches"), self._trained, strict=True)]
        before: Shown = (self.batch, self.data)
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


def cut(order: np.ndarray, size: int | None) -> list[np.ndarray]:
    """Consecutive chunks of `size` (None: one chunk). A last chunk of one joins the one before: contrast needs two."""
    chunks = [order[first : first + size] for first in range(0, len(order), size)] if size else [order]
    if len(chunks) > 1 and len(chunks[-1]) == 1:
        chunks[-2:] = [np.concatenate(chunks[-2:])]
    return chunks
