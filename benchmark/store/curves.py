"""The curves of many runs in one Parquet file: a row per run, a list column per curve.

    key                                string
    history.round                      list<int64>
    history.<curve>                    list<float>: one value per round; null where the value does not exist
    history.<curve>_per_round          list<int64>: what one round adds to a curve of whole numbers (bytes)
    per_client.<metric>                list<float>: one value per client
    per_client.score_is                string: the metric with the same values as per_client.score, which is left out
    label_counts                       list<list<int32>>: per client, the number of nodes (graphs) per class

Values are exact: a column has 32 bits if all of its values are 32-bit floats, else 64. A null list means that the run
has no such curve.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

CURVE_BYTES = 64 * 2**20  # of one file, unpacked
COUNTS, ROUND, SCORE, SCORE_IS = "label_counts", "history.round", "per_client.score", "per_client.score_is"
PARTS = ("history", "per_client")
CURVE = re.compile(rf"({'|'.join(PARTS)})\.\w{{1,40}}", re.ASCII)
STEPS = {f"{name}_per_round": name for name in ("history.upload_bytes", "history.download_bytes")}  # column -> curve
SAME = ("personal_on_local", "global_on_local")  # metrics that the score may be
PER_RUN = 1024  # bytes of the key and lengths of a run
LEVEL = 19  # of zstd
Stored = dict[str, Any]


class CurveTable:
    """The curves of many runs. The values of a run become Python numbers when the run is asked for.

    keys: of the runs, in the order of the rows. kinds: curve ("history.score") -> "i" if its values are whole numbers,
    else "f". size: bytes in memory.
    """

    def __init__(self, table: pa.Table) -> None:
        """ValueError or TypeError if `table` does not have the form above."""
        columns = {name: table.column(place).combine_chunks() for place, name in enumerate(table.column_names)}
        if "key" not in columns or len(columns) != table.num_columns:
            raise ValueError("no column 'key', or two of one name")
        self.keys: list[str] = columns.pop("key").to_pylist()
        if len(set(self.keys)) != len(self.keys) or not all(isinstance(key, str) for key in self.keys):
            raise ValueError("a key occurs twice or is none")
        same = columns.pop(SCORE_IS).to_pylist() if SCORE_IS in columns else []
        self.kinds = {STEPS.get(name, name): _kind(name, column) for name, column in columns.items()}
        self.size = int(table.nbytes)
        self._columns = columns
        self._place = {key: place for place, key in enumerate(self.keys)}
        self._score = {place: f"per_client.{name}" for place, name in enumerate(same) if name is not None}
        if self._score and SCORE not in columns:
            raise ValueError(f"{SCORE_IS} without {SCORE}")
        if not set(self._score.values()) <= set(columns):
            raise ValueError(f"{SCORE_IS} names a metric that is not there")

    def stored(self, key: str) -> Stored:
        """Return a run in the form of `SideFiles.write_history`. KeyError for an unknown key."""
        place, stored = self._place[key], Stored()
        for name in self._columns:
            of_run = self._columns[self._score.get(place, name) if name == SCORE else name][place]
            if not of_run.is_valid:
                continue
            values = np.cumsum(of_run.values.to_numpy()).tolist() if name in STEPS else of_run.as_py()
            part, _, curve = STEPS.get(name, name).partition(".")
            (stored.setdefault(part, {}) if curve else stored)[curve or part] = values
        return stored


def _kind(name: str, column: pa.Array) -> str:
    """Return "i" if the values of a column are whole numbers, else "f". ValueError if these are no curves."""
    known = "list<int64>" if name in STEPS else "list<(int64|float|double)>"
    if name == COUNTS:
        known = "list<list<int(32|64)>>"
    elif not CURVE.fullmatch(name):
        raise ValueError(f"columns are not made of {', '.join((*PARTS, COUNTS))}")
    kind = re.sub(r"\w+: ", "", str(column.type))  # without the names of list elements
    if not re.fullmatch(known, kind):
        raise ValueError(f"{name} of the kind {kind}")
    values = column.values
    if name == COUNTS:
        lengths = values.value_lengths().fill_null(-1).to_numpy()
        if not set(np.flatnonzero(np.diff(lengths)) + 1) <= set(column.offsets.to_pylist()):
            raise ValueError(f"{COUNTS} of a run are of several lengths")
        values = values.values
    if "int" in kind and values.null_count:
        raise ValueError(f"{name} has missing whole numbers")
    return "i" if "int" in kind else "f"


def room(stored: Stored) -> int:
    """Return an upper bound of the bytes of a run in memory."""
    curves = (values for part in PARTS for values in stored.get(part, {}).values())
    return PER_RUN + 8 * sum(map(len, chain(curves, stored.get(COUNTS, ()))))


def table_of(runs: Mapping[str, Stored]) -> pa.Table:
    """Return the table of runs in the form of `SideFiles.write_history`, sorted by key. Values other than lists of
    numbers raise an error of Python or pyarrow, or are changed."""
    import pyarrow as pa

    keys = sorted(runs)
    rows = [_row(runs[key]) for key in keys]
    arrays = {"key": pa.array(keys, pa.string())}
    for name in sorted(dict.fromkeys(chain.from_iterable(rows)), key=lambda name: name != SCORE_IS):
        values = [row.get(name) for row in rows]
        if name == SCORE_IS:
            arrays[name] = pa.array(values, pa.string())
        elif name == COUNTS:
            arrays[name] = pa.array(values, pa.list_(pa.list_(pa.int32())))
        elif set(map(type, chain.from_iterable(filter(None, values)))) != {int}:
            arrays[name] = _fractions(values)
        elif name in STEPS.values():
            steps = [None if each is None else np.diff(np.array(each, np.int64), prepend=0) for each in values]
            arrays[f"{name}_per_round"] = pa.array(steps, pa.list_(pa.int64()))
        else:
            arrays[name] = pa.array(values, pa.list_(pa.int64()))
    return pa.table(arrays)


def _row(stored: Stored) -> dict[str, Any]:
    """Return the values of a run by column, without scores that are those of another metric."""
    row = {f"{part}.{name}": values for part in PARTS for name, values in stored.get(part, {}).items()}
    if COUNTS in stored:
        row[COUNTS] = stored[COUNTS]
    for name in SAME if SCORE in row else ():
        if repr(row.get(f"per_client.{name}")) == repr(row[SCORE]):
            return row | {SCORE: None, SCORE_IS: name}
    return row


def _fractions(values: list[Any]) -> pa.Array:
    """Return a column of 32 bits if that is exact, else of 64."""
    import pyarrow as pa

    wide = pa.array(values, pa.list_(pa.float64()), from_pandas=True)
    short = wide.cast(pa.list_(pa.float32()), safe=False)
    return short if short.cast(wide.type).equals(wide) else wide


def packed(runs: Mapping[str, Stored]) -> bytes:
    """Return the bytes of a Parquet file with these runs; the same runs give the same bytes with the same pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table, buffer = table_of(runs), io.BytesIO()
    encodings, repeated = {}, ["key", SCORE_IS]
    for field in table.schema:
        values = f"{field.name}.list.element"
        if field.name in STEPS:
            repeated.append(values)
        elif field.name == ROUND and field.type == pa.list_(pa.int64()):
            encodings[values] = "DELTA_BINARY_PACKED"
        elif field.name.startswith("history.") and field.type != pa.list_(pa.int64()):
            encodings[values] = "BYTE_STREAM_SPLIT"
    pq.write_table(
        table,
        buffer,
        compression="zstd",
        compression_level=LEVEL,
        use_dictionary=repeated,
        column_encoding=encodings,
        write_statistics=False,
        data_page_size=CURVE_BYTES,
        store_schema=False,
    )
    return buffer.getvalue()


def read_curves(path: Path) -> CurveTable:
    """Read the runs of a file. OSError if it cannot be read, ValueError (one line) if it is damaged."""
    return parse(path.read_bytes())


def parse(content: bytes) -> CurveTable:
    """Parse the bytes of a file. ValueError (one line) if it is damaged or too large."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(io.BytesIO(content))
        groups = [file.metadata.row_group(place) for place in range(file.metadata.num_row_groups)]
        if sum(group.total_byte_size for group in groups) > CURVE_BYTES:
            raise ValueError(f"more than {CURVE_BYTES >> 20} MiB unpacked")
        table = file.read(use_threads=False)
        table.validate(full=True)
        return CurveTable(table)
    except (pa.ArrowException, OSError, OverflowError, MemoryError, TypeError, AttributeError, ValueError) as error:
        text = str(error).strip()
        raise ValueError(text.splitlines()[0][:200] if text else type(error).__name__) from None
