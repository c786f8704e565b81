"""Graphs of low homophily with ten published splits each (Platonov et al., ICLR 2023)."""

from __future__ import annotations

import numpy as np
import torch
from pydantic import Field

from .content import Content, node_content, open_npz
from .federation import PARTS, Part
from .sources import Files
from .spec import NodeSpec


def read_heterophilous(files: Files) -> Content:
    """Content from an npz with `node_features`, `node_labels`, `edges` and `{train,val,test}_masks` (splits, N)."""
    with open_npz(*files.values()) as archive:
        content = node_content(archive["edges"], archive["node_labels"], archive["node_features"])
        masks = np.stack([archive[f"{part}_masks"] for part in PARTS])
    if masks.shape[2] != len(content["label"]) or (masks.sum(axis=0) > 1).any():
        raise ValueError("the splits do not give each node one part")
    content["roles"] = np.where(masks.any(axis=0), masks.argmax(axis=0), -1).astype(np.int8)
    return content


class HeterophilousSpec(NodeSpec):
    """A graph with several published splits."""

    split_index: int = Field(0, ge=0, le=9, description="which of the ten published splits is the fixed one")

    def published_splits(self, content: Content) -> tuple[dict[Part, torch.Tensor], ...]:
        return tuple(
            {part: torch.from_numpy(np.flatnonzero(role == code)) for code, part in enumerate(PARTS)}
            for role in content["roles"]
        )

    def select(self, content: Content) -> Content:
        role = content["roles"][self.split_index]
        return content | {f"split_{part}": np.flatnonzero(role == code) for code, part in enumerate(PARTS)}
