"""Keeping it: result rows on disk, who made them, and which of them count."""

from .folder import Store, load_results

__all__ = ["Store", "load_results"]
