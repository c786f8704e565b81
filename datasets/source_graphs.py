"""Graphs of several sources that share one space of features: Twitch by country, papers of three sources; and MUSAE's
files, which Twitch and the pages of Facebook come in.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp
import torch

from . import content as contents
from .content import Content, node_content
from .federation import Goal
from .sources import Files
from .spec import NodeSpec, NumbersSpec

TWITCH_FEATURES, PAGE_FEATURES = 3170, 4714  # over all countries; of the pages
PAGE_TYPES = ("company", "government", "politician", "tvshow")


class ViewsSpec(NumbersSpec, NodeSpec):
    """Twitch, with log(1 + views) of each user to be predicted."""

    goal: ClassVar[Goal] = "node-regression"

    def targets(self, content: Content) -> torch.Tensor:
        return torch.from_numpy(np.log1p(content["views"]).astype(np.float32)).unsqueeze(1)


def read_twitch(files: Files) -> Content:
    """Content from `{COUNTRY}_{edges.csv,features.json,target.csv}` of each country: clients are the countries by name.

    label: 1 for mature content. Two users of FR stand twice in its targets, with the same label: the first line counts.
    """
    found = []
    for country in sorted({name.partition("_")[0] for name in files}):
        edges, features, target = (files[f"{country}_{part}"] for part in ("edges.csv", "features.json", "target.csv"))
        table = pd.read_csv(target, usecols=["new_id", "mature", "views"])
        if (table.groupby("new_id")["mature"].nunique() > 1).any():
            raise ValueError(f"{target.name} gives a user two labels")
        table = _by_node(table.drop_duplicates("new_id"), "new_id", target)
        one = node_content(_edges(edges), table["mature"].to_numpy(bool), _features(features, TWITCH_FEATURES))
        found.append(one | {"views": table["views"].to_numpy(np.int64)})
    return side_by_side(found)


def read_pages(files: Files) -> Content:
    """Content from `{edges,target}.csv` and `features.json`; classes in the order of PAGE_TYPES."""
    table = pd.read_csv(files["target.csv"], usecols=["id", "page_type"])
    kind = _by_node(table, "id", files["target.csv"])["page_type"]
    if unknown := sorted({*kind} - {*PAGE_TYPES}):
        raise ValueError(f"target.csv has the page type {unknown[0]!r:.40}")
    label = kind.map(PAGE_TYPES.index).to_numpy(np.int64)
    return node_content(_edges(files["edges.csv"]), label, _features(files["features.json"], PAGE_FEATURES))


def read_citation_sources(files: Files) -> Content:
    """Content from MATLAB files with `network` (N, N), `attrb` (N, d) and `group` (N, C): clients in the files' order.

    A paper with two labels or none has none here (-1): it stays in the graph, and no split takes it.
    """
    found = []
    for path in files.values():
        arrays = scipy.io.loadmat(path, variable_names=["network", "attrb", "group"])
        links, feat, group = (sp.csr_matrix(arrays[name]) for name in ("network", "attrb", "group"))
        if links.shape != (feat.shape[0],) * 2 or group.shape[0] != feat.shape[0]:
            raise ValueError(f"{path.name}: network, attrb and group are of different numbers of papers")
        single = np.diff(group.indptr) == 1
        label = np.where(single, group.argmax(axis=1).A1, -1)
        found.append(node_content(np.argwhere(links), label, feat.astype(np.float32)))
    return side_by_side(found)


def side_by_side(found: list[Content]) -> Content:
    """Graphs with sparse features in one space as one content; each is a client. ValueError for two spaces."""
    sizes = [len(one["label"]) for one in found]
    first = np.cumsum([0, *sizes[:-1]])
    feat = [contents.features(one) for one in found]
    if len({own.shape[1] for own in feat}) > 1:
        raise ValueError(f"the sources have {sorted({own.shape[1] for own in feat})} features, not one space")
    edges = np.concatenate([one["edges"] + start for one, start in zip(found, first, strict=True)])
    content = node_content(edges, np.concatenate([one["label"] for one in found]), sp.vstack(feat, format="csr"))
    content["client"] = np.repeat(np.arange(len(found)), sizes)
    return content | ({"views": np.concatenate([one["views"] for one in found])} if "views" in found[0] else {})


def _edges(path: Path) -> np.ndarray:
    """(M, 2), from a table with a line of names."""
    return pd.read_csv(path, dtype=np.int64).to_numpy()


def _by_node(table: pd.DataFrame, key: str, path: Path) -> pd.DataFrame:
    """The lines in the order of nodes. ValueError unless each node from 0 has one."""
    table = table.sort_values(key)
    if not np.array_equal(table[key], np.arange(len(table))):
        raise ValueError(f"{path.name} does not have one line for each node from 0 to {len(table) - 1}")
    return table


def _features(path: Path, width: int) -> sp.csr_matrix:
    """(N, width) 0/1 float32 from a JSON map of node -> its features, which may name one twice."""
    held = json.loads(path.read_text("utf-8"))
    if sorted(map(int, held)) != list(range(len(held))):
        raise ValueError(f"{path.name} does not have one entry for each node from 0 to {len(held) - 1}")
    own = [np.unique(np.array(held[str(node)], dtype=np.int64)) for node in range(len(held))]
    indices = np.concatenate(own)
    if len(indices) and not 0 <= indices.min() <= indices.max() < width:
        raise ValueError(f"{path.name} names a feature outside 0 to {width - 1}")
    indptr = np.cumsum([0, *map(len, own)])
    return sp.csr_matrix((np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(len(own), width))
