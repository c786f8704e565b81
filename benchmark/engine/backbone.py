"""The base class of all backbones: stacked parameters, the loop over layers, and the products of a layer. The network
of a client batch: one stack of parameters per architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch

from ...registry import Registry, Spec, option
from .batch import Batch, LabelledRows, in_parts
from .device import on_host, placed
from .features import Features
from .payload import ABSENT, Own, detached, walk
from .rng import Streams, stream, torch_source
from .segment_ops import dropout, segment_add, segment_affine, segment_product

Params = dict[str, torch.Tensor]

B = TypeVar("B", bound="Backbone")
T = TypeVar("T")
BACKBONES: Registry[Backbone] = Registry("backbone")


@dataclass
class Forward:
    """Result of a pass over N rows: logits (N, C), and `pre`, each hidden layer's output (N, h) before activation."""

    logits: torch.Tensor
    pre: list[torch.Tensor] = field(default_factory=list)
    activate: Callable[[torch.Tensor], torch.Tensor] = torch.relu

    @property
    def hidden(self) -> list[torch.Tensor]:
        """Each hidden layer's output after activation, before dropout."""
        return [self.activate(z) for z in self.pre]

    @property
    def embedding(self) -> torch.Tensor:
        """The input of the last layer before dropout, (N, h); the logits if there is no hidden layer."""
        return self.activate(self.pre[-1]) if self.pre else self.logits


class Backbone(Spec):
    """A model for K clients at once: parameters carry a leading client axis, (K, ...).

    Subclasses define the parameters of one layer and its output for stacked rows. by_blocks: a layer may compute other
    rows than the layer below, as in minibatches of nodes (`batch.Block`).
    """

    by_blocks: ClassVar[bool] = False

    hidden: int = option(64, "hidden width h", ge=1)
    layers: int = option(2, "number of layers, the output layer included", ge=1)
    dropout: float = option(0.5, "dropout after every hidden activation", ge=0, lt=1)
    input_dropout: float = option(0.0, "dropout on the input features (Kipf's GCN: 0.5)", ge=0, lt=1)
    linear_head: bool = option(
        False, "all layers have width h and a linear classifier follows, as methods that share heads need"
    )
    residual: bool = option(
        False, "add a layer's input to its output, before activation, if both have width h", later=True
    )
    readout: Literal["sum", "mean"] = option(
        "sum", "graph classification: the value of a graph, of its nodes' values (GIN, GCFL: the sum)", later=True
    )
    decoder: Literal["dot", "mlp"] = option(
        "dot",
        "link prediction: logits of a pair of nodes, by the inner product of their vectors or by an MLP with one "
        "hidden layer on their elementwise product",
        later=True,
    )
    linear_start: Literal["glorot", "torch"] = option(
        "glorot",
        "initial weights and biases of the linear maps of GIN and of graph classifiers: Glorot's and zero, or "
        "PyTorch's default (released code of GCFL and FedStar)",
        later=True,
    )

    def turned_into(self, cls: type[B], **changed: Any) -> B:
        """A backbone of class `cls` with the options of this one that `Backbone` has, and `changed`."""
        return cls(**{name: getattr(self, name) for name in Backbone.model_fields} | changed)

    def registered(self) -> Backbone | None:
        """The registered architecture that this one is or extends, None if there is none."""
        if not self.name:
            return None
        cls = BACKBONES.cls(self.name)
        return cls(**{name: value for name, value in self.params().items() if name in cls.model_fields})

    def widths(self, features: int, classes: int) -> list[tuple[int, int]]:
        """(in, out) of each layer, the linear head excluded."""
        last = self.hidden if self.linear_head else classes
        sizes = [features, *[self.hidden] * (self.layers - 1), last]
        return list(pairwise(sizes))

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        """New parameters of one client, without a client axis. Layers have Glorot-uniform weights and zero biases
        unless `init_layer` is overridden."""
        source = torch_source(generator)
        params: Params = {}
        widths = self.widths(features, classes)
        for i, (n_in, n_out) in enumerate(widths):
            hidden = self.linear_head or i < len(widths) - 1
            layer = self.init_layer(n_in, n_out, source, hidden=hidden)
            params |= {f"{i}.{name}": value for name, value in layer.items()}
        if self.linear_head:
            params["head.weight"] = glorot(self.hidden, classes, source)
            params["head.bias"] = torch.zeros(classes)
        return params

    def init_layer(self, n_in: int, n_out: int, source: torch.Generator, *, hidden: bool) -> Params:
        """Parameters of one layer, (in) -> (out); hidden: an activation follows."""
        return {"weight": glorot(n_in, n_out, source), "bias": torch.zeros(n_out)}

    def layer(self, params: Params, i: int, h: torch.Tensor | Features, batch: Batch) -> torch.Tensor:
        """Layer i on stacked rows, before the activation: (N, out)."""
        raise NotImplementedError

    @property
    def hops(self) -> int:
        """The number of layers that use neighbours."""
        return self.layers

    def whole_only(self) -> str | None:
        """Return why the architecture cannot compute only some rows of a graph (`batch.Block`), or None."""
        return None if self.by_blocks else f"the architecture {self.name} computes whole graphs only"

    def whole_layer(self, params: Params, i: int, h: torch.Tensor | Features, seen: Any) -> torch.Tensor:
        """Layer i, with its input added if `residual`. seen: the batch, or a block of it."""
        z = self.layer(params, i, h, seen)
        if self.residual and isinstance(h, torch.Tensor) and h.shape[1] == z.shape[1]:
            z = z + seen.computed(h)
        return z

    def forward(self, params: Params, batch: Batch, streams: Streams | None = None) -> Forward:
        """One pass over all rows of a batch; with `streams` a training pass, with dropout drawn from them."""
        pre: list[torch.Tensor] = []
        if streams is None and batch.at_once and len(batch.label) > batch.at_once and not torch.is_grad_enabled():
            pre = in_parts(self, params, batch)
            if self.linear_head:
                return Forward(affine(params, "head", torch.relu(pre[-1]), batch), pre)
            return Forward(pre[-1], pre[:-1])
        h: torch.Tensor | Features = batch.x.dropout(self.input_dropout, streams)
        for i in range(self.layers):
            seen = batch.layer(i)
            z = self.whole_layer(params, i, h, seen)
            if i == self.layers - 1 and not self.linear_head:
                return Forward(z, pre)
            pre.append(batch.final(i, z))
            h = self.active(z, seen.above.sizes, streams)
        return Forward(affine(params, "head", h, batch), pre)

    def active(self, z: torch.Tensor, sizes: Sequence[int], streams: Streams | None) -> torch.Tensor:
        """The activation of rows z (N, h), in a training pass with dropout. sizes: rows of each client."""
        return dropout(z, self.dropout, streams, sizes, relu=True)


def glorot(n_in: int, n_out: int, source: torch.Generator) -> torch.Tensor:
    """(in, out) uniform in +-sqrt(6 / (in + out)) (Glorot & Bengio 2010)."""
    bound = (6 / (n_in + n_out)) ** 0.5
    return torch.empty(n_in, n_out).uniform_(-bound, bound, generator=source)


def linear_map(n_in: int, n_out: int, source: torch.Generator, start: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight (in, out) and bias (out,) of a linear map. start: "glorot", with zero bias; "torch", both uniform in
    +-1 / sqrt(in) (He et al. 2015 with a = sqrt(5), PyTorch's default); or "pygcn", both uniform in +-1 / sqrt(out)."""
    if start == "glorot":
        return glorot(n_in, n_out, source), torch.zeros(n_out)
    bound = (n_out if start == "pygcn" else n_in) ** -0.5
    weight = torch.empty(n_in, n_out).uniform_(-bound, bound, generator=source)
    return weight, torch.empty(n_out).uniform_(-bound, bound, generator=source)


def linear_maps(shapes: Mapping[str, tuple[int, int]], source: torch.Generator, start: str) -> Params:
    """Weights and biases of linear maps, "NAME.weight" and "NAME.bias", drawn in this order. shapes: (in, out)."""
    params: Params = {}
    for name, shape in shapes.items():
        params[f"{name}.weight"], params[f"{name}.bias"] = linear_map(*shape, source, start)
    return params


def product(h: torch.Tensor | Features, weight: torch.Tensor, batch: LabelledRows) -> torch.Tensor:
    """(N, in) x (K, in, out) -> (N, out), sparse or dense rows."""
    return h @ weight if isinstance(h, Features) else segment_product(h, weight, batch.sizes)


def affine(params: Params, name: str, h: torch.Tensor | Features, batch: LabelledRows) -> torch.Tensor:
    """The linear layer `name` of each client on its rows: (N, in) -> (N, out)."""
    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
    if isinstance(h, Features):
        return segment_add(h @ weight, bias, batch.sizes)
    return segment_affine(h, weight, bias, batch.sizes)


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
        # the clients of each architecture; None: all
        self.positions: dict[int | None, list[int]] = {None: list(range(len(self.clients)))}
        self.positions |= {group.kind: list(group.positions) for group in self.groups}

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
        rows = self.rows(positions)

        def taken(kind: int | None, leaf: Any) -> Any:
            if isinstance(leaf, list):
                return [detached(leaf[row]) for row in rows[kind]]
            return leaf[rows[kind]] if isinstance(leaf, torch.Tensor) else leaf

        return walk(lambda kind, leaf: taken(kind, leaf) if rows[kind] else ABSENT, tree)

    def put(self, tree: Any, positions: Sequence[int], part: Any) -> Any:
        """The inverse of `take`: a copy of `tree` with the rows of `part` at these positions."""
        rows = self.rows(positions)
        sizes = {kind: len(clients) for kind, clients in self.positions.items()}

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

    def rows(self, positions: Sequence[int]) -> dict[int | None, list[int]]:
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
