"""Moved: see `backbone.py`. Here until methods/ imports the engine's face."""

from .backbone import affine as affine, glorot as glorot
