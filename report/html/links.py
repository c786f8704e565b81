"""File names of the pages."""

from __future__ import annotations

from ..text import slug

INDEX = "index.html"


def board_page(suite: str) -> str:
    return f"board-{slug(suite)}.html"


def method_page(method: str) -> str:
    return f"method-{slug(method)}.html"


def dataset_page(dataset: str) -> str:
    return f"dataset-{slug(dataset)}.html"


def paper_page(paper: str) -> str:
    return f"paper-{slug(paper.lower())}.html"
