"""Read a user's own graph from a folder: `nodes.csv` and `edges.csv`, or `graph.npz`.

docs/own-data.md describes the files. A mistake is one line with the place, the value and the fix.
"""

from __future__ import annotations

import csv
import difflib
import io
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from . import content as contents
from .federation import PARTS

NODES, EDGES, ARCHIVE = "nodes.csv", "edges.csv", "graph.npz"
COLUMNS = ("node", "label", "client", "split")  # of nodes.csv; all others are features
ENDS = ("source", "target")  # of edges.csv
CSR = tuple(f"features_{part}" for part in ("data", "indices", "indptr", "shape"))
ARRAYS = ("edges", "features", "labels", "clients", *PARTS)  # of graph.npz
OTHER_NAMES = {  # other common names of the arrays
    "edge_index": "edges", "x": "features", "y": "labels", "valid": "val", "validation": "val", "dev": "val",
}  # fmt: skip
PACKED = {  # first bytes of files that are no text
    b"PK\x03\x04": "spreadsheet or zip archive", b"\x1f\x8b": "gzip archive", b"\xd0\xcf\x11\xe0": "spreadsheet (.xls)",
    b"PAR1": "Parquet file", b"SQLite": "database",
}  # fmt: skip
SHOWN = 5  # mistakes of one kind that are printed; the others are counted
LARGEST = float(np.finfo(np.float32).max)


class Mistakes(list[str]):
    """One line per mistake: "nodes.csv:7: label 'x' ...; fix". notes: lines about data that are not used or suspicious.
    total: their number, with those without a line. classes, sites: the words of the label codes and client codes."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []
        self._rest = 0
        self.classes: list[str] = []
        self.sites: list[str] = []

    def where(self, wrong: np.ndarray, line: Callable[[int], str]) -> None:
        """Add a line for each of the first SHOWN places where `wrong` (n,) is True; the last counts the rest."""
        places = np.flatnonzero(wrong).tolist()
        self += [line(place) for place in places[:SHOWN]]
        if len(places) > SHOWN:
            self[-1] += f" (and {len(places) - SHOWN} more of the kind)"
            self._rest += len(places) - SHOWN

    @property
    def total(self) -> int:
        return len(self) + self._rest


@dataclass
class Raw:
    """The values of the files, before they are checked.

    edges: int64 (M, 2), rows of the nodes. label, client, part: one word per node, "" for none; None if the files have
    no such column. at: returns the place in the files of a name ("label", "feature", ...) and a row. column: returns
    the name of a feature in messages, by its number.
    """

    edges: np.ndarray
    feat: np.ndarray | sp.csr_matrix
    label: np.ndarray
    client: np.ndarray | None
    part: np.ndarray | None
    at: Callable[[str, int], str]
    column: Callable[[int], str]


# -- nodes.csv and edges.csv -----------------------------------------------------------------------------------------


@dataclass
class Table:
    """A CSV file: rows of stripped words, all as wide as the header; lines: the line number of each row."""

    name: str
    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    def column(self, name: str) -> np.ndarray:
        place = self.header.index(name)
        return np.array([row[place] for row in self.rows], dtype=str)


def read_tables(folder: Path, mistakes: Mistakes) -> Raw | None:
    """Read nodes.csv and edges.csv of a folder; None if there are mistakes."""
    nodes = _table(folder / NODES, COLUMNS, COLUMNS[:2], mistakes)
    edges = _table(folder / EDGES, ENDS, ENDS, mistakes)
    if nodes is None or edges is None or mistakes:
        return None
    words = {name: nodes.column(name) for name in COLUMNS if name in nodes.header}
    unused = [name for name in edges.header if name not in ENDS]
    if unused:
        mistakes.notes.append(f"{EDGES}: edges have no weights or features here: {', '.join(unused)} not used")
    return Raw(
        edges=_ends(nodes, edges, mistakes),
        feat=_numbers(nodes, mistakes),
        label=words["label"],
        client=words.get("client"),
        part=words.get("split"),
        at=lambda name, i: f"{NODES}:{nodes.lines[i]}",
        column=lambda j: f"{NODES}: feature {[name for name in nodes.header if name not in COLUMNS][j]!r}",
    )


def _table(path: Path, known: Sequence[str], needed: Sequence[str], mistakes: Mistakes) -> Table | None:
    """Read a table; empty lines are left out. None, and a mistake, if it is no valid table."""
    rows, lines = [], []
    try:
        text = path.read_bytes().decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=None), skipinitialspace=True, strict=True)
        for row in reader:
            words = [word.strip() for word in row]
            if any(words):
                rows.append(words)
                lines.append(reader.line_num)
    except UnicodeDecodeError as error:
        kind = next((kind for start, kind in PACKED.items() if error.object.startswith(start)), "")
        problem = (
            f"byte {error.object[error.start]:#04x} at {error.start} is not UTF-8; save the file with encoding UTF-8"
        )
        packed = f"a {kind}, not a table; write it as comma-separated text in UTF-8"
        mistakes.append(f"{path.name}: {packed if kind else problem}")
        return None
    except OSError as error:
        mistakes.append(f"{path.name}: cannot be read ({error.strerror}); check its permissions")
        return None
    except csv.Error as error:
        mistakes.append(f"{path.name}:{reader.line_num}: {error}; write comma-separated lines, quotes in pairs")
        return None
    if len(rows) < (1 if known is ENDS else 2):  # a graph may have no edge
        where = "after" if rows else "and not even"
        mistakes.append(f"{path.name}: no line {where} the header; write one line per {path.stem.removesuffix('s')}")
        return None
    table, width = Table(path.name, rows[0], rows[1:], lines[1:]), len(rows[0])
    _check_header(table, known, needed, mistakes)
    fix = "write one field per column, empty for none"
    mistakes.where(
        np.array([len(row) != width for row in table.rows]),
        lambda i: f"{path.name}:{table.lines[i]}: {len(table.rows[i])} fields, the header has {width}; {fix}",
    )
    return None if mistakes else table


def _check_header(table: Table, known: Sequence[str], needed: Sequence[str], mistakes: Mistakes) -> None:
    """Check that all columns have distinct names, and that none is a misspelled known column."""
    place, header = f"{table.name}:1", table.header
    missing = [name for name in needed if name not in header]
    if missing:
        other = next((mark for mark in (";", "\t", "|") if mark in header[0]), None)
        fix = f"separate columns by commas, not by {other!r}" if other else "name it in the header"
        mistakes.append(f"{place}: no column {', '.join(missing)} among {header[:6]}; {fix}")
    for number, name in enumerate(header):
        fix = "" if name in known else _near(name, known)
        if not name or re.fullmatch(r"Unnamed: \d+(_level_\d+)?", name):
            fix = "name it or remove it; pandas writes row numbers unless to_csv(index=False)"
            mistakes.append(f"{place}: column {number + 1} has no name ({name!r}); {fix}")
        elif name in header[:number]:
            mistakes.append(f"{place}: two columns {name!r}; give each its own name")
        elif fix and (fix not in header or name.lower() in (fix, f"{fix}s")):
            mistakes.append(f"{place}: column {name!r}: is it {fix!r}? rename it; a feature needs another name")
        elif known is COLUMNS and _plain_name(name) in PARTS:
            mistakes.append(f"{place}: column {name!r}: write the parts into one column 'split'; train, val or test")
        elif known is COLUMNS and name not in known and _counts(table, number):
            if name in ("index", "level_0"):
                mistakes.append(f"{place}: column {name!r} is the row number, not a feature; remove it")
            else:
                mistakes.notes.append(f"{place}: feature {name!r} counts the lines; remove it if it is a row number")


def _near(name: str, known: Sequence[str]) -> str:
    """Return the known name that this one misspells (case, plural, one letter); "" for none."""
    return next(iter(difflib.get_close_matches(_plain_name(name), known, 1, 0.8)), "")


def _plain_name(name: str) -> str:
    plain = name.lower().removesuffix("_mask")
    return OTHER_NAMES.get(plain, plain)


def _counts(table: Table, number: int) -> bool:
    values = [row[number] if number < len(row) else "" for row in table.rows]
    return any(values == [str(i + first) for i in range(len(values))] for first in (0, 1))


def _ends(nodes: Table, edges: Table, mistakes: Mistakes) -> np.ndarray:
    """Return the two nodes of each edge as rows of nodes.csv, int64 (M, 2)."""
    names = nodes.column("node")
    row: dict[str, int] = {}
    repeated = np.array([row.setdefault(name, i) != i for i, name in enumerate(names.tolist())])
    mistakes.where(
        repeated & (names != ""),
        lambda i: f"{NODES}:{nodes.lines[i]}: node {str(names[i])!r} a second time; give each node one line",
    )
    mistakes.where(names == "", lambda i: f"{NODES}:{nodes.lines[i]}: a node without a name; name it or remove it")
    words = np.stack([edges.column(end) for end in ENDS], axis=1).ravel()
    ends = np.array([row.get(name, -1) for name in words.tolist()], dtype=np.int64)
    fix = "add it there or remove the edge"
    mistakes.where(
        ends < 0, lambda i: f"{EDGES}:{edges.lines[i // 2]}: node {str(words[i])!r} is not in {NODES}; {fix}"
    )
    return ends.reshape(-1, 2)


def _numbers(nodes: Table, mistakes: Mistakes) -> np.ndarray:
    names = [name for name in nodes.header if name not in COLUMNS]
    values = np.empty((len(nodes.rows), len(names)))
    for j, name in enumerate(names):
        values[:, j] = [number(word) for word in nodes.column(name).tolist()]
    wrong = ~(np.abs(values) <= LARGEST)

    def line(i: int) -> str:
        row, j = divmod(i, len(names))
        word = nodes.rows[row][nodes.header.index(names[j])]
        wanted = "smaller" if np.isfinite(values[row, j]) else "finite"
        return f"{NODES}:{nodes.lines[row]}: feature {names[j]!r} is {word!r:.60}; give a {wanted} number"

    mistakes.where(wrong.ravel(), line)
    return np.where(wrong, 0, values).astype(np.float32)


def number(word: str) -> float:
    """Return the value of a word; nan if it is not a number."""
    try:
        return float("nan" if "_" in word else word)
    except ValueError:
        return float("nan")


# -- graph.npz -------------------------------------------------------------------------------------------------------


def read_archive(path: Path, mistakes: Mistakes) -> Raw | None:
    """Read graph.npz; None if there are mistakes."""
    arrays = _arrays(path, mistakes)
    if arrays is None:
        return None
    mistakes += [f"{path.name}: {line}" for line in _misshapen(arrays)]
    if mistakes:
        return None
    edges, feat, n = arrays["edges"], arrays["features"], len(arrays["labels"])
    if edges.size and (edges.min() < 0 or edges.max() >= n):  # faster than a check of every row
        fix = f"name nodes from 0 to {n - 1}"
        outside = ((edges < 0) | (edges >= n)).any(axis=1)
        mistakes.where(outside, lambda i: f"{path.name}: edges[{i}]: {edges[i].tolist()} for {n} nodes; {fix}")
    members = {"feature": "features", "label": "labels", "client": "clients", "split": "train, val, test"}
    with np.errstate(over="ignore"):  # too large a number becomes infinite, which is reported
        feat = sp.csr_matrix(feat, dtype=np.float32) if sp.issparse(feat) else feat.astype(np.float32, copy=False)
    return Raw(
        edges=edges.astype(np.int64, copy=False),
        feat=feat,
        label=_words(arrays["labels"]),
        client=_words(arrays["clients"]) if "clients" in arrays else None,
        part=_parts(arrays, path.name, mistakes),
        at=lambda name, i: f"{path.name}: {members[name]}[{i}]",
        column=lambda j: f"{path.name}: features[:, {j}]",
    )


def _arrays(path: Path, mistakes: Mistakes) -> dict[str, Any] | None:
    """Read the arrays of known names; None, and a mistake, if one is missing or cannot be read."""
    arrays: dict[str, Any] = {}
    name, fix = "", "write it with np.savez(path, edges=..., features=..., labels=...)"
    try:
        with contents.open_npz(path) as opened:
            for name in opened.files:
                near = _near(name, ARRAYS)
                if name in ARRAYS or name in CSR:
                    arrays[name] = opened[name]
                elif near and near not in opened.files:
                    other = ", transposed to (M, 2)" if name == "edge_index" else ""
                    mistakes.append(f"{path.name}: array {name!r}: is it {near!r}? rename it{other}, or remove it")
                else:
                    mistakes.notes.append(f"{path.name}: array {name!r} not used (known: {', '.join(ARRAYS)})")
        if "features" in arrays and any(name in arrays for name in CSR):
            mistakes.append(f"{path.name}: features as one array and as {CSR[0]}, ...; keep one of both")
        if CSR[0] in arrays and not mistakes:
            arrays["features"] = contents.csr(arrays, "features")
    except contents.Unsound as error:
        mistakes.append(f"{path.name}: {error}")
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        reason = f"no array {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        if "Object arrays" in reason:
            reason = f"array {name!r} has Python objects: give it a type of numbers or words, .astype(str)"
        mistakes.append(f"{path.name}: {reason:.200}; {fix}")
    missing = [name for name in ("edges", "features", "labels") if name not in arrays]
    if missing and not mistakes:
        mistakes.append(f"{path.name}: no array {missing[0]!r}; {fix}")
    return None if mistakes else arrays


def _misshapen(arrays: dict[str, Any]) -> list[str]:
    n = len(arrays["labels"]) if arrays["labels"].ndim else 0
    if not n:
        return [f"labels have the shape {arrays['labels'].shape}; give a whole number or word for each node (N,)"]
    wanted: dict[str, tuple[tuple[int | None, ...], str, str]] = {
        "edges": ((None, 2), "iu", "whole numbers (M, 2)"),
        "features": ((n, None), "fiub", "numbers (N, d)"),
        "labels": ((n,), "iuU", "whole numbers or words (N,)"),
        "clients": ((n,), "iuU", "a whole number or word for each node (N,)"),
        **dict.fromkeys(PARTS, ((n,), "b", "true or false for each node (N,)")),
    }
    lines = []
    for name in [name for name in wanted if name in arrays]:
        (shape, kinds, advice), given = wanted[name], arrays[name]
        fits = len(given.shape) == len(shape) and all(map(lambda size, have: size in (None, have), shape, given.shape))
        whole = name in ("labels", "clients") and given.dtype.kind == "f" and not fractions(given).any()
        if not fits or not (given.dtype.kind in kinds or whole):
            transposed = name == "edges" and given.ndim == 2 and given.shape[0] == 2
            advice += ": transpose it" if transposed else ""
            advice += f": {name}.astype(bool)" if name in PARTS and fits and _zero_or_one(given) else ""
            lines.append(f"{name} is {given.dtype} {tuple(given.shape)} for N = {n} labels; give {advice}")
    return lines


def _zero_or_one(values: np.ndarray) -> bool:
    return values.dtype.kind in "iuf" and bool(np.isin(values, (0, 1)).all())


def fractions(values: np.ndarray) -> np.ndarray:
    """Return which values are neither whole nor nan, bool (n,)."""
    whole: np.ndarray = np.isnan(values) | (np.isfinite(values) & (values == np.rint(values)))
    return ~whole


def _parts(arrays: dict[str, Any], file: str, mistakes: Mistakes) -> np.ndarray | None:
    given = [name for name in PARTS if name in arrays]
    part = np.full(len(arrays["labels"]), "", dtype="U5")
    for name in given:
        repeated = np.flatnonzero(arrays[name] & (part != "")).tolist()
        mistakes += [f"{file}: {name}[{i}]: also in {part[i]}; put it in one part" for i in repeated[:1]]
        part[arrays[name]] = name
    return part if given else None


def _words(values: np.ndarray) -> np.ndarray:
    """Return words, or whole numbers of any type as words; nan is "nan"."""
    if values.dtype.kind == "f":
        return np.array(["nan" if np.isnan(value) else str(int(value)) for value in values.tolist()], dtype=str)
    distinct, place = np.unique(values, return_inverse=True)
    return np.char.strip(distinct.astype(str))[place]
