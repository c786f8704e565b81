"""AdaFGL."""

from .adafgl import AdaFGL

__all__ = ["AdaFGL"]
