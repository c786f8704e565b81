"""FedVN."""

from .fedvn import FedVN

__all__ = ["FedVN"]
