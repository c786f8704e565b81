"""FedOMD."""

from .fedomd import FedOMD, FedOMDCMD, FedOMDOrtho

__all__ = ["FedOMD", "FedOMDCMD", "FedOMDOrtho"]
