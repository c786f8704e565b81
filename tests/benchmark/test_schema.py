"""One schema for all rows, and columns that are declared once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fglbench.benchmark.engine.outcome import Outcome
from fglbench.benchmark.store import Store, row_file
from fglbench.benchmark.store.schema import COLUMNS, SCHEMA_VERSION, Row, Standing
from fglbench.metrics import METRICS
from fglbench.registry import UserError

from .test_store import make_row as row

RESULTS = Path(__file__).resolve().parents[2] / "results"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """With two rows, the second with a line break of Windows."""
    store = Store(tmp_path / "results")
    store.prepare(["s"])
    lines = row_file.line(row("a", score=0.5)), row_file.line(row("b", score=0.25)).replace(b"\n", b"\r\n")
    store.file("s", "fedavg").write_bytes(row_file.header() + b"".join(lines))
    return store


def test_every_stored_row_is_parsed_and_written_identically() -> None:
    number = 0
    for path in sorted(RESULTS.glob("*/*.csv")):
        for at, line, fields in row_file.split(path):
            assert fields is not None and fields == row_file.fields_of(line)
            assert row_file.line(row_file.parse(Row, path, at, fields)) == line, f"{path}:{at}"
            number += 1
    assert number > 2900


@pytest.mark.parametrize("torn", [b'"', b"\0", b"\xff", b'a"b"\n"c', b"\n"])
def test_a_damaged_line_costs_no_other_line(store: Store, torn: bytes) -> None:
    path = store.file("s", "fedavg")
    good = row_file.line(row("c")), row_file.line(row("d"))
    path.write_bytes(row_file.header() + good[0] + torn + b"\n" + good[1])
    with pytest.warns(UserWarning, match="damaged"):
        assert [stored.key for stored in row_file.read(Row, path)] == ["c", "d"]


def test_status_reads_the_same_values_as_a_full_row() -> None:
    path = RESULTS / "graph" / "fedavg.csv"
    whole, brief = row_file.read(Row, path), row_file.read(Standing, path)
    assert [stored.model_dump() for stored in brief] == [
        stored.model_dump(include=set(Standing.model_fields)) for stored in whole
    ]
    assert [stored.rising for stored in brief] == [stored.rising for stored in whole]


def test_all_stored_rows_have_one_header_and_the_columns_of_each_other_schema_in_front() -> None:
    paths = [*RESULTS.glob("*/*.csv"), *RESULTS.glob("tuning/*/*.csv")]
    assert {path.read_bytes().partition(b"\n")[0] + b"\n" for path in paths if path.parent.name != "tables"} == {
        row_file.header()
    }
    first = COLUMNS.index("submitter") + 1
    assert COLUMNS[first : first + 4] == ["reference", "code", "origin", "roc_auc"]
    assert sorted(COLUMNS) == sorted(Row.model_fields)


def test_an_interrupted_append_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)

    def full(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(UserError, match="no space left"):
        store.append_row(row("c"))
    assert not store.file("s", "fedavg").exists()


def test_rows_of_another_version_are_refused_and_not_damaged(store: Store) -> None:
    path = store.file("s", "fedavg")
    before = path.read_bytes()
    older = b",".join(row_file.line(row("c", schema_version=2)).split(b",")[:-10]) + b"\n"
    path.write_bytes(before + older)
    for act in (lambda: store.rows("s"), lambda: store.append_row(row("d")), lambda: store.prepare(["s"])):
        with pytest.raises(UserError, match=r"fedavg.csv:4: written in result schema 2; move the file away"):
            act()
    newer = row_file.line(row("c", schema_version=SCHEMA_VERSION + 1)).replace(b"\n", b",new\n")
    path.write_bytes(before + newer)
    with pytest.raises(UserError, match=f"schema {SCHEMA_VERSION + 1}; this fglbench reads up to {SCHEMA_VERSION}"):
        store.append_row(row("d"))
    path.write_bytes(before.replace(b"schema_version,", b"version,", 1))
    message = rf"not that of result schema {SCHEMA_VERSION} \(unknown 'version' and missing 'schema_version'\); "
    with pytest.raises(UserError, match=message):
        store.rows("s")
    path.write_bytes(before.replace(b",peak_device_memory_mb\n", b"\n", 1))
    with pytest.raises(UserError, match=r"missing 'peak_device_memory_mb'.*move the file away"):
        store.rows("s")
    assert not path.with_name("fedavg.csv.damaged").exists()


def test_rows_that_break_the_rules_of_columns_are_stored(store: Store) -> None:
    """The rules of columns are for `validate`; no result of a run is lost."""
    wild = row("d", error="x" * 5000, notes="\x07", git_sha="none", upload_bytes=-1, train_seconds=float("inf"))
    store.append_row(wild)
    assert store.find("s", "fedavg", "d") == wild


def test_the_outcome_is_the_figures_of_a_row() -> None:
    assert list(METRICS) == list(Outcome.model_fields)[: len(METRICS)]
    assert set(METRICS) < set(Row.model_fields)
    history = {"upload_bytes": [1, 2], "val": [0.5, float("nan")]}
    kept = Outcome(score=0.5, history=history)
    assert kept.history is history  # integers stay integers in the curves


NEW_METRIC = """
    from typing import Annotated
    from pydantic import Field
    from fglbench import metrics

    class Metrics(metrics.Metrics):
        auc: Annotated[metrics.Fraction, metrics.Column(
            needed=True, measure="auc", floor=0.02, curve="auc"
        )] = Field(None, description="area under the curve")

    metrics.Metrics, metrics.METRICS = Metrics, metrics.columns(Metrics)
    metrics.CURVES = [*metrics.CURVES, "auc"]

    from fglbench.benchmark.engine.outcome import Outcome
    from fglbench.benchmark.store import row_file, schema
    from fglbench.benchmark.submission import curves, read
    from fglbench.report import board, tables

    assert "auc" in schema.COLUMNS and b",auc," in row_file.header()
    assert Outcome(auc=0.5).columns()["auc"] == 0.5
    assert "auc" in board.MEASURES and "auc" in tables.MEASURES
    old = dict(key="k", suite="s", task="node", dataset="d", dataset_params="{}", partition="p", partition_params="{}",
        clients=1, split="s", split_params="{}", backbone="gcn", backbone_params="{}", method="m", method_version="v",
        method_params="{}", training="{}", seed=0, status="ok", started="", environment="e", rounds=1, best_round=1)
    new = schema.Row(**old, auc=0.5)
    row = schema.Row(**old)
    line = read.Line("f", 1, "f:1", b"", row, read.Settings(row, {}))
    problems = [what for what, _ in read.problems(line)]
    assert any("without" in what and "auc" in what for what in problems)
    history = dict.fromkeys(metrics.CURVES, [1.0])
    assert list(curves._figures(new, history))[-1].startswith("auc is 0.5 in the")
    assert "auc" in curves.malformed({"history": {"round": [1]}}, new)
"""


def test_a_new_metric_is_one_edit() -> None:
    """One more field of the model is a column and a figure for all readers."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(NEW_METRIC)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("best", "rounds", "training", "rising"),
    [
        (96, 100, "{}", True),  # 96 to 100 are the last 5 of 100
        (95, 100, "{}", False),
        (100, 100, '{"patience":50}', True),
        (196, 200, '{"patience":4}', False),  # ended by its patience, though within the last 5%
        (197, 200, '{"patience":4}', True),
        (100, 100, '{"select":"last"}', False),
        (101, 100, "{}", False),
        (1, 1, "{}", False),  # methods without training, such as the majority class
        (2, 2, "{}", True),
        (None, None, "{}", False),
        (100, 100, "not JSON", True),
        (100, 100, '{"patience":"long"}', True),
    ],
)
def test_a_row_has_not_converged_if_its_best_round_is_among_the_last(best, rounds, training, rising) -> None:
    stored = row("a", best_round=best, rounds=rounds, val=0.5).model_copy(update={"training": training})
    assert stored.rising is rising
    assert not stored.model_copy(update={"val": None}).rising
