"""Typed edges of a batch: codes and types of node pairs, and the graph with a copy of every node for each type."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from ...benchmark.engine import Batch, SparseMatrix, segment_product


class Pairs:
    """The undirected edges of a batch as rows first < second, client by client; counts: pairs of each client."""

    def __init__(self, batch: Batch) -> None:
        source, target = batch.ends
        code = (source * len(batch.label) + target)[source < target].sort().values
        self.first, self.second = code // max(len(batch.label), 1), code % max(len(batch.label), 1)
        self.batch, self.owner = batch, batch.owner[self.first]
        self.counts: list[int] = torch.bincount(self.owner, minlength=batch.clients).tolist()

    def codes(self, projected: torch.Tensor) -> torch.Tensor:
        """(pairs, 2h) [x'_first; x'_second]."""
        return torch.cat([projected[self.first], projected[self.second]], 1)

    def assign(self, projected: torch.Tensor, centroids: torch.Tensor) -> torch.Tensor:
        """(pairs,) the type whose centroid (K, types, 2h) has the largest cosine with the code; makes no codes."""
        unit = F.normalize(centroids, dim=2).transpose(1, 2)
        first, second = (segment_product(projected, half, self.batch.sizes) for half in unit.chunk(2, dim=1))
        return (first[self.first] + second[self.second]).argmax(1)

    def means(self, projected: torch.Tensor, types: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """(K, types, 2h) the mean code of each type's edges; `before` where it has none."""
        clients, number, width = before.shape
        place = self.owner * number + types
        sums = [
            projected.new_zeros(clients * number, width // 2).index_add_(0, place, projected[end])
            for end in (self.first, self.second)
        ]
        count = torch.bincount(place, minlength=clients * number).view(clients, number, 1)
        mean = torch.cat(sums, 1).view_as(before) / count.clamp(min=1)
        return torch.where(count > 0, mean, before)


class Links:
    """The typed graph. Its rows are (client, type, node), so that every channel of every client is one block.

    matrix: D_c^-1/2 A_c D_c^-1/2 of all types. spread: (rows, N) copies a node into every type; gather: sums them up
    again over the types in which the node has an edge.
    """

    def __init__(self, pairs: Pairs, types: torch.Tensor, number: int) -> None:
        sizes = torch.tensor(pairs.batch.sizes)
        start = torch.tensor(pairs.batch.offsets[:-1])
        self.sizes = tuple(n for n in pairs.batch.sizes for _ in range(number))  # of each block
        self.wide = [n * number for n in pairs.batch.sizes]  # of each client
        total = sum(self.wide)
        self._block = torch.repeat_interleave(torch.arange(len(self.sizes)), torch.tensor(self.sizes))
        self._shape = (len(sizes), number)
        client = self._block // number
        self._node = torch.arange(total) - (start * (number - 1))[client] - ((self._block % number) * sizes[client])
        shift = (start * (number - 1))[pairs.owner] + types * sizes[pairs.owner]
        first, second = (pairs.first + shift).numpy(), (pairs.second + shift).numpy()
        ends = np.concatenate([first, second]), np.concatenate([second, first])
        degree = np.bincount(ends[0], minlength=total)
        weight = (degree[ends[0]] * degree[ends[1]]).astype(np.float32) ** -0.5
        self.matrix = SparseMatrix(sp.csr_matrix((weight, ends), shape=(total, total)), symmetric=True)
        self._present = degree > 0
        nodes = len(pairs.batch.label)
        row, node = np.arange(total), self._node.numpy()
        self.spread = SparseMatrix(sp.csr_matrix((np.ones(total, np.float32), (row, node)), shape=(total, nodes)))
        held = (self._present.astype(np.float32), (node, row))
        self.gather = SparseMatrix(sp.csr_matrix(held, shape=(nodes, total)))

    def counts(self, mask: torch.Tensor) -> torch.Tensor:
        """(K, types) nodes of a mask (N,) that have an edge of each type, as float32."""
        seen = mask[self._node] & torch.from_numpy(self._present)
        return torch.bincount(self._block[seen], minlength=len(self.sizes)).view(self._shape).float()
