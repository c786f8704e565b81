"""Link prediction: each client's edges are split, and pairs of nodes without an edge are drawn.

The graphs of methods contain training edges only, so no message passes over a validation or test edge. The prediction
is per pair of nodes: half of the pairs are edges, and the order of the pairs does not show which. Methods get the pairs
as rows with labels (edge or none) and masks, client after client; only the model uses the nodes.
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
    UserError,
    add_task,
    affine,
    collate,
    linear_maps,
    option,
    placed,
    torch_source,
)
from ..datasets.federation import PARTS, Data, Measure, NodeData, Rows, RowsClient
from ..datasets.spec import DatasetSpec
from ..datasets.splits import NONE, SPLITS, TEST, TRAIN, VAL, SplitSpec


@dataclass(frozen=True, kw_only=True)
class LinkClient(RowsClient):
    """A client's graph, of its training edges only, and its rows: pairs of nodes with label 1 = an edge, 0 = none.

    pairs: int64 (m, 2) nodes of the graph, first < second.
    """

    pairs: torch.Tensor

    def said(self) -> list[torch.Tensor]:
        return [self.pairs, *super().said()]


TRIES = 20  # draws of pairs before all pairs without an edge are listed


@SPLITS.register("links")
class Links(SplitSpec):
    """Link prediction instead of node classification: shares of each client's edges train, validate and test.

    The three shares add up to 1. Each part also gets `negatives` random pairs without an edge per edge. An edge that
    several clients hold is in the same part at all of them.
    """

    labelled: ClassVar[bool] = False  # no label of a node is used
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

    def check(self, dataset: DatasetSpec) -> None:
        super().check(dataset)
        if dataset.features_from_edges:
            raise UserError(
                f"the features of {dataset.name} are computed from all edges, test edges too: choose another dataset"
            )

    def choose(self, data: Data, seed: int) -> Data:
        if data.scored_by in ("macro_f1", "average_precision"):  # the --metric of own data
            raise UserError("links are scored by ROC AUC, or by --set split.score=mrr: leave out --metric")
        return replace(data, scored_by=self.score)

    def clients(self, data: Data, parts: Sequence[np.ndarray], seed: int) -> list[LinkClient]:
        """Return the clients. parts: sorted node ids (n_k,). UserError if no client has a training edge."""
        assert isinstance(data, NodeData)
        rng, rows = np.random.default_rng(seed), Rows(data.feat)
        source, target = (ends.numpy() for ends in data.graph.edges(order="eid"))
        once = source < target
        ends = np.stack([source[once], target[once]], 1)
        ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
        role, clients = np.full(len(ends), NONE, dtype=np.int8), []
        for ids in parts:
            held = np.zeros(data.graph.num_nodes(), dtype=bool)
            held[ids] = True
            inside = np.flatnonzero(held[ends].all(1))
            free = rng.permutation(inside[role[inside] == NONE])
            tested, validated = round(self.test * len(free)), round(self.val * len(free))
            role[free] = TRAIN
            role[free[:tested]] = TEST
            role[free[tested : tested + validated]] = VAL
            local_ends = np.searchsorted(ids, ends[inside])
            clients.append(self._client(data, rows, ids, local_ends, role[inside], rng))
        if not any(bool(client.masks["train"].any()) for client in clients):
            raise UserError(f"split 'links' on {data.name!r}: no client has an edge to train on; use fewer clients")
        return clients

    def _client(
        self, data: NodeData, rows: Rows, ids: np.ndarray, ends: np.ndarray, role: np.ndarray, rng: np.random.Generator
    ) -> LinkClient:
        """ends: (m, 2) nodes of the client's edges, source < target. role: (m,) of each edge."""
        counts = [self.negatives * int((role == part).sum()) for part in range(len(PARTS))]
        negatives = _pairs_without_edge(ends, len(ids), sum(counts), rng)
        # A dense graph may have too few pairs without an edge: each part then gets its share of them.
        cuts = np.cumsum([len(negatives) * count // max(sum(counts), 1) for count in counts])
        parts = np.searchsorted(cuts, np.arange(len(negatives)), side="right").clip(max=len(PARTS) - 1)
        pairs, label = np.concatenate([ends, negatives]), np.repeat([1, 0], [len(ends), len(negatives)])
        pair_role = np.concatenate([role, parts])
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        pairs, label, pair_role = pairs[order], label[order], pair_role[order]
        trained = torch.from_numpy(ends[role == TRAIN])
        both = torch.cat([trained, trained.flip(1)])
        graph = dgl.graph((both[:, 0], both[:, 1]), num_nodes=len(ids))
        graph.ndata["label"] = torch.full((len(ids),), -1)
        graph.ndata["global_id"] = torch.from_numpy(ids)
        for part in PARTS:
            graph.ndata[f"{part}_mask"] = torch.zeros(len(ids), dtype=torch.bool)
        masks: dict[str, torch.Tensor] = {part: torch.from_numpy(pair_role == code) for code, part in enumerate(PARTS)}
        return LinkClient(graph, rows(ids), pairs=torch.from_numpy(pairs), label=torch.from_numpy(label), masks=masks)


def _pairs_without_edge(ends: np.ndarray, nodes: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return (count, 2) distinct pairs of nodes without an edge, first < second, in random order; fewer if there are
    not enough."""
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
    """M pairs of nodes of K clients. nodes: the clients' graphs, of training edges only. pairs: (M, 2) rows of
    `nodes`. sizes: pairs per client. label: (M,), 1 = an edge, 0 = none; masks: bool (M,)."""

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
    """A client batch of `LinkClient`s. `batch` and `data` are all pairs; the loss uses the training pairs."""

    def _batch_of(self, members: Sequence[LinkClient]) -> LinkRows:  # type: ignore[override]
        return LinkRows.of(members)

    @property
    def inputs(self) -> Features:
        assert isinstance(self.batch, LinkRows)
        return self.batch.nodes.x


class LinkModel(Backbone):
    """A link predictor: z = `encoder` on the training edges, all layers of width h, no activation after the last.

    decoder "dot": the logit of an edge between u and v is the inner product of z_u and z_v, that of no edge is 0. Their
    cross-entropy is the binary cross-entropy of the inner product (Kipf & Welling 2016, arXiv 1611.07308). decoder
    "mlp": both logits are W_2 relu(W_1 (z_u * z_v) + b_1) + b_2, with dropout after the activation.

    Parameters: those of the encoder, and for the MLP "post.*" and "head.*".
    """

    encoder: Backbone

    @classmethod
    def around(cls, given: Backbone) -> LinkModel:
        """Return the link predictor with the layers of a backbone."""
        return given.turned_into(cls, encoder=given.model_copy(update={"linear_head": False}), linear_head=False)

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        params = self.encoder.init(generator, features, self.hidden)
        if self.decoder == "mlp":
            maps = {"post": (self.hidden, self.hidden), "head": (self.hidden, classes)}
            params |= linear_maps(maps, torch_source(generator), self.linear_start)
        return params

    def forward(self, params: Params, batch: LinkRows, streams: Streams | None = None) -> Forward:  # type: ignore[override]
        """Return the logits (M, 2) of the pairs; `pre` is the decoder's input per pair, (M, h)."""
        z = self.encoder.forward(params, batch.nodes, streams).logits
        pair = z.index_select(0, batch.pairs[:, 0]) * z.index_select(0, batch.pairs[:, 1])
        if self.decoder == "dot":
            edge = pair.sum(1)
            return Forward(torch.stack([torch.zeros_like(edge), edge], 1), [pair], activate=lambda rows: rows)
        hidden = affine(params, "post", pair, batch)
        return Forward(affine(params, "head", self.active(hidden, batch.sizes, streams), batch), [hidden])


def link_models(backbones: Sequence[Backbone]) -> list[Backbone]:
    """Return the link predictors with the layers of these backbones."""
    return [LinkModel.around(backbone) for backbone in backbones]


class LinkEvaluator(Evaluator):
    """Evaluate personal models, or the global one, on each client's pairs: ROC AUC or mean reciprocal rank."""

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
        """As for nodes; None on the whole graph and the union graph, because they contain the edges to predict."""
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
