"""Link prediction: each client's edges are split, and pairs of nodes without an edge are drawn beside them.

A client trains and passes messages over its training edges alone: an edge that validates or tests is in no graph that a
method sees. What is predicted are pairs of nodes, half of them edges, in an order that says nothing about which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import dgl
import numpy as np
import torch
from pydantic import Field, model_validator

from ..registry import UserError
from .features import Rows
from .federation import PARTS, Data, Goal, LinkClient, NodeData, Task
from .splits import NONE, SPLITS, TEST, TRAIN, VAL, SplitSpec

TRIES = 20  # rounds of drawing pairs before all pairs without an edge are listed


@SPLITS.register("links")
class Links(SplitSpec):
    """Link prediction instead of node classification: shares of each client's edges train, validate and test.

    The three shares add up to 1. Each part has as many drawn pairs without an edge, or `negatives` times as many. An
    edge that several clients hold has the same part at all of them.
    """

    tasks: ClassVar[tuple[Task, ...]] = ("node",)
    labelled: ClassVar[bool] = False  # of nodes, none is used

    train: float = Field(0.7, gt=0, lt=1, description="share of edges that train and carry messages")
    val: float = Field(0.1, ge=0, lt=1, description="share of edges that validate")
    test: float = Field(0.2, gt=0, lt=1, description="share of edges that test")
    negatives: int = Field(1, ge=1, le=100, description="pairs without an edge for each edge")
    score: Literal["roc_auc", "mrr"] = Field(
        "roc_auc",
        description="the measure: area under the ROC curve, or the mean reciprocal rank of an edge among the pairs "
        "without one of its client",
    )

    @model_validator(mode="after")
    def _adds_up(self) -> Links:
        if abs(self.train + self.val + self.test - 1) > 1e-9:
            raise ValueError(f"train + val + test is {self.train + self.val + self.test:g}; make it 1")
        return self

    @classmethod
    def goal(cls, task: Task) -> Goal:
        return "link-prediction"

    def choose(self, data: Data, seed: int) -> Data:
        return replace(data, scored_by=self.score)

    def clients(self, data: NodeData, parts: Sequence[np.ndarray], seed: int) -> list[LinkClient]:
        """What each client holds. parts: sorted node ids (n_k,). UserError where no client has a training edge."""
        rng, rows = np.random.default_rng(seed), Rows(data.feat)
        source, target = (ends.numpy() for ends in data.graph.edges(order="eid"))
        once = source < target
        ends = np.stack([source[once], target[once]], 1)
        ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
        role, found = np.full(len(ends), NONE, dtype=np.int8), []
        for ids in parts:
            mine = np.zeros(data.graph.num_nodes(), dtype=bool)
            mine[ids] = True
            own = np.flatnonzero(mine[ends].all(1))
            free = rng.permutation(own[role[own] == NONE])
            tested, validated = round(self.test * len(free)), round(self.val * len(free))
            role[free] = TRAIN
            role[free[:tested]] = TEST
            role[free[tested : tested + validated]] = VAL
            place = np.searchsorted(ids, ends[own])
            found.append(self._client(data, rows, ids, place, role[own], rng))
        if not any(bool(client.masks["train"].any()) for client in found):
            raise UserError(f"split 'links' on {data.name!r}: no client has an edge to train on; use fewer clients")
        return found

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
    found = np.empty(0, np.int64)
    for _ in range(TRIES if possible > 4 * (len(edges) + wanted) else 0):
        if len(found) >= wanted:
            break
        drawn = np.sort(rng.integers(0, nodes, (2 * wanted + 16, 2)), axis=1)
        codes = drawn[drawn[:, 0] < drawn[:, 1]] @ np.array([nodes, 1])
        codes = np.concatenate([found, codes[~np.isin(codes, edges)]])
        found = codes[np.sort(np.unique(codes, return_index=True)[1])]
    if len(found) < wanted:
        first, second = np.triu_indices(nodes, 1)
        found = rng.permutation(np.setdiff1d(first * nodes + second, edges))
    found = found[:wanted]
    return np.stack([found // nodes, found % nodes], 1) if nodes else np.empty((0, 2), np.int64)
