"""FedSage and FedSage+, and the parts of the neighbour generator that FedDEP uses."""

from .fedsageplus import FedSage, FedSagePlus
from .neighgen import Impaired, NeighGen, first_hidden, hide, impair, match
from .turn import Generation, Turn

__all__ = [
    "FedSage", "FedSagePlus", "Generation", "Impaired", "NeighGen", "Turn", "first_hidden", "hide", "impair", "match",
]  # fmt: skip
