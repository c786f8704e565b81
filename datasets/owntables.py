"""A user's own graph as two tables: `nodes.csv` and `edges.csv`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from .ownraw import Mistakes, Raw

NODES, EDGES = "nodes.csv", "edges.csv"
COLUMNS = {"node", "label", "client", "split"}  # of nodes.csv; all others are features


def read_tables(folder: Path, mistakes: Mistakes) -> Raw | None:
    """What the tables say; None where one of them is none or lacks a column."""
    nodes, edges = (_table(folder / name, mistakes) for name in (NODES, EDGES))
    if nodes is None or edges is None:
        return None
    for name, table, needed in ((NODES, nodes, ("node", "label")), (EDGES, edges, ("source", "target"))):
        missing = [column for column in needed if column not in table]
        if missing:
            mistakes.append(f"{name}:1: no column {', '.join(missing)} among {list(table)[:6]}; name it in the header")
    if mistakes:
        return None
    words = {name: nodes[name].to_numpy(dtype=str) for name in COLUMNS & set(nodes)}
    ends = _ends(nodes["node"], edges, mistakes)
    feat = _numbers(nodes[[name for name in nodes if name not in COLUMNS]], mistakes)
    client, part = words.get("client"), words.get("split")
    return Raw(ends, feat, words["label"], client, part, lambda name, i: f"{NODES}:{i + 2}")


def _ends(ids: pd.Series, edges: pd.DataFrame, mistakes: Mistakes) -> np.ndarray:
    """The rows of the nodes that edges join, int64 (M, 2). ids: the names of all nodes."""
    again = ids.duplicated().to_numpy()
    mistakes.where(again, lambda i: f"{NODES}:{i + 2}: node {ids[i]!r} a second time; give each node one line")
    mistakes.where((ids == "").to_numpy(), lambda i: f"{NODES}:{i + 2}: a node without a name; name it or remove it")
    row = {name: i for i, name in enumerate(ids)}
    ends: np.ndarray = edges[["source", "target"]].map(lambda name: row.get(name, -1)).to_numpy(dtype=np.int64)
    for side, column in enumerate(("source", "target")):
        mistakes.where(
            ends[:, side] < 0,
            lambda i, column=column: (  # type: ignore[misc]
                f"{EDGES}:{i + 2}: node {edges[column][i]!r} is not in {NODES}; add it there or remove the edge"
            ),
        )
    return ends


def _table(path: Path, mistakes: Mistakes) -> pd.DataFrame | None:
    """All cells as words without blanks around them; row i stands in line i + 2."""
    try:
        read: pd.DataFrame = pd.read_csv(
            path, dtype=str, keep_default_na=False, skip_blank_lines=False, skipinitialspace=True
        )
    except (ValueError, OSError) as error:  # pandas' own errors are ValueErrors
        reason = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        mistakes.append(f"{path.name}: not a table ({reason:.150}); write comma-separated lines under one header")
        return None
    found: pd.DataFrame = read.fillna("").rename(columns=str.strip).apply(lambda column: column.str.strip())
    if not len(found):
        mistakes.append(f"{path.name}:2: no line after the header; write one a {path.stem.removesuffix('s')}")
        return None
    return found


def _numbers(table: pd.DataFrame, mistakes: Mistakes) -> np.ndarray:
    """The feature columns, float32 (N, d)."""
    numbers = table.apply(pd.to_numeric, errors="coerce")
    values: np.ndarray = numbers.to_numpy(dtype=np.float32).reshape(len(table), -1)
    for j, name in enumerate(table):
        said = table[name]
        mistakes.where(
            ~np.isfinite(values[:, j]),
            lambda i, name=name, said=said: (  # type: ignore[misc]
                f"{NODES}:{i + 2}: feature {name!r} is {said[i]!r:.60}; give a finite number"
            ),
        )
    return values
