"""Groups of methods (family, uploads, models) and of datasets (kind of data)."""

from __future__ import annotations

from ..benchmark.suites.catalogue import OTHER, catalogue, entry

UNKNOWN = OTHER  # for a plug-in's method
MIXED = {False: "all alike", True: "may differ"}  # `heterogeneous` -> the clients' models


def families() -> dict[str, str]:
    """Family of each registered method."""
    return {method: facts["family"] for method, facts in catalogue()["method"].items()}


def family(method: str) -> str:
    return families().get(method, UNKNOWN)


def display(entrant: str) -> str:
    """The display name of an entry: title of the method (of a plug-in's method: its name), then settings."""
    method, bracket, settings = entrant.partition(" (")
    return (entry("display", method).get("title") or method) + bracket + settings


def published(method: str) -> dict[str, str]:
    """Links "paper" and "code" of a method, and "venue" with the year; empty if there is none."""
    shown = entry("display", method)
    links = {"paper": "paper_url", "code": "code_url", "venue": "venue"}
    return {name: shown.get(column, "") for name, column in links.items()}


def models(method: str) -> str:
    """Whether the clients of a method may have models of different architectures."""
    facts = entry("method", method)
    return MIXED[facts["heterogeneous"]] if facts else UNKNOWN


def uploads(method: str) -> list[str]:
    """What the clients of a method send to the server; empty for a plug-in's method."""
    return [upload for upload in entry("method", method).get("uploads", "").split(", ") if upload]


def kind_of_data(dataset: str) -> str:
    """citations, products, ...; OTHER for a dataset of a plug-in or user."""
    kind: str = entry("dataset", dataset).get("kind", OTHER)
    return kind
