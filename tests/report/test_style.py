"""The cost figure: labels on its axes that do not meet, and names that lie near their points and apart."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from matplotlib import rc_context

from fglbench.report.figures import code
from fglbench.report.figures.ranks import spread
from fglbench.report.figures.style import RC, cost_axis, facets, round_costs


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


def test_names_are_spread_as_little_as_need_be() -> None:
    assert spread(np.array([1.0, 3.0, 9.0]), 1.0) == [1.0, 3.0, 9.0]
    assert spread(np.array([2.0, 2.0]), 1.0) == [1.5, 2.5]
    assert spread(np.array([1.0, 5.0, 5.0, 5.4, 9.0]), 1.0) == pytest.approx(
        [1.0, 4.1333333, 5.1333333, 6.1333333, 9.0]
    )
    places = np.sort(np.random.default_rng(0).uniform(1, 24, size=24))
    found = np.array(spread(places, 0.9))
    assert (np.diff(found) >= 0.9 - 1e-9).all()


def test_comments_and_docstrings_are_no_part_of_a_figure_s_digest() -> None:
    plain = 'SIGN = "#"\n\nclass A:\n    def f(self):\n        return "text"\n\ndef g():\n    return SIGN + "#"\n'
    told = '"""A\n\nmodule."""\n' + plain.replace("self):\n", 'self):\n        """What."""  # why\n\n')
    told = told.replace("class A:\n", 'class A:\n    """Two\n    lines."""\n').replace('"text"\n', '"text"   # more\n')
    assert code(told) == code(plain) == "\n".join(line for line in plain.splitlines() if line)
    assert code(plain.replace('"text"', '"other"')) != code(plain)
