"""Rows of several schemas in one file, and columns that are said once."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fglbench.benchmark.engine import Outcome
from fglbench.benchmark.store import Store, load_results, rowfile
from fglbench.benchmark.store.schema import COLUMNS, RULES, SCHEMA_VERSION, WIDTHS, Row
from fglbench.metrics import METRICS
from fglbench.registry import UserError

RESULTS = Path(__file__).resolve().parents[2] / "results"
FIRST = (  # the header of every file that schema 1 wrote, as in results/quick/fedavg.csv
    b"schema_version,key,suite,task,dataset,dataset_params,dataset_fingerprint,synthetic,source,partition,"
    b"partition_params,partition_hash,clients,split,split_params,backbone,backbone_params,method,method_version,"
    b"method_params,training,seed,status,error,notes,score,score_metric,val,macro_f1,score_weighted,global_on_global,"
    b"global_on_local,personal_on_global,personal_on_local,best_round,rounds,upload_bytes,download_bytes,"
    b"upload_bytes_best,download_bytes_best,train_seconds,total_seconds,peak_memory_mb,started,git_sha,git_dirty,"
    b"environment,device,submitter\n"
)


def row(key: str, *, method: str = "fedavg", **values: object) -> Row:
    return Row(
        key=key, suite="s", task="node", dataset="cora", dataset_params="{}", partition="louvain",
        partition_params='{"a":1,"b":"x, y"}', clients=10, split="ratio", split_params="{}", backbone="gcn",
        backbone_params="{}", method=method, method_version="abc", method_params="{}", training="{}", seed=0,
        status="ok", started="2026-01-01T00:00:00Z", environment="e", **values,
    )  # fmt: skip


def old(key: str, **values: object) -> Row:
    return row(key, schema_version=1, **values)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """With a file that schema 1 wrote: two rows, the second with a line break of Windows."""
    store = Store(tmp_path / "results")
    store.prepare(["s"])
    lines = rowfile.line(old("a", score=0.5)), rowfile.line(old("b", score=0.25)).replace(b"\n", b"\r\n")
    store.file("s", "fedavg").write_bytes(FIRST + b"".join(lines))
    return store


def test_the_columns_of_old_files_are_the_first_of_a_line() -> None:
    names = FIRST.decode().strip().split(",")
    assert COLUMNS[: WIDTHS[1]] == names
    assert COLUMNS[WIDTHS[1] : WIDTHS[2]] == ["reference", "code", "origin"]
    assert (WIDTHS[SCHEMA_VERSION], sorted(COLUMNS)) == (len(COLUMNS), sorted(Row.model_fields))
    assert rowfile.header() == ",".join(COLUMNS).encode() + b"\n"
    for name in COLUMNS[WIDTHS[1] :]:
        assert not Row.model_fields[name].is_required(), f"old rows have no {name}"


def test_every_stored_row_can_be_read_and_would_be_written_as_it_stands() -> None:
    number = 0
    for path in sorted(RESULTS.glob("*/*.csv")):
        for at, line, fields in rowfile.split(path):
            assert fields is not None
            assert rowfile.line(rowfile.parse(path, at, fields)) == line, f"{path}:{at}"
            number += 1
    assert number > 2900


def test_a_newer_row_replaces_the_header_and_no_other_byte(store: Store) -> None:
    path = store.file("s", "fedavg")
    before = path.read_bytes()
    store.append(old("c"))
    assert path.read_bytes() == before + rowfile.line(old("c"))  # a row of the same schema leaves it as it is
    before, new = path.read_bytes(), row("d", code="0" * 12, origin="{}")
    store.append(new)
    assert path.read_bytes() == rowfile.header() + before[len(FIRST) :] + rowfile.line(new)
    store.append(row("e"))
    assert path.read_bytes().count(b"schema_version") == 1
    assert [each.key for each in store.rows("s")] == ["a", "b", "c", "d", "e"]
    assert store.rows("s")[3] == new
    frame = load_results(store.root).set_index("key")
    assert list(frame["code"]) == ["", "", "", "0" * 12, ""]
    assert list(frame["reference"]) == [False] * 5
    assert list(frame["schema_version"]) == [1, 1, 1, SCHEMA_VERSION, SCHEMA_VERSION]


def test_an_interrupted_replacement_leaves_the_old_file(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.file("s", "fedavg")
    before = path.read_bytes()

    def full(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(UserError, match="no space left"):
        store.append(row("c"))
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", sorted(WIDTHS))
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 20])
def test_a_line_that_lacks_columns_of_its_schema_is_damaged(store: Store, version: int, columns: int) -> None:
    """Also where it is as long as a line of another schema."""
    path = store.file("s", "fedavg")
    store.append(row("c"))
    before = path.read_bytes()
    torn = b",".join(rowfile.line(row("d", schema_version=version)).split(b",")[:-columns]) + b"\n"
    path.write_bytes(before + torn)
    with pytest.warns(UserWarning, match="line 5 is damaged"):
        assert [each.key for each in store.rows("s")] == ["a", "b", "c"]
    with pytest.warns(UserWarning, match="moved"):
        store.append(row("e"))
    assert path.read_bytes() == before + rowfile.line(row("e"))
    assert path.with_name("fedavg.csv.damaged").read_bytes() == torn


def test_what_another_version_wrote_is_refused_and_not_taken_for_damage(store: Store) -> None:
    path = store.file("s", "fedavg")
    before = path.read_bytes()
    path.write_bytes(before + rowfile.line(row("c")))
    now, later = SCHEMA_VERSION, SCHEMA_VERSION + 1
    told = f"fedavg.csv:4: written in result schema {now}, below a header of schema 1; make the first line that of"
    for act in (lambda: store.rows("s"), lambda: store.append(row("d")), lambda: store.prepare(["s"])):
        with pytest.raises(UserError, match=told):
            act()
    newer = rowfile.line(row("c")).replace(b"%d," % now, b"%d," % later, 1).replace(b"\n", b",new\n")
    path.write_bytes(rowfile.header() + newer)
    store.prepare(["s"])
    with pytest.raises(
        UserError, match=f"fedavg.csv:2: written in result schema {later}; this fglbench reads 1 to {now}"
    ):
        store.rows("s")
    path.write_bytes(before.replace(b",submitter\n", b",submitter,auc\n", 1))
    with pytest.raises(UserError, match=r"the header is not that of result schema 1 \(unknown 'auc'\)"):
        store.rows("s")
    assert not path.with_name("fedavg.csv.damaged").exists()


def test_how_long_a_text_may_be() -> None:
    longer = {name: rule.longest for name, rule in RULES.items() if rule.longest != 200}
    of_json = ("dataset_params", "partition_params", "split_params", "method_params", "training", "effective_training")
    assert longer == dict.fromkeys((*of_json, "notes"), 4000) | {
        "backbone_params": 20_000, "backbone": 2000, "origin": 2000, "error": 1000, "tuning": 1000,
    }  # fmt: skip


def test_the_only_reference_of_schema_1_is_known_by_its_name() -> None:
    assert [old("a", method=name).reference for name in ("global", "fedavg")] == [True, False]
    assert row("a", method="central", reference=True).reference


def test_what_a_run_yields_can_be_stored_whatever_it_is(store: Store) -> None:
    """The rules of columns are for `validate`; what a run says of itself is never lost."""
    wild = row("d", error="x" * 5000, notes="\x07", git_sha="none", upload_bytes=-1, train_seconds=float("inf"))
    store.append(wild)
    assert store.find("s", "fedavg", "d") == wild


def test_the_outcome_is_the_figures_of_a_row() -> None:
    assert list(METRICS) == list(Outcome.model_fields)[: len(METRICS)]
    assert set(METRICS) < set(Row.model_fields)
    history = {"upload_bytes": [1, 2], "val": [0.5, float("nan")]}
    kept = Outcome(score=0.5, history=history)
    assert kept.history is history  # integers stay integers in the curves


NEW_METRIC = """
    import sys
    from typing import Annotated
    from pydantic import Field
    from fglbench import metrics

    NOW = int(sys.argv[1])  # metrics are read before the schema is

    class Metrics(metrics.Metrics):
        auc: Annotated[metrics.Fraction, metrics.Column(
            since=NOW, needed=True, measure="auc", floor=0.02, curve="auc"
        )] = Field(None, description="area under the curve")

    metrics.Metrics, metrics.METRICS = Metrics, metrics.columns(Metrics)
    metrics.CURVES = [*metrics.CURVES, "auc"]

    from fglbench.benchmark.contract import method_checks
    from fglbench.benchmark.engine import Outcome
    from fglbench.benchmark.runner import execute
    from fglbench.benchmark.store import rowfile, schema
    import numpy
    from fglbench.benchmark.store.columnfile import CurveTable, arrays_of
    from fglbench.benchmark.submission import bars, cells, curves, sides
    from fglbench.benchmark.submission.inbox import Line
    from fglbench.report import board, tables

    assert schema.SCHEMA_VERSION == NOW and schema.COLUMNS[-1] == "auc" and rowfile.header().endswith(b",auc\\n")
    assert execute._figures(Outcome(auc=0.5))["auc"] == 0.5
    assert "auc" in board.MEASURES and "auc" in tables.MEASURES and "auc" in bars.SHARES
    assert "auc" in next(method_checks._incomplete(Outcome(), "node"))
    old = dict(key="k", suite="s", task="node", dataset="d", dataset_params="{}", partition="p", partition_params="{}",
        clients=1, split="s", split_params="{}", backbone="gcn", backbone_params="{}", method="m", method_version="v",
        method_params="{}", training="{}", seed=0, status="ok", started="", environment="e", rounds=1, best_round=1)
    new = schema.Row(**old, auc=0.5)
    told = [what for what, _ in cells.problems(schema.Row(**old))]
    assert any("without" in what and "auc" in what for what in told)
    assert not any("auc" in what for what, _ in cells.problems(schema.Row(**old, schema_version=2)))
    line, known = (Line("", 1, "", b"", row) for row in (new, schema.Row(**old, schema_version=2)))
    table = CurveTable(arrays_of({"k": {"history": dict.fromkeys(metrics.CURVES, [1.0])}}))
    one = numpy.array([0])
    assert list(curves.disagreeing(curves.TabledRows(table, [line], one)))[-1][1].startswith("auc is 0.5 in the")
    bare = CurveTable(arrays_of({"k": {"history": {}}}))
    assert "auc" in dict(sides._misshapen(bare, [line], one))[line]
    assert "auc" not in dict(sides._misshapen(bare, [known], one))[known]
    assert "auc" in next(bars._above(schema.Row(**old, auc=0.4), new, {"auc": 0.02}))
    assert not list(bars._above(schema.Row(**old, auc=0.49), new, {"auc": 0.02}))
"""


def test_a_new_metric_is_one_edit() -> None:
    """One more field of the model is a column, a figure of the run, and what every reader makes of it."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(NEW_METRIC), str(SCHEMA_VERSION + 1)], capture_output=True, text=True
    )
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
        (1, 1, "{}", False),  # what answers without training, such as the majority class
        (2, 2, "{}", True),
        (None, None, "{}", False),
        (100, 100, "not JSON", True),
        (100, 100, '{"patience":"long"}', True),
    ],
)
def test_a_row_is_still_rising_if_its_best_round_is_among_the_last(best, rounds, training, rising) -> None:
    found = row("a", best_round=best, rounds=rounds, val=0.5).model_copy(update={"training": training})
    assert found.rising is rising
    assert not found.model_copy(update={"val": None}).rising
