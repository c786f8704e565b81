"""Display names, groups of methods (family, uploads) and of datasets (kind of data)."""

from __future__ import annotations

from ..benchmark.suites.catalogue import OTHER, entry
from .cells import Cell, Column
from .text import plain


def family(method: str) -> str:
    """The family of a method; OTHER for a plug-in's method."""
    kind: str = entry("method", method).get("family", OTHER)
    return kind


def display(entrant: str) -> str:
    """The display name of an entry: title of the method (of a plug-in's method: its name), then settings."""
    method, bracket, settings = entrant.partition(" (")
    return (entry("display", method).get("title") or method) + bracket + settings


METHOD = Column("Method", lambda entrant: Cell(plain(display(str(entrant))), str(entrant)), "method")


def published(method: str) -> dict[str, str]:
    """Links "paper" and "code" of a method, and "venue" with the year; empty if there is none."""
    shown = entry("display", method)
    links = {"paper": "paper_url", "code": "code_url", "venue": "venue"}
    return {name: shown.get(column, "") for name, column in links.items()}


def uploads(method: str) -> list[str]:
    """What the clients of a method send to the server; empty for a plug-in's method."""
    return [upload for upload in entry("method", method).get("uploads", "").split(", ") if upload]


def kind_of_data(dataset: str) -> str:
    """citations, products, ...; OTHER for a dataset of a plug-in or user."""
    kind: str = entry("dataset", dataset).get("kind", OTHER)
    return kind
