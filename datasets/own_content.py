"""The content of a folder with a user's own graph: class codes, split and clients from the values of its files, and
notes about values that may be mistakes although they can be read.

Workers on the same machine map the checked content from a file in memory, so that only one process reads and checks it.
The file has no name: workers open it through /proc, and it disappears with the process that made it.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..registry import listed
from .content import Content, node_content
from .federation import PARTS
from .own_files import ARCHIVE, EDGES, NODES, SHOWN, Mistakes, Raw, fractions, number, read_archive, read_tables

# Words that mean "no label" among numbers; if all labels are words, they may be names of classes.
MISSING = ("na", "n/a", "<na>", "none", "null", "missing", "unlabeled", "unlabelled", "?", "-")
WHOLE = r"[+-]?\d{1,4000}"  # Python converts no longer ones
FEW = 8  # below this number of nodes, a feature may follow from the label by chance


def read(folder: Path) -> tuple[Content | None, Mistakes]:
    """Return the canonical content of a folder, or None and its mistakes."""
    mistakes, raw = Mistakes(), None
    if (folder / ARCHIVE).is_file():
        if (folder / NODES).is_file():
            mistakes.notes.append(f"{NODES} not used: {ARCHIVE} takes precedence; keep one of both")
        raw = read_archive(folder / ARCHIVE, mistakes)
    elif (folder / NODES).is_file() and (folder / EDGES).is_file():
        raw = read_tables(folder, mistakes)
    else:
        found = listed(sorted(path.name for path in folder.iterdir()), SHOWN) or "nothing"
        mistakes.append(f"{folder}: neither {NODES} and {EDGES} nor {ARCHIVE}, but {found}; put either into the folder")
    return (None if raw is None or mistakes else _checked(raw, mistakes)), mistakes


def _checked(raw: Raw, mistakes: Mistakes) -> Content | None:
    label = _without_missing(raw, _plain(raw.label, ("unknown",)), mistakes)
    codes, classes = _coded(label)
    distinct = FEW <= len(label) < 2 * classes
    if distinct:
        what = f"{classes} classes for {len(label)} nodes; give the class of each node, not an id or a measured value"
        mistakes.notes.append(f"{raw.at('label', 0)}: {what}")
    unlabelled = sorted(set(raw.label[label == ""].tolist()) - {""})
    if unlabelled:
        words = ", ".join(map(repr, unlabelled[:3]))
        count = int((label == "").sum())
        mistakes.notes.append(f"{count} node{'s' * (count > 1)} without a label (empty, or one of: {words})")
    fractions = _fractional(label)
    mistakes.where(
        fractions, lambda i: f"{raw.at('label', i)}: label {str(label[i])!r:.60} is no class; round it to one"
    )
    if classes < 2:
        negative = any(_negative(word) for word in set(raw.label.tolist()))
        hint = " (a negative number means no label)" if negative else ""
        only = f"all labels are {str(label[label != ''][0])!r}" if classes else "no node has a label"
        mistakes.append(f"{raw.at('label', 0)}: {only}{hint}; give at least 2 classes")
    if not raw.feat.shape[1]:
        mistakes.append(f"{raw.at('feature', 0)}: no features; give each node at least one number, as its degree")
    if sp.issparse(raw.feat):
        wrong = np.zeros(raw.feat.shape[0], dtype=bool)
        wrong[sp.coo_matrix(raw.feat).row[~np.isfinite(raw.feat.data)]] = True
    else:
        wrong = ~np.isfinite(raw.feat).all(axis=1)
    mistakes.where(wrong, lambda i: f"{raw.at('feature', i)}: a feature is not finite (float32); give a number")
    split = _split(raw, codes, mistakes)
    client = None if raw.client is None else _plain(raw.client)
    if client is not None:
        mistakes.where(client == "", lambda i: f"{raw.at('client', i)}: {_without_client(raw, i)}")
    if mistakes:
        return None
    note_similar_words(label, lambda i: raw.at("label", i), ("labels", "classes"), mistakes)
    note_similar_words(client, lambda i: raw.at("client", i), ("clients", "clients"), mistakes)
    if not distinct:
        note_determined_features(raw, codes, "label", mistakes)
    if raw.part is not None:
        note_determined_features(raw, _coded(raw.part)[0], "split", mistakes)
    content = node_content(raw.edges, codes, raw.feat, split)
    mistakes.classes, mistakes.sites = _ranked(label), [] if client is None else _ranked(client)
    return content if client is None else content | {"client": _coded(client)[0]}


def _without_client(raw: Raw, node: int) -> str:
    given = "" if raw.client is None else str(raw.client[node])
    return f"a node without a client{f' ({given!r} means none)' if given else ''}; name one for each"


def _split(raw: Raw, codes: np.ndarray, mistakes: Mistakes) -> dict[str, np.ndarray]:
    """Return the nodes of each part; empty if the files have no split. codes: of the labels."""
    part = raw.part
    if part is None:
        return {}
    known = np.isin(part, [*PARTS, ""])
    fix = "write train, val, test or leave it empty"
    mistakes.where(~known, lambda i: f"{raw.at('split', i)}: split {str(part[i])!r:.60}; {fix}")
    unlabelled = known & (part != "") & (codes < 0)
    fix = "label it or leave split empty"
    mistakes.where(unlabelled, lambda i: f"{raw.at('split', i)}: a node of the split without a label; {fix}")
    split = {name: np.flatnonzero(part == name) for name in PARTS}
    if not len(split["train"]) or not len(split["test"]):
        mistakes.append(f"{raw.at('split', 0)}: the split has no training or no test node; give both, or no split")
    return {str(name): ids for name, ids in split.items()}


def _plain(words: np.ndarray, none: Sequence[str] = ()) -> np.ndarray:
    """Return whole numbers without ".0", and "" for nan, a negative number or a word of `none` (in any case)."""

    def plain(word: str) -> str:
        if _negative(word) or word.lower() in ("nan", *none):
            return ""
        return re.sub(r"^\+?(\d+)(\.0*)?$", r"\1", word)

    return _mapped(words, plain)


def _mapped(words: np.ndarray, function: Callable[[str], Any]) -> np.ndarray:
    """Return the function's value of each word (N,); each distinct word is computed once."""
    given = words.tolist()
    table = {word: function(word) for word in set(given)}
    return np.array([table[word] for word in given])


def _without_missing(raw: Raw, label: np.ndarray, mistakes: Mistakes) -> np.ndarray:
    """Return labels with "" for words of MISSING among numbers; add a note if another word may mean no label."""
    known = sorted(set(label.tolist()) - {""})
    words = [word for word in known if np.isnan(number(word))]
    missing = [word for word in words if word.lower() in MISSING]
    if len(words) < len(known):  # some are numbers
        label = np.where(np.isin(label, missing), "", label)
        doubtful = [word for word in words if word not in missing]
    else:
        doubtful = missing
    if doubtful:
        place = raw.at("label", int(np.flatnonzero(label == doubtful[0])[0]))
        mistakes.notes.append(f"{place}: label {doubtful[0]!r} is a class; leave it empty where a node has no label")
    return label


def _negative(word: str) -> bool:
    return re.fullmatch(r"-0*[1-9]\d*(\.0*)?", word) is not None


def _fractional(words: np.ndarray) -> np.ndarray:
    values = _mapped(words, lambda word: 0.0 if word == "" else number(word))
    return np.zeros(len(words), dtype=bool) if np.isnan(values).any() else fractions(values)


def _coded(words: np.ndarray) -> tuple[np.ndarray, int]:
    """Return codes (N,) from 0 in the order of `_ranked`, -1 for "", and the number of codes."""
    ranked = _ranked(words)
    place = {word: code for code, word in enumerate(ranked)} | {"": -1}
    return np.array([place[word] for word in words.tolist()], dtype=np.int64), len(ranked)


def _ranked(words: np.ndarray) -> list[str]:
    """Return the distinct words other than "", sorted; by value if all are whole numbers."""
    known = set(words.tolist()) - {""}
    numeric = all(re.fullmatch(WHOLE, word, re.ASCII) for word in known)
    return sorted(known, key=lambda word: (int(word), word) if numeric else (0, word))


def note_similar_words(
    words: np.ndarray | None, at: Callable[[int], str], names: tuple[str, str], mistakes: Mistakes
) -> None:
    """Add a note for words that differ only in case, leading zeros, invisible or similar characters."""
    groups: dict[str, list[str]] = {}
    for word in [] if words is None else sorted(set(words.tolist()) - {""}):
        groups.setdefault(_normalised(word), []).append(word)
    for alike in [group for group in groups.values() if len(group) > 1][:SHOWN]:
        assert words is not None
        place, several = at(int(np.flatnonzero(words == alike[1])[0])), " and ".join(map(ascii, alike[:3]))
        mistakes.notes.append(
            f"{place}: {names[0]} {several} are different {names[1]}; write them alike if they are one"
        )


def _normalised(word: str) -> str:
    text = unicodedata.normalize("NFKC", word).casefold()
    text = "".join(character for character in text if character.isprintable() and not character.isspace())
    if re.fullmatch(WHOLE, text):
        return str(int(text))
    value = number(text)
    return f"{value + 0.0:.17g}" if np.isfinite(value) else text


def note_determined_features(raw: Raw, codes: np.ndarray, what: str, mistakes: Mistakes) -> None:
    """Add a note for each dense feature that `codes` (N,), -1 for none, determine: it may be computed from them."""
    known = np.flatnonzero(codes >= 0)
    if sp.issparse(raw.feat) or len(known) < FEW:
        return
    kinds, first = np.unique(codes[known], return_index=True)
    values = raw.feat[known[first]]  # (kinds, d): the features of the first node of each kind
    columns = np.flatnonzero((values != values[0]).any(axis=0))
    for nodes in (known[:1000], known):  # the first 1000 nodes rule out most columns
        place = np.searchsorted(kinds, codes[nodes])
        columns = columns[(raw.feat[np.ix_(nodes, columns)] == values[np.ix_(place, columns)]).all(axis=0)]
    for j in columns[:SHOWN].tolist():
        fix = f"remove it if it was made from the {what}"
        mistakes.notes.append(f"{raw.column(j)} follows from the {what} at every node that has one; {fix}")


_files: list[Any] = []  # open while this process lives


def offer(content: Content) -> str:
    """Write content to a file in memory, replace its arrays by mapped ones, and return the file's path.

    Returns "" on systems without such files, as macOS.
    """
    if not hasattr(os, "memfd_create"):
        return ""
    file = os.fdopen(os.memfd_create("content"), "w+b")
    np.lib.format.write_array(file, np.array(list(content)), allow_pickle=False)
    for array in content.values():
        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    file.flush()
    _files.append(file)
    path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
    content.update(mapped(path))
    return path


def mapped(path: str) -> Content:
    """Return the content of a file of `offer`, mapped copy-on-write. OSError if there is no such file, ValueError for
    another file."""
    content: Content = {}
    with open(path, "rb") as file:
        for name in np.lib.format.read_array(file, allow_pickle=False).tolist():
            np.lib.format.read_magic(file)
            shape, _, kind = np.lib.format.read_array_header_1_0(file)
            size = int(np.prod(shape)) * kind.itemsize
            array = np.memmap(path, kind, "c", file.tell(), shape) if size else np.empty(shape, kind)
            content[name] = np.asarray(array)
            file.seek(size, os.SEEK_CUR)
    return content
