"""JSON in columns of a row and in small files. A stranger may have put any text there, so none of these raises."""

from __future__ import annotations

import json
from typing import Any


def mapping(text: object) -> dict[str, Any]:
    """The object that a text holds; empty where it holds something else."""
    return parse(text) or {}


def parse(text: object) -> dict[str, Any] | None:
    """The object that a text holds, or None where it holds something else."""
    found = loaded(text)
    return found if isinstance(found, dict) else None


def parameters(text: object) -> dict[str, Any]:
    """The object that a text holds; of a list of them, as of mixed architectures, all that they say together, of two
    values for one name the later; else nothing."""
    found = loaded(text)
    objects = found if isinstance(found, list) else [found]
    return {name: own for each in objects if isinstance(each, dict) for name, own in each.items()}


def loaded(text: object) -> Any:
    """What a text holds, or None where it is no JSON."""
    try:
        return json.loads(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, RecursionError):
        return None
