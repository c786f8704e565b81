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
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

CURVE_BYTES = 64 * 2**20  # of one file, unpacked
COUNTS, ROUND, SCORE = "label_counts", "history.round", "per_client.score"
PARTS = ("history", "per_client")
SUMMED = ("history.upload_bytes", "history.download_bytes")  # stored as the increase per round
PER_ROUND, SCORE_IS = "_per_round", "per_client.score_is"
PER_RUN = 1024  # bytes of the key and lengths of a run
PLAIN = re.compile(r"\w{1,40}", re.ASCII)  # curve names that can be columns
LEVEL = 19  # of zstd
Stored = dict[str, Any]


class Ragged(NamedTuple):
    """One column of all runs. values: (values,) of all runs. bounds: (runs + 1,), the start of each run in values.
    there: (runs,), whether the run has the column. gaps: whether a value is missing (NaN)."""

    values: NDArray[Any]
    bounds: NDArray[np.int64]
    there: NDArray[np.bool_]
    gaps: bool

    @classmethod
    def of(cls, values: NDArray[Any], lengths: NDArray[np.int64]) -> Ragged:
        """A column of values, run after run. lengths: (runs,); -1 for a run without the column."""
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.maximum(lengths, 0))])
        return cls(values, bounds, lengths >= 0, bool(np.isnan(values).any()))

    def part(self, run: int) -> NDArray[Any]:
        """The values of a run; NaN for a missing value."""
        return self.values[self.bounds[run] : self.bounds[run + 1]]

    def of_run(self, run: int) -> list[Any]:
        """The values of a run; None for a missing value."""
        values: list[Any] = self.part(run).tolist()
        return [None if value != value else value for value in values] if self.gaps else values

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(runs,) number of values per run; -1 for a run without the column."""
        return np.where(self.there, np.diff(self.bounds), -1)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """(values,) the number of each value in its run, from 1."""
        starts = np.repeat(self.bounds[:-1], np.diff(self.bounds))
        return np.arange(1, len(self.values) + 1) - starts

    def reduced(self, by: np.ufunc, values: NDArray[Any], nothing: float) -> NDArray[np.float64]:
        """(runs,) reduce the part of each run by a ufunc. values: (values,). nothing: the result for a run without
        values."""
        results, some = np.full(len(self.there), nothing), np.diff(self.bounds) > 0
        if some.any():
            results[some] = by.reduceat(values, self.bounds[:-1][some])
        return results

    def any(self, odd: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(runs,) whether `odd` is true for any value of the run. odd: (values,)."""
        return self.reduced(np.logical_or, odd, 0.0) > 0


class CurveTable:
    """The curves of many runs, by their keys.

    columns: "history.score", "per_client.val", ..., "label_counts" (of a run: client after client). classes: (runs,)
    number of label counts per client.
    """

    def __init__(self, keys: list[str], columns: dict[str, Ragged], classes: NDArray[np.int64]) -> None:
        self.keys, self.columns, self.classes = keys, columns, classes
        self.place = {key: place for place, key in enumerate(keys)}

    @classmethod
    def of(cls, runs: Mapping[str, Stored]) -> CurveTable:
        """The table of runs in the form of `SideFiles.write_history`, sorted by key. Values other than lists of numbers
        raise an error of Python or NumPy, or `stored` returns something else."""
        keys = sorted(runs)
        flat = {key: dict(_flat(runs[key])) for key in keys}
        names = dict.fromkeys(name for run in flat.values() for name in run)
        widths = [set(map(len, runs[key].get(COUNTS, ()))) for key in keys]
        classes = np.array([min(width) if len(width) == 1 else 0 for width in widths], dtype=np.int64)
        columns = {}
        for name in names:
            lengths = np.array([len(run[name]) if name in run else -1 for run in flat.values()], dtype=np.int64)
            columns[name] = Ragged.of(_values(name, (run[name] for run in flat.values() if name in run)), lengths)
        return cls(keys, columns, classes)

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(column.values.nbytes for column in self.columns.values())

    def stored(self, key: str) -> Stored:
        """A run in the form of `SideFiles.write_history`. KeyError for an unknown key."""
        run, parts = self.place[key], Stored()
        for name, column in self.columns.items():
            if column.there[run]:
                part, dot, name_in_part = name.partition(".")
                if dot:
                    parts.setdefault(part, {})[name_in_part] = column.of_run(run)
                else:
                    parts[part] = self.counts(run).tolist()
        return parts

    def counts(self, run: int) -> NDArray[np.int64]:
        """(clients, classes) label counts of a run that has some; (0, 1) if clients differ in the number of classes."""
        counts, width = self.columns[COUNTS].part(run), int(self.classes[run])
        return counts.reshape(-1, width) if width > 0 and not len(counts) % width else np.zeros((0, 1), np.int64)


def _flat(stored: Stored) -> Iterable[tuple[str, list[Any]]]:
    for part in PARTS:
        yield from ((f"{part}.{name}", values) for name, values in stored.get(part, {}).items())
    if COUNTS in stored:
        yield COUNTS, list(chain.from_iterable(stored[COUNTS]))


def _values(name: str, lists: Iterable[list[Any]]) -> NDArray[Any]:
    """One array: int64 if all values are whole numbers, else float64 with NaN for None."""
    values = list(chain.from_iterable(lists))
    whole = name == COUNTS or set(map(type, values)) == {int}
    return np.array(values, dtype=np.int64 if whole else np.float64)


def room(runs: Iterable[Stored]) -> int:
    """An upper bound of the bytes of runs in memory."""
    return sum(PER_RUN + 8 * sum(len(values) for _, values in _flat(stored)) for stored in runs)


# -- Parquet -----------------------------------------------------------------------------------------------------------


def packed(table: CurveTable) -> bytes:
    """The bytes of a Parquet file with these runs; the same runs give the same bytes with the same pyarrow."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays: dict[str, Any] = {"key": pa.array(table.keys, pa.string())}
    columns = dict(table.columns)
    same = _same_scores(table)
    if any(same):
        arrays[SCORE_IS] = pa.array(same, pa.string())
        columns[SCORE] = _without(columns[SCORE], np.array([name is not None for name in same]))
    encodings, repeated = {}, ["key", SCORE_IS]
    for name, column in columns.items():
        if name == COUNTS:
            arrays[name] = _nested(column, table.classes)
        elif name in SUMMED and column.values.dtype.kind == "i":
            arrays[name + PER_ROUND] = _list(column._replace(values=_steps(column)))
            repeated.append(f"{name}{PER_ROUND}.list.element")
        else:
            arrays[name] = _list(column)
            if name == ROUND and column.values.dtype.kind == "i":
                encodings[f"{name}.list.element"] = "DELTA_BINARY_PACKED"
            elif name.startswith("history.") and column.values.dtype.kind == "f":
                encodings[f"{name}.list.element"] = "BYTE_STREAM_SPLIT"
    buffer = io.BytesIO()
    pq.write_table(
        pa.table(arrays),
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


def _same_scores(table: CurveTable) -> list[str | None]:
    """Per run: the metric with the same values per client as the score, or None."""
    score = table.columns.get(SCORE)
    others = [name for name in ("global_on_local", "personal_on_local") if f"per_client.{name}" in table.columns]
    same: list[str | None] = [None] * len(table.keys)
    for run in range(len(table.keys)) if score is not None else ():
        for name in others:
            other = table.columns[f"per_client.{name}"]
            if score.there[run] and other.there[run] and score.part(run).tobytes() == other.part(run).tobytes():  # type: ignore[union-attr]
                same[run] = name
    return same


def _without(column: Ragged, runs: NDArray[np.bool_]) -> Ragged:
    lengths = np.where(runs, -1, column.lengths)
    return Ragged.of(column.values[~np.repeat(runs, np.diff(column.bounds))], lengths)


def _steps(column: Ragged) -> NDArray[np.int64]:
    """(values,) the increase of each value over the previous value of its run, of the first over 0."""
    before = np.concatenate([np.zeros(1, np.int64), column.values[:-1]])
    before[column.numbers == 1] = 0
    steps: NDArray[np.int64] = column.values - before
    return steps


def _summed(column: Ragged) -> NDArray[np.int64]:
    """The reverse of `_steps`."""
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(column.values, dtype=np.int64)])
    values: NDArray[np.int64] = sums[1:] - np.repeat(sums[column.bounds[:-1]], np.diff(column.bounds))
    return values


def _list(column: Ragged) -> pa.Array:
    import pyarrow as pa

    values = column.values
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            short = values.astype(np.float32)
        values = short if np.array_equal(short, values, equal_nan=True) else values
    return _offset(column.bounds, column.there, pa.array(values, from_pandas=True))


def _nested(column: Ragged, classes: NDArray[np.int64]) -> pa.Array:
    """Label counts as lists of lists. The clients of a run must have the same number of classes."""
    import pyarrow as pa

    clients = np.diff(column.bounds) // np.maximum(classes, 1)
    inner = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.repeat(classes, clients))])
    counts = pa.ListArray.from_arrays(pa.array(inner, pa.int32()), pa.array(column.values.astype(np.int32)))
    return _offset(np.concatenate([np.zeros(1, np.int64), np.cumsum(clients)]), column.there, counts)


def _offset(bounds: NDArray[np.int64], there: NDArray[np.bool_], values: pa.Array) -> pa.Array:
    import pyarrow as pa

    offsets = pa.array(bounds.astype(np.int32), mask=np.append(~there, False))
    return pa.ListArray.from_arrays(offsets, values)


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
        return _table(table.combine_chunks())
    except (pa.ArrowException, OSError, OverflowError, MemoryError, TypeError, AttributeError) as error:
        text = str(error).strip()
        raise ValueError(text.splitlines()[0][:200] if text else type(error).__name__) from None


def _table(table: pa.Table) -> CurveTable:
    arrays = {name: table.column(name).combine_chunks() for name in table.column_names}
    if "key" not in arrays or len(arrays) != table.num_columns:
        raise ValueError("no column 'key', or two of one name")
    keys: list[str] = arrays.pop("key").to_pylist()
    if len(set(keys)) != len(keys) or not all(isinstance(key, str) for key in keys):
        raise ValueError("a key occurs twice or is none")
    same = arrays.pop(SCORE_IS).to_pylist() if SCORE_IS in arrays else []
    columns, classes = dict[str, Ragged](), np.zeros(len(keys), np.int64)
    for name, array in arrays.items():
        if name == COUNTS:
            columns[name], classes = _unnested(array)
            continue
        if name.partition(".")[:2] not in {(part, ".") for part in PARTS}:
            raise ValueError(f"columns are not made of {', '.join((*PARTS, COUNTS))}")
        column = _ragged(array)
        summed = name.removesuffix(PER_ROUND)
        if summed in SUMMED and name != summed:
            column = column._replace(values=_summed(column))
        columns[summed if summed in SUMMED else name] = column
    if any(same):
        columns[SCORE] = _restored(columns, same)
    return CurveTable(keys, columns, classes)


def _ragged(array: pa.Array) -> Ragged:
    values = array.flatten().to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "if":
        raise ValueError(f"a column of the kind {array.type}")
    wide = values.astype(np.int64 if values.dtype.kind == "i" else np.float64)
    return Ragged.of(wide, _lengths(array))


def _lengths(array: pa.Array) -> NDArray[np.int64]:
    """(lists,) the length of each list; -1 for null."""
    lengths: NDArray[np.int64] = array.value_lengths().fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _unnested(array: pa.Array) -> tuple[Ragged, NDArray[np.int64]]:
    """(label counts, classes per run)."""
    clients, inner = _lengths(array), array.flatten()
    values, widths = inner.flatten().to_numpy(zero_copy_only=False), _lengths(inner)
    if values.dtype.kind != "i":
        raise ValueError(f"{COUNTS} of the kind {array.type}")
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.maximum(clients, 0))])[:-1]
    some = clients > 0
    classes = np.zeros(len(clients), np.int64)
    classes[some] = widths[starts[some]]
    if not np.array_equal(np.repeat(classes, np.maximum(clients, 0)), widths):
        raise ValueError(f"{COUNTS} of a run are of several lengths")
    return Ragged.of(values.astype(np.int64), np.where(clients >= 0, clients * classes, -1)), classes


def _restored(columns: dict[str, Ragged], same: list[str | None]) -> Ragged:
    """The scores per client, including those that were left out because another metric has the same values."""
    if SCORE not in columns:
        raise ValueError(f"{SCORE_IS} without {SCORE}")
    score = columns[SCORE]
    if any(name is not None and f"per_client.{name}" not in columns for name in same):
        raise ValueError(f"{SCORE_IS} names a metric that is not there")
    origin = [columns[f"per_client.{name}"] if name is not None else score for name in same]
    lengths = np.array([column.lengths[run] for run, column in enumerate(origin)], dtype=np.int64)
    parts = [column.part(run) for run, column in enumerate(origin)]
    return Ragged.of(np.concatenate([np.zeros(0), *parts]), lengths)
