"""References without a trained network: what a score must beat before it means anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F

from ..benchmark.engine import (
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
    Download,
    GraphBatch,
    GraphMethod,
    GraphRows,
    Method,
    Network,
    Params,
    Phase,
    Server,
    Step,
    TrainConfig,
    Tree,
    segment_add,
    segment_product,
    segment_sum,
)
from ..registry import option


class Untrained(Method):
    """One round in which nothing is trained and nothing is sent."""

    reference = True
    trains = False
    heterogeneous = True

    def phases(self, config: TrainConfig) -> list[Phase]:
        return [Phase((Step(self.client, self.server),), 1)]

    def client(self, clients: ClientBatch) -> Tree:
        return {}

    def server(self, server: Server, uploads: Tree) -> Download:
        return {}


@METHODS.register("majority")
class Majority(Untrained):
    """Reference: every client names the most frequent class of its own training nodes, for every node.

    Of equally frequent classes the first; class 0 where a client has no training node. Messages: none.
    """

    family = "reference"
    summary = "the most frequent class of each client: the answer without learning"
    title = "Majority class"
    tasks = ("node", "graph-classification")
    heterogeneous_features = True

    delivers = "personal"

    def prepare(self, clients: ClientBatch) -> None:
        batch, rows = clients.batch, clients.batch.rows["train"]
        votes = F.one_hot(batch.label[rows], clients.classes).float()
        clients.state["votes"] = segment_sum(votes, batch.owner[rows], len(clients))

    def personal_model(self, clients: ClientBatch) -> Params | None:
        return {"votes": clients.state["votes"]}

    @torch.no_grad()
    def predict(self, params: Params, network: Network, data: Sequence[Batch]) -> torch.Tensor:
        return params["votes"].repeat_interleave(torch.tensor(network.sizes(data)), 0)


class UntrainedCodes(Untrained, GraphMethod):
    """Codes of graphs without a model; the backbone of the cell is in the row and has no effect."""

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        return backbones

    def global_model(self, server: Server) -> Params | None:
        return {}


@METHODS.register("one-cluster")
class OneCluster(UntrainedCodes):
    """Reference: all graphs have the same code and so fall into one cluster, that of the largest class.

    Messages: none.
    """

    family = "reference"
    summary = "all graphs in one cluster: the answer without learning"
    title = "One cluster"

    def embed(self, params: Params, network: Network, batch: GraphBatch) -> torch.Tensor:
        return torch.zeros(len(batch.picks), 1)


@METHODS.register("label-counts")
class LabelCounts(UntrainedCodes):
    """Reference: a graph's code is how many nodes of each label it has; no edge and no network is looked at.

    Labels are the features that are 0 or 1 at every node of the set (one-hot labels, or degrees of a set that has no
    labels); where there is none, all features are summed. Messages: none.
    """

    family = "reference"
    summary = "graph codes that count a graph's node labels: the answer without learning"
    title = "k-means on label counts"

    counts: Literal["plain", "log", "shares"] = option(
        "plain", "numbers of nodes as they are, log(1 + number), or divided by the graph's nodes"
    )

    def embed(self, params: Params, network: Network, batch: GraphBatch) -> torch.Tensor:
        features = batch.stack.feat
        label = ((features == 0) | (features == 1)).all(0)
        sums = segment_sum(batch.x[:, label] if label.any() else batch.x, batch.membership, len(batch.picks))
        if self.counts == "log":
            return sums.clamp(min=0).log1p()
        return sums / torch.from_numpy(batch.lengths).unsqueeze(1) if self.counts == "shares" else sums


@METHODS.register("count-classifier")
class CountClassifier(Untrained):
    """Reference: each client's own logistic regression (scikit-learn, C = 1) on log(1 + number of nodes of each label)
    of its training graphs. No edge, no network, no federation; nothing is drawn.

    Labels are the features that are 0 or 1 at every node of the client (one-hot labels or degrees); where there is
    none, sums of all features, negative ones as 0. A client without training graphs names class 0, one whose training
    graphs have a single class that. Messages: none.
    """

    family = "reference"
    summary = "a linear classifier on how many nodes of each label a graph has: the answer without edges"
    title = "Logistic regression on label counts"
    tasks = ("graph-classification",)
    heterogeneous_features = True
    delivers = "personal"
    heterogeneous = False

    def prepare(self, clients: ClientBatch) -> None:
        batch = graph_rows(clients.batch)
        binary = [((columns == 0) | (columns == 1)).all(0) for columns in batch.of.x.split(batch.of.sizes)]
        counted = torch.stack([mask if mask.any() else ~mask for mask in binary]).float()
        apart = zip(
            *map(batch.per_client, (label_counts(batch, counted), batch.label, batch.masks["train"])), strict=True
        )
        models = [classifier(counts[train], label[train], clients.classes) for counts, label, train in apart]
        weight, bias = (torch.stack(parts) for parts in zip(*models, strict=True))
        clients.state["model"] = {"counted": counted, "weight": weight, "bias": bias}

    def personal_model(self, clients: ClientBatch) -> Params | None:
        model: Params = clients.state["model"]
        return model

    @torch.no_grad()
    def predict(self, params: Params, network: Network, data: Sequence[Batch]) -> torch.Tensor:
        batch = graph_rows(data[0])
        scores = segment_product(label_counts(batch, params["counted"]), params["weight"], batch.sizes)
        return segment_add(scores, params["bias"], batch.sizes)


ABSENT = -1e4  # the logit of a class that a client has no training graph of: below that of any other


def graph_rows(batch: object) -> GraphRows:
    """A batch of this task: its rows are graphs."""
    assert isinstance(batch, GraphRows)
    return batch


def label_counts(batch: GraphRows, counted: torch.Tensor) -> torch.Tensor:
    """(B, d) log(1 + count) of the features that the graph's client counts, (K, d), and 0 for others."""
    total = segment_sum(batch.of.x, batch.of.membership, len(batch.label)).clamp(min=0).log1p()
    return total * counted[batch.owner]


def classifier(counts: torch.Tensor, label: torch.Tensor, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights (d, C) and constants (C,) of one client."""
    from sklearn.linear_model import LogisticRegression  # a second and more to import: only where it is needed

    weight, bias = torch.zeros(counts.shape[1], classes), torch.zeros(classes)
    present = label.unique()
    if len(present):
        bias += ABSENT
        bias[present] = 0
    if len(present) > 1:
        fitted = LogisticRegression(max_iter=1000).fit(counts.double().numpy(), label.numpy())
        fitted_classes = present[1:] if len(present) == 2 else present  # of two classes the first keeps zeros
        weight[:, fitted_classes] = torch.from_numpy(fitted.coef_.T).float()
        bias[fitted_classes] = torch.from_numpy(fitted.intercept_).float()
    return weight, bias
