"""What a client answers to another's generator: the gradient of the feature loss on its own neighbours."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from ...benchmark.engine import Batch, Features, Params, Parts, Tensors, in_parts, section
from .dense import product
from .neighgen import NeighGen, linear
from .thinned import Thinned


def random_neighbours(
    batch: Batch, at: int, nodes: int, slots: int, generator: np.random.Generator
) -> np.ndarray | None:
    """(nodes, slots) rows of random neighbours, with replacement, of random nodes of a client that have any.

    at: the client's position in the batch. None for a client without an edge.
    """
    matrix = batch.sum.scipy()
    degree = np.diff(matrix.indptr)
    first, last = batch.offsets[at], batch.offsets[at + 1]
    centres = first + np.flatnonzero(degree[first:last])
    if not len(centres):
        return None
    centre = generator.choice(centres, nodes)
    pick = (generator.random((nodes, slots)) * degree[centre, None]).astype(np.int64)
    found: np.ndarray = matrix.indices[matrix.indptr[centre, None] + pick]
    return found


class Answer:
    """One pass of fGen over a client's rows, and its parameters' gradients for any client's targets x_iq:

    scale * sum_i sum_{p < counts[i]} min_q ||x~_ip - x_iq||^2.

    Half of the gradient, that of ||x~||^2, is common to all who answer; the other half comes from one row of features
    per generated neighbour, which is sparse for bags of words. So an answer costs a small part of a backward pass.
    """

    def __init__(self, generator: NeighGen, shown: Tensors, encoding: torch.Tensor, counts: torch.Tensor,
                 keep: torch.Tensor, scale: float) -> None:  # fmt: skip
        """shown: fGen's parameters, without client axis. encoding: (n, latent), noisy. keep: dropout (n, 2048)."""
        self.shown, self.scale = shown, 2 * scale
        params: Params = {name: value.detach().unsqueeze(0) for name, value in shown.items()}
        rows = counts.nonzero().squeeze(1)
        self.rows, counts, self.keep, self.z = rows, counts[rows], keep[rows], encoding[rows]
        self.narrow = torch.relu(linear(params, "grow.0", self.z))
        self.wide = torch.relu(linear(params, "grow.1", self.narrow))
        h = self.wide * self.keep
        self.users = [(counts > p).nonzero().squeeze(1) for p in range(int(counts.max()) if len(rows) else 0)]
        self.inputs = [Thinned(h[users]) for users in self.users]
        self.made = [torch.tanh(x.times(*self._slot(p))) for p, x in enumerate(self.inputs)]
        self.slope = [self.scale * (1 - made.square()) for made in self.made]
        common = [slope * made for slope, made in zip(self.slope, self.made, strict=True)]
        self.common_weight = [x.across(s) for s, x in zip(common, self.inputs, strict=True)]
        self.common_bias = [s.sum(0) for s in common]
        self.common_wide = [
            x.towards(s, self._slot(p)[0]) for p, (s, x) in enumerate(zip(common, self.inputs, strict=True))
        ]

    def _slot(self, p: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight (2048, d) and bias of slot p."""
        return self.shown[f"slot.{p}.weight"].detach(), self.shown[f"slot.{p}.bias"].detach()

    @section("answers")
    def gradient(self, x: Features, targets: np.ndarray | None) -> Tensors:
        """By name, for targets in the given rows (len(self.rows), Q) of x; None: no target, zero.

        A parameter that nothing reaches has one zero for all of its entries, expanded and not stored.
        """
        found: Tensors = {name: torch.zeros(()).expand(value.shape) for name, value in self.shown.items()}
        if targets is None or not self.users:
            return found
        return found | self._reached(x, targets)

    def _reached(self, x: Features, targets: np.ndarray) -> Tensors:
        """The gradient of what the targets reach."""
        found: Tensors = {}
        wide = torch.zeros_like(self.wide)
        for p, users in enumerate(self.users):
            chosen = _nearest(self.made[p], x, targets[users.numpy()])
            towards = _masked(x, chosen, self.slope[p])
            found[f"slot.{p}.weight"] = in_parts(Reached(self.common_weight[p], towards, self.inputs[p]))
            found[f"slot.{p}.bias"] = self.common_bias[p] - torch.as_tensor(np.asarray(towards.sum(0)).ravel())
            back = self.inputs[p].towards(towards, self._slot(p)[0])
            wide.index_add_(0, users, self.common_wide[p] - back)
        wide *= self.keep * (self.wide > 0)
        narrow = product(wide, self.shown["grow.1.weight"].detach()) * (self.narrow > 0)
        found |= {"grow.1.weight": product(wide.T, self.narrow), "grow.1.bias": wide.sum(0)}
        found |= {"grow.0.weight": product(narrow.T, self.z), "grow.0.bias": narrow.sum(0)}
        return found


class Reached(Parts):
    """Gradients of one map's weights, `answers` of them added up: answers * common - inputs^T @ towards, (2048, d).

    What differs from client to client is `towards` (n, d), sparse where features are: so a sum of answers costs one
    pass over the large matrix, and not one each.
    """

    def __init__(
        self, common: torch.Tensor, towards: torch.Tensor | sp.csr_matrix, inputs: Thinned, answers: int = 1
    ) -> None:
        self.common, self.towards, self.inputs, self.answers = common, towards, inputs, answers
        self.shape = tuple(common.shape)

    def tensors(self) -> list[torch.Tensor]:
        return [self.common]

    def assemble(self) -> torch.Tensor:
        found, apart = self.answers * self.common, self.inputs.across(self.towards)
        if isinstance(apart, torch.Tensor):
            return found.sub_(apart)
        apart = apart.tocoo()
        found.numpy()[apart.row, apart.col] -= apart.data
        return found

    def plus(self, other: Parts) -> Reached | None:
        if not isinstance(other, Reached) or other.common is not self.common:
            return None
        return Reached(self.common, self.towards + other.towards, self.inputs, self.answers + other.answers)


def _nearest(made: torch.Tensor, x: Features, targets: np.ndarray) -> np.ndarray:
    """(n,) the row of x, among targets (n, Q), nearest to each row of made (n, d), by ||x||^2 - 2 x . made."""
    n, q = targets.shape
    if isinstance(x.value, torch.Tensor):
        rows = x.value[torch.from_numpy(targets).long()]
        distance = (rows.square().sum(2) - 2 * torch.einsum("nqd,nd->nq", rows, made)).numpy()
    else:
        rows = x.value[targets.ravel()]
        owner = np.repeat(np.arange(n * q), np.diff(rows.indptr))
        terms = rows.data * (rows.data - 2 * made.numpy()[owner // q, rows.indices])
        distance = np.bincount(owner, terms, minlength=n * q).reshape(n, q)
    best: np.ndarray = targets[np.arange(n), distance.argmin(1)]
    return best


def _masked(x: Features, rows: np.ndarray, slope: torch.Tensor) -> torch.Tensor | sp.csr_matrix:
    """x[rows] * slope, sparse where x is."""
    if isinstance(x.value, torch.Tensor):
        return x.value[torch.from_numpy(rows).long()] * slope
    found = x.value[rows]
    owner = np.repeat(np.arange(len(rows)), np.diff(found.indptr))
    return sp.csr_matrix((found.data * slope.numpy()[owner, found.indices], found.indices, found.indptr), found.shape)
