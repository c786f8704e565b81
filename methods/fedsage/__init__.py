"""FedSage and FedSage+."""

from .fedsage import FedSage
from .fedsageplus import FedSagePlus

__all__ = ["FedSage", "FedSagePlus"]
