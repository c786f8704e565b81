"""Clustering of graphs: unlabelled client batches, methods, and scores by k-means on all embeddings together, with the
clusters matched one-to-one to the true classes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Literal, TypeVar

import numpy as np
import torch
import torch.nn.functional as F

from ....datasets.federation import Goal, GraphSetData, Measure
from ....registry import option
from ..backbone import Backbone, Params
from ..client_batch import ClientBatch
from ..config import TrainConfig
from ..evaluate import Diverged, Evaluator, Models, Scored, beside, demanded
from ..method import Method
from ..network import Network
from ..rng import stream
from ..sampled_batch import cut
from ..target import Target
from ..task import Task, add_task
from .graphsets import GraphBatch, GraphStack


class Encoder(Backbone):
    """A backbone for graph sets; `hidden` and `layers` have effect, the other fields of a backbone have not."""

    @property
    def width(self) -> int:
        """L h, the width of a graph's code."""
        return self.layers * self.hidden

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        source = torch.Generator().manual_seed(int(generator.integers(2**63)))
        return self.draw(features, source)

    def draw(self, features: int, source: torch.Generator) -> Params:
        """Fresh parameters of one client (no client axis): Glorot-uniform weights, zero biases."""
        raise NotImplementedError


E = TypeVar("E", bound=Encoder)


def encoder_of(network: Network, kind: type[E]) -> E:
    """The architecture of a network whose method says that it is of this kind."""
    backbone = network.backbones[0]
    assert isinstance(backbone, kind)
    return backbone


class GraphMethod(Method):
    """A method that learns one embedding per graph without labels. Subclasses give `encoder`, `batch_loss` and `embed`.

    Without labels nothing can be selected by validation, so the last round counts; the embeddings of all graphs are
    clustered together. The cell's `select_by`, `patience` and `score_on` are therefore
    replaced.
    """

    tasks: ClassVar[tuple[Goal, ...]] = ("graph",)
    heterogeneous_features: ClassVar[bool] = False

    encoder: ClassVar[type[Encoder]]  # the architecture that the paper fixes

    scored_codes: Literal["raw", "unit"] = option(
        "raw",
        "cluster embeddings as they are, or scaled to length 1; not in the papers, raw is our choice: "
        "FCLG's MVGRL rows are those of raw sums, in which k-means splits off a few large graphs",
    )

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        return [self.encoder(hidden=given.hidden, layers=given.layers) for given in backbones]

    def protocol(self, config: TrainConfig) -> TrainConfig:
        return config.model_copy(update={"select_by": "last", "patience": None, "score_on": "global"})

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        """(K,) each client's loss on its minibatch; 0 for a client that sits the step out."""
        assert isinstance(clients, GraphClientBatch)
        return self.batch_loss(clients)

    def batch_loss(self, clients: GraphClientBatch) -> torch.Tensor:
        """(K,) the same, on `clients.minibatch`."""
        raise NotImplementedError

    def embed(self, params: Params, network: Network, batch: GraphBatch) -> torch.Tensor:
        """(B, c) embeddings of the graphs under models (K, ...), before any scaling."""
        raise NotImplementedError


class GraphClientBatch(ClientBatch):
    """A client batch whose members are `GraphClient`s, stripped of their labels: nothing here may learn from them.

    held: for each client its graphs' numbers in the stack. minibatch: what a loss is to be computed on.
    """

    held: list[np.ndarray]
    minibatch: GraphBatch

    def _collate(self) -> None:
        self.members = [replace(member, label=torch.empty(0, dtype=torch.long)) for member in self.members]
        counts = [len(member.graphs) for member in self.members]
        self.held = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])

    @property
    def inputs(self) -> None:
        """Minibatches: other features in each step."""

    @cached_property
    def stack(self) -> GraphStack:
        """The graphs of all members."""
        return GraphStack([graph for member in self.members for graph in member.graphs])

    def _part(self, positions: Sequence[int]) -> ClientBatch:
        part = super()._part(positions)
        assert isinstance(part, GraphClientBatch)
        graphs = [graph for member in part.members for graph in member.graphs]
        if graphs:
            part.stack = self.stack.part(graphs, np.concatenate([self.held[p] for p in positions]))
        return part

    def steps(self) -> Iterator[list[int] | None]:
        """An epoch of minibatches of `config.batch_size` graphs, each client's order from its own stream.

        All clients' minibatches of a step are one batched computation. A client with fewer ones skips the last steps.
        """
        chunks = [
            cut(generator.permutation(graphs), self.config.batch_size)
            for generator, graphs in zip(self.streams("minibatches"), self.held, strict=True)
        ]
        nobody = np.empty(0, np.int64)
        for step in range(max(map(len, chunks))):
            picks = [minibatches[step] if step < len(minibatches) else nobody for minibatches in chunks]
            active = [k for k, minibatches in enumerate(chunks) if step < len(minibatches)]
            self.minibatch = self.stack.batch(picks)
            yield None if len(active) == len(self) else active


CHUNK = 512  # graphs embedded at a time: scoring normalises nothing over a batch, so the cut changes no number


class ClusteringEvaluator(Evaluator):
    """Embeds every graph of the dataset, of all clients, and clusters the embeddings together.

    k = number of classes; Lloyd's k-means (the FCLG paper cites Hartigan-Wong's), best inertia of 10 k-means++ starts,
    the same seed at each scoring. Accuracy and macro-F1 are those of the best one-to-one matching of clusters to
    classes. A personal model embeds all graphs too; its scores are averaged over the clients. No validation part.
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
        """(graphs, c) of one model, (1, ...), in the dataset's order, scaled as the method's `scored_codes` says."""
        assert isinstance(self.method, GraphMethod)
        count = len(self._data.graphs)
        chunks = np.array_split(np.arange(count), max(1, -(-count // CHUNK)))
        outputs = [self.method.embed(params, network, self._stack.batch([chunk])) for chunk in chunks]
        pairs = zip(outputs, chunks, strict=True)
        codes = torch.cat([demanded(self.method, rows, len(chunk)) for rows, chunk in pairs])
        return F.normalize(codes) if self.method.scored_codes == "unit" else codes


def k_means(rows: np.ndarray, k: int, seed: int) -> np.ndarray:
    """(n,) cluster of each row; fewer than k clusters where there are fewer different rows."""
    from sklearn.cluster import KMeans  # a second and more to import: only where it is needed
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(KMeans(k, n_init=10, random_state=seed).fit_predict(rows))


def matched(cluster: np.ndarray, label: np.ndarray, classes: int) -> np.ndarray:
    """(n,) the class of each row's cluster under the one-to-one matching with most rows right."""
    from scipy.optimize import linear_sum_assignment  # half a second to import: only where it is needed

    table = np.zeros((classes, classes), np.int64)
    np.add.at(table, (cluster, label), 1)
    _, of_cluster = linear_sum_assignment(table, maximize=True)
    return np.asarray(of_cluster[cluster])


add_task(Task("graph", GraphClientBatch, ClusteringEvaluator))
