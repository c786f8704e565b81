"""FedTGP: FedProto with prototypes that the server trains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..benchmark.engine import METHODS, Download, Server, Tree, option
from .parts.prototypes import PrototypeDistance

EPS = 1e-12  # added to squared distances, because the gradient of the root is infinite at 0


@METHODS.register("fedtgp")
class FedTGP(PrototypeDistance):
    """Zhang et al., AAAI 2024 (arXiv 2401.03230). Client and messages as FedProto; all C h scalars down each round.

    Server: trainable prototypes P_j = B relu(A e_j + a) + b, e_j a free vector of width h, A and B (h, h), fitted by
    SGD for `server_epochs` epochs over the uploaded pairs (c, y) in shuffled batches, to the mean of
        -log exp(-(d(c, P_y) + delta)) / (exp(-(d(c, P_y) + delta)) + sum_{j != y} exp(-d(c, P_j))),
    d the Euclidean distance, delta = min(max_j min_{j' != j} |Q_j - Q_j'|, tau), Q_j the mean uploaded prototype of
    class j (delta = tau if fewer than two classes were sent). e, A, a, B, b are kept from round to round.

    Departure: the released code predicts by the nearest received prototype; as with FedProto, we predict by the
    classifier (`inference`).
    """

    family = "prototypes"
    summary = "FedProto with prototypes that the server trains"
    title = "FedTGP"
    venue = "AAAI 2024"
    paper_url = "https://arxiv.org/abs/2401.03230"
    code_url = "https://github.com/TsingZ0/FedTGP"
    tasks = ("node", "graph-classification")

    lam: float = option(
        10.0, "lambda, weight of the distance to the prototypes (FedTGP's scripts)", ge=0, tune=[0.1, 1.0, 10.0]
    )
    tau: float = option(100.0, "bound of the margin delta (FedTGP's scripts)", ge=0, tune=[1.0, 10.0, 100.0])
    server_epochs: int = option(100, "server epochs per round (FedTGP's scripts)", ge=1)
    server_lr: float = option(0.01, "server SGD rate (FedTGP's scripts: the local rate)", gt=0)
    server_batch: int = option(10, "uploaded prototypes per server batch (FedTGP's code)", ge=1)

    def open(self, server: Server) -> Download:
        server.state["net"] = PrototypeNet.fresh(server.generator, server.classes, server.backbones[0].hidden)
        return {}

    def combine(self, server: Server, uploads: Tree, sent: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        net: PrototypeNet = server.state["net"]
        if not len(sent):  # no participant has a training node
            return torch.from_numpy(net.forward()[1])
        delta = margin(sent, classes, self.tau)
        points, truth = sent.numpy(), np.eye(server.classes, dtype=np.float32)[classes.numpy()]
        for _ in range(self.server_epochs):
            order = server.generator.permutation(len(points))
            for start in range(0, len(order), self.server_batch):
                batch = order[start : start + self.server_batch]
                net.step(points[batch], truth[batch], delta, self.server_lr)
        return torch.from_numpy(net.forward()[1])


def margin(sent: torch.Tensor, classes: torch.Tensor, tau: float) -> float:
    """Return delta. sent: (n, h) uploaded prototypes; classes: (n,)."""
    means = torch.stack([sent[classes == j].mean(0) for j in classes.unique()])
    distance = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(torch.inf)
    return min(float(distance.min(1).values.max()), tau)


@dataclass
class PrototypeNet:
    """The server's prototypes. The gradient is explicit, because autograd takes five times as long for small steps."""

    e: np.ndarray  # (C, h)
    inner: np.ndarray  # A, (h, h)
    inner_bias: np.ndarray
    outer: np.ndarray  # B, (h, h)
    outer_bias: np.ndarray

    @classmethod
    def fresh(cls, generator: np.random.Generator, classes: int, width: int) -> PrototypeNet:
        """Return a net with normal e (as the paper) and linear maps uniform in +-1/sqrt(h) (PyTorch's default)."""
        e = generator.standard_normal((classes, width))
        bound, shapes = width**-0.5, ((width, width), (width,), (width, width), (width,))
        linear = [generator.uniform(-bound, bound, shape) for shape in shapes]
        return cls(*(array.astype(np.float32) for array in (e, *linear)))

    def forward(self) -> tuple[np.ndarray, np.ndarray]:
        """Return relu(A e + a) (C, h), and the prototypes (C, h)."""
        hidden = np.maximum(self.e @ self.inner.T + self.inner_bias, 0)
        return hidden, hidden @ self.outer.T + self.outer_bias

    def step(self, sent: np.ndarray, truth: np.ndarray, delta: float, lr: float) -> None:
        """Take an SGD step on the mean margin loss. sent: (n, h) uploaded prototypes; truth: one-hot classes (n, C)."""
        hidden, prototypes = self.forward()
        gap = prototypes - sent[:, None]
        distance = np.sqrt(np.einsum("njh,njh->nj", gap, gap) + EPS)
        score = -distance - delta * truth
        share = np.exp(score - score.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        # d loss / d distance = (truth - share) / n, and d distance / d prototype = gap / distance.
        d_prototypes = np.einsum("nj,njh->jh", (truth - share) / (distance * len(sent)), gap)
        d_hidden = (d_prototypes @ self.outer) * (hidden > 0)
        d_e = d_hidden @ self.inner
        self.outer -= lr * (d_prototypes.T @ hidden)
        self.outer_bias -= lr * d_prototypes.sum(0)
        self.inner -= lr * (d_hidden.T @ self.e)
        self.inner_bias -= lr * d_hidden.sum(0)
        self.e -= lr * d_e
