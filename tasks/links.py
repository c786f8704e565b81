"""Link prediction: each client's edges are split, and pairs of nodes without an edge are drawn beside them.

A client trains and passes messages over its training edges alone: an edge that validates or tests is in no graph that a
method sees. What is predicted are pairs of nodes, half of them edges, in an order that says nothing about which. To a
method they are rows with labels (edge or none) and masks, client after client; only the model looks at the nodes below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import dgl
import numpy as np
import torch
from pydantic import model_validator

from ..benchmark.engine import (
    MEASURES,
    Backbone,
    Batch,
    ClientBatch,
    Evaluator,
    Features,
    Forward,
    LabelledRows,
    Models,
    Params,
    Scored,
    Streams,
    Target,
    Task,
    TrainConfig,
    add_task,
    affine,
    collate,
    linear_map,
    placed,
)
from ..datasets.federation import PARTS, Data, Measure, NodeData, Rows, RowsClient
from ..datasets.splits import NONE, SPLITS, TEST, TRAIN, VAL, SplitSpec
from ..registry import UserError, option


@dataclass(frozen=True, kw_only=True)
class LinkClient(RowsClient):
    """What one client holds: a graph of its training edges alone; rows are pairs of nodes, 1 = an edge, 0 = none.

    pairs: int64 (m, 2) rows of its graph, first below second.
    """

    pairs: torch.Tensor

    def said(self) -> list[torch.Tensor]:
        return [self.pairs, *super().said()]


TRIES = 20  # rounds of drawing pairs before all pairs without an edge are listed


@SPLITS.register("links")
class Links(SplitSpec):
    """Link prediction instead of node classification: shares of each client's edges train, validate and test.

    The three shares add up to 1. Each part has as many drawn pairs without an edge, or `negatives` times as many. An
    edge that several clients hold has the same part at all of them.
    """

    labelled: ClassVar[bool] = False  # of nodes, none is used
    goal: ClassVar[str] = "link-prediction"
    outputs: ClassVar[int] = 2
    unit: ClassVar[str] = "edge"

    train: float = option(0.7, "share of edges that train and carry messages", gt=0, lt=1)
    val: float = option(0.1, "share of edges that validate", ge=0, lt=1)
    test: float = option(0.2, "share of edges that test", gt=0, lt=1)
    negatives: int = option(1, "pairs without an edge for each edge", ge=1, le=100)
    score: Literal["roc_auc", "mrr"] = option(
        "roc_auc",
        "the measure: area under the ROC curve, or the mean reciprocal rank of an edge among the pairs "
        "without one of its client",
    )

    @model_validator(mode="after")
    def _adds_up(self) -> Links:
        if abs(self.train + self.val + self.test - 1) > 1e-9:
            raise ValueError(f"train + val + test is {self.train + self.val + self.test:g}; make it 1")
        return self

    def choose(self, data: Data, seed: int) -> Data:
        return replace(data, scored_by=self.score)

    def clients(self, data: Data, parts: Sequence[np.ndarray], seed: int) -> list[LinkClient]:
        """What each client holds. parts: sorted node ids (n_k,). UserError where no client has a training edge."""
        assert isinstance(data, NodeData)
        rng, rows = np.random.default_rng(seed), Rows(data.feat)
        source, target = (ends.numpy() for ends in data.graph.edges(order="eid"))
        once = source < target
        ends = np.stack([source[once], target[once]], 1)
        ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
        role, held = np.full(len(ends), NONE, dtype=np.int8), []
        for ids in parts:
            mine = np.zeros(data.graph.num_nodes(), dtype=bool)
            mine[ids] = True
            inside = np.flatnonzero(mine[ends].all(1))
            free = rng.permutation(inside[role[inside] == NONE])
            tested, validated = round(self.test * len(free)), round(self.val * len(free))
            role[free] = TRAIN
            role[free[:tested]] = TEST
            role[free[tested : tested + validated]] = VAL
            place = np.searchsorted(ids, ends[inside])
            held.append(self._client(data, rows, ids, place, role[inside], rng))
        if not any(bool(client.masks["train"].any()) for client in held):
            raise UserError(f"split 'links' on {data.name!r}: no client has an edge to train on; use fewer clients")
        return held

    def _client(
        self, data: NodeData, rows: Rows, ids: np.ndarray, ends: np.ndarray, role: np.ndarray, rng: np.random.Generator
    ) -> LinkClient:
        """ends: (m, 2) rows of the client's edges, source below target. role: (m,) of each edge."""
        counts = [self.negatives * int((role == part).sum()) for part in range(len(PARTS))]
        others = _without_edge(ends, len(ids), sum(counts), rng)
        # Where a graph is so dense that pairs are lacking, each part gets its share of them.
        cuts = np.cumsum([len(others) * count // max(sum(counts), 1) for count in counts])
        parts = np.searchsorted(cuts, np.arange(len(others)), side="right").clip(max=len(PARTS) - 1)
        pairs, label = np.concatenate([ends, others]), np.repeat([1, 0], [len(ends), len(others)])
        every = np.concatenate([role, parts])
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        pairs, label, every = pairs[order], label[order], every[order]
        seen = torch.from_numpy(ends[role == TRAIN])
        both = torch.cat([seen, seen.flip(1)])
        graph = dgl.graph((both[:, 0], both[:, 1]), num_nodes=len(ids))
        graph.ndata["label"] = torch.full((len(ids),), -1)
        graph.ndata["global_id"] = torch.from_numpy(ids)
        for part in PARTS:
            graph.ndata[f"{part}_mask"] = torch.zeros(len(ids), dtype=torch.bool)
        masks: dict[str, torch.Tensor] = {part: torch.from_numpy(every == code) for code, part in enumerate(PARTS)}
        return LinkClient(graph, rows(ids), pairs=torch.from_numpy(pairs), label=torch.from_numpy(label), masks=masks)


def _without_edge(ends: np.ndarray, nodes: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, 2) different pairs of rows without an edge, first below second, in random order; fewer where there are
    no more."""
    edges, possible = ends[:, 0] * nodes + ends[:, 1], nodes * (nodes - 1) // 2
    wanted = min(count, possible - len(edges))
    pairs = np.empty(0, np.int64)
    for _ in range(TRIES if possible > 4 * (len(edges) + wanted) else 0):
        if len(pairs) >= wanted:
            break
        drawn = np.sort(rng.integers(0, nodes, (2 * wanted + 16, 2)), axis=1)
        codes = drawn[drawn[:, 0] < drawn[:, 1]] @ np.array([nodes, 1])
        codes = np.concatenate([pairs, codes[~np.isin(codes, edges)]])
        pairs = codes[np.sort(np.unique(codes, return_index=True)[1])]
    if len(pairs) < wanted:
        first, second = np.triu_indices(nodes, 1)
        pairs = rng.permutation(np.setdiff1d(first * nodes + second, edges))
    pairs = pairs[:wanted]
    return np.stack([pairs // nodes, pairs % nodes], 1) if nodes else np.empty((0, 2), np.int64)


@dataclass(frozen=True, eq=False)
class LinkRows(LabelledRows):
    """M pairs of nodes of K clients. nodes: the clients' graphs, of training edges alone. pairs: (M, 2) rows of
    `nodes`. sizes: pairs of each client. label: (M,), 1 = an edge, 0 = none; masks: bool (M,)."""

    nodes: Batch
    pairs: torch.Tensor
    sizes: tuple[int, ...]
    label: torch.Tensor
    masks: dict[str, torch.Tensor]

    @classmethod
    def of(cls, members: Sequence[LinkClient]) -> LinkRows:
        """The pairs of some clients, in the given order."""
        nodes = collate(members)
        shifted = [client.pairs + start for client, start in zip(members, nodes.offsets, strict=False)]
        masks = {part: placed(torch.cat([client.masks[part] for client in members])) for part in members[0].masks}
        label = placed(torch.cat([client.label for client in members]))
        return cls(nodes, placed(torch.cat(shifted)), tuple(len(client.label) for client in members), label, masks)


class LinkClientBatch(ClientBatch):
    """Members are `LinkClient`s. `batch` and `data` are all their pairs, of which the training ones make the loss."""

    def _batch_of(self, members: Sequence[LinkClient]) -> LinkRows:  # type: ignore[override]
        return LinkRows.of(members)

    @property
    def inputs(self) -> Features:
        assert isinstance(self.batch, LinkRows)
        return self.batch.nodes.x


class LinkModel(Backbone):
    """z = the layers of `encoder` on the training edges, all of width h, the last one without activation. The logit of
    an edge between u and v is the inner product of z_u and z_v, that of none is 0: their cross-entropy is the binary
    cross-entropy of the inner product (Kipf & Welling 2016, arXiv 1611.07308). With `decoder` "mlp" both logits are
    W_2 relu(W_1 (z_u * z_v) + b_1) + b_2, with dropout after the activation.

    Parameters: the encoder's own names; of the MLP "post." and "head.".
    """

    encoder: Backbone

    @classmethod
    def around(cls, given: Backbone) -> LinkModel:
        """The predictor of links with the layers of a backbone."""
        return given.turned_into(cls, encoder=given.model_copy(update={"linear_head": False}), linear_head=False)

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        params = self.encoder.init(generator, features, self.hidden)
        if self.decoder == "mlp":
            source = torch.Generator().manual_seed(int(generator.integers(2**63)))
            for name, shape in {"post": (self.hidden, self.hidden), "head": (self.hidden, classes)}.items():
                params[f"{name}.weight"], params[f"{name}.bias"] = linear_map(*shape, source, self.linear_start)
        return params

    def forward(self, params: Params, batch: LinkRows, streams: Streams | None = None) -> Forward:  # type: ignore[override]
        """Logits (M, 2) of pairs; `pre` holds what the decoder gets of each pair, (M, h)."""
        z = self.encoder.forward(params, batch.nodes, streams).logits
        pair = z.index_select(0, batch.pairs[:, 0]) * z.index_select(0, batch.pairs[:, 1])
        if self.decoder == "dot":
            edge = pair.sum(1)
            return Forward(torch.stack([torch.zeros_like(edge), edge], 1), [pair], activate=lambda rows: rows)
        hidden = affine(params, "post", pair, batch)
        return Forward(affine(params, "head", self.active(hidden, batch.sizes, streams), batch), [hidden])


def link_models(backbones: Sequence[Backbone]) -> list[Backbone]:
    """Predictors of links with these layers."""
    return [LinkModel.around(given) for given in backbones]


class LinkEvaluator(Evaluator):
    """Each client's model, or the server's, on the client's own pairs: ROC AUC or mean reciprocal rank."""

    @cached_property
    def _links(self) -> list[LinkClient]:
        return [client for client in self.original.clients if isinstance(client, LinkClient)]

    @cached_property
    def _local(self) -> Target:
        links = self._links
        return Target.of([client.label for client in links], [client.masks for client in links], self._sizes)

    @cached_property
    def _sizes(self) -> list[int]:
        return [len(client.label) for client in self._links]

    def score(self, models: Models, model: str, data: str, *, with_loss: bool = False) -> Scored | None:
        """As for nodes; None on the whole graph and the union, whose edges are to be predicted."""
        return super().score(models, model, data, with_loss=with_loss) if data == "local" else None

    @staticmethod
    def phrase(measure: Measure, model: str, data: str) -> str:
        return f"{MEASURES[measure]} of links, {model} model, local test, mean over clients"


def _refused(config: TrainConfig) -> str | None:
    if config.batch_size:
        return "links are trained on all pairs of a client at once: leave out training.batch_size"
    if config.score_on != "local":
        return "the whole graph and the union hold the edges to be predicted: models are scored on local links"
    return None


add_task(Task("link-prediction", LinkClientBatch, LinkEvaluator, link_models, refused=_refused))
