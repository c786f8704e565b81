"""The models of a cohort: one stack of parameters for each architecture its clients have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .backbones import Backbone, Forward, Params
from .batch import Batch
from .random import Streams, stream

_GROUP = re.compile(r"^(\d+):")


@dataclass(frozen=True)
class Group:
    """The clients of a cohort that share an architecture, by their positions in it."""

    backbone: Backbone
    positions: tuple[int, ...]


class Network:
    """Heterogeneous models as one: parameters of group g are named "g:name" and have that group's clients in front.

    With one architecture there is one group and no prefix. Outputs come back in client order, whatever the grouping.
    """

    def __init__(self, backbones: Sequence[Backbone], clients: Sequence[int]) -> None:
        """backbones: client k of the federation has entry k mod len. clients: ids of the cohort's clients, in order."""
        self.backbones, self.clients = tuple(backbones), tuple(clients)
        kinds = [client % len(self.backbones) for client in self.clients]
        self.groups = [
            Group(self.backbones[kind], tuple(p for p, own in enumerate(kinds) if own == kind))
            for kind in sorted(set(kinds))
        ]
        self.heterogeneous = len(self.backbones) > 1

    def select(self, positions: Sequence[int]) -> Network:
        return Network(self.backbones, [self.clients[p] for p in positions])

    def init(self, seed: int, features: int, classes: int) -> Params:
        """Initial parameters (K, ...): one common draw for equal architectures, a draw a client for different ones."""
        if not self.heterogeneous:
            fresh = initial(self.backbones[0], seed, features, classes)
            return {name: value.expand(len(self.clients), *value.shape).clone() for name, value in fresh.items()}
        params: Params = {}
        for g, group in enumerate(self.groups):
            own = [
                group.backbone.init(stream(seed, "initialisation", self.clients[p]), features, classes)
                for p in group.positions
            ]
            params |= {self._name(g, name): torch.stack([one[name] for one in own]) for name in own[0]}
        return params

    def _name(self, g: int, name: str) -> str:
        return f"{g}:{name}" if self.heterogeneous else name

    def forward(self, params: Params, data: Sequence[Batch], streams: Streams | None = None) -> Forward:
        """All clients' rows. data: one batch a group, with the group's clients in order.

        Of different architectures only the embeddings are put together: `pre` then holds them alone, activated.
        """
        if not self.heterogeneous:
            return self.groups[0].backbone.forward(params, data[0], streams)
        outs = []
        for g, (group, batch) in enumerate(zip(self.groups, data, strict=True)):
            own = {name.split(":", 1)[1]: value for name, value in params.items() if name.startswith(f"{g}:")}
            drawn = streams.select(group.positions) if streams is not None else None
            outs.append(group.backbone.forward(own, batch, drawn))
        logits = self._restore([out.logits for out in outs], data)
        if any(not out.pre for out in outs):
            return Forward(logits)
        # Architectures of different depth have only the last hidden layer, the embedding, in common.
        return Forward(logits, [self._restore([out.embedding for out in outs], data)], activate=lambda rows: rows)

    def _restore(self, parts: list[torch.Tensor], data: Sequence[Batch]) -> torch.Tensor:
        """Rows of the groups, in client order."""
        pieces: list[torch.Tensor] = [torch.empty(0)] * len(self.clients)
        for group, part, batch in zip(self.groups, parts, data, strict=True):
            for position, piece in zip(group.positions, part.split(batch.sizes), strict=True):
                pieces[position] = piece
        return torch.cat(pieces)

    def sizes(self, data: Sequence[Batch]) -> list[int]:
        """Nodes of each client in client order. data: as for `forward`."""
        own: dict[int, int] = {}
        for group, batch in zip(self.groups, data, strict=True):
            own |= zip(group.positions, batch.sizes, strict=True)
        return [own[p] for p in range(len(self.clients))]

    def part(self, params: Params, prefix: str) -> Params:
        """The parameters whose name starts with `prefix` ("head."), for all clients in client order: (K, ...).

        All architectures must have them in the same shape.
        """
        if not self.heterogeneous:
            return {name: value for name, value in params.items() if name.startswith(prefix)}
        found: dict[str, list[torch.Tensor]] = {}
        for g, group in enumerate(self.groups):
            for name, value in params.items():
                if name.startswith(f"{g}:{prefix}"):
                    row = found.setdefault(name.split(":", 1)[1], [torch.empty(0)] * len(self.clients))
                    for position, own in zip(group.positions, value, strict=True):
                        row[position] = own
        return {name: torch.stack(rows) for name, rows in found.items()}

    def with_part(self, params: Params, part: Params) -> Params:
        """`params` with the entries of `part` (names without group, (K, ...)) put in their place; fresh tensors."""
        out = dict(params)
        for name, value in part.items():
            for g, group in enumerate(self.groups):
                out[self._name(g, name)] = value[list(group.positions)].clone()
        return out

    def take(self, tree: Any, positions: Sequence[int]) -> Any:
        """Rows of some clients from a tree of (K, ...) tensors and lists; copies.

        Keys "g:name" hold the clients of group g; a selection may lack whole groups, and numbers its own from 0.
        """
        return _take(tree, list(positions), self._moves(positions))

    def put(self, tree: Any, positions: Sequence[int], part: Any) -> Any:
        """The inverse of `take`: a tree like `tree` with the rows of `part` at these positions."""
        return _put(tree, list(positions), part, len(self.clients), self._moves(positions))

    def _moves(self, positions: Sequence[int]) -> list[tuple[int, list[int], int]]:
        """For each group of a selection: its number here, its rows there, and how many clients it has here."""
        if not self.heterogeneous:
            return []
        rows = [[group.positions.index(p) for p in positions if p in group.positions] for group in self.groups]
        return [(g, own, len(self.groups[g].positions)) for g, own in enumerate(rows) if own]


Moves = list[tuple[int, list[int], int]]


def _take(tree: Any, index: list[int], moves: Moves) -> Any:
    if isinstance(tree, dict):
        taken = {}
        for key, value in tree.items():
            group = _GROUP.match(key)
            if not moves or group is None:
                taken[key] = _take(value, index, moves)
                continue
            for new, (old, rows, _) in enumerate(moves):
                if old == int(group[1]):
                    taken[f"{new}:{key[group.end() :]}"] = _take(value, rows, [])
        return taken
    if isinstance(tree, list):
        return [tree[p] for p in index]
    return tree[index] if isinstance(tree, torch.Tensor) else tree


def _put(tree: Any, index: list[int], part: Any, clients: int, moves: Moves) -> Any:
    if isinstance(part, dict):
        tree = dict(tree or {})
        for key, value in part.items():
            group = _GROUP.match(key)
            if not moves or group is None:
                tree[key] = _put(tree.get(key), index, value, clients, moves)
            else:
                old, rows, size = moves[int(group[1])]
                name = f"{old}:{key[group.end() :]}"
                tree[name] = _put(tree.get(name), rows, value, size, [])
        return tree
    if isinstance(part, list):
        whole = list(tree) if tree is not None else [None] * clients
        for p, value in zip(index, part, strict=True):
            whole[p] = value
        return whole
    if isinstance(part, torch.Tensor):
        out = part.new_zeros((clients, *part.shape[1:])) if tree is None else tree.clone()
        out[index] = part
        return out
    return part


def initial(backbone: Backbone, seed: int, features: int, classes: int) -> Params:
    """The server's initial model for an architecture: the same for all methods of a cell with the same seed."""
    return backbone.init(stream(seed, "initialisation"), features, classes)
