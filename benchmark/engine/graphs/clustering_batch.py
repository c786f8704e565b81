"""Clients that hold sets of graphs: the same models, state and optimisers, trained in minibatches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch

from ..client_batch import ClientBatch
from ..minibatches import cut
from .graphsets import GraphBatch, GraphStack


class GraphClientBatch(ClientBatch):
    """A client batch whose members are `GraphClient`s, stripped of their labels: nothing here may learn from them.

    held: for each client its graphs' numbers in the stack. minibatch: what a loss is to be computed on.
    """

    held: list[np.ndarray]
    minibatch: GraphBatch

    def _collate(self) -> None:
        self.members = [replace(member, label=torch.empty(0, dtype=torch.long)) for member in self.members]
        counts = [len(member.graphs) for member in self.members]
        self.held = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])

    @property
    def inputs(self) -> None:
        """Minibatches: other features in each step."""

    @cached_property
    def stack(self) -> GraphStack:
        """The graphs of all members."""
        return GraphStack([graph for member in self.members for graph in member.graphs])

    def _part(self, positions: Sequence[int]) -> ClientBatch:
        part = super()._part(positions)
        assert isinstance(part, GraphClientBatch)
        graphs = [graph for member in part.members for graph in member.graphs]
        if graphs:
            part.stack = self.stack.part(graphs, np.concatenate([self.held[p] for p in positions]))
        return part

    def steps(self) -> Iterator[list[int] | None]:
        """An epoch of minibatches of `config.batch_size` graphs, each client's order from its own stream.

        All clients' minibatches of a step are one batched computation. A client with fewer ones skips the last steps.
        """
        chunks = [
            cut(generator.permutation(own), self.config.batch_size)
            for generator, own in zip(self.streams("minibatches"), self.held, strict=True)
        ]
        nobody = np.empty(0, np.int64)
        for step in range(max(map(len, chunks))):
            active = [k for k, own in enumerate(chunks) if step < len(own)]
            self.minibatch = self.stack.batch([own[step] if step < len(own) else nobody for own in chunks])
            yield None if len(active) == len(self) else active
