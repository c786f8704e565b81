"""What the files of a user's own graph say, and what must hold of it, whatever the files are.

A mistake is one line: its place, the value, the fix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from .content import Content, node_content
from .federation import PARTS

SHOWN = 5  # mistakes of one kind that are told; the others are counted
Words = np.ndarray  # of str (N,); "" where nothing is said


class Mistakes(list[str]):
    """What is wrong, a line each: "nodes.csv:7: label 'x' ...; fix"."""

    def where(self, wrong: np.ndarray, line: Callable[[int], str]) -> None:
        """A line for each of the first places at which `wrong` (n,) is True, and one that counts the rest."""
        places = np.flatnonzero(wrong).tolist()
        self += [line(place) for place in places[:SHOWN]]
        if len(places) > SHOWN:
            self.append(f"{line(places[SHOWN])} (and {len(places) - SHOWN - 1} more of the kind)")


@dataclass
class Raw:
    """What the files say. at: where a value stands, from a name ("label", "edge", ...) and its row.

    edges: int64 (M, 2), rows of the nodes. label, client, part: a word a node; None where the files have no such thing.
    """

    edges: np.ndarray
    feat: np.ndarray | sp.csr_matrix
    label: Words
    client: Words | None
    part: Words | None
    at: Callable[[str, int], str]


def checked(raw: Raw, mistakes: Mistakes) -> Content | None:
    """The canonical content, or None where there are mistakes."""
    codes, classes = coded(raw.label)
    if classes < 2:
        mistakes.append(f"{raw.at('label', 0)}: {classes} different labels; a classifier needs at least 2")
    _features(raw, mistakes)
    split = _split(raw, codes, mistakes)
    if raw.client is not None:
        mistakes.where(raw.client == "", lambda i: f"{raw.at('client', i)}: a node without a client; name one for each")
    if mistakes:
        return None
    found = node_content(raw.edges, codes, raw.feat, split)
    return found if raw.client is None else found | {"client": coded(raw.client)[0]}


def _features(raw: Raw, mistakes: Mistakes) -> None:
    if not raw.feat.shape[1]:
        mistakes.append(f"{raw.at('feature', 0)}: no features; give each node at least one number, as its degree")
    size = np.asarray(abs(raw.feat).sum(axis=1), dtype=np.float64).ravel()
    mistakes.where(~np.isfinite(size), lambda i: f"{raw.at('feature', i)}: a feature is not finite; give a number")


def _split(raw: Raw, codes: np.ndarray, mistakes: Mistakes) -> dict[str, np.ndarray]:
    """Nodes by part; empty where the files have no split. codes: of the labels."""
    part = raw.part
    if part is None:
        return {}
    known = np.isin(part, [*PARTS, ""])
    fix = "write train, val, test or leave it empty"
    mistakes.where(~known, lambda i: f"{raw.at('split', i)}: split {str(part[i])!r:.60}; {fix}")
    bare = known & (part != "") & (codes < 0)
    fix = "label it or leave split empty"
    mistakes.where(bare, lambda i: f"{raw.at('split', i)}: a node of the split without a label; {fix}")
    split = {name: np.flatnonzero(part == name) for name in PARTS}
    if not len(split["train"]) or not len(split["test"]):
        mistakes.append(f"{raw.at('split', 0)}: the split has no training or no test node; give both, or no split")
    return {str(name): ids for name, ids in split.items()}


def coded(words: Words) -> tuple[np.ndarray, int]:
    """Whole numbers from 0 in the order of the words (of the numbers, where all are), -1 for ""; how many there are."""
    known = sorted(set(words.tolist()) - {""}, key=_order(words))
    place = {word: code for code, word in enumerate(known)} | {"": -1}
    return np.array([place[word] for word in words.tolist()], dtype=np.int64), len(known)


def _order(words: Words) -> Callable[[str], Any]:
    try:
        _ = [int(word) for word in words.tolist() if word]
    except ValueError:
        return str
    return lambda word: (int(word), word)
