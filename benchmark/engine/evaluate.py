"""Scores of a run's models: the server's and the clients' own, on local graphs, the whole graph, or the union."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F

from ...datasets.federation import Federation, Measure, NodeClient
from ...metrics import FALLING
from ...registry import UserError
from .backbones import Params
from .backbones.several import is_apt, logits_of_each
from .batch import Batch, collate
from .client_batch import ClientBatch
from .device import placed as moved
from .f1 import macro_f1
from .freed_memory import give_back
from .measuring import section
from .method import Arrangement, Method
from .network import Network
from .segment_ops import owners, segment_sum
from .views import union_client, unlabelled, whole_client

# Nodes from which on features are summed over neighbours before, and not after, they meet the weights of each model
# that is scored: several times faster for the models of many clients, and equal up to rounding.
LARGE = 2**19


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
        rows = {part: moved(torch.cat([own[part] for own in masks])).nonzero().squeeze(1) for part in ("val", "test")}
        return cls(
            rows,
            {part: owner[own] for part, own in rows.items()},
            {part: label[own] for part, own in rows.items()},
            len(sizes),
        )

    def count(self, part: str) -> torch.Tensor:
        """(clients,) how many rows each scored client has."""
        return self._counts[part]

    @cached_property
    def _counts(self) -> dict[str, torch.Tensor]:
        return {part: torch.bincount(owner, minlength=self.clients) for part, owner in self.owner.items()}

    def means(self, values: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) means of a value of each row of a part (n,), nan for a client without rows."""
        return segment_sum(values, self.owner[part], self.clients) / self.count(part)

    def accuracy(self, predicted: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) share of right predictions, nan for a client without rows. predicted: class of every row (N,)."""
        return self.means((predicted.index_select(0, self.rows[part]) == self.label[part]).float(), part)

    def loss(self, logits: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) mean cross-entropy, nan for a client without rows."""
        return self.means(F.cross_entropy(logits[self.rows[part]], self.label[part], reduction="none"), part)

    def roc_auc(self, margin: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) area under the ROC curve, nan for a client whose rows are not of both classes.

        margin: how much rather the second class than the first, of every row (N,). By rank sums (Mann and Whitney,
        1947), since scikit-learn's takes as long for ten clients as a round of training.
        """
        from scipy.stats import rankdata  # a second to import: only where it is needed

        rows, owner, label = margin[self.rows[part]], self.owner[part], self.label[part]
        found = torch.full((self.clients,), math.nan)
        for k in range(self.clients):
            second = label[owner == k].numpy() == 1
            count = int(second.sum())
            if 0 < count < len(second):
                ranks = rankdata(rows[owner == k].double().numpy())[second]  # SciPy ranks in the precision given
                found[k] = (ranks.sum() / count - (count + 1) / 2) / (len(second) - count)
        return found

    def mrr(self, margin: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) mean over a client's rows of class 1 of 1 / rank among its rows of class 0 (the mean of the best
        and the worst rank where values are equal, as OGB's evaluator has it); nan where a class has no row."""
        rows, owner, label = margin[self.rows[part]], self.owner[part], self.label[part]
        found = torch.full((self.clients,), math.nan)
        for k in range(self.clients):
            own, edge = rows[owner == k], label[owner == k] == 1
            others = own[~edge].sort().values
            if edge.any() and len(others):
                above = len(others) - torch.searchsorted(others, own[edge], right=True)
                level = len(others) - torch.searchsorted(others, own[edge]) - above
                found[k] = (1 / (1 + above + level / 2)).mean()
        return found

    def macro_f1_each(self, predicted: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) F1, averaged over the classes that occur in truth or prediction; nan for a client without rows."""
        given = (self.owner[part], self.label[part], predicted[self.rows[part]])
        owner, label, found_class = (own.cpu().numpy() for own in given)
        found = torch.full((self.clients,), math.nan, dtype=torch.float64)
        for k in np.unique(owner).tolist():
            mine = owner == k
            found[k] = macro_f1(label[mine], found_class[mine])
        return found

    def macro_f1(self, predicted: torch.Tensor, part: str) -> float:
        """Mean over the clients that have rows of `macro_f1_each`."""
        values = [value for value in self.macro_f1_each(predicted, part).tolist() if value == value]
        return float(sum(values) / len(values)) if values else float("nan")

    def by_class(self, logits: torch.Tensor, part: str, measure: Measure) -> torch.Tensor:
        """(clients,) "roc_auc" or "average_precision" of each class against the others, averaged over the client's
        classes; of two classes that of the second. nan for a client whose rows are all of one class.

        logits: of every row (N, classes).
        """
        from sklearn.metrics import average_precision_score, roc_auc_score

        figure = roc_auc_score if measure == "roc_auc" else average_precision_score
        chance = logits[self.rows[part]].double().softmax(1).cpu().numpy()
        owner, label = self.owner[part].cpu().numpy(), self.label[part].cpu().numpy()
        found = torch.full((self.clients,), math.nan, dtype=torch.float64)
        for k in set(owner.tolist()):
            truth, own = label[owner == k], chance[owner == k]
            classes = [1] if logits.shape[1] == 2 else sorted(set(truth.tolist()))
            values = [figure(truth == c, own[:, c]) for c in classes if 0 < (truth == c).sum() < len(truth)]
            if values:
                found[k] = float(sum(values) / len(values))
        return found


def own_rows(clients: Sequence[NodeClient], placed: Sequence[torch.Tensor] | None = None) -> Target:
    """Every client scored on its own rows, one client after the other. placed: see `Arrangement.scored`."""
    graphs = [client.graph for client in clients]
    own = Target.of(
        [graph.ndata["label"] for graph in graphs],
        [{part: graph.ndata[f"{part}_mask"].bool() for part in ("val", "test")} for graph in graphs],
        [graph.num_nodes() for graph in graphs],
    )
    if placed is None:
        return own
    place = moved(torch.cat(list(placed)))
    return replace(own, rows={part: place[rows] for part, rows in own.rows.items()})


@dataclass
class Models:
    """The models after a round: the server's (no client axis), the clients' own (a tree per client batch)."""

    server: Params | None
    personal: list[Params] | None

    def expanded(self, clients: int) -> Params:
        """The server's model with a client axis: expanded, not copied, so that one shared product serves all rows."""
        assert self.server is not None
        return {name: value.expand(clients, *value.shape) for name, value in self.server.items()}


@dataclass
class Scored:
    """One evaluation. val, test: accuracy, or the dataset's measure, of each scored client (one entry on the whole
    graph), nan where there is none. predicted, margin: see `Target`; None of several models, margin of many classes."""

    val: torch.Tensor
    test: torch.Tensor
    val_loss: float | None
    predicted: torch.Tensor | None
    target: Target
    margin: torch.Tensor | None = None

    @classmethod
    def of(cls, predicted: torch.Tensor, target: Target, val_loss: float | None = None) -> Scored:
        """The evaluation of one prediction. predicted: class of every row (N,)."""
        return cls(target.accuracy(predicted, "val"), target.accuracy(predicted, "test"), val_loss, predicted, target)

    def by(self, measure: Measure, logits: torch.Tensor | None) -> Scored:
        """The same evaluation with another measure in the place of accuracy. logits: (N, classes); macro-F1 needs
        none."""
        val, test = (self._by(measure, logits, part) for part in ("val", "test"))
        return replace(self, val=val, test=test)

    def _by(self, measure: Measure, logits: torch.Tensor | None, part: str) -> torch.Tensor:
        if measure == "accuracy":
            return self.val if part == "val" else self.test
        if measure == "macro_f1":
            assert self.predicted is not None
            return self.target.macro_f1_each(self.predicted, part)
        assert logits is not None, "classes alone have no such measure"
        if measure == "roc_auc" and self.margin is not None:
            return self.target.roc_auc(self.margin, part)
        if measure == "mrr":
            assert self.margin is not None
            return self.target.mrr(self.margin, part)
        return self.target.by_class(logits, part, measure)


MEASURES: dict[Measure, str] = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "roc_auc": "ROC AUC",
    "average_precision": "average precision",
    "mrr": "mean reciprocal rank",
    "mae": f"MAE {FALLING}",
    "rmse": f"RMSE {FALLING}",
}


class Diverged(Exception):
    """Training left the finite numbers; the message says when."""


class Evaluator:
    """Scores the models of one run. Local targets are the original clients' rows, also for a method that trains on one
    graph. The truth is the original federation's: what methods predict from has no label that they may not see."""

    def __init__(
        self, method: Method, original: Federation, arrangement: Arrangement, cohorts: Sequence[ClientBatch]
    ) -> None:
        self.method, self.original, self.arrangement, self.client_batches = method, original, arrangement, cohorts
        self._graphs: dict[str, tuple[Batch, Target]] = {}

    @cached_property
    def _local(self) -> Target:
        return own_rows([c for c in self.original.clients if isinstance(c, NodeClient)], self.arrangement.scored)

    def beyond(self, data: str) -> tuple[Batch, Target]:
        """The whole graph ("global") or the union of the clients', made at its first use, and its rows.

        The batch, which methods get, has no label at all.
        """
        if data not in self._graphs:
            one = whole_client(self.original) if data == "global" else union_client(self.original)
            at_once = self.client_batches[0].batch.at_once if self.client_batches else None
            large = one.graph.num_nodes() >= LARGE and len(self.original.clients) > 1
            if large:
                give_back()
            batch = replace(collate([unlabelled(one)]), at_once=at_once, sums_first=large)
            self._graphs[data] = batch, own_rows([one])
        return self._graphs[data]

    @torch.no_grad()
    def score(self, models: Models, model: str, data: str, *, with_loss: bool = False) -> Scored | None:
        """model: "global" or "personal"; data: "local", "global" or "union". None where there is no such model.

        Raises Diverged when a model's outputs are not finite.
        """
        if (models.server if model == "global" else models.personal) is None:
            return None
        if model == "personal" and data != "local" and not self.method.travels:
            return None
        with section("evaluation"):
            return self._score(models, model, data, with_loss)

    def describe(self, model: str, data: str) -> str:
        """In words, what the figures of `score` are."""
        return self.phrase(self.original.scored_by, model, data)

    @staticmethod
    def phrase(measure: Measure, model: str, data: str) -> str:
        """As `describe`, of any run: rows are held to these words."""
        where = {"local": "local test, mean over clients", "global": "whole graph", "union": "union of the clients"}
        return f"{MEASURES[measure]}, {model} model, {where[data]}"

    def _score(self, models: Models, model: str, data: str, with_loss: bool) -> Scored | None:
        if data == "local":
            return self._score_local(models, model, with_loss)
        batch, target = self.beyond(data)
        found = [
            self._scored(self._sound(logits, batch.sizes), target, with_loss)
            for logits in self._predicted(models, model, batch)
        ]
        return found[0] if model == "global" else beside(found)

    def _predicted(self, models: Models, model: str, batch: Batch) -> Iterator[torch.Tensor]:
        """Class scores (N, C) on a graph beyond the clients': of the server's model, or of each client's in turn."""
        network = self.client_batches[0].network
        as_trained = type(self.method).predict is Method.predict and not network.heterogeneous
        if as_trained and is_apt(network.backbones[0], batch):
            own = models.personal or [] if model == "personal" else [models.expanded(1)]
            yield from logits_of_each(
                network.backbones[0].layers, {name: torch.cat([each[name] for each in own]) for name in own[0]}, batch
            )
            return
        for params, selected in self._one_by_one(models, model):
            yield self.method.predict(params, selected, (batch,))

    def _one_by_one(self, models: Models, model: str) -> Iterator[tuple[Params, Network]]:
        """The server's model, or the clients' in turn: K copies of a whole graph would not fit."""
        if model == "global":
            yield models.expanded(1), self.client_batches[0].network.select([0])
            return
        for own, cohort in zip(models.personal or (), self.client_batches, strict=True):
            for position in range(len(cohort)):
                if len(self.original.whole.label) >= LARGE:
                    give_back()  # else the heap grows by the gaps that one model's blocks leave
                yield cohort.network.take(own, [position]), cohort.network.select([position])

    def _score_local(self, models: Models, model: str, with_loss: bool) -> Scored:
        params = [models.expanded(len(c)) for c in self.client_batches] if model == "global" else models.personal or []
        found = [self.method.predict_own(p, c) for p, c in zip(params, self.client_batches, strict=True)]
        sizes = [[self._sizes[client] for client in cohort.network.clients] for cohort in self.client_batches]
        logits = [self._sound(own, nodes) for own, nodes in zip(found, sizes, strict=True)]
        return self._scored(torch.cat(logits) if len(logits) > 1 else logits[0], self._local, with_loss)

    @cached_property
    def _sizes(self) -> list[int]:
        """Nodes of each client that trains."""
        trained = self.original if self.arrangement.scored is None else self.arrangement.federation
        return [client.graph.num_nodes() for client in trained.clients if isinstance(client, NodeClient)]

    def _sound(self, logits: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        return demanded(self.method, logits, sum(sizes), self.original.num_classes)

    def _scored(self, logits: torch.Tensor, target: Target, with_loss: bool) -> Scored:
        if not torch.isfinite(logits.sum()):
            raise Diverged("the model's outputs are not finite")
        return self.measured(logits, target, with_loss)

    def measured(self, logits: torch.Tensor, target: Target, with_loss: bool) -> Scored:
        """The evaluation of what models predict, finite (N, outputs): of classes, unless a task says otherwise."""
        predicted = logits.argmax(1)
        loss = float(target.loss(logits, "val").nanmean()) if with_loss else None
        found = Scored.of(predicted, target, loss)
        if logits.shape[1] == 2:
            found.margin = logits[:, 1] - logits[:, 0]
        return found.by(self.original.scored_by, logits)


def demanded(method: Method, found: torch.Tensor, rows: int, width: int | None = None) -> torch.Tensor:
    """What a method predicts, if it is a plain tensor of floats, (rows, width); UserError if it is anything else.

    A subclass of tensor could take part in the comparison with the truth.
    """
    kind = f"{found.dtype} of shape {tuple(found.shape)}" if type(found) is torch.Tensor else type(found).__name__
    floats = type(found) is torch.Tensor and found.is_floating_point() and found.layout == torch.strided
    if floats and found.dim() == 2 and len(found) == rows and found.shape[1] == (width or found.shape[1]):
        return found
    wanted = f"one row of {width or 'some'} numbers for each of {rows} {'nodes' if width else 'graphs'}"
    raise UserError(f"{method.name} predicts {kind}, not {wanted} (torch.Tensor, floats)")


def beside(found: Sequence[Scored]) -> Scored:
    """The evaluations of several models on the same rows as one, an entry a model."""
    losses = [one.val_loss for one in found if one.val_loss is not None]
    loss = sum(losses) / len(losses) if losses else None
    return Scored(
        torch.cat([one.val for one in found]), torch.cat([one.test for one in found]), loss, None, found[0].target
    )
