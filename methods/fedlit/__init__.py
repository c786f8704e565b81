"""FedLIT."""

from .fedlit import FedLIT

__all__ = ["FedLIT"]
