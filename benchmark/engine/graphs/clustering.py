"""Scores of unsupervised graph embeddings: k-means on all graphs together, matched one-to-one to the true classes."""

from __future__ import annotations

import warnings
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment

from ....datasets.federation import GraphSetData, Measure
from ..backbones import Params
from ..evaluate import Diverged, Evaluator, Models, Scored, Target, beside, demanded
from ..network import Network
from ..rng import stream
from .graphmethod import GraphMethod
from .graphsets import GraphStack

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
        found = [self._clustered(params, network) for params, network in self._one_by_one(models, model)]
        return found[0] if model == "global" else beside(found)

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
        found = [self.method.embed(params, network, self._stack.batch([own])) for own in chunks]
        codes = torch.cat([demanded(self.method, own, len(chunk)) for own, chunk in zip(found, chunks, strict=True)])
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
    table = np.zeros((classes, classes), np.int64)
    np.add.at(table, (cluster, label), 1)
    _, of_cluster = linear_sum_assignment(table, maximize=True)
    return np.asarray(of_cluster[cluster])
