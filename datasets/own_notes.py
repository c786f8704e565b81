"""Notes about a user's own graph: what may be a slip, though it can be read."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from .own_files import SHOWN, Mistakes, Raw, number

FEW = 8  # with fewer nodes a feature follows from the label by chance


def note_alike(words: np.ndarray | None, at: Callable[[int], str], names: tuple[str, str], mistakes: Mistakes) -> None:
    """Add a note for words that differ only in case, leading zeros, or characters that look alike or like nothing."""
    groups: dict[str, list[str]] = {}
    for word in [] if words is None else sorted(set(words.tolist()) - {""}):
        groups.setdefault(_blurred(word), []).append(word)
    for alike in [group for group in groups.values() if len(group) > 1][:SHOWN]:
        assert words is not None
        place, several = at(int(np.flatnonzero(words == alike[1])[0])), " and ".join(map(ascii, alike[:3]))
        mistakes.notes.append(
            f"{place}: {names[0]} {several} are different {names[1]}; write them alike if they are one"
        )


def _blurred(word: str) -> str:
    text = unicodedata.normalize("NFKC", word).casefold()
    text = "".join(character for character in text if character.isprintable() and not character.isspace())
    if re.fullmatch(r"[+-]?\d+", text):
        return str(int(text))
    value = number(text)
    return f"{value + 0.0:.17g}" if np.isfinite(value) else text


def note_telling(raw: Raw, codes: np.ndarray, what: str, mistakes: Mistakes) -> None:
    """Add a note for each dense feature that `codes` (N,), -1 for none, determine: it may have been made from them."""
    known = np.flatnonzero(codes >= 0)
    if sp.issparse(raw.feat) or len(known) < FEW:
        return
    kinds, first = np.unique(codes[known], return_index=True)
    values = raw.feat[known[first]]  # (kinds, d): what each kind has, if it has one value
    columns = np.flatnonzero((values != values[0]).any(axis=0))
    for some in (known[:1000], known):  # few columns are left for the whole
        place = np.searchsorted(kinds, codes[some])
        columns = columns[(raw.feat[np.ix_(some, columns)] == values[np.ix_(place, columns)]).all(axis=0)]
    for j in columns[:SHOWN].tolist():
        fix = f"remove it if it was made from the {what}"
        mistakes.notes.append(f"{raw.column(j)} follows from the {what} at every node that has one; {fix}")
