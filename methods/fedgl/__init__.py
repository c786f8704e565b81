"""FedGL and its ablations."""

from .fedgl import FedGL, FedGLWithoutGraph, FedGLWithoutLabels

__all__ = ["FedGL", "FedGLWithoutGraph", "FedGLWithoutLabels"]
