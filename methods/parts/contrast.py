"""Contrastive learning of stacked clients: views of a graph, and losses between the nodes of the same client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch.autograd import Function

from ...benchmark.engine import Batch, ClientBatch, Streams, as_graph, section
from ...registry import Spec, option

Rivals = Literal["negatives", "all"]

# Similarities in memory: a client's anchors are processed in chunks of this number of entries (16 MiB of float32).
CHUNK = 1 << 22
EVERY = slice(None)


def unit_rows(rows: torch.Tensor) -> torch.Tensor:
    """Return rows divided by their lengths. A zero row stays zero and has no gradient.

    A node without features and neighbours in a view has embedding 0 as long as the biases are 0. `F.normalize` would
    give it the gradient 1 / eps = 1e12, which makes the optimiser's state or the parameters useless.
    """
    length = rows.norm(dim=-1, keepdim=True)
    return torch.where(length > 0, rows / length.masked_fill(length == 0, 1), rows.detach())


@section("contrast")
def class_contrast(
    anchors: torch.Tensor,
    samples: torch.Tensor,
    label: torch.Tensor,
    sizes: Sequence[int],
    temperature: float,
    rivals: Rivals = "negatives",
) -> torch.Tensor:
    """Return each client's mean supervised contrast (K,) between two views of its labelled nodes; 0 without any.

    anchors, samples: (n, h) embeddings of the same nodes in the two views; label: (n,); sizes: K counts, clients in
    order. With s_ij = cos(anchor i, sample j) / temperature, P_i the samples of anchor i's class (also sample i) and
    Q_i the others, the loss of anchor i is

        1/|P_i| sum_{p in P_i} -log( exp(s_ip) / (exp(s_ip) + sum_{q in Q_i} exp(s_iq)) )

    With rivals "all" all samples are in the denominator (supervised InfoNCE as in PyGCL). Memory: `CHUNK` entries, for
    any size of a client.
    """
    a, b = unit_rows(anchors), unit_rows(samples)
    result: torch.Tensor = _ClassContrast.apply(a, b, label, tuple(sizes), temperature, rivals)
    return result


class _ClassContrast(Function):
    """Loss and gradient in one pass over the similarities; no matrix of size n x n is kept."""

    @staticmethod
    def forward(
        ctx: Any,
        a: torch.Tensor,
        b: torch.Tensor,
        label: torch.Tensor,
        sizes: tuple[int, ...],
        tau: float,
        rivals: Rivals,
    ) -> torch.Tensor:
        need_a, need_b = ctx.needs_input_grad[:2]
        grad_a = torch.zeros_like(a) if need_a else None
        grad_b = torch.zeros_like(b) if need_b else None
        losses = a.new_zeros(len(sizes))
        start = 0
        for k, n in enumerate(sizes):
            step = max(1, CHUNK // max(n, 1))
            client_rows = slice(start, start + n)
            for first in range(start, start + n, step):
                rows = slice(first, min(first + step, start + n))
                similar = (a[rows] @ b[client_rows].T).mul_(1 / tau)
                same = label[rows].unsqueeze(1) == label[client_rows]
                loss, slope = _anchors(similar, same, rivals)
                losses[k] += loss / n
                if grad_a is not None:
                    torch.mm(slope, b[client_rows], out=grad_a[rows])
                if grad_b is not None:
                    grad_b[client_rows].addmm_(slope.T, a[rows])
            for grad in (grad_a, grad_b):
                if grad is not None and n:
                    grad[client_rows] /= n * tau
            start += n
        ctx.save_for_backward(grad_a, grad_b)
        ctx.sizes = torch.tensor(sizes)
        return losses

    @staticmethod
    @section("contrast")
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        scale = grad.repeat_interleave(ctx.sizes).unsqueeze(1)
        return *(None if saved is None else saved * scale for saved in ctx.saved_tensors), None, None, None, None


def _anchors(similar: torch.Tensor, same: torch.Tensor, rivals: Rivals) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum of the anchors' losses, and its derivative (c, n) by the similarities. same: bool (c, n), no empty
    row."""
    share = same / same.sum(1, keepdim=True).to(similar.dtype)  # 1 / |P_i| at the positives
    if rivals == "all":
        total = similar.logsumexp(1, keepdim=True)
        return ((total - similar) * share).sum(), (similar - total).exp_().sub_(share)
    # -log(e^s / (e^s + e^r)) = softplus(r - s) with r the log-sum over the negatives, -inf without negatives.
    negative = similar.masked_fill(same, -torch.inf)
    rival = negative.logsumexp(1, keepdim=True)
    gap = rival - similar
    pull = gap.sigmoid().mul_(share)
    push = negative.sub_(rival.masked_fill(rival.isinf(), 0)).exp_().mul_(pull.sum(1, keepdim=True))
    return (F.softplus(gap).mul_(share)).sum(), push.sub_(pull)


def model_contrast(near: torch.Tensor, far: torch.Tensor, temperature: float) -> Callable[..., torch.Tensor]:
    """Return a function of rows (n, h), optionally only those at `at`: the contrast (n,) of each row r with two fixed
    rows, -log( e^{cos(r, near)/t} / (e^{cos(r, near)/t} + e^{cos(r, far)/t}) ) = softplus((cos(r, far) - cos(r, near))
    / t). The fixed rows are normalised once for all calls. The cosine of a zero row is 0.
    """
    difference = ((unit_rows(far) - unit_rows(near)) / temperature).detach()

    @section("contrast")
    def contrast(rows: torch.Tensor, at: slice | torch.Tensor = EVERY) -> torch.Tensor:
        return F.softplus((unit_rows(rows) * difference[at]).sum(1))

    return contrast


Strength = Literal["weak", "strong"]


@section("augmentation")
def augment(batch: Batch, streams: Streams, purpose: str, edge_rate: float, feature_rate: float) -> Batch:
    """Return the batch with each edge dropped with probability `edge_rate` and each feature column with `feature_rate`.

    Both directions of an edge are dropped together. Self-loops, which backbones add, are not dropped. A column is
    dropped for all nodes of a client; clients draw independently. streams: of the batch's clients, in order; purpose:
    name of the streams; views of different purposes are independent.
    """
    graph, x = batch.graph, batch.x
    if edge_rate > 0:
        pair, counts = batch.links
        kept = streams.keep(f"{purpose} edges", counts, edge_rate)[pair]
        source, target = batch.ends
        graph = as_graph(source[kept], target[kept], graph.num_nodes())
    if feature_rate > 0:
        columns = streams.keep(f"{purpose} columns", [x.width] * batch.clients, feature_rate)
        x = x.drop_columns(columns.view(batch.clients, -1))
    return batch.replace(graph=graph, x=x)


class Views(Spec):
    """Base of methods with weak and strong views: their hyper-parameters. Defaults: FGSSL's released code."""

    weak_edges: float = option(0.3, "share of edges that a weak view drops (FGSSL's code: 0.3)", ge=0, lt=1)
    weak_features: float = option(0.3, "share of columns that a weak view drops (0.3)", ge=0, lt=1)
    strong_edges: float = option(0.8, "share of edges that a strong view drops (0.8)", ge=0, lt=1)
    strong_features: float = option(0.5, "share of columns that a strong view drops (0.5)", ge=0, lt=1)

    def rates(self, strength: Strength) -> tuple[float, float]:
        """Return the shares (edges, feature columns) that a view drops."""
        weak, strong = (self.weak_edges, self.weak_features), (self.strong_edges, self.strong_features)
        return weak if strength == "weak" else strong

    def view(self, clients: ClientBatch, strength: Strength, purpose: str) -> tuple[Batch, ...]:
        """Draw a view of all clients of a client batch, one batch per architecture, as input of `Network.forward`."""
        groups = zip(clients.network.groups, clients.data, strict=True)
        rates = self.rates(strength)
        return tuple(augment(data, clients.streams.select(group.positions), purpose, *rates) for group, data in groups)
