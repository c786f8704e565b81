"""The style of all figures: sizes, fonts, display names, and a colour, marker and dash for each entry.

Colours are from Okabe and Ito, for readers with colour blindness (without yellow, which is too faint on white). A
figure has at most five colours for methods. A method in COLOUR_OF has the same colour in every figure; colours that are
free go to the first of the others. The rest are black and grey, and differ by marker and dash. Classes have seven
colours.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Sequence
from itertools import chain, cycle
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator
from PIL import Image
from seaborn.utils import relative_luminance

from ..board import FEDAVG, LOCAL
from ..groups import display
from ..text import data_size, plain

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p"]
COLOUR_OF = {  # method -> colour in every figure and on the site; no board has two methods of one colour
    FEDAVG: COLOURS[0], LOCAL: COLOURS[1], **dict.fromkeys(("gcfl+", "fclg", "fedgkc", "fedgl"), COLOURS[2]),
    **dict.fromkeys(("fedproto", "infograph-fedavg"), COLOURS[3]),
    **dict.fromkeys(("scaffold", "intra-fedavg"), COLOURS[4]),
}  # fmt: skip
MOST = 5  # colours for methods
CROWD = "#8A8A8A"
GREYS = ["#1A1A1A", CROWD]  # for methods without a colour
DASHES: list[Any] = ["-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)), (0, (3, 1, 1, 1, 1, 1))]
FAINT = "#BBBBBB"
RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "axes.axisbelow": True,
    "text.parse_math": False,  # names from rows may have dollar signs
    "svg.hashsalt": "fglbench",
    "savefig.dpi": 160,
}


DARK = b"<style>@media (prefers-color-scheme: dark) { #figure_1 { filter: invert(1) hue-rotate(180deg) } }</style>"


def page_svg(figure: Figure) -> bytes:
    """The figure as SVG; the same figure gives the same bytes. Call it under `RC`, like the code that draws."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    head, tag, rest = buffer.getvalue().partition(b"<defs>")
    return head + DARK + tag + rest


def small(png: io.BytesIO) -> bytes:
    """Reduce a picture to a palette, for fewer bytes. An octree keeps the colours of thin lines; a median cut merges
    them."""
    picture, reduced = Image.open(png), io.BytesIO()
    palette = picture.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    palette.save(reduced, "PNG", optimize=True, dpi=picture.info["dpi"])
    return reduced.getvalue()


def short(label: object, limit: int = 44) -> str:
    """The display name of an entry, or any other label."""
    return plain(display(str(label)), limit)


def wrapped(label: object) -> str:
    """A title of a panel, on as many lines as it needs."""
    return textwrap.fill(plain(label), 36)


def method(entrant: str) -> str:
    """The method of an entry, without its settings."""
    return re.split(r" \(|,", entrant)[0]


def looks(entrants: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour of each entry's method, and marker and line style by its place among the entries."""
    methods = list(dict.fromkeys(map(method, entrants)))
    used = {COLOUR_OF.get(name) for name in methods}
    free = chain((colour for colour in COLOURS[:MOST] if colour not in used), cycle(GREYS))
    colours = [COLOUR_OF.get(name) or next(free) for name in methods]
    return {
        name: {
            "color": colours[methods.index(method(name))],
            "marker": MARKERS[i % len(MARKERS)],
            "linestyle": DASHES[i % len(DASHES)],
        }
        for i, name in enumerate(entrants)
    }


def class_looks(classes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and marker of each class of a dataset."""
    return {name: {"color": COLOURS[i % 7], "marker": MARKERS[i % 8]} for i, name in enumerate(classes)}


def facets(count: int, width: float = 3.1, height: float = 2.5, columns: int = 3) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels in rows of at most `columns`; spare places stay empty."""
    across = min(count, columns)
    down = math.ceil(count / across)
    figure = Figure(figsize=(max(width * across, 4.8), height * down), layout="constrained")
    grid = np.atleast_1d(figure.subplots(down, across, squeeze=False)).ravel()
    for spare in grid[count:]:
        spare.set_visible(False)
    return figure, list(grid[:count])


def grid_of(counts: Sequence[int], side: float = 2.3) -> tuple[Figure, list[list[Axes]]]:
    """A figure with a line of `counts[i]` square panels for each i."""
    across = max(counts)
    figure = Figure(figsize=(max(side * across, 4.8), side * len(counts) + 0.5), layout="constrained")
    grid = np.atleast_2d(figure.subplots(len(counts), across, squeeze=False))
    for line, count in zip(grid, counts, strict=True):
        for spare in line[count:]:
            spare.set_visible(False)
    return figure, [list(line[:count]) for line, count in zip(grid, counts, strict=True)]


def name_outer(figure: Figure, x: str, y: str) -> None:
    """Name the axes of the outer panels only: x for panels without a panel below, y for the first of each row."""
    shown = [axes for axes in figure.axes if axes.get_visible()]
    places = {(spec.rowspan.start, spec.colspan.start) for axes in shown if (spec := axes.get_subplotspec())}
    for axes in shown:
        spec = axes.get_subplotspec()
        if spec and (spec.rowspan.start + 1, spec.colspan.start) not in places:
            axes.set_xlabel(x)
        if spec and spec.colspan.start == 0:
            axes.set_ylabel(y)


def legend_below(figure: Figure, handles: Sequence[Artist]) -> None:
    """Draw one legend below all panels, in as many columns as fit. The figure grows by the lines of the legend: on a
    small board of many methods, the panels would have no space otherwise."""
    widest = max((len(str(handle.get_label())) for handle in handles), default=1)
    fit = max(1, int(figure.get_size_inches()[0] / (0.55 + 0.072 * widest)))
    lines = math.ceil(len(handles) / fit)
    columns = math.ceil(len(handles) / max(lines, 1))
    figure.set_figheight(figure.get_figheight() + 0.18 * max(lines - 1, 0))
    figure.legend(handles=list(handles), loc="outside lower center", ncols=columns, frameon=False)


def cost_axis(axes: Axes, costs: Sequence[float], size: bool) -> None:
    """A logarithmic axis for costs that may be zero: zero is at the left end."""
    positive = [cost for cost in costs if cost > 0] or [1.0]
    low, high = min(positive), max(positive)
    free = min(costs, default=1.0) <= 0
    if free:
        axes.set_xscale("symlog", linthresh=low / 1.5, linscale=0.35)
        axes.set_xlim(-low / 6, high * 1.5)
    else:
        axes.set_xscale("log")
        axes.set_xlim(low / 1.4, high * 1.4)
    axes.set_xticks(_apart(axes, [0.0] * free + round_costs(low, high)))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: data_size(value).replace(".0 ", " ") if size else f"{value:g}")
    )
    axes.xaxis.set_minor_locator(NullLocator())


def legible(axes: Axes) -> None:
    """Set each number of a heat map to black or white, for more contrast with its cell (WCAG 2)."""
    (mesh,) = (part for part in axes.collections if isinstance(part, QuadMesh))
    shown = ~np.ma.getmaskarray(np.ma.asarray(mesh.get_array())).ravel()
    for text, colour in zip(axes.texts, np.asarray(mesh.get_facecolor())[shown], strict=True):
        text.set_color("black" if relative_luminance(colour) > 0.179 else "white")


def _apart(axes: Axes, ticks: Sequence[float]) -> list[float]:
    """Drop ascending ticks until there is space for labels: a fifth of the axis between neighbours."""
    place = axes.xaxis.get_transform().transform(np.array([*axes.get_xlim(), *ticks]))
    kept: list[float] = []
    last = -math.inf
    for tick, at in zip(ticks, place[2:] / (place[1] - place[0]), strict=True):
        if at - last >= 1 / 5:
            kept, last = [*kept, tick], at
    return kept


def round_costs(low: float, high: float) -> list[float]:
    """One to four round numbers between about `low` and `high`. The digits are the first of these sets that gives at
    most four: all of `many`; 1, 2 and 5; 1 and 3; powers of ten; every second, and every third of these."""
    powers = [10.0**power for power in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)]
    many = [digit * power for power in powers for digit in (1, 1.5, 2, 3, 4, 5, 6, 8)]
    fine = [digit * power for power in powers for digit in (1, 2, 5)]
    half = [digit * power for power in powers for digit in (1, 3)]
    for kind in (many, fine, half, powers, powers[::2], powers[::3]):
        inside = [value for value in kind if low / 1.4 <= value <= high * 1.4]
        if len(inside) <= 4:
            break
    return inside[:: max(1, len(inside) // 4)]


MAX_BYTES = 150_000
FEWER = (128, 64)  # colours of the palette of a picture with more bytes
COARSER = (140, 120, 105, 90, 75, 60)  # dots per inch of a picture that is still too large


def packed(figure: Figure) -> bytes:
    """Return a PNG of at most MAX_BYTES bytes, or of the lowest resolution if it never fits.

    The same figure gives the same bytes with the same matplotlib. Call it under `RC`, like the code that draws.
    """
    for dots in (RC["savefig.dpi"], *COARSER):
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None}, dpi=dots)
        picture = _within(small(buffer))
        if len(picture) <= MAX_BYTES:
            break
    return picture


def _within(png: bytes) -> bytes:
    """Reduce the number of colours until the picture has at most MAX_BYTES bytes."""
    for colours in FEWER:
        if len(png) <= MAX_BYTES:
            break
        picture, reduced = Image.open(io.BytesIO(png)), io.BytesIO()
        palette = picture.convert("RGB").quantize(colours, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        palette.save(reduced, "PNG", optimize=True, dpi=picture.info["dpi"])
        png = reduced.getvalue()
    return png
