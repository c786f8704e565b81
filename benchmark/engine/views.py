"""Moved: see `wholes.py`. Here until methods/ imports the engine's face."""

from .wholes import union_client as union_client, whole_client as whole_client
