"""Graph neural networks, each written for a whole client batch."""

from .backbone import BACKBONES, Backbone, Forward, Params, affine, glorot, linear_map
from .convolutional import GAT, GCN, GIN, GINE, MLP, SGC, GraphSAGE, OrthoGCN

__all__ = [
    "BACKBONES", "GAT", "GCN", "GIN", "GINE", "MLP", "SGC", "Backbone", "Forward", "GraphSAGE", "OrthoGCN", "Params",
    "affine", "glorot", "linear_map",
]  # fmt: skip
