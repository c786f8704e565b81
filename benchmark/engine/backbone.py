"""The base class of all backbones: stacked parameters, the loop over layers, and the products of a layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch

from ...registry import Registry, Spec, option
from .batch import Batch, Features, LabelledRows
from .blocks import in_parts
from .rng import Streams
from .segment_ops import dropout, segment_add, segment_affine, segment_product

Params = dict[str, torch.Tensor]

B = TypeVar("B", bound="Backbone")
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
    rows than the layer below, as in minibatches of nodes (`blocks.Block`).
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

    def widths(self, features: int, classes: int) -> list[tuple[int, int]]:
        """(in, out) of each layer, the linear head excluded."""
        last = self.hidden if self.linear_head else classes
        sizes = [features, *[self.hidden] * (self.layers - 1), last]
        return list(pairwise(sizes))

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        """New parameters of one client, without a client axis. Layers have Glorot-uniform weights and zero biases
        unless `init_layer` is overridden."""
        source = torch.Generator().manual_seed(int(generator.integers(2**63)))
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
        """Return why the architecture cannot compute only some rows of a graph (`blocks.Block`), or None."""
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
        h: torch.Tensor | Features = batch.x
        if streams is not None:
            h = batch.x.dropout(self.input_dropout, streams)
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
        return torch.relu(z) if streams is None else dropout(z, self.dropout, streams, sizes, relu=True)


def glorot(n_in: int, n_out: int, source: torch.Generator) -> torch.Tensor:
    """(in, out) uniform in +-sqrt(6 / (in + out)) (Glorot & Bengio 2010)."""
    bound = (6 / (n_in + n_out)) ** 0.5
    return torch.empty(n_in, n_out).uniform_(-bound, bound, generator=source)


def linear_map(n_in: int, n_out: int, source: torch.Generator, start: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight (in, out) and bias (out,) of a linear map. start: "glorot", with zero bias, or "torch", both uniform in
    +-1 / sqrt(in) (He et al. 2015 with a = sqrt(5), PyTorch's default)."""
    if start == "glorot":
        return glorot(n_in, n_out, source), torch.zeros(n_out)
    bound = n_in**-0.5
    weight = torch.empty(n_in, n_out).uniform_(-bound, bound, generator=source)
    return weight, torch.empty(n_out).uniform_(-bound, bound, generator=source)


def product(h: torch.Tensor | Features, weight: torch.Tensor, batch: LabelledRows) -> torch.Tensor:
    """(N, in) x (K, in, out) -> (N, out), sparse or dense rows."""
    return h @ weight if isinstance(h, Features) else segment_product(h, weight, batch.sizes)


def affine(params: Params, name: str, h: torch.Tensor | Features, batch: LabelledRows) -> torch.Tensor:
    """The linear layer `name` of each client on its rows: (N, in) -> (N, out)."""
    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
    if isinstance(h, Features):
        return segment_add(h @ weight, bias, batch.sizes)
    return segment_affine(h, weight, bias, batch.sizes)
