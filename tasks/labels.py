"""Several binary labels per graph, some unknown, as the toxicity of a molecule in many assays.

Loss: the mean binary cross-entropy over the known labels of a client's training graphs. Score: the area under the ROC
curve, mean over the labels of which a client's graphs have both classes (as in OGB's evaluator for molecules), then
mean over clients.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from ..benchmark.engine import (
    GraphEvaluator,
    LabelledClientBatch,
    Scored,
    Target,
    Task,
    add_task,
    graph_models,
    segment_sum,
)


def _losses(logits: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return per row (n,) the summed cross-entropy of the known labels, and their number. label: (n, T), nan = none."""
    known = ~label.isnan()
    losses = F.binary_cross_entropy_with_logits(logits, label.nan_to_num(), reduction="none")
    return (losses * known).sum(1), known.sum(1).float()


class LabelsBatch(LabelledClientBatch):
    """A client batch whose labels are 0, 1 or nan, (N, T)."""

    def loss(self, logits: torch.Tensor) -> torch.Tensor:
        """Return (K,) means over the known labels of each client's training graphs; 0 without known labels."""
        rows = self.batch.rows["train"]
        owner = self.batch.owner.index_select(0, rows)
        total, known = _losses(logits.index_select(0, rows), self.batch.label.index_select(0, rows))
        return segment_sum(total, owner, len(self)) / segment_sum(known, owner, len(self)).clamp(min=1)


class LabelsEvaluator(GraphEvaluator):
    """ROC AUC of each label."""

    def measured(self, logits: torch.Tensor, target: Target, with_loss: bool) -> Scored:
        val, test = (self._areas(logits, target, part) for part in ("val", "test"))
        total, known = _losses(logits[target.rows["val"]], target.label["val"])
        loss = float((target.means(total, "val") / target.means(known, "val")).nanmean()) if with_loss else None
        return Scored(val, test, loss, None, target)

    def _areas(self, logits: torch.Tensor, target: Target, part: str) -> torch.Tensor:
        """Return (clients,) means over labels; nan for a client without both classes of any label."""
        areas = []
        for column in range(logits.shape[1]):
            known = ~target.label[part][:, column].isnan()
            of_label = Target(
                {part: target.rows[part][known]}, {part: target.owner[part][known]},
                {part: target.label[part][known, column].long()}, target.clients,
            )  # fmt: skip
            areas.append(of_label.roc_auc(logits[:, column], part))
        return torch.stack(areas).nanmean(0) if areas else torch.full((target.clients,), math.nan)


add_task(Task("graph-labels", LabelsBatch, LabelsEvaluator, graph_models))
