"""FGGP."""

from .fggp import FGGP

__all__ = ["FGGP"]
