"""The heat map: every figure can be read on its cell."""

from __future__ import annotations

from typing import Any

from matplotlib.colors import to_rgb

from fglbench.report.figures import ranks

RANKS = {"names": list("abcdefghijkl"), "datasets": ["x"], "ranks": [[float(i) for i in range(1, 13)]]}


def luminance(colour: Any) -> float:
    """Relative luminance of WCAG 2, written out."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_and_cell_have_contrast() -> None:
    axes = ranks.draw_ranks(RANKS).axes[0]
    mesh = axes.collections[0]
    values = mesh.get_array().reshape(-1)
    assert len(axes.texts) == 12
    for text in axes.texts:
        column, row = (int(at) for at in text.get_position())
        cell = row + column
        assert text.get_text() == f"{values[cell]:.0f}"
        low, high = sorted((luminance(text.get_color()), luminance(mesh.get_facecolor()[cell])))
        assert (high + 0.05) / (low + 0.05) >= 4.5
