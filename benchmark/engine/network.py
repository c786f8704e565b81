"""The models of a client batch: one stack of parameters per architecture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from .backbone import Backbone, Forward, Params
from .batch import Batch
from .device import on_host, placed
from .payload import ABSENT, Own, detached, walk
from .rng import Streams, stream

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """Clients that share an architecture, by their positions in the client batch. kind: number of the architecture."""

    kind: int
    backbone: Backbone
    positions: tuple[int, ...]


class Network:
    """The models of clients with one or several architectures. Outputs are in client order.

    With one architecture, parameters (K, ...) have plain names. With several, those of a group have the names
    `Own(kind, name)` and the group's clients as first axis.
    """

    def __init__(self, backbones: Sequence[Backbone], clients: Sequence[int]) -> None:
        """backbones: client k of the federation has entry k mod len. clients: ids of the client batch, in order."""
        self.backbones, self.clients = tuple(backbones), tuple(clients)
        kinds = [client % len(self.backbones) for client in self.clients]
        self.groups = [
            Group(kind, self.backbones[kind], tuple(p for p, of_client in enumerate(kinds) if of_client == kind))
            for kind in sorted(set(kinds))
        ]
        self.heterogeneous = len(self.backbones) > 1

    def select(self, positions: Sequence[int]) -> Network:
        return Network(self.backbones, [self.clients[p] for p in positions])

    def init(self, seed: int, features: int, classes: int) -> Params:
        """Initial parameters (K, ...): one draw for all clients; with several architectures one draw per client."""
        if not self.heterogeneous:
            fresh = initial(self.backbones[0], seed, features, classes)
            return {name: value.expand(len(self.clients), *value.shape).clone() for name, value in fresh.items()}
        params: Params = {}
        for group in self.groups:
            models = [
                _drawn(group.backbone, stream(seed, "initialisation", self.clients[p]), features, classes)
                for p in group.positions
            ]
            params |= {Own(group.kind, name): torch.stack([model[name] for model in models]) for name in models[0]}
        return params

    def _models(self, params: Params, group: Group) -> Params:
        """The parameters of a group under their plain names."""
        if not self.heterogeneous:
            return params
        return {key.name: value for key, value in params.items() if isinstance(key, Own) and key.kind == group.kind}

    def forward(self, params: Params, data: Sequence[Batch], streams: Streams | None = None) -> Forward:
        """One pass over all clients' rows. data: one batch per group, with the group's clients in order.

        With several architectures, `pre` contains only the embeddings, after activation.
        """
        if not self.heterogeneous:
            return self.groups[0].backbone.forward(params, data[0], streams)
        outs = []
        for group, batch in zip(self.groups, data, strict=True):
            drawn = streams.select(group.positions) if streams is not None else None
            outs.append(group.backbone.forward(self._models(params, group), batch, drawn))
        logits = self._restore([out.logits for out in outs], data)
        if any(not out.pre for out in outs):
            return Forward(logits)
        # Architectures of different depth have only the last hidden layer, the embedding, in common.
        return Forward(logits, [self._restore([out.embedding for out in outs], data)], activate=lambda rows: rows)

    def _restore(self, parts: list[torch.Tensor], data: Sequence[Batch]) -> torch.Tensor:
        """Rows of the groups, in client order."""
        pieces = [part.split_with_sizes(batch.sizes) for part, batch in zip(parts, data, strict=True)]
        return torch.cat(self._in_order(pieces))

    def _in_order(self, pieces: Sequence[Iterable[T]]) -> list[T]:
        """The entries of all groups, one per client, in client order."""
        of_client: dict[int, T] = {}
        for group, entries in zip(self.groups, pieces, strict=True):
            of_client |= zip(group.positions, entries, strict=True)
        return [of_client[p] for p in range(len(self.clients))]

    def sizes(self, data: Sequence[Batch]) -> list[int]:
        """Nodes of each client in client order. data: as for `forward`."""
        return self._in_order([batch.sizes for batch in data])

    def part(self, params: Params, prefix: str) -> Params:
        """The parameters whose name starts with `prefix` ("head."), for all clients in client order: (K, ...).

        All architectures must have them in the same shape.
        """
        if not self.heterogeneous:
            return {name: value for name, value in params.items() if name.startswith(prefix)}
        models = [self._models(params, group) for group in self.groups]
        names = dict.fromkeys(name for model in models for name in model if name.startswith(prefix))
        return {name: torch.stack(self._in_order([model[name] for model in models])) for name in names}

    def with_part(self, params: Params, part: Params) -> Params:
        """`params` with the entries replaced that `part` has (plain names, (K, ...)); copies."""
        out = dict(params)
        for name, value in part.items():
            for group in self.groups:
                key = Own(group.kind, name) if self.heterogeneous else name
                out[key] = value[list(group.positions)].clone()
        return out

    def take(self, tree: Any, positions: Sequence[int]) -> Any:
        """Copy the rows of some clients from a tree of (K, ...) tensors and lists; under a key `Own`, of its group."""
        rows = self._rows(positions)

        def taken(kind: int | None, leaf: Any) -> Any:
            if isinstance(leaf, list):
                return [detached(leaf[row]) for row in rows[kind]]
            return leaf[rows[kind]] if isinstance(leaf, torch.Tensor) else leaf

        return walk(lambda kind, leaf: taken(kind, leaf) if rows[kind] else ABSENT, tree)

    def put(self, tree: Any, positions: Sequence[int], part: Any) -> Any:
        """The inverse of `take`: a copy of `tree` with the rows of `part` at these positions."""
        rows = self._rows(positions)
        sizes = {kind: len(places) for kind, places in self._rows(range(len(self.clients))).items()}

        def placed(kind: int | None, whole: Any, piece: Any) -> Any:
            if isinstance(piece, list):
                whole = list(whole) if isinstance(whole, list) else [None] * sizes[kind]
                for row, value in zip(rows[kind], piece, strict=True):
                    whole[row] = value
                return whole
            if isinstance(piece, torch.Tensor):
                shape = (sizes[kind], *piece.shape[1:])
                whole = whole.clone() if isinstance(whole, torch.Tensor) else piece.new_zeros(shape)
                whole[rows[kind]] = piece
                return whole
            return whole if piece is ABSENT else piece

        return walk(placed, tree, part)

    def _rows(self, positions: Sequence[int]) -> dict[int | None, list[int]]:
        """The rows of these clients: key None in a value of all clients, key `kind` in a value of that group."""
        rows: dict[int | None, list[int]] = {None: list(positions)}
        for group in self.groups if self.heterogeneous else ():
            place = {p: row for row, p in enumerate(group.positions)}
            rows[group.kind] = [place[p] for p in positions if p in place]
        return rows


def initial(backbone: Backbone, seed: int, features: int, classes: int) -> Params:
    """The server's initial model for an architecture: the same for all methods with the same seed."""
    return _drawn(backbone, stream(seed, "initialisation"), features, classes)


def _drawn(backbone: Backbone, generator: np.random.Generator, features: int, classes: int) -> Params:
    """New parameters, drawn on the host: bitwise identical for every device."""
    with on_host():
        params = backbone.init(generator, features, classes)
    return {name: placed(value) for name, value in params.items()}
