"""Text for markdown, CSV, figures and file names.

Text from rows is data: nothing in it may act as markup.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TypeGuard

from tabulate import tabulate

from ..metrics import FALLING
from .statistics import Difference, Posterior

ABSENT = "\N{EN DASH}"
_MARKUP = re.compile(r"([\\`*_{}\[\]|~#!$])")


def plain(value: object, limit: int = 200) -> str:
    """Return `value` on one line, without control, format and bidirectional characters, cut to `limit` characters."""
    text = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in str(value))
    text = " ".join("".join(c for c in text if not unicodedata.category(c).startswith("C")).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def literal(text: str) -> str:
    """Escape one line for GitHub markdown: no markup, no HTML, no automatic link or mention, no table break."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _MARKUP.sub(r"\\\1", text)
    return re.sub(r"www\.", "www&#46;", text.replace("://", ":&#47;/"), flags=re.IGNORECASE).replace("@", "&#64;")


def md(value: object, limit: int = 200) -> str:
    """`plain`, then `literal`."""
    return literal(plain(value, limit))


def csv_text(value: object) -> str:
    """`value` for a CSV cell; a leading quote keeps a spreadsheet from reading it as a formula."""
    text = plain(value, 1000)
    return "'" + text if text[:1] in ("=", "+", "-", "@") else text


def slug(label: str) -> str:
    """A safe file name for `label`: lower-case letters, digits, '.', '_', '-'. A hash keeps changed names distinct."""
    safe = re.sub(r"[^a-z0-9._-]+", "-", label.lower()).strip("-.")
    if safe and safe == label and len(safe) <= 80:
        return safe
    digest = hashlib.sha256(label.encode()).hexdigest()[:6]
    return f"{safe[:80]}-{digest}" if safe else digest


def markdown_table(rows: Sequence[Sequence[str]], headers: Sequence[str], align: str) -> str:
    """A markdown table; `align` has one letter per column: l or r."""
    columns = ["right" if letter == "r" else "left" for letter in align]
    return tabulate(rows, headers=list(headers), tablefmt="pipe", disable_numparse=True, colalign=columns)


def finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def number(value: float | None, digits: int = 2) -> str:
    """`value` with fixed `digits`, or a dash."""
    return f"{value:.{digits}f}" if finite(value) else ABSENT


def percent(value: float | None, digits: int = 2) -> str:
    return number(None if value is None else 100 * value, digits)


def score_text(value: float | None, digits: int = 2) -> str:
    """A score in percent; an error, which is stored as a negative number, in its unit."""
    return number(-value, 3) if finite(value) and value < 0 else percent(value, digits)


def unit(metric: str) -> str:
    """The metric with its unit: %, except for errors."""
    return metric if FALLING in metric else f"{metric}, %"


def gap_unit(metric: str) -> str:
    """The unit of differences for a heading next to the metric: none next to percent, points next to an error."""
    return ", points of 0.01" if FALLING in metric else ""


def points(value: float | None, digits: int = 1) -> str:
    """A difference of fractions in percentage points with its sign: '+1.2'; zero has no sign: '0.0'."""
    if not finite(value):
        return ABSENT
    rounded = round(100 * value, digits)
    return f"{rounded:+.{digits}f}" if rounded else f"{0:.{digits}f}"


def with_bounds(gap: Difference | Posterior, unit: str = "") -> str:
    """A difference in points with its 95% interval, if that is known: '+1.8 (+1.2 to +2.4)'. unit: after the mean."""
    bounds = f" ({points(gap.low)} to {points(gap.high)})" if finite(gap.low) else ""
    return f"{points(gap.mean)}{unit}{bounds}"


def mean_std(mean: float, std: float, digits: int = 2) -> str:
    """'81.20 ± 0.53' in percent from fractions, errors as in `score_text`; without ± if std is NaN (one seed)."""
    spread = number(std, 3) if mean < 0 else percent(std, digits)
    text = score_text(mean, digits)
    return f"{text} ± {spread}" if finite(std) else text


def data_size(count: float | None) -> str:
    """Bytes with an SI unit and two or three digits: 950 B, 1.2 kB, 34.0 MB, 120 MB."""
    if not finite(count):
        return ABSENT
    units = ["B", "kB", "MB", "GB"]
    while abs(count) >= 999.5 and units[1:]:
        count /= 1000
        del units[0]
    return f"{count:.0f} {units[0]}" if units[0] == "B" or abs(count) >= 99.95 else f"{count:.1f} {units[0]}"


def p_value(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def spans(numbers: Iterable[int]) -> str:
    """'0-2, 5' with an en dash for [0, 1, 2, 5]."""
    runs: list[list[int]] = []
    for value in sorted(set(numbers)):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}{ABSENT if b > a + 1 else ', '}{b}" for a, b in runs)


def count(number_of: int, noun: str) -> str:
    """'1 dataset', '3 datasets'."""
    return f"{number_of} {noun}{'' if number_of == 1 else 's'}"
