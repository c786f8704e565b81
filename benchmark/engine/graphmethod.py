"""Moved: see `graphs/graphmethod.py`. Here until methods/ imports the engine's face."""

from .graphs.graphmethod import GraphMethod as GraphMethod
