"""Which cells of a table's suite its readings ask for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from ...benchmark.store.schema import Row
from ...registry import did_you_mean
from ..papers import printed, tables
from .match import SuiteRows


def of_readings(suite: str, names: Sequence[str], rows: Iterable[Row]) -> set[str]:
    """The keys of those of a suite's rows that stand for a printed figure under one of the readings, by its short name.

    A reading that differs from the first in the round alone has the first one's cells. UserError for an unknown name.
    """
    paper, table = tables()[suite]
    known = {reading.id: reading for reading in paper.readings_of(table) if reading.id}
    for name in names:
        if name not in known:
            raise did_you_mean(name, known, f"reading of {suite}")
    words = [own for figure in paper.rows(table, printed()) for own in paper.meanings(table, figure)]
    filters = [where for name in names for own in words for where in paper.cells(table, known[name], own)]
    found = SuiteRows(pd.DataFrame([row.model_dump() for row in rows], columns=list(Row.model_fields)))
    return {str(key) for where in filters for key in found.select(where, ["key"])["key"]}
