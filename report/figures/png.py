"""A figure as a PNG that is small enough to be kept: every version of it stays in the repository."""

from __future__ import annotations

import io

from matplotlib.figure import Figure
from PIL import Image

from . import style

MOST = 150_000  # bytes
FEWER = (40, 32, 24, 16)  # colours of the palette of one that is larger
COARSER = (120, 90, 60)  # dots an inch of one that is still too large


def packed(figure: Figure) -> bytes:
    """The figure in at most MOST bytes, or with the fewest dots if it never fits; the same figure gives the same bytes
    with the same matplotlib. To be called under `style.RC`, as whatever draws it."""
    for dots in (style.RC["savefig.dpi"], *COARSER):
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None}, dpi=dots)
        picture = _within(style.small(buffer))
        if len(picture) <= MOST:
            break
    return picture


def _within(png: bytes) -> bytes:
    """The same picture in at most MOST bytes: fewer colours, spread over those that it has, which keeps thin lines."""
    for colours in FEWER:
        if len(png) <= MOST:
            break
        picture, found = Image.open(io.BytesIO(png)), io.BytesIO()
        palette = picture.convert("RGB").quantize(colours, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        palette.save(found, "PNG", optimize=True, dpi=picture.info["dpi"])
        png = found.getvalue()
    return png
