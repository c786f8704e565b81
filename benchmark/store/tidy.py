"""Rows as a data frame with a column for each setting, instead of JSON texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .jsoncolumn import loaded
from .schema import RULES

if TYPE_CHECKING:
    import pandas as pd

JSON = tuple(name for name, rule in RULES.items() if rule.json)


def expanded(frame: pd.DataFrame) -> pd.DataFrame:
    """With `training.lr` and the like, at the end, in the place of the columns that hold JSON.

    A setting is named after the column without "_params": `method.mu`, `dataset.features`. It is missing where a row
    has none. Of clients with different backbones a setting is the list of theirs. A text that is no mapping stays, in
    a column of its old name.
    """
    import pandas as pd

    parts = [frame.drop(columns=list(JSON))]
    for name in JSON:
        known = {text: _settings(name, text) for text in frame[name].unique()}
        settings = pd.DataFrame([known[text] for text in frame[name]], index=frame.index)
        parts.append(settings)
    found: pd.DataFrame = pd.concat(parts, axis=1)
    return found


def _settings(name: str, text: str) -> dict[str, Any]:
    found = loaded(text or "{}")
    if isinstance(found, list) and all(isinstance(own, dict) for own in found):
        found = {key: [own.get(key) for own in found] for key in dict.fromkeys(key for own in found for key in own)}
    if not isinstance(found, dict):
        return {name: text}
    return {f"{name.removesuffix('_params')}.{key}": value for key, value in found.items()}
