"""Store result rows on disk, with their provenance, and decide which of them count."""

from .folder import Store, load_results

__all__ = ["Store", "load_results"]
