"""What of a parameter set is identity: what its kind had from the first, and what came later where it is not neutral.

A key must not depend on which options the code happens to have. `founding.json` lists, for each kind of spec and each
name, the parameters that stand in the rows made first. A parameter that is not listed was added later: at its default
it changes nothing, so it is part of no key and of no row; at another value it is part of both. A name that is not
listed yet has all of its parameters in its rows; it is listed when its first rows come into results/ (`fglbench data
register`; a test asks for it). A later parameter keeps its default permanently, since rows without it mean that value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python

from ...files import write_atomically
from ...registry import Spec

FILE = Path(__file__).parent / "founding.json"
TRAINING = "training"


@cache
def founding() -> dict[str, dict[str, list[str]]]:
    """Kind -> name -> parameters; the training configuration has no name."""
    found: dict[str, dict[str, list[str]]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def write_founding(table: Mapping[str, Mapping[str, list[str]]]) -> None:
    """Replace the table: one name per line."""
    kinds = [
        f' "{kind}": {{\n' + ",\n".join(f'  "{name}": {json.dumps(own)}' for name, own in names.items()) + "\n }"
        for kind, names in table.items()
    ]
    write_atomically(FILE, ("{\n" + ",\n".join(kinds) + "\n}\n").encode())
    founding.cache_clear()


def identity(cls: type[Spec] | None, kind: str, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """`params` (JSON values) without later ones at their defaults. cls: None for a name that is not known here."""
    first = founding()[kind].get(name.split(":")[0])
    if first is None or cls is None:
        return dict(params)
    neutral = _neutral(cls)
    return {key: value for key, value in params.items() if key in first or key not in neutral or value != neutral[key]}


@cache
def _neutral(cls: type[Spec]) -> dict[str, Any]:
    """The defaults of a spec as they stand in rows."""
    fields = cls.model_fields.items()
    return {
        info.serialization_alias or name: to_jsonable_python(info.get_default(call_default_factory=True))
        for name, info in fields
        if not info.is_required()
    }
