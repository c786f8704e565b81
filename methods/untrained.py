"""References without a trained network: lower bounds for useful scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from ..benchmark.engine import (
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
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
    option,
    segment_add,
    segment_product,
    segment_sum,
)
from .parts.prototypes import class_counts


class Untrained(Method):
    """One round without training and without messages."""

    reference = True
    trains = False
    heterogeneous = True

    def phases(self, config: TrainConfig) -> list[Phase]:
        return [Phase((Step(self.client),), 1)]

    def client(self, clients: ClientBatch) -> Tree:
        return {}


@METHODS.register("majority")
class Majority(Untrained):
    """Reference: each client predicts the most frequent class of its training nodes for all nodes.

    Of equally frequent classes the first; class 0 for a client without training nodes. Messages: none.
    """

    family = "reference"
    summary = "the most frequent class of each client: the prediction without learning"
    title = "Majority class"
    tasks = ("node", "graph-classification")
    heterogeneous_features = True

    delivers = "personal"

    def prepare(self, clients: ClientBatch) -> None:
        clients.state["votes"] = class_counts(clients.batch, clients.classes).float()

    def personal_model(self, clients: ClientBatch) -> Params | None:
        return {"votes": clients.state["votes"]}

    @torch.no_grad()
    def predict(self, params: Params, network: Network, data: Sequence[Batch]) -> torch.Tensor:
        return params["votes"].repeat_interleave(torch.tensor(network.sizes(data)), 0)


class UntrainedCodes(Untrained, GraphMethod):
    """Codes of graphs without a model; the run's backbone is recorded in the row and has no effect."""

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        return backbones

    def global_model(self, server: Server) -> Params | None:
        return {}


@METHODS.register("one-cluster")
class OneCluster(UntrainedCodes):
    """Reference: all graphs have the same code, so there is one cluster, with the label of the largest class.

    Messages: none.
    """

    family = "reference"
    summary = "all graphs in one cluster: the clustering without learning"
    title = "One cluster"

    def embed(self, params: Params, network: Network, batch: GraphBatch) -> torch.Tensor:
        return torch.zeros(len(batch.picks), 1)


@METHODS.register("label-counts")
class LabelCounts(UntrainedCodes):
    """Reference: a graph's code is its number of nodes of each label; edges are not used, and there is no network.

    Labels are the features that are 0 or 1 at every node of the set (one-hot labels, or degrees of a set without
    labels); without such features, all features are summed. Messages: none.
    """

    family = "reference"
    summary = "graph codes that count a graph's node labels: the clustering without learning"
    title = "k-means on label counts"

    counts: Literal["plain", "log", "shares"] = option(
        "plain", "numbers of nodes, log(1 + number), or numbers divided by the graph's nodes"
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
    """Reference: one logistic regression per client (scikit-learn, C = 1) on log(1 + number of nodes of each label) of
    its training graphs, without edges, network, federation and random draws.

    Labels are the features that are 0 or 1 at every node of the client (one-hot labels or degrees); without such
    features, sums of all features, negative sums as 0. A client without training graphs predicts class 0, a client
    whose training graphs have a single class predicts that class. Messages: none.
    """

    family = "reference"
    summary = "a linear classifier on a graph's number of nodes of each label: the prediction without edges"
    title = "Logistic regression on label counts"
    tasks = ("graph-classification",)
    heterogeneous_features = True
    delivers = "personal"
    heterogeneous = False

    def prepare(self, clients: ClientBatch) -> None:
        batch = graph_rows(clients.batch)
        binary = [((columns == 0) | (columns == 1)).all(0) for columns in batch.of.x.split(batch.of.sizes)]
        counted = torch.stack([mask if mask.any() else ~mask for mask in binary]).float()
        per_client = zip(
            *map(batch.per_client, (label_counts(batch, counted), batch.label, batch.masks["train"])), strict=True
        )
        models = [classifier(counts[train], label[train], clients.classes) for counts, label, train in per_client]
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


ABSENT = -1e4  # the logit of a class without training graphs, below all other logits


def graph_rows(batch: object) -> GraphRows:
    """Return the batch, whose rows must be graphs."""
    assert isinstance(batch, GraphRows)
    return batch


def label_counts(batch: GraphRows, counted: torch.Tensor) -> torch.Tensor:
    """Return log(1 + count) (B, d) of the features of a graph. counted: (K, d), 1 for features in use, 0 for others."""
    total = segment_sum(batch.of.x, batch.of.membership, len(batch.label)).clamp(min=0).log1p()
    return total * counted[batch.owner]


def classifier(counts: torch.Tensor, label: torch.Tensor, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights (d, C) and biases (C,) of one client."""
    from sklearn.linear_model import LogisticRegression  # the import takes more than a second

    weight, bias = torch.zeros(counts.shape[1], classes), torch.zeros(classes)
    present = label.unique()
    if len(present):
        bias += ABSENT
        bias[present] = 0
    if len(present) > 1:
        fitted = LogisticRegression(max_iter=1000).fit(counts.double().numpy(), label.numpy())
        fitted_classes = present[1:] if len(present) == 2 else present  # scikit-learn fits two classes with one row
        weight[:, fitted_classes] = torch.from_numpy(fitted.coef_.T).float()
        bias[fitted_classes] = torch.from_numpy(fitted.intercept_).float()
    return weight, bias
