"""Figures stay small: every version of one is kept in the repository permanently."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from fglbench.report import figures
from fglbench.report.figures import style as pictures

RESULTS = Path(__file__).resolve().parents[2] / "results"


def png(picture: Image.Image) -> bytes:
    found = io.BytesIO()
    picture.save(found, "PNG", dpi=(160, 160))
    return found.getvalue()


def test_no_committed_figure_is_larger_than_150_kilobytes() -> None:
    sizes = {path.relative_to(RESULTS).as_posix(): path.stat().st_size for path in RESULTS.rglob("*.png")}
    assert len(sizes) > 30 and "tuning/node/tuning.png" in sizes
    assert {name: size for name, size in sizes.items() if size > 150_000} == {}


def test_a_large_figure_gets_fewer_colours_and_keeps_its_pixels_apart() -> None:
    """Sixty-four greys at random do not compress below six bits a pixel; fewer must do, and dark stays dark."""
    greys = (np.random.default_rng(0).integers(0, 64, (450, 500)) * 4).astype(np.uint8)
    large = png(Image.fromarray(greys).convert("RGB").quantize(64))
    assert len(large) > pictures.MAX_BYTES
    small = pictures._within(large)
    assert len(small) <= pictures.MAX_BYTES
    found = Image.open(io.BytesIO(small))
    assert found.size == (500, 450)
    assert round(found.info["dpi"][0]) == 160
    after = np.asarray(found.convert("L")).astype(int)
    assert np.abs(after - greys).max() < 32
    assert pictures._within(small) == small


def test_a_figure_of_many_panels_gets_fewer_dots() -> None:
    """Noise over a whole page, which no palette makes small enough."""
    noise = np.random.default_rng(0).random((700, 700, 3))

    def draw(found: dict[str, Any]) -> Figure:
        figure = Figure(figsize=(5, 5))
        figure.figimage(noise, resize=False)
        return figure

    picture = Image.open(io.BytesIO(made := figures.Plot("noise.png", "", lambda _: {}, draw).png({})))
    assert len(made) <= pictures.MAX_BYTES
    assert round(picture.info["dpi"][0]) in pictures.COARSER
    assert picture.size == (round(5 * round(picture.info["dpi"][0])),) * 2
