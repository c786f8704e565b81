"""NeighGen (FedSage+): predicts the number of missing neighbours of a node, and their features.

After ReLU and dropout a trained wide layer has few non-zeros: on Coauthor-Physics half of a node's 2048 entries at the
start, and 8 after twenty epochs. A sparse product reads only the matrix rows of these entries and takes a thirtieth of
the time. With a share of non-zeros above FEW the product is dense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import dgl
import numpy as np
import scipy.sparse as sp
import torch
from torch.autograd import Function

from ...benchmark.engine import (
    Batch,
    GraphSAGE,
    NodeClient,
    Params,
    Streams,
    active_kernels,
    on_host,
    placed,
    section,
    segment_add,
    segment_product,
    take_rows,
    to_scipy_csr,
    to_torch_csr,
    torch_source,
)
from ..parts.encoders import dropout_factors, named


def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return (n, k) @ (k, m) without gradients."""
    return active_kernels().products(a, b.unsqueeze(0), (len(a),))


FEW = 1 / 25  # up to this share of non-zeros all three products are faster by entry


class Thinned:
    """Rows (n, k) that may have few non-zeros. Its products have no gradients."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows
        few = rows.is_cpu and int(rows.count_nonzero()) <= FEW * rows.numel()
        self.entries = rows.to_sparse_csr() if few else None

    def times(self, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return (n, k) @ (k, m) + (m,)."""
        return (multiply(self.rows, b) if self.entries is None else self.entries @ b).add_(bias)

    def across(self, grad: torch.Tensor | sp.csr_matrix) -> Any:
        """Return (n, k)^T @ (n, m), the gradient of b; sparse if both factors are."""
        if self.entries is None:
            return multiply(self.rows.T, grad) if isinstance(grad, torch.Tensor) else (_transposed(grad) @ self.rows).T
        entries = to_scipy_csr(self.entries)
        return _transposed(entries) @ grad if isinstance(grad, torch.Tensor) else entries.T @ grad

    def towards(self, grad: torch.Tensor | sp.csr_matrix, b: torch.Tensor) -> torch.Tensor:
        """Return (n, m) @ (k, m)^T, the gradient of the rows; with few non-zeros only at these, because ReLU and
        dropout have no gradient elsewhere."""
        if self.entries is None:
            return multiply(grad, b.T) if isinstance(grad, torch.Tensor) else to_torch_csr(grad) @ b.T
        dense, entries = grad if isinstance(grad, torch.Tensor) else torch.from_numpy(grad.toarray()), self.entries
        pattern = torch.sparse_csr_tensor(
            entries.crow_indices(), entries.col_indices(), torch.zeros_like(entries.values()), entries.shape
        )
        return torch.sparse.sampled_addmm(pattern, dense, b.T, beta=0).to_dense()


def _transposed(matrix: sp.csr_matrix) -> torch.Tensor:
    """Return the transpose as a torch tensor."""
    return to_torch_csr(matrix.T.tocsr())


def thinned_product(rows: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return (n, k) @ (k, m) + (m,) with gradients of all three; see `Thinned.towards` for that of the rows."""
    result: torch.Tensor = _ThinnedProduct.apply(rows, b, bias)
    return result


class _ThinnedProduct(Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        ctx.thinned = Thinned(rows)
        ctx.save_for_backward(b)
        return ctx.thinned.times(b, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (grad,), (b,) = grads, ctx.saved_tensors
        for_rows, for_b, for_bias = ctx.needs_input_grad
        return (
            ctx.thinned.towards(grad, b) if for_rows else None,
            ctx.thinned.across(grad) if for_b else None,
            grad.sum(0) if for_bias else None,
        )


WIDTHS = (256, 2048)  # fGen's hidden layers


@dataclass(frozen=True)
class NeighGen:
    """The generator of one client. Parameters have a client axis of length 1; linear maps are stored (1, out, in),
    those of the slots (1, in, out), because their products are fast by rows (`Thinned`).

    Encoder H^e: GraphSAGE, d -> hidden -> latent. dGen: linear -> ReLU, the number of missing neighbours. fGen: two
    ReLU layers, dropout, then for each of `slots` neighbours a separate linear map (2048, d), and tanh.
    width: the number of generated values per neighbour; None: d.
    """

    encoder: GraphSAGE
    latent: int
    slots: int
    dropout: float
    width: int | None = None

    def init(self, generator: np.random.Generator, features: int) -> Params:
        """Return initial parameters: Glorot in the encoder, PyTorch's default for other linear maps.

        dGen's bias starts at 1: with a random bias all nodes of a client may be below 0, where ReLU has no gradient,
        and the client would never learn to generate (as the first of ten on Cora).
        """
        source = torch_source(generator)
        params = {f"encoder.{n}": v for n, v in self.encoder.init(generator, features, self.latent).items()}
        shapes = {"degree": (1, self.latent), "grow.0": (WIDTHS[0], self.latent), "grow.1": (WIDTHS[1], WIDTHS[0])}
        shapes |= {f"slot.{p}": (self.width or features, WIDTHS[1]) for p in range(self.slots)}
        for name, (n_out, n_in) in shapes.items():
            bound = n_in**-0.5
            weight = torch.empty(n_out, n_in).uniform_(-bound, bound, generator=source)
            params[f"{name}.weight"] = weight.T.contiguous() if name.startswith("slot") else weight
            params[f"{name}.bias"] = torch.empty(n_out).uniform_(-bound, bound, generator=source)
        params["degree.bias"].fill_(1.0)
        return {name: value.unsqueeze(0) for name, value in params.items()}

    @property
    def shown(self) -> list[str]:
        """The names of fGen's parameters, which are sent to other clients."""
        layers = ["grow.0", "grow.1", *(f"slot.{p}" for p in range(self.slots))]
        return [f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")]

    def encode(self, params: Params, batch: Batch, streams: Streams | None) -> torch.Tensor:
        """Return encodings (N, latent) of the rows of one client. streams: given in training only."""
        return self.encoder.forward(named(params, "encoder"), batch, streams).logits

    def missing(self, params: Params, encoding: torch.Tensor) -> torch.Tensor:
        """Return the predicted numbers (N,) of missing neighbours, not rounded."""
        return torch.relu(linear(params, "degree", encoding)).squeeze(1)

    def keep(self, streams: Streams, purpose: str, rows: int) -> torch.Tensor:
        """Return the factors (rows, 2048) of the dropout before the last layer."""
        return dropout_factors(streams, purpose, (rows, WIDTHS[1]), self.dropout)

    def generate(
        self, params: Params, encoding: torch.Tensor, counts: torch.Tensor, keep: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return features (G, d) of the first counts[i] neighbours of each row i, row by row; G = counts.sum().

        encoding: (N, latent), noise added. The wide layers are computed for rows with counts > 0 only. Maps of unused
        slots get no gradient.
        """
        rows = counts.nonzero().squeeze(1)
        h = torch.relu(linear(params, "grow.1", torch.relu(linear(params, "grow.0", encoding[rows]))))
        h, counts = (h if keep is None else h * keep[rows]), counts[rows]
        pieces, places = [h.new_empty(0, params["slot.0.weight"].shape[2])], []
        for p in range(int(counts.max()) if len(rows) else 0):
            users = (counts > p).nonzero().squeeze(1)
            pieces.append(torch.tanh(slot(params, p, h[users])))
            places.append(users * self.slots + p)
        made = torch.cat(pieces)
        return made[torch.cat(places).argsort()] if places else made


def linear(params: Params, name: str, rows: torch.Tensor) -> torch.Tensor:
    """Return `rows` W^T + b of a single client."""
    sizes = (len(rows),)
    return segment_add(segment_product(rows, params[f"{name}.weight"].mT, sizes), params[f"{name}.bias"], sizes)


@section("dense")
def slot(params: Params, p: int, rows: torch.Tensor) -> torch.Tensor:
    """Return the map of slot p before tanh (n, d). rows: (n, 2048), after dropout."""
    return thinned_product(rows, params[f"slot.{p}.weight"].squeeze(0), params[f"slot.{p}.bias"].squeeze(0))


def match(made: torch.Tensor, parent: torch.Tensor, targets: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
    """Return (G,) min over q < held[i] of ||made_g - targets[i, q]||^2, i = parent[g]; 0 if held[i] = 0.

    made: (G, d); parent: (G,) rows of targets (n, Q, d) and held (n,). The nearest target is found without gradient.
    """
    wanted, held = targets[parent], held[parent]
    with torch.no_grad():
        distance = torch.cdist(made.unsqueeze(1), wanted, compute_mode="donot_use_mm_for_euclid_dist").squeeze(1)
        absent = torch.arange(wanted.shape[1]) >= held.unsqueeze(1)
        nearest = wanted[torch.arange(len(made)), distance.masked_fill(absent, torch.inf).argmin(1)]
    return (made - nearest).square().sum(1) * (held > 0)


@dataclass(frozen=True)
class Impaired:
    """A client's graph without the hidden nodes, and the hidden neighbours of its training nodes.

    client: the m remaining nodes. missing: (m,) the number of hidden neighbours of each. targets: (n_train, P, d)
    features (or given values) of the first P hidden neighbours of each training node, in node order, zero-padded.
    """

    client: NodeClient
    missing: torch.Tensor
    targets: torch.Tensor

    def placed(self) -> Impaired:
        """Return it with its tensors on the run's device."""
        return Impaired(self.client, placed(self.missing), placed(self.targets))


def hide(member: NodeClient, share: float, generator: np.random.Generator) -> torch.Tensor:
    """Return bool (n,), True for a random `share` of the validation nodes."""
    validation = member.graph.ndata["val_mask"].nonzero().squeeze(1).numpy()
    hidden = torch.zeros(member.graph.num_nodes(), dtype=torch.bool)
    hidden[generator.choice(validation, int(share * len(validation)), replace=False)] = True
    return hidden


def first_hidden(
    graph: dgl.DGLGraph, hidden: torch.Tensor, place: torch.Tensor, slots: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the first `slots` hidden neighbours of some nodes, in node order: (the node's place, slot, neighbour).

    place: (n,) rank of each selected node, in node order; -1 for the others.
    """
    source, target = graph.edges(order="eid")
    selected = hidden[source] & (place[target] >= 0)
    source, target = source[selected], place[target[selected]]
    order = (target * graph.num_nodes() + source).argsort()
    source, target = source[order], target[order]
    count = torch.bincount(target, minlength=int(place.max()) + 1)
    rank = torch.arange(len(target)) - (torch.cumsum(count, 0) - count)[target]
    return target[rank < slots], rank[rank < slots], source[rank < slots]


@on_host()
def impair(member: NodeClient, hidden: torch.Tensor, slots: int, values: torch.Tensor | None = None) -> Impaired:
    """Return the client without the hidden nodes (bool (n,)), on the host. values: (n, e), instead of features."""
    graph, values = member.graph, member.feat if values is None else values
    kept = (~hidden).nonzero().squeeze(1)
    rest = dgl.node_subgraph(graph, kept, store_ids=False)
    missing = graph.in_degrees()[kept] - rest.in_degrees()

    train = (graph.ndata["train_mask"].bool() & ~hidden).nonzero().squeeze(1)
    place = torch.full((graph.num_nodes(),), -1)
    place[train] = torch.arange(len(train))
    target, rank, source = first_hidden(graph, hidden, place, slots)
    targets = torch.zeros(len(train), slots, values.shape[1])
    targets[target, rank] = take_rows(values, source).to_dense()
    return Impaired(NodeClient(rest, take_rows(member.feat, kept)), missing, targets)
