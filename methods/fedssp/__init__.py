"""FedSSP."""

from .fedssp import FedSSP

__all__ = ["FedSSP"]
