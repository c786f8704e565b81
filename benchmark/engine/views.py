"""Moved: see `wholes.py`. Here until methods/ imports the engine's face."""

from .wholes import union_client, whole_client  # noqa: F401
