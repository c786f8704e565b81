"""Curves in Parquet and as untrusted files: exact, bounded in size, and one-line errors for damaged files."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from fglbench.benchmark.store import Store, curves, packing, side_files
from fglbench.benchmark.store.provenance import canonical
from fglbench.benchmark.submission import curves as checked_curves
from fglbench.benchmark.submission.read import LARGE
from fglbench.benchmark.suites.cell import Cell
from fglbench.benchmark.suites.suite import load_suite
from fglbench.registry import UserError

from .test_store import make_row

NUMBERS = st.lists(
    st.none() | st.floats(width=32, allow_nan=False) | st.integers(-(10**17), 10**17) | st.floats(0, 1), max_size=4
)
RUNS = st.fixed_dictionaries(
    {},
    optional={
        "history": st.dictionaries(
            st.sampled_from(["round", "val", "score", "upload_bytes", "download_bytes"]), NUMBERS, max_size=5
        ),
        "per_client": st.dictionaries(
            st.sampled_from(["val", "score", "global_on_local", "personal_on_local"]),
            st.lists(st.sampled_from([None, 0.25, 0.5]) | st.floats(0, 1), max_size=2),
            max_size=4,
        ),
        "label_counts": st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=3),
    },
)
EXAMPLE: dict[str, Any] = {
    "history": {
        "round": [1, 2, 3],
        "score": [0.5, 0.25, 0.75],
        "val": [0.5, None, 0.1],
        "upload_bytes": [2**53 + 1, 2**53 + 2, 2**60],
        "download_bytes": [10, 20, 30],
    },
    "per_client": {"score": [0.25, None], "personal_on_local": [0.25, None], "val": [0.5, 0.125]},
    "label_counts": [[2, 0], [1, 1]],
}


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), RUNS, max_size=4))
def test_runs_that_fit_are_read_as_they_were_written(stored: dict[str, Any]) -> None:
    """With their types, alone and beside others."""
    kinds = dict[str, str]()
    fitting = {key: run for key, run in stored.items() if packing._fits(run, kinds)}
    table = curves.parse(curves.packed(fitting))
    assert sorted(table.keys) == sorted(fitting)
    assert all(canonical(table.stored(key)) == canonical(run) for key, run in fitting.items())


def test_integers_stay_integers_and_floats_stay_floats() -> None:
    kinds = dict[str, str]()
    assert packing._fits(EXAMPLE, kinds)
    assert {name: kinds[name] for name in ("history.round", "history.val", "label_counts")} == {
        "history.round": "i", "history.val": "f", "label_counts": "i",
    }  # fmt: skip
    mixed, whole = {"history": {"val": [1, 0.5]}}, {"history": {"val": [1, 2]}}
    assert packing._fits(whole, {}) and not packing._fits(whole, kinds)
    ragged, long = {"label_counts": [[1], [1, 2]]}, {"history": {"round": [10**30]}}
    wide, taken = {"label_counts": [[2**31]]}, {"history": {"upload_bytes_per_round": [1, 2]}}
    for odd in (mixed, ragged, long, wide, taken, {"history": {}}, {"more": 1}, {"history": [1]}, [1]):
        assert not packing._fits(odd, {})


def test_pyarrow_reads_the_values_without_fglbench() -> None:
    """As the documentation says: a row per run, bytes per round as exact integers, no column of seconds."""
    (row,) = pq.read_table(io.BytesIO(curves.packed({"k": EXAMPLE}))).to_pylist()
    assert row["key"] == "k" and row["label_counts"] == [[2, 0], [1, 1]]
    assert row["history.score"] == [0.5, 0.25, 0.75]
    assert row["history.val"] == EXAMPLE["history"]["val"]  # 0.1 needs 64 bits
    assert row["history.upload_bytes_per_round"] == [2**53 + 1, 1, 2**60 - 2**53 - 2]
    assert row["history.download_bytes_per_round"] == [10, 10, 10] and row["history.round"] == [1, 2, 3]
    assert row["per_client.score_is"] == "personal_on_local" and row["per_client.score"] is None
    assert not any("seconds" in name for name in row)


def test_the_bytes_depend_on_the_runs_only() -> None:
    runs = {"b": EXAMPLE, "a": {"history": {"val": [0.5]}}}
    assert curves.packed(runs) == curves.packed(dict(reversed(runs.items())))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"history.val": [[0.5]]}, "no column 'key'"),
        ({"key": ["a", "a"], "history.val": [[0.5], [0.5]]}, "a key occurs twice"),
        ({"key": [None], "history.val": [[0.5]]}, "a key occurs twice or is none"),
        ({"key": ["a"], "secret": [[0.5]]}, "columns are not made of history, per_client, label_counts"),
        ({"key": ["a"], "history.a b": [[0.5]]}, "columns are not made of history, per_client, label_counts"),
        ({"key": ["a"], "history.val": [["text"]]}, r"history\.val of the kind list<string>"),
        ({"key": ["a"], "history.val": [0.5]}, r"history\.val of the kind double"),
        ({"key": ["a"], "history.val": [{"x" * 999: 1}]}, r"history\.val of the kind struct<"),
        ({"key": ["a"], "history.round": [[1, None]]}, r"history\.round has missing whole numbers"),
        ({"key": ["a"], "history.upload_bytes_per_round": [[0.5]]}, "_per_round of the kind list<double>"),
        ({"key": ["a"], "label_counts": [[[0.5]]]}, "label_counts of the kind"),
        ({"key": ["a"], "label_counts": [[[1], [1, 2]]]}, "label_counts of a run are of several lengths"),
        ({"key": ["a"], "label_counts": [[[1], None]]}, "label_counts of a run are of several lengths"),
        ({"key": ["a"], "label_counts": [[[1], [None]]]}, "label_counts has missing whole numbers"),
        ({"key": ["a"], "per_client.val": [[0.5]], "per_client.score": pa.array([None], pa.list_(pa.float32())),
          "per_client.score_is": ["global_on_local"]}, "score_is names a metric"),
        ({"key": ["a"], "per_client.val": [[0.5]], "per_client.score_is": ["val"]},
         r"per_client\.score_is without per_client\.score"),
    ],
)  # fmt: skip
def test_another_table_is_refused_in_one_line(columns: dict[str, Any], reason: str) -> None:
    refused(pa.table(columns), reason)


def test_two_columns_of_one_name_are_refused() -> None:
    refused(pa.table([["a"], ["b"], [[0.5]]], names=["key", "key", "history.val"]), "two of one name")


def refused(table: pa.Table, reason: str) -> None:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    with pytest.raises(ValueError, match=reason) as caught:
        curves.parse(buffer.getvalue())
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_file_is_a_value_error(data: st.DataObject) -> None:
    content = bytearray(curves.packed({"a": EXAMPLE, "b": EXAMPLE}))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.just(len(content)) | st.integers(0, len(content)))]
    with suppress(ValueError):
        table = curves.parse(bytes(content))
        assert all(table.stored(key) is not None for key in table.keys)


def test_a_file_that_unpacks_to_more_than_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    content = curves.packed({"a": {"history": {"val": [0.5] * 100_000}}})
    assert len(content) < 5000
    monkeypatch.setattr(curves, "CURVE_BYTES", 2**17)
    with pytest.raises(ValueError, match="more than 0 MiB unpacked"):
        curves.parse(content)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """With four rows of each of two methods, whose curves are in files of their own."""
    store = Store(tmp_path / "results")
    store.prepare(["s"])
    for method in ("fedavg", "local"):
        for seed in range(4):
            key = f"{method[0]}{seed}"
            store.append_row(make_row(key, method=method))
            val = [seed / 4 + step / 1000 for step in range(8)]
            store.write_history("s", key, {**EXAMPLE, "history": {"round": [*range(1, 9)], "val": val, "score": val}})
    return store


def histories(store: Store) -> dict[str, Any]:
    return {row.key: store.history("s", row.key) for row in store.rows("s")}


def files(store: Store) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (store.root / "s" / "curves").iterdir()}


def loose(store: Store) -> set[str]:
    return {path.name.removesuffix(".json.gz") for path in (store.root / "s" / "history").iterdir()}


def test_packing_keeps_every_value_and_is_done_once(store: Store) -> None:
    before = histories(store)
    assert packing.pack(store, "s") == (8, 0)
    content = files(store)
    assert sorted(content) == ["fedavg.parquet", "local.parquet"] and not loose(store)
    assert histories(store) == histories(Store(store.root)) == before
    assert packing.pack(store, "s") == (0, 0) and files(store) == content


def test_a_later_run_replaces_the_earlier_one(store: Store) -> None:
    packing.pack(store, "s")
    new = {**(store.history("s", "l0") or {}), "per_client": {"score": [0.25]}}
    store.write_history("s", "l0", new)
    assert store.history("s", "l0") == Store(store.root).history("s", "l0") == new
    assert packing.pack(store, "s") == (1, 0)
    assert store.history("s", "l0") == Store(store.root).history("s", "l0") == new


def test_runs_that_are_running_or_damaged_keep_their_file(store: Store) -> None:
    lock = Store(store.root).claim("s", "f0")
    store.history_file("s", "f1").write_bytes(b"\x1f\x8bno more")
    assert packing.pack(store, "s") == (6, 2) and loose(store) == {"f0", "f1"}
    Store(store.root).unclaim(lock)
    assert packing.pack(store, "s") == (1, 1)


def test_a_crash_before_the_old_files_are_removed_loses_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = histories(store)
    with monkeypatch.context() as patch:
        unlink = Path.unlink

        def crash(path: Path, **how: bool) -> None:
            if path.suffix == ".gz":
                raise KeyboardInterrupt
            unlink(path, **how)

        patch.setattr(Path, "unlink", crash)
        with pytest.raises(KeyboardInterrupt):
            packing.pack(store, "s")
    assert len(loose(store)) == 8 and "fedavg.parquet" in files(store)
    assert packing.pack(store, "s") == (8, 0) and histories(store) == before


def test_a_full_file_is_not_changed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three runs of four fit into the first file of each method."""
    before = histories(store)
    most = max(map(curves.room, before.values()))
    monkeypatch.setattr(packing, "PART_BYTES", int(3.5 * most))
    assert packing.pack(store, "s") == (8, 0)
    content = files(store)
    assert sorted(content) == ["fedavg.parquet", "fedavg@2.parquet", "local.parquet", "local@2.parquet"]
    assert [len(curves.parse(content[f"local{part}.parquet"]).keys) for part in ("", "@2")] == [3, 1]
    assert histories(Store(store.root)) == before
    first = curves.parse(content["local.parquet"]).keys[0]
    new = {**before[first], "per_client": {"score": [0.25]}}
    store.write_history("s", first, new)
    assert packing.pack(store, "s") == (1, 0)  # into the file of the earlier run, though that is full
    assert [name for name, data in files(store).items() if data != content[name]] == ["local.parquet"]
    assert Store(store.root).history("s", first) == new


def test_runs_larger_than_a_file_may_be_keep_their_own(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    before = histories(store)
    monkeypatch.setattr(curves, "CURVE_BYTES", packing.HEADS + 100)
    assert packing.pack(store, "s") == (0, 8) and histories(store) == before


def test_nothing_is_added_next_to_a_damaged_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runs are not known, and might then stand in two files."""
    monkeypatch.setattr(packing, "PART_BYTES", 0)
    packing.pack(store, "s")
    run = store.history("s", "l3")
    store.columns_file("s", "local", 2).write_bytes(b"no Parquet")
    store.write_history("s", "l3", run or {})
    with pytest.raises(UserError, match=r"local@2\.parquet: .*; take it from version control again"):
        packing.pack(Store(store.root), "s")
    assert store.history_file("s", "l3").exists()


def test_the_files_of_a_suite_are_bounded_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    packing.pack(store, "s")
    assert not Store(store.root).columns("s").damaged
    monkeypatch.setattr(side_files, "SUITE_BYTES", 100)
    assert set(Store(store.root).columns("s").damaged.values()) == {
        "the files of a suite hold more than 0 MiB unpacked"
    }


def test_packed_values_are_read_back_and_damage_is_detected() -> None:
    text = b'{"history":{"round":[1,2],"val":[0.5,null]}}'
    packed = gzip.compress(text, mtime=0)
    assert side_files.unpacked(packed) == json.loads(text)
    for broken in (
        packed[:-9],
        packed[:-1],
        packed[:20] + b"\0" + packed[21:],
        packed + b"more",
        b"",
        gzip.compress(b"[" * 9**5),
    ):
        with pytest.raises((OSError, EOFError, ValueError, zlib.error)):
            side_files.unpacked(broken)


@given(
    st.lists(st.none() | st.floats() | st.integers(-(10**16), 10**16) | st.booleans() | st.just(10**400), max_size=6)
)
def test_numbers_of_valid_size_are_checked_one_by_one(values: list[object]) -> None:
    def sane(value: object) -> bool:
        return value is None or (type(value) in (int, float) and -LARGE < value < LARGE)

    assert checked_curves._numbers(values) == all(map(sane, values))


@given(st.lists(st.none() | st.floats(0, 3, width=16), min_size=1, max_size=9))
def test_the_best_round_is_the_first_of_the_best(values: list[float | None]) -> None:
    history = {"round": [*range(1, len(values) + 1)], "val": values, "val_loss": values}
    for rule, sign in (("val_accuracy", 1), ("val_loss", -1)):
        worth = [number if value is None else sign * value for number, value in enumerate(values, 1)]
        best = 1 + min(i for i, one in enumerate(worth) if one == max(worth))
        assert not problems_of_best_round(best, rule, history)
        assert problems_of_best_round(best + 1, rule, history) == [f"best round {best + 1}, but by {rule} it is {best}"]
    assert not problems_of_best_round(len(values), "last", history)
    assert problems_of_best_round(1, "val_loss", {"round": [1]}) == [
        "there is no curve of val_loss, by which the best round is chosen"
    ]


def problems_of_best_round(best: int, rule: str, history: dict[str, list[Any]]) -> list[str]:
    settings = SimpleNamespace(effective=SimpleNamespace(select_by=rule))
    row = SimpleNamespace(best_round=best, score_metric="accuracy")
    return list(checked_curves._best_round(SimpleNamespace(row=row, settings=settings), history))


def test_a_cell_at_another_seed_is_that_cell() -> None:
    for cell in load_suite("quick").cells()[:6]:
        fields = {name: getattr(cell, name) for name in Cell.model_fields}
        other, anew = cell.at(77), Cell(**{**fields, "seed": 77})
        assert other == anew
        for what in ("identity", "key", "federation_key", "seedless"):
            assert getattr(other, what) == getattr(anew, what)
            assert (getattr(other, what) == getattr(cell, what)) == (what == "seedless")
