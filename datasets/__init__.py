"""Datasets, partitions and splits: from a name to a `Federation`."""

from __future__ import annotations

from typing import Any

# Each of these files registers what it defines.
from . import csbm, domains, own_data, partition_graph, registry_file  # noqa: F401
from .build import build_federation
from .describe import Description, describe, label_counts, parts_of, statistics
from .federation import Data, Federation, Task
from .partitioning import PARTITIONS, PartitionSpec
from .spec import DATASETS, DatasetSpec
from .splits import SPLITS, SplitSpec

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "SPLITS",
    "Data",
    "DatasetSpec",
    "Description",
    "Federation",
    "PartitionSpec",
    "SplitSpec",
    "Task",
    "build_federation",
    "describe",
    "label_counts",
    "load",
    "parts_of",
    "statistics",
]


def load(name: str, **params: Any) -> Data:
    """Load a dataset by name with its options. Raises UserError for a wrong name or option, or when data is missing."""
    return DATASETS.build(name, params).load()
