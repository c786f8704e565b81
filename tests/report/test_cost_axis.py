"""The axes of the cost figures: labels in every panel, none over another, and no score that hides the others."""

from __future__ import annotations

from itertools import pairwise

import pytest
from matplotlib import rc_context

from fglbench.report.figures.style import RC, cost_axis, facets, round_costs
from fglbench.report.figures.trade_off import lowest


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (3.0, 8.0), (2e4, 5e9), (9.9, 10.1), (0.01, 30.0), (3.2, 3.2)])
def test_cost_ticks_are_few(low: float, high: float) -> None:
    ticks = round_costs(low, high)
    assert 1 <= len(ticks) <= 5
    assert all(low / 1.4 <= tick <= high * 1.4 for tick in ticks)


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize(
    ("low", "high"),
    [(3.2e8, 3.2e8), (9e7, 2.3e8), (2.1e8, 3.4e8), (4e7, 9e8), (3e5, 3e11), (1.1e6, 1.2e6), (12, 900), (24, 360)],
)
def test_a_panel_has_labels_that_do_not_meet(low: float, high: float, free: bool) -> None:
    with rc_context(RC):
        figure, (axes, *_) = facets(3)
        cost_axis(axes, [0.0] * free + [low, high], size=True)
        figure.canvas.draw()
        shown = [text for text in axes.get_xticklabels() if text.get_text()]
        boxes = [text.get_window_extent() for text in shown]
    assert len(shown) >= free + (1 if high < 5 * low else 2)  # one label alone gives no scale
    assert (shown[0].get_text() == "0 B") == free
    assert all(first.x1 < second.x0 for first, second in pairwise(boxes))


def test_the_axis_of_scores_leaves_out_what_would_hide_the_others() -> None:
    spread = [0.70, 0.74, 0.78, 0.82]  # a fifth below: the middle half is 0.70 to 0.78, three widths 0.24
    assert lowest([*spread, 0.60]) == 0.60
    assert lowest([*spread, 0.20]) == 0.70
    level = [0.594, 0.594, 0.595, 0.595]  # all but equal: what is near stays, what is far does not
    assert lowest([*level, 0.56]) == 0.56
    assert lowest([*level, 0.50]) == 0.594
