"""Losses of unsupervised graph learning: local-global mutual information, and contrast between two views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from ...benchmark.engine import normalised


@dataclass(frozen=True)
class PersonalisedPageRank:
    """S = alpha (I - (1 - alpha) D^-1/2 (A + I) D^-1/2)^-1 (Klicpera et al., NeurIPS 2019), exact, for each graph.

    An operator of `GraphStack`: one dense block per graph, 0 between graphs, used without further normalisation.
    threshold: entries below it are dropped (0: none).
    """

    alpha: float
    threshold: float = 0.0

    def __call__(self, adjacency: sp.csr_matrix, starts: np.ndarray) -> sp.csr_matrix:
        walk, lengths = normalised(adjacency, starts), np.diff(starts)
        first = np.concatenate([[0], np.cumsum(lengths**2)])
        data, columns = np.empty(first[-1], np.float32), np.empty(first[-1], np.int64)
        for n in np.unique(lengths):  # one call inverts all graphs of a size
            graphs = np.flatnonzero(lengths == n)
            blocks = np.stack([walk[s : s + n, s : s + n].toarray() for s in starts[graphs]])
            inverse = np.linalg.inv(np.eye(n) - (1 - self.alpha) * blocks)
            place = first[graphs, None] + np.arange(n * n)
            data[place] = (self.alpha * inverse).reshape(len(graphs), -1)
            columns[place] = starts[graphs, None] + np.tile(np.arange(n), n)
        indptr = np.concatenate([[0], np.cumsum(np.repeat(lengths, lengths))])
        diffusion = sp.csr_matrix((data, columns, indptr), shape=adjacency.shape)
        if self.threshold > 0:
            diffusion.data[diffusion.data < self.threshold] = 0
            diffusion.eliminate_zeros()
        return diffusion


def jensen_shannon(
    nodes: torch.Tensor, graphs: torch.Tensor, lengths: Sequence[torch.Tensor], counts: Sequence[int]
) -> torch.Tensor:
    """Return E_neg - E_pos (K,), the Jensen-Shannon bound of InfoGraph and MVGRL on node-graph pairs, per client.

    E_pos = mean over pairs (node, its graph) of log 2 - softplus(-l.g); E_neg = mean over the client's pairs (node,
    other graph) of softplus(-l.g) + l.g - log 2. nodes: (N, c); graphs: (B, c); lengths: per client the nodes of each
    of its graphs; counts: graphs per client. A client without graphs has loss 0, a client with one graph has no E_neg.
    Scores are computed for one client at a time, n_k x B_k.
    """
    losses, sizes = [], [int(length.sum()) for length in lengths]
    for codes, g, length in zip(nodes.split(sizes), graphs.split(list(counts)), lengths, strict=True):
        if not len(g):
            losses.append(nodes.new_zeros(()))
            continue
        scores = codes @ g.T
        home = torch.repeat_interleave(torch.arange(len(g)), length)
        positive = scores.gather(1, home.unsqueeze(1)).squeeze(1)
        # softplus(-s) + s = softplus(s), so the sum over negatives is that over all pairs minus the positive ones.
        total = F.softplus(scores).sum() - F.softplus(positive).sum()
        pairs = len(codes) * (len(g) - 1)
        negative = total / pairs - math.log(2) if pairs else torch.zeros(())
        losses.append(negative + F.softplus(-positive).mean() - math.log(2))
    return torch.stack(losses)


def between_views(first: torch.Tensor, second: torch.Tensor, tau: float) -> torch.Tensor:
    """Return the mean over the 2B codes u of log sum_{z != u} exp(u.z / tau) - u.v / tau, v the same graph in the other
    view, z over both views (FCLG's Eq. 5 and 6; SimCLR's NT-Xent if rows have length 1). first, second: (B, c).
    """
    codes = torch.cat([first, second])
    scores = codes @ codes.T / tau
    scores = scores.masked_fill(torch.eye(len(codes), dtype=torch.bool), -math.inf)
    partner = (first * second).sum(1) / tau
    return torch.logsumexp(scores, 1).mean() - partner.mean()


def to_global_from_previous(
    now: torch.Tensor, shared: torch.Tensor, previous: torch.Tensor, tau: float
) -> torch.Tensor:
    """Return (n,) -log( e^{cos(now, shared)/tau} / (e^{cos(now, shared)/tau} + e^{cos(now, previous)/tau}) ) (MOON;
    FCLG's Eq. 7 and 8). Rows: codes under the current, the received global and the earlier local model.
    """
    return F.softplus((F.cosine_similarity(now, previous) - F.cosine_similarity(now, shared)) / tau)
