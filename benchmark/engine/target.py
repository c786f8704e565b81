"""The rows that are scored, and the measures of predictions for them: one figure per scored client."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F

from ...datasets.federation import Measure
from .device import placed as moved
from .segment_ops import owners, segment_sum


@dataclass
class Target:
    """Rows to score, by split part: row numbers, the scored client of each row, and the true label of each."""

    rows: dict[str, torch.Tensor]
    owner: dict[str, torch.Tensor]
    label: dict[str, torch.Tensor]
    clients: int

    @classmethod
    def of(cls, labels: list[torch.Tensor], masks: list[dict[str, torch.Tensor]], sizes: list[int]) -> Target:
        """Select the rows in the masks. sizes: rows of each client; clients follow one another.

        labels, masks: all rows' in pieces of any number of clients.
        """
        label, owner = moved(torch.cat(labels)), owners(tuple(sizes))
        chosen = {part: moved(torch.cat([piece[part] for piece in masks])) for part in ("val", "test")}
        rows = {part: mask.nonzero().squeeze(1) for part, mask in chosen.items()}
        return cls(
            rows,
            {part: owner[selected] for part, selected in rows.items()},
            {part: label[selected] for part, selected in rows.items()},
            len(sizes),
        )

    def count(self, part: str) -> torch.Tensor:
        """(clients,) the number of rows of each scored client."""
        return self._counts[part]

    @cached_property
    def _counts(self) -> dict[str, torch.Tensor]:
        return {part: torch.bincount(owner, minlength=self.clients) for part, owner in self.owner.items()}

    def means(self, values: torch.Tensor, part: str) -> torch.Tensor:
        """(n,) one value per row of a part -> (clients,) means, nan for a client without rows."""
        return segment_sum(values, self.owner[part], self.clients) / self.count(part)

    def accuracy(self, predicted: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) share of correct predictions, nan for a client without rows. predicted: (N,) classes."""
        return self.means((predicted.index_select(0, self.rows[part]) == self.label[part]).float(), part)

    def loss(self, logits: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) mean cross-entropy, nan for a client without rows."""
        return self.means(F.cross_entropy(logits[self.rows[part]], self.label[part], reduction="none"), part)

    def roc_auc(self, margin: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) area under the ROC curve, nan for a client whose rows are not of both classes.

        margin: (N,) logit of the second class minus that of the first, of every row. Computed from rank sums (Mann and
        Whitney, 1947), because scikit-learn takes as long for ten clients as a round of training.
        """
        from scipy.stats import rankdata  # takes a second to import

        rows, owner, label = margin[self.rows[part]], self.owner[part], self.label[part]
        areas = torch.full((self.clients,), math.nan)
        for k in range(self.clients):
            second = label[owner == k].numpy() == 1
            count = int(second.sum())
            if 0 < count < len(second):
                ranks = rankdata(rows[owner == k].double().numpy())[second]  # SciPy ranks in the precision given
                areas[k] = (ranks.sum() / count - (count + 1) / 2) / (len(second) - count)
        return areas

    def mrr(self, margin: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) mean reciprocal rank of a client's rows of class 1, each among its rows of class 0; nan if a class
        has no row. Equal values get the mean of the best and the worst rank, as in OGB's evaluator."""
        rows, owner, label = margin[self.rows[part]], self.owner[part], self.label[part]
        means = torch.full((self.clients,), math.nan)
        for k in range(self.clients):
            client_rows, edge = rows[owner == k], label[owner == k] == 1
            others = client_rows[~edge].sort().values
            if edge.any() and len(others):
                above = len(others) - torch.searchsorted(others, client_rows[edge], right=True)
                equal = len(others) - torch.searchsorted(others, client_rows[edge]) - above
                means[k] = (1 / (1 + above + equal / 2)).mean()
        return means

    def macro_f1_each(self, predicted: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) F1, averaged over the classes that occur in truth or prediction; nan for a client without rows."""
        columns = (self.owner[part], self.label[part], predicted[self.rows[part]])
        owner, label, predicted_class = (values.cpu().numpy() for values in columns)
        scores = torch.full((self.clients,), math.nan, dtype=torch.float64)
        for k in np.unique(owner).tolist():
            mine = owner == k
            scores[k] = macro_f1(label[mine], predicted_class[mine])
        return scores

    def macro_f1(self, predicted: torch.Tensor, part: str) -> float:
        """Mean over the clients that have rows of `macro_f1_each`."""
        values = [value for value in self.macro_f1_each(predicted, part).tolist() if value == value]
        return float(sum(values) / len(values)) if values else float("nan")

    def by_class(self, logits: torch.Tensor, part: str, measure: Measure) -> torch.Tensor:
        """(clients,) "roc_auc" or "average_precision" of each class against the others, mean over the client's classes;
        for two classes, that of the second. nan for a client whose rows are all of one class.

        logits: (N, classes), of every row.
        """
        from sklearn.metrics import average_precision_score, roc_auc_score

        figure = roc_auc_score if measure == "roc_auc" else average_precision_score
        probability = logits[self.rows[part]].double().softmax(1).cpu().numpy()
        owner, label = self.owner[part].cpu().numpy(), self.label[part].cpu().numpy()
        figures = torch.full((self.clients,), math.nan, dtype=torch.float64)
        for k in set(owner.tolist()):
            truth, of_class = label[owner == k], probability[owner == k]
            classes = [1] if logits.shape[1] == 2 else sorted(set(truth.tolist()))
            values = [figure(truth == c, of_class[:, c]) for c in classes if 0 < (truth == c).sum() < len(truth)]
            if values:
                figures[k] = float(sum(values) / len(values))
        return figures


def macro_f1(label: np.ndarray, predicted: np.ndarray) -> float:
    """F1 averaged over the classes that occur in truth or prediction: 2 TP / (2 TP + FP + FN) per class.

    label, predicted: (n,) non-negative integers, n > 0. The same digits as scikit-learn's, whose import takes seconds.
    """
    classes = int(max(label.max(), predicted.max())) + 1
    right = np.bincount(label[label == predicted], minlength=classes)
    total = np.bincount(label, minlength=classes) + np.bincount(predicted, minlength=classes)
    occurs = total > 0
    return float(np.mean(2.0 * right[occurs] / total[occurs]))
