"""Coauthor CS and Physics, Amazon Photo and Computers (Shchur et al., Pitfalls of GNN evaluation, 2018)."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from . import content as contents
from .content import Content, csr, node_content, open_npz
from .sources import Files
from .spec import NodeSpec


def read_gnn_benchmark(files: Files) -> Content:
    """Content from one npz of gnn-benchmark: adjacency and attributes in CSR parts, `labels`. Never unpickles."""
    with open_npz(*files.values()) as archive:
        return node_content(np.argwhere(csr(archive, "adj")), archive["labels"], csr(archive, "attr"))


class AmazonSpec(NodeSpec):
    """A graph of several components."""

    largest_component: bool = Field(False, description="keep only the largest connected component")

    def select(self, content: Content) -> Content:
        return contents.largest_component(content) if self.largest_component else content
