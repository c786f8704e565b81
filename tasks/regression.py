"""Regression: predict a number per node, or per graph, instead of a class.

Loss: the mean squared error over a client's training rows. Score: the root mean square error or mean absolute error
(`scored_by` of the dataset) on a client's rows, mean over clients, in the unit of the targets, which datasets scale.
"""

from __future__ import annotations

import torch

from ..benchmark.engine import (
    ClientBatch,
    Evaluator,
    GraphEvaluator,
    LabelledClientBatch,
    SampledClientBatch,
    Scored,
    Target,
    Task,
    add_task,
    graph_models,
)


class SquaredError(ClientBatch):
    """A client batch whose labels are numbers, (N, T)."""

    def loss(self, logits: torch.Tensor) -> torch.Tensor:
        """Return (K,) mean squared errors over each client's training rows; 0 for a client without any."""
        rows = self.batch.rows["train"]
        gap = logits.index_select(0, rows) - self.batch.label.index_select(0, rows)
        return self.mean_over(gap.square().mean(1), rows)


class SampledBatch(SquaredError, SampledClientBatch): ...


class GraphBatch(SquaredError, LabelledClientBatch): ...


class Errors(Evaluator):
    """Errors of predicted numbers as scores; lower is better."""

    def measured(self, logits: torch.Tensor, target: Target, with_loss: bool) -> Scored:
        val, test = (self._errors(logits, target, part) for part in ("val", "test"))
        squares = target.means((logits[target.rows["val"]] - target.label["val"]).square().mean(1), "val")
        return Scored(val, test, float(squares.nanmean()) if with_loss else None, None, target)

    def _errors(self, predicted: torch.Tensor, target: Target, part: str) -> torch.Tensor:
        gap = (predicted[target.rows[part]] - target.label[part]).double()
        if self.original.scored_by == "rmse":
            return target.means(gap.square().mean(1), part).sqrt()
        return target.means(gap.abs().mean(1), part)


class GraphErrors(Errors, GraphEvaluator): ...


add_task(Task("node-regression", SquaredError, Errors, sampled=SampledBatch))
add_task(Task("graph-regression", GraphBatch, GraphErrors, graph_models))
