"""fglbench: the benchmark suite for federated graph learning.

    fglbench.list_methods()                                 # what there is, with families
    fglbench.show("fedprox")                                # what a method, dataset, partition or suite is
    fglbench.run(suites=["quick"], methods=["fedavg"])      # run cells, get their rows as a data frame
    fglbench.load_results("results", expand=True)           # the rows that count, a column for each setting
    fglbench.compare("fedprox", "fedavg")                   # paired differences on every board
    fglbench.write_report("results")                        # leaderboard, tables, figures
    fglbench.clients("cora", suite="quick")                 # the clients of a suite's runs, as plain PyTorch and DGL
    fglbench.curves(rows), fglbench.per_client(rows)        # curves and figures per client as data frames
    fglbench.plot.curves(rows, "results")                   # matplotlib axes; plot.scores, plot.per_client likewise
    fglbench.to_latex(rows)                                 # a table for a paper
    fglbench.run(quick=True, observer=fglbench.TensorBoard())  # curves in TensorBoard; WandB and MLflow likewise
    fglbench.federation("cora", suite="quick")              # the clients that a suite's cells have
    fglbench.evaluate(predictions, federation)              # predictions made elsewhere, scored as runs are
    @fglbench.register("mymethod")                          # file a method under a name

Importing the package is cheap; torch and DGL are loaded when they are needed.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .foundations import keep_graphbolt_out

if TYPE_CHECKING:
    from . import plot
    from .benchmark.api import compare, curves, list_methods, per_client, register, run, show, to_latex, write_report
    from .benchmark.scores import clients, evaluate, federation
    from .benchmark.store import load_results
    from .benchmark.trackers import MLflow, TensorBoard, WandB
    from .registry import UserError

os.environ.setdefault("DGLBACKEND", "pytorch")  # otherwise DGL writes a file into the home folder on first import
keep_graphbolt_out()

__version__ = "0.2.0"
__all__ = [
    "MLflow", "Observer", "TensorBoard", "UserError", "WandB", "__version__", "clients", "compare", "curves",
    "evaluate", "federation", "list_methods", "load_model", "load_results", "per_client", "plot", "register", "run",
    "show", "to_latex", "write_report",
]  # fmt: skip
_HOMES = {"UserError": ".registry", "load_results": ".benchmark.store"}
_HOMES |= dict.fromkeys(("clients", "evaluate", "federation"), ".benchmark.scores")
_HOMES |= dict.fromkeys(("MLflow", "TensorBoard", "WandB"), ".benchmark.trackers")
_HOMES |= {"load_model": ".benchmark.runner.execute", "Observer": ".benchmark.runner.backend"}
_API = ("compare", "curves", "list_methods", "per_client", "register", "run", "show", "to_latex", "write_report")
_HOMES |= dict.fromkeys(_API, ".benchmark.api")


def __getattr__(name: str) -> Any:
    if name == "plot":
        return import_module(".plot", __name__)
    if name in _HOMES:
        return getattr(import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
