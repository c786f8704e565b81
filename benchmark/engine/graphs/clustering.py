"""Clustering of graphs: client batches without labels, methods, and scores.

Scores: k-means on the embeddings of all graphs, with clusters matched one-to-one to the true classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Literal, TypeVar

import numpy as np
import torch
import torch.nn.functional as F

from ....datasets.federation import Goal, GraphSetData, Measure
from ....registry import option
from ..backbone import Backbone, Network, Params
from ..client_batch import ClientBatch
from ..config import TrainConfig
from ..evaluate import Diverged, Evaluator, Models, Scored, Task, add_task, beside, demanded
from ..method import CLUSTERING, Method
from ..rng import stream, torch_source
from ..sampled_batch import MinibatchClientBatch, Shown, cut
from ..target import Target
from .graphsets import GraphBatch, GraphStack


class Encoder(Backbone):
    """A backbone for sets of graphs. Only the fields `hidden` and `layers` have an effect."""

    @property
    def width(self) -> int:
        """L h, the width of a graph's embedding."""
        return self.layers * self.hidden

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        source = torch_source(generator)
        return self.draw(features, source)

    def draw(self, features: int, source: torch.Generator) -> Params:
        """New parameters of one client (no client axis): Glorot-uniform weights, zero biases."""
        raise NotImplementedError


E = TypeVar("E", bound=Encoder)


def encoder_of(network: Network, kind: type[E]) -> E:
    """The architecture of a network, which must be of class `kind`."""
    backbone = network.backbones[0]
    assert isinstance(backbone, kind)
    return backbone


class GraphMethod(Method):
    """A method that learns one embedding per graph without labels. Subclasses define `encoder`, `batch_loss`, `embed`.

    There is no validation without labels, and the embeddings of all graphs are clustered together. `protocol` therefore
    replaces `select_by`, `patience` and `score_on`: the last round is scored on the whole set.
    """

    tasks: ClassVar[tuple[Goal, ...]] = ("graph",)
    heterogeneous_features: ClassVar[bool] = False

    encoder: ClassVar[type[Encoder]]  # the architecture that the paper fixes

    scored_codes: Literal["raw", "unit"] = option(
        "raw",
        "cluster embeddings unchanged, or scaled to length 1; the papers do not say, raw is our choice: FCLG's "
        "results of MVGRL are those of raw sums, of which k-means separates a few large graphs",
    )

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        return [self.encoder(hidden=given.hidden, layers=given.layers) for given in backbones]

    def protocol(self, config: TrainConfig) -> TrainConfig:
        return config.model_copy(update=CLUSTERING)

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        """(K,) each client's loss on its minibatch; 0 for a client without a minibatch in this step."""
        assert isinstance(clients, GraphClientBatch)
        return self.batch_loss(clients)

    def batch_loss(self, clients: GraphClientBatch) -> torch.Tensor:
        """(K,) each client's loss on `clients.minibatch`."""
        raise NotImplementedError

    def embed(self, params: Params, network: Network, batch: GraphBatch) -> torch.Tensor:
        """(B, c) embeddings of the graphs under models (K, ...), before any scaling."""
        raise NotImplementedError


class GraphClientBatch(MinibatchClientBatch):
    """A client batch whose members are `GraphClient`s without labels; it has no `batch` and no `data`.

    held: per client, the numbers of its graphs in the stack. minibatch: the graphs of the current step.
    """

    held: list[np.ndarray]
    minibatch: GraphBatch

    def _collate(self) -> None:
        self.members = [replace(member, label=torch.empty(0, dtype=torch.long)) for member in self.members]
        counts = [len(member.graphs) for member in self.members]
        self.held = self._trained = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])
        self.batch, self.data = None, ()  # type: ignore[assignment]

    @cached_property
    def stack(self) -> GraphStack:
        """The graphs of all members."""
        return GraphStack([graph for member in self.members for graph in member.graphs])

    def _part(self, positions: Sequence[int]) -> ClientBatch:
        part = super()._part(positions)
        assert isinstance(part, GraphClientBatch)
        picks = [graph for p in positions for graph in self.held[p]]
        if picks:
            part.stack.adopt(self.stack, np.array(picks))
        return part

    def _chunks(self, generator: np.random.Generator, rows: np.ndarray) -> list[np.ndarray]:
        """The minibatches of a client's epoch; a single one is shuffled too."""
        return cut(generator.permutation(rows), self.config.batch_size)

    def _minibatch(self, picks: Sequence[np.ndarray]) -> Shown:
        self.minibatch = self.stack.batch(picks)
        return self.minibatch, ()


CHUNK = 512  # graphs embedded at a time; no number depends on it, because embeddings do not depend on the batch


class ClusteringEvaluator(Evaluator):
    """Embeds all graphs of the dataset and clusters the embeddings together.

    k = number of classes; Lloyd's k-means (the FCLG paper cites Hartigan-Wong's), best inertia of 10 k-means++ starts,
    the same seed at each scoring. Accuracy and macro-F1 are those of the best one-to-one matching of clusters to
    classes. Each personal model also embeds all graphs; scores are averaged over the clients. There is no validation.
    """

    @cached_property
    def _stack(self) -> GraphStack:
        return GraphStack(self._data.graphs)

    @property
    def _data(self) -> GraphSetData:
        data = self.original.whole
        assert isinstance(data, GraphSetData)
        return data

    @staticmethod
    def phrase(measure: Measure, model: str, data: str) -> str:
        return f"clustering accuracy, {model} model, k-means on all graphs, best matching"

    def _score(self, models: Models, model: str, data: str, with_loss: bool) -> Scored | None:
        if data != "global":
            return None  # a client's own graphs are not clustered apart
        scores = [self._clustered(params, network) for params, network in self.one_by_one(models, model)]
        return scores[0] if model == "global" else beside(scores)

    def _clustered(self, params: Params, network: Network) -> Scored:
        embedding = self.embeddings(params, network).double().numpy()
        if not np.isfinite(embedding.sum()):
            raise Diverged("the model's embeddings are not finite")
        seed = int(stream(self.original.seed, "k-means").integers(2**31))
        cluster = k_means(embedding, self._data.num_classes, seed)
        label, every = self._data.label, torch.ones(len(cluster), dtype=torch.bool)
        predicted = torch.from_numpy(matched(cluster, label.numpy(), self._data.num_classes))
        # All graphs are the test part of one scored client, none is validation.
        return Scored.of(predicted, Target.of([label], [{"val": ~every, "test": every}], [len(label)]))

    @torch.no_grad()
    def embeddings(self, params: Params, network: Network) -> torch.Tensor:
        """(graphs, c) embeddings by one model (1, ...), in the dataset's order, scaled by `scored_codes`."""
        assert isinstance(self.method, GraphMethod)
        count = len(self._data.graphs)
        chunks = np.array_split(np.arange(count), max(1, -(-count // CHUNK)))
        outputs = [self.method.embed(params, network, self._stack.batch([chunk])) for chunk in chunks]
        pairs = zip(outputs, chunks, strict=True)
        codes = torch.cat([demanded(self.method, rows, len(chunk)) for rows, chunk in pairs])
        return F.normalize(codes) if self.method.scored_codes == "unit" else codes


def k_means(rows: np.ndarray, k: int, seed: int) -> np.ndarray:
    """(n,) cluster of each row; fewer than k clusters if there are fewer different rows."""
    from sklearn.cluster import KMeans  # takes more than a second to import
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(KMeans(k, n_init=10, random_state=seed).fit_predict(rows))


def matched(cluster: np.ndarray, label: np.ndarray, classes: int) -> np.ndarray:
    """(n,) the class of each row's cluster, by the one-to-one matching with the most correct rows."""
    from scipy.optimize import linear_sum_assignment  # takes half a second to import

    table = np.zeros((classes, classes), np.int64)
    np.add.at(table, (cluster, label), 1)
    _, of_cluster = linear_sum_assignment(table, maximize=True)
    return np.asarray(of_cluster[cluster])


add_task(Task("graph", GraphClientBatch, ClusteringEvaluator))
