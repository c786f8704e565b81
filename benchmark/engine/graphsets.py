"""Moved: see `graphs/graphsets.py`. Here until methods/ imports the engine's face."""

from .graphs.graphsets import GraphBatch as GraphBatch, neighbours as neighbours, normalised as normalised
