"""pFed1BS: personal models that agree in the signs of a random sketch; clients and server exchange one bit each."""

from __future__ import annotations

import torch

from ..benchmark.engine import (
    METHODS,
    ClientBatch,
    Download,
    Params,
    Server,
    Tensors,
    Tree,
    is_statistic,
    option,
    stream,
)
from .fedavg import LocalTraining

BLOCK = 16  # side of the Hadamard matrices whose Kronecker product is applied; that of the last is up to 128
BITS = 8


@METHODS.register("pfed1bs")
class PFed1BS(LocalTraining):
    """Cheng, Zhang, Qiu, Zhang, Li, Feng, AAAI 2026 (arXiv 2511.13144): one-bit random sketches in both directions.

    w_k are the n trained parameters of client k. A sketch has m = max(1, `ratio` n) entries: Phi w = S H D w / sqrt(m),
    w padded with zeros to n', a power of two, D random signs, H the n' x n' Hadamard matrix with entries +-1, S m of
    the rows at random. S and D are drawn once from the run's seed, which everybody knows.
    Client: E epochs on
        CE(w) + lam (h(Phi w) - <v, Phi w>) + mu/2 ||w||^2,  h(z) = rho sum log cosh(z / rho),
    a smooth ||Phi w||_1, so that lam's gradient is lam Phi^T (tanh(Phi w / rho) - v): it pulls the signs of the sketch
    towards v. Server: v = sign(sum_k p_k z_k) of the uploads z_k = sign(Phi w_k), p_k by the training configuration's
    `weighting`; before the first round v is the sketch of the common initial model.
    Messages: m bits up and down, eight per byte. Scored: the personal models. lam = mu = 0 is local training.

    Written from the abstract, FedGB's code and the authors' code, which agree; the paper's text was not available.
    Departures: both have no D and multiply the loss's gradient by 1 + mu instead of adding mu w; FedGB's signs have 32
    bits. The authors train by SGD with momentum 0.5 and decay 1e-4, in epochs of one minibatch; here optimiser and
    epochs are the run's, so with Adam the weight of the pull depends on the size of the other gradient. Here sign(0) =
    1, because a bit has two values. Running statistics are not sketched. If clients have different features or classes,
    w_k is without the first and last layers.
    """

    family = "personal"
    summary = "personal models whose random sketches are pulled towards the majority of the signs; one bit per entry"
    title = "pFed1BS"
    venue = "AAAI 2026"
    paper_url = "https://arxiv.org/abs/2511.13144"
    code_url = "https://github.com/connorzhangxu/pFed1BS"
    tasks = ("node", "graph-classification", "rows")
    delivers = "personal"
    heterogeneous_features = True

    lam: float = option(5e-4, "lambda, weight of the sign regulariser (code: 5e-4)", ge=0, tune=[5e-5, 5e-4, 5e-3])
    mu: float = option(1e-5, "weight of ||w||^2 (code: 1e-5)", ge=0)
    rho: float = option(6e-5, "width of the smooth part of h (code: 6e-5)", gt=0)
    ratio: float = option(0.1, "m / n, entries of the sketch per parameter (code: 0.1)", gt=0, le=1, tune=[0.01, 0.1])

    def open(self, server: Server) -> Download:
        model = {name: value.unsqueeze(0) for name, value in server.initial_model().items()}
        sketch = Sketch(server.seed, _flat(model).shape[1], self.ratio)
        server.state["entries"] = sketch.entries
        return {"sketch": packed(sketch.of(_flat(model)) >= 0)[0]}

    def client(self, clients: ClientBatch) -> Tree:
        if "sketch" not in clients.cache:
            width = _flat(clients.shareable(clients.params)).shape[1]
            clients.cache["sketch"] = Sketch(clients.streams.seed, width, self.ratio)
        sketch: Sketch = clients.cache["sketch"]
        v = signs(clients.received["sketch"], sketch.entries)

        def regularised(clients: ClientBatch, grads: Tensors) -> Tensors:
            model = clients.shareable(clients.params)
            w = _flat(model).detach()
            pull = sketch.transposed(torch.tanh(sketch.of(w) / self.rho) - v)
            return _plus(grads, model, self.lam * pull + self.mu * w)

        clients.fit(self.local_loss, adjust=regularised if self.lam or self.mu else None)
        return {"sketch": packed(sketch.of(_flat(clients.shareable(clients.params))) >= 0)}

    def server(self, server: Server, uploads: Tree) -> Download:
        votes = server.weights @ signs(uploads["sketch"], server.state["entries"])
        return {"sketch": packed(votes.unsqueeze(0) >= 0)[0]}


class Sketch:
    """The random projection Phi of parameters (K, n) to (K, m), m = `entries`."""

    def __init__(self, seed: int, width: int, ratio: float) -> None:
        source = stream(seed, "sketch")
        self.width, self.entries = width, max(1, int(ratio * width))
        self.padded = 1 << (width - 1).bit_length()
        self.rows = torch.from_numpy(source.permutation(self.padded)[: self.entries])
        self.flips = torch.from_numpy(source.integers(0, 2, width)).to(torch.float32) * 2 - 1
        self.scale = self.entries**-0.5

    def of(self, w: torch.Tensor) -> torch.Tensor:
        """Return Phi w (K, m)."""
        padded = torch.nn.functional.pad(w * self.flips, (0, self.padded - self.width))
        return hadamard(padded).index_select(1, self.rows) * self.scale

    def transposed(self, z: torch.Tensor) -> torch.Tensor:
        """Return Phi^T z (K, n)."""
        padded = z.new_zeros(len(z), self.padded).index_copy(1, self.rows, z)
        return hadamard(padded)[:, : self.width] * self.flips * self.scale


def hadamard(rows: torch.Tensor) -> torch.Tensor:
    """Return each row (K, n') times the Hadamard matrix H, n' a power of two: H is the Kronecker product of small
    ones, which takes a quarter of the time of additions in pairs."""
    count, left, right = rows.shape[1], rows.shape[0], rows.shape[1]
    while right >= BLOCK**2:
        right //= BLOCK
        rows = torch.matmul(_matrix(BLOCK), rows.reshape(left, BLOCK, right))
        left *= BLOCK
    return (rows.reshape(left, right) @ _matrix(right)).view(-1, count)


def _matrix(side: int) -> torch.Tensor:
    """Return the Hadamard matrix (side, side)."""
    matrix = torch.ones(1, 1)
    while len(matrix) < side:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix


def packed(bits: torch.Tensor) -> torch.Tensor:
    """Return bits (K, m) as bytes (K, ceil(m / 8)), the lowest bit first."""
    whole = torch.nn.functional.pad(bits.to(torch.uint8), (0, -bits.shape[1] % BITS))
    return (whole.view(len(bits), -1, BITS) << torch.arange(BITS, dtype=torch.uint8)).sum(2, dtype=torch.uint8)


def signs(sent: torch.Tensor, entries: int) -> torch.Tensor:
    """Return the packed bits of `sent` (K, bytes) as +-1 (K, m)."""
    bits = (sent.unsqueeze(2) >> torch.arange(BITS, dtype=torch.uint8)) & 1
    return bits.flatten(1)[:, :entries].to(torch.float32) * 2 - 1


def _flat(params: Params) -> torch.Tensor:
    """Return the trained parameters of each model, (K, n)."""
    return torch.cat([value.flatten(1) for name, value in params.items() if not is_statistic(name)], 1)


def _plus(grads: Tensors, params: Params, extra: torch.Tensor) -> Tensors:
    """Return the gradients with `extra` (K, n) added, in the order of `_flat`."""
    total, start = dict(grads), 0
    for name, value in params.items():
        if is_statistic(name):
            continue
        part = extra[:, start : start + value[0].numel()].view_as(value)
        total[name] = grads[name] + part if name in grads else part
        start += value[0].numel()
    return total
