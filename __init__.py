"""fglbench: the benchmark suite for federated graph learning.

    fglbench.run(suites=["quick"], methods=["fedavg"])      # run cells, get their rows as a data frame
    fglbench.load_results("results")                        # the rows that count, as a data frame
    @fglbench.register("mymethod")                          # file a method under a name

Importing the package is cheap; torch and DGL are loaded when they are needed.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .benchmark.api import register, run
    from .benchmark.store import load_results

os.environ.setdefault("DGLBACKEND", "pytorch")  # otherwise DGL writes a file into the home folder on first import

__version__ = "0.1.0"
__all__ = ["__version__", "load_results", "register", "run"]
_HOMES = {"load_results": ".benchmark.store", "register": ".benchmark.api", "run": ".benchmark.api"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
