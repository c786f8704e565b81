"""Moved: see `graphs/encoders.py`. Here until methods/ imports the engine's face."""

from .graphs.encoders import (
    Codes as Codes,
    GCNEncoder as GCNEncoder,
    GINEncoder as GINEncoder,
    Head as Head,
    named as named,
)
from .graphs.graphmethod import Encoder as Encoder, encoder_of as encoder_of
