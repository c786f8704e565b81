"""Moved: see `graphs/encoders.py`. Here until methods/ imports the engine's face."""

from .graphs.encoders import Codes, GCNEncoder, GINEncoder, Head, named  # noqa: F401
from .graphs.graphmethod import Encoder, encoder_of  # noqa: F401
