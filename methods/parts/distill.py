"""Knowledge distillation between two models of a client: predictions, and embeddings over the neighbourhood.

All functions take log-probabilities (N, c), `torch.log_softmax` of logits or embeddings, and give one value per row.
The teacher gets no gradient: where two models teach each other, the sum of both terms then gives each its own.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F

from ...benchmark.engine import Batch, ClientBatch

Nodes = Literal["train", "all"]


def rows_of(cohort: ClientBatch, nodes: Nodes) -> torch.Tensor:
    """Row numbers of the clients' training nodes, or of all their nodes."""
    return cohort.batch.rows["train"] if nodes == "train" else torch.arange(len(cohort.batch.owner))


def mean_of(cohort: ClientBatch, values: torch.Tensor, nodes: Nodes) -> torch.Tensor:
    """(N,) one value per node -> (K,) each client's mean over its training nodes, or over all its nodes."""
    rows = rows_of(cohort, nodes)
    return cohort.mean_over(values[rows] if nodes == "train" else values, rows)


def kl(teacher: torch.Tensor, student: torch.Tensor) -> torch.Tensor:
    """(N,) KL(teacher || student) = sum_c p_c (log p_c - log q_c)."""
    return F.kl_div(student, teacher.detach(), reduction="none", log_target=True).sum(1)


def neighbour_kl(teacher: torch.Tensor, student: torch.Tensor, batch: Batch, *, mean: bool = False) -> torch.Tensor:
    """(N,) sum over j in N(i) and i itself of KL(teacher_j || student_i); with `mean` divided by |N(i)| + 1.

    The student's row is the same in each term, so the neighbours' distributions are added up first, and nothing is
    computed edge by edge: sum_j p_j log p_j - (sum_j p_j) . log q_i.
    """
    log_p = teacher.detach()
    p = log_p.exp()
    negentropy = (p * log_p).sum(1, keepdim=True)
    total = p + batch.sum @ p
    value = (negentropy + batch.sum @ negentropy).squeeze(1) - (total * student).sum(1)
    return value / (batch.degrees + 1) if mean else value
