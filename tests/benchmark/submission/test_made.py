"""What `validate` takes for the report's own is what the report makes."""

from __future__ import annotations

from fglbench.benchmark.store.made import FIGURES
from fglbench.report.figures import PLOTS


def test_the_figures_of_the_report_are_known() -> None:
    assert sorted(plot.file for plot in PLOTS) == [f"{name}.png" for name in FIGURES]
