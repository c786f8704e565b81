"""Text and style: escaping, formats, distinguishing names, axes, contrast, size of figures."""

from __future__ import annotations

import html
import io
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as some
from matplotlib import rc_context
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image
from seaborn.utils import relative_luminance

from fglbench.benchmark.suites.catalogue import catalogue
from fglbench.report import figures, text
from fglbench.report.display_names import distinguish
from fglbench.report.figures import code, convergence, ranks, style as pictures
from fglbench.report.figures.ranks import spread
from fglbench.report.figures.style import (
    COLOUR_OF,
    COLOURS,
    GREYS,
    MARKERS,
    RC,
    class_looks,
    cost_axis,
    facets,
    looks,
    round_costs,
)
from fglbench.report.text import ABSENT


@given(some.text(max_size=60))
def test_markdown_shows_plain_text_without_markup(value: str) -> None:
    shown = text.md(value)
    bare = re.sub(r"\\[\\`*_{}\[\]|~#!$]", "", shown)  # without escaped characters nothing special is left
    assert not re.search(r"[`*_{}\[\]|~!$<>@\n\r]", bare.replace("&#", ""))
    assert html.unescape(re.sub(r"\\([\\`*_{}\[\]|~#!$])", r"\1", shown)) == text.plain(value)


def test_plain_is_one_short_line() -> None:
    assert text.plain("a\n\tb\u202ec \x00 d\ue000") == "a bc d"
    assert text.plain("x" * 300) == "x" * 199 + "…"


@given(some.text(max_size=120))
def test_slugs_are_safe_and_distinct_file_names(label: str) -> None:
    assert re.fullmatch(r"[a-z0-9_-][a-z0-9._-]*", text.slug(label))
    assert text.slug("amazon-photo") == "amazon-photo"
    assert len({text.slug(name) for name in ("a b", "a/b", "A-B", "a-b", "..", "", "é", "è")}) == 8


def test_sizes_runs_of_numbers_and_formulas() -> None:
    sizes = {0: "0 B", 950: "950 B", 1234: "1.2 kB", 99_960: "100 kB", 999_600: "1.0 MB", 3.4e13: "34000 GB"}
    assert {count: text.data_size(count) for count in sizes} == sizes
    assert text.spans([5, 0, 2, 1, 7, 8]) == "0\N{EN DASH}2, 5, 7, 8"
    assert [text.csv_text(value) for value in ("=1", "+1", "-1", "@a", "a=1")] == ["'=1", "'+1", "'-1", "'@a", "a=1"]


def test_methods_of_a_board_have_distinct_constant_colours() -> None:
    for suite, known in catalogue()["suite"].items():
        shown = [name for name in known["facts"]["methods"].split(", ") if name in COLOUR_OF]
        assert not known["leaderboard"] or len({COLOUR_OF[name] for name in shown}) == len(shown), suite
    names = [f"m{i}" for i in range(len(MARKERS) - 2)]
    first, second = looks(["fedavg", *names, "local"]), looks([*reversed(names), "local (epochs=3)", "fedavg"])
    assert first["fedavg"]["color"] == second["fedavg"]["color"] == COLOUR_OF["fedavg"]
    assert first["local"]["color"] == second["local (epochs=3)"]["color"] == COLOUR_OF["local"]
    assert [first[name]["color"] for name in names[:3]] == [COLOURS[2], COLOURS[3], COLOURS[4]]  # free in this figure
    assert {first[name]["color"] for name in names[3:]} == {*GREYS}
    assert len({(look["color"], str(look["linestyle"])) for look in first.values()}) == len(first)
    assert len({(look["marker"], look["linestyle"]) for look in first.values()}) == len(first)
    classes = class_looks([str(i) for i in range(40)])
    assert len({(look["color"], look["marker"]) for look in classes.values()}) == len(classes)


def test_names_contain_only_distinguishing_parameters() -> None:
    """Louvain has one setting, so its name is enough; two settings of alpha need the parameter."""
    variants = pd.DataFrame(
        [
            ("louvain", '{"delta":20}', 5), ("louvain", '{"delta":20}', 10), ("metis", "{}", 10),
            ("label-dirichlet", '{"alpha":0.5}', 10), ("label-dirichlet", '{"alpha":1}', 10),
        ],
        columns=["partition", "partition_params", "clients"],
    )  # fmt: skip
    assert distinguish(variants) == [
        "louvain, 5 clients", "louvain, 10 clients", "metis, 10 clients", "label-dirichlet, alpha=0.5, 10 clients",
        "label-dirichlet, alpha=1, 10 clients",
    ]  # fmt: skip
    assert distinguish(variants[2:4]) == ["metis", "label-dirichlet"]
    assert distinguish(variants[:1]) == [""]
    some = pd.DataFrame({"method_params": ['{"mu":1}', '{"mu":2,"x":3}', '{"mu":2}']})
    assert distinguish(some) == [f"mu=1, x={ABSENT}", "mu=2, x=3", f"mu=2, x={ABSENT}"]


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (3.0, 8.0), (2e4, 5e9), (9.9, 10.1), (0.01, 30.0)])
def test_cost_ticks_are_few(low: float, high: float) -> None:
    ticks = round_costs(low, high)
    assert 1 <= len(ticks) <= 5 and all(low / 1.4 <= tick <= high * 1.4 for tick in ticks)


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize(
    ("low", "high"), [(3.2e8, 3.2e8), (9e7, 2.3e8), (4e7, 9e8), (3e5, 3e11), (1.1e6, 1.2e6), (12, 900)]
)
def test_axis_labels_do_not_overlap(low: float, high: float, free: bool) -> None:
    with rc_context(RC):
        figure, (axes, *_) = facets(3)
        cost_axis(axes, [0.0] * free + [low, high], size=True)
        figure.canvas.draw()
        shown = [text for text in axes.get_xticklabels() if text.get_text()]
        boxes = [text.get_window_extent() for text in shown]
    assert len(shown) >= free + (1 if high < 5 * low else 2)  # a scale needs two labels
    assert (shown[0].get_text() == "0 B") == free
    assert all(first.x1 < second.x0 for first, second in pairwise(boxes))


def test_names_are_spread_as_little_as_possible() -> None:
    assert spread(np.array([1.0, 3.0, 9.0]), 1.0) == [1.0, 3.0, 9.0]
    assert spread(np.array([2.0, 2.0]), 1.0) == [1.5, 2.5]
    places = np.sort(np.random.default_rng(0).uniform(1, 24, size=24))
    heights = np.array(spread(places, 0.9))
    assert (np.diff(heights) >= 0.9 - 1e-9).all()


def test_comments_and_docstrings_are_no_part_of_a_figure_s_digest() -> None:
    plain = 'SIGN = "#"\n\nclass A:\n    def f(self):\n        return "text"\n\ndef g():\n    return SIGN + "#"\n'
    commented = '"""A\n\nmodule."""\n' + plain.replace("self):\n", 'self):\n        """What."""  # why\n\n')
    commented = commented.replace("class A:\n", 'class A:\n    """Two\n    lines."""\n').replace(
        '"text"\n', '"text"   # more\n'
    )
    assert code(commented) == code(plain) == "\n".join(line for line in plain.splitlines() if line)
    assert code(plain.replace('"text"', '"other"')) != code(plain)


RANKS = {"names": list("abcdefghijkl"), "datasets": ["x"], "ranks": [[float(i) for i in range(1, 13)]]}


def test_text_and_cell_have_contrast() -> None:
    axes = ranks.draw_ranks(RANKS).axes[0]
    mesh = axes.collections[0]
    values = mesh.get_array().reshape(-1)
    assert len(axes.texts) == 12
    for shown in axes.texts:
        column, row = (int(at) for at in shown.get_position())
        cell = row + column
        assert shown.get_text() == f"{values[cell]:.0f}"
        low, high = sorted(map(relative_luminance, (shown.get_color(), mesh.get_facecolor()[cell])))
        assert (high + 0.05) / (low + 0.05) >= 4.5


RESULTS = Path(__file__).resolve().parents[2] / "results"


def test_no_committed_figure_is_larger_than_150_kilobytes() -> None:
    sizes = {path.relative_to(RESULTS).as_posix(): path.stat().st_size for path in RESULTS.rglob("*.png")}
    assert len(sizes) > 30 and "tuning/node/tuning.png" in sizes
    assert {name: size for name, size in sizes.items() if size > 150_000} == {}


def test_a_large_figure_gets_fewer_colours_and_keeps_its_pixels_apart() -> None:
    """64 random greys need six bits per pixel; fewer colours must suffice, and values stay close."""
    greys = (np.random.default_rng(0).integers(0, 64, (450, 500)) * 4).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(greys).convert("RGB").quantize(64).save(buffer, "PNG", dpi=(160, 160))
    large = buffer.getvalue()
    assert len(large) > pictures.MAX_BYTES
    small = pictures._within(large)
    assert len(small) <= pictures.MAX_BYTES
    image = Image.open(io.BytesIO(small))
    assert image.size == (500, 450)
    assert round(image.info["dpi"][0]) == 160
    assert np.abs(np.asarray(image.convert("L")).astype(int) - greys).max() < 32


def test_a_figure_of_many_panels_gets_a_lower_resolution() -> None:
    """Noise, which is too large with any palette."""
    noise = np.random.default_rng(0).random((1100, 1100, 3))

    def draw(data: dict[str, Any]) -> Figure:
        figure = Figure(figsize=(7, 7))
        figure.figimage(noise, resize=False)
        return figure

    picture = Image.open(io.BytesIO(image := figures.Plot("noise.png", "", lambda _: {}, draw).png({})))
    assert len(image) <= pictures.MAX_BYTES
    assert round(picture.info["dpi"][0]) in pictures.COARSER
    assert picture.size == (round(7 * round(picture.info["dpi"][0])),) * 2


def curves_of(names: list[str]) -> dict[str, Any]:
    """Noisy convergence curves in two panels: many lines and bands that overlap."""
    draws = np.random.default_rng(0)
    panels = [
        {
            "task": task,
            "lines": [
                {
                    "name": name,
                    "round": list(range(30)),
                    "mean": draws.uniform(0.4, 0.6, 30).tolist(),
                    "std": draws.uniform(0, 0.1, 30).tolist(),
                }
                for name in names
            ],
        }
        for task in ("0", "1")
    ]
    return {"panels": panels, "highlighted": names[:5]}


def test_highlighted_curves_have_distinct_colours_that_the_picture_keeps() -> None:
    """Methods without a fixed colour, as Intra-KL, have one if they are highlighted."""
    data = curves_of(["fclg", "intra-fedavg", "infograph-fedavg", "intra-kl", "intra-mse", "m0", "m1", "m2"])
    figure = convergence.draw(data)
    handles = figure.legends[0].get_lines()
    assert {line.get_color() for line in handles[:5]} == {*COLOURS[:5]}
    assert [text.get_text() for text in figure.legends[0].texts][5] == "other methods"
    plot = figures.Plot("convergence.png", "", lambda _: None, convergence.draw)
    picture = Image.open(io.BytesIO(plot.png(data))).convert("RGB")
    kept = np.array([colour for count, colour in picture.getcolors(1000) or [] if count > 20])
    for wanted in COLOURS[:5]:
        assert np.abs(kept - 255 * np.array(to_rgb(wanted))).max(axis=1).min() < 5
