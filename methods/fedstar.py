"""FedStar: clients with sets of graphs share the encoder of structure; the encoder of features is personal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from ..benchmark.engine import (
    METHODS,
    Backbone,
    Forward,
    GraphModel,
    GraphRows,
    Params,
    Streams,
    affine,
    linear_maps,
    option,
    segment_add,
    segment_product,
    torch_source,
)
from .fedavg import SharedPart

STRUCTURE = "structure."


@dataclass(frozen=True)
class StructureCode:
    """A node's structure: the probabilities that a random walk returns to it after 1, ..., `walks` steps, and its
    degree one-hot from 1 to `degrees` (larger degrees as `degrees`, 0 as 1). Features are not used."""

    walks: int
    degrees: int

    def __call__(self, adjacency: sp.csr_matrix, starts: np.ndarray) -> torch.Tensor:
        """Return the codes, float32 (nodes, walks + degrees)."""
        matrix = sp.csr_matrix(adjacency, dtype=np.float64)
        degree = np.asarray(matrix.sum(0)).ravel()
        step = matrix @ sp.diags(1 / np.maximum(degree, 1))
        code, power = np.zeros((len(degree), self.walks + self.degrees)), sp.identity(len(degree), format="csr")
        for k in range(self.walks):
            power = power @ step
            code[:, k] = power.diagonal()
        code[np.arange(len(degree)), self.walks + degree.clip(1, self.degrees).astype(int) - 1] = 1
        return torch.from_numpy(code.astype(np.float32))


class StarModel(GraphModel):
    """h = X W_in, s = code W_s; then for each layer h' = ReLU(GIN([h, s])), s' = tanh(GCN(s)), [ ] is concatenation;
    last [h, s] W_mix, then as other graph classifiers. All widths are h; GIN's eps is 0. Dropout on h.

    Parameters: "structure." for the channel of s.
    """

    code: StructureCode

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        source, h = torch_source(generator), self.hidden
        shapes = {"structure.input": (self.code.walks + self.code.degrees, h), "input": (features, h)}
        for i in range(self.layers):
            shapes |= {f"structure.{i}": (h, h), f"{i}.inner": (2 * h, h), f"{i}.outer": (h, h)}
        shapes |= {"mix": (2 * h, h), "post": (h, h), "head": (h, classes)}
        layers = {f"structure.{i}" for i in range(self.layers)}  # GCN layers, initialised by Glorot
        params: Params = {}
        for name, shape in shapes.items():
            params |= linear_maps({name: shape}, source, "glorot" if name in layers else self.linear_start)
        return params

    def forward(self, params: Params, batch: GraphRows, streams: Streams | None = None) -> Forward:  # type: ignore[override]
        nodes = batch.nodes
        h = affine(params, "input", self.entered(batch, streams), nodes)
        s = affine(params, "structure.input", batch.of.code(self.code), nodes)
        for i in range(self.layers):
            z = segment_product(torch.cat([h, s], 1), params[f"{i}.inner.weight"], nodes.sizes)
            z = segment_add(z + nodes.sum @ z, params[f"{i}.inner.bias"], nodes.sizes)
            h = self.active(affine(params, f"{i}.outer", torch.relu(z), nodes), nodes.sizes, streams)
            turned = nodes.gcn @ segment_product(s, params[f"structure.{i}.weight"], nodes.sizes)
            s = torch.tanh(segment_add(turned, params[f"structure.{i}.bias"], nodes.sizes))
        return self.classified(params, batch, affine(params, "mix", torch.cat([h, s], 1), nodes), streams)


@METHODS.register("fedstar")
class FedStar(SharedPart):
    """Tan, Liu, Long, Jiang, Lu, Zhang, AAAI 2023 (arXiv 2211.13009): sets of graphs, structure shared.

    Each node has, in addition to its features, a structure code: `walks` return probabilities of random walks and its
    degree one-hot. A channel of GCN layers encodes it; a channel of GIN layers encodes features and gets the output of
    the first at each layer. Client k: structure channel <- the global one, E epochs of both on its mean cross-entropy.
    Server: mean of the structure channels, weighted by the training configuration's `weighting`.
    Messages: the structure channel up and down, (walks + degrees) h + h + L (h^2 + h) scalars; all else is not sent.
    Scored: each client's model with the new global structure channel.

    Width, depth and dropout are those of the run's backbone; the architecture is always the paper's. As in the released
    code the feature channel has GIN layers and the last linear map has no activation.
    """

    family = "personal"
    summary = "clients average the encoder of structure; the encoder of features is personal"
    title = "FedStar"
    venue = "AAAI 2023"
    paper_url = "https://arxiv.org/abs/2211.13009"
    code_url = "https://github.com/yuetan031/FedStar"
    tasks = ("graph-classification",)
    heterogeneous_features = True

    walks: int = option(16, "steps of the random walks in a node's code (released code: 16)", ge=1)
    degrees: int = option(16, "largest degree with a separate entry in a node's code (released code: 16)", ge=1)

    def adapt(self, backbone: Backbone) -> Backbone:
        return backbone.turned_into(StarModel, encoder=backbone, code=StructureCode(self.walks, self.degrees))

    def shared(self, params: Params) -> Params:
        return {name: value for name, value in params.items() if name.startswith(STRUCTURE)}
