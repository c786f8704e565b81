"""FedGL's pseudo-graph: who resembles whom by the fused outputs, and three ways to read its normalisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from ...benchmark.engine import section

CHUNK = 2**20  # similarities held at a time


@section("augmentation")
def similarity_graph(h: torch.Tensor, neighbours: int) -> sp.csr_matrix:
    """The largest `neighbours` entries of each row of max(h h^T, 0), rows scaled to sum 1; in chunks of rows.

    h: (n, C). Returns (n, n) float32; a row without a positive entry is empty.
    """
    values, columns = [], []
    for rows in h.split(max(1, CHUNK // max(len(h), 1))):
        top = (rows @ h.T).clamp_(min=0).topk(min(neighbours, len(h)), sorted=False)
        values.append(top.values / top.values.sum(1, keepdim=True).clamp(min=torch.finfo(h.dtype).tiny))
        columns.append(top.indices)
    value, column = torch.cat(values).numpy(), torch.cat(columns).numpy()
    ends = np.arange(len(h) + 1) * column.shape[1]
    graph = sp.csr_matrix((value.ravel(), column.ravel(), ends), shape=(len(h), len(h)))
    graph.eliminate_zeros()
    return graph


def normalised(graph: sp.csr_matrix) -> sp.csr_matrix:
    """D^-1/2 A D^-1/2, D the weighted degrees of A, which are its row sums; 0^-1/2 = 0."""
    degree = np.asarray(graph.sum(1)).ravel()
    scale = np.where(degree > 0, degree, np.inf) ** -0.5
    return (sp.diags(scale) @ graph @ sp.diags(scale)).astype(np.float32)


def symmetric(graph: sp.csr_matrix) -> sp.csr_matrix:
    """As `normalised`, of (A + A^T) / 2."""
    return normalised((graph + graph.T) / 2)


def released(graph: sp.csr_matrix) -> sp.csr_matrix:
    """D^-1/2 A^T D^-1/2 of A with ones on its diagonal, D its row sums: OpenFGL's server, transposition and all."""
    ones = graph + sp.diags(1 - graph.diagonal())
    return normalised(ones).T.tocsr()


def unchanged(graph: sp.csr_matrix) -> sp.csr_matrix:
    """The graph itself."""
    return graph


@dataclass(frozen=True)
class Form:
    """What the server does to the whole pseudo-graph, and what a client does to its own part of that."""

    server: Callable[[sp.csr_matrix], sp.csr_matrix]
    client: Callable[[sp.csr_matrix], sp.csr_matrix]


FORMS = {
    "symmetric": Form(unchanged, symmetric),
    "printed": Form(unchanged, normalised),
    "openfgl": Form(released, unchanged),
}
