"""The runner: files next to a row, cells of other runs, and errors that stop a run."""

from __future__ import annotations

import json
import random
import shutil
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

import fglbench
from fglbench.benchmark.runner import execute
from fglbench.benchmark.runner.backend import Observer
from fglbench.benchmark.runner.plan import make_plan, with_data
from fglbench.benchmark.runner.supervisor import record_missing
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.folder import LostFolder
from fglbench.benchmark.suites.select import Request, select
from fglbench.datasets import DATASETS
from fglbench.datasets.csbm import CSBM
from fglbench.datasets.spec import GraphSetSpec
from fglbench.registry import UserError


@pytest.fixture(scope="module")
def healthy(suite, tmp_path_factory):
    results = tmp_path_factory.mktemp("healthy")
    return fglbench.run(suites=[suite], results=results, in_process=True), results


def test_rows_are_complete(healthy):
    frame, results = healthy
    assert list(frame["status"]) == ["ok"] * 4
    assert set(frame["suite"]) == {"tiny"}
    assert frame["synthetic"].all()
    assert frame["score"].between(0, 1).all()
    store = Store(results)
    for row in frame.itertuples():
        about = json.loads((results / "environments" / f"{row.environment}.json").read_text())
        assert about["packages"]["dgl"] == version("dgl")
        curves = store.history("tiny", row.key)
        assert curves["history"]["round"] == [1, 2, 3]
        assert curves["history"]["val"][row.best_round - 1] == pytest.approx(row.val)
        assert len(curves["per_client"]["score"]) == 3
    fedavg = frame[frame["method"] == "fedavg"]
    assert (fedavg["upload_bytes"] == 3 * 3 * 4 * (8 * 4 + 4 + 4 * 2 + 2)).all()  # rounds, clients, float32, GCN
    assert frame.groupby("seed")["partition_hash"].nunique().eq(1).all()  # paired: the method does not matter
    assert frame["partition_hash"].nunique() == 2


@pytest.mark.parametrize("available", [True, False])
def test_joined_sets_are_available_if_each_is(available, tmp_path, registries):
    loaded = []

    def content(spec):
        loaded.append(spec.name)
        if not available and spec.name == "b":
            raise UserError("dataset 'b' is unavailable")
        return {}, "mirror"

    for name in "ab":
        DATASETS.register(name)(
            type(name, (GraphSetSpec,), {"__doc__": "A toy.", "content": content, "__module__": __name__})
        )
    cell = {"datasets": "domains:a+b", "partitions": "own", "clients": 2, "splits": "ratio", "backbones": "gin"}
    path = tmp_path / "side.yaml"
    path.write_text(yaml.safe_dump({"description": "Two sets.", "cross": {**cell, "methods": "local", "seeds": 1}}))
    plan, missing = with_data(make_plan(select(Request(suites=(str(path),))), Store(tmp_path / "results")))
    assert loaded == ["a", "b"]
    assert len(plan.items) == available
    assert [str(error) for error in missing] == ([] if available else ["dataset 'b' is unavailable (1 run left out)"])


@pytest.fixture
def half(tiny, tmp_path, monkeypatch):
    """The tiny suite on two datasets, one of which is unavailable."""

    class Nowhere(CSBM):
        name = "nowhere"
        synthetic = False

        def content(self):
            raise UserError("dataset 'nowhere' is unavailable (cache: none in /home/me)")

    monkeypatch.setitem(DATASETS._classes, "nowhere", Nowhere)
    path = tmp_path / "tiny.yaml"
    path.write_text(tiny.replace("{name: csbm, params: {nodes: 60, classes: 2, features: 8}}", "[nowhere, csbm]"))
    return str(path)


def test_missing_data_leaves_no_row_unless_requested(half, tmp_path):
    store, request = Store(tmp_path / "results"), Request(suites=(half,))
    plan, missing = with_data(make_plan(select(request), store))
    assert {item.cell.dataset.name for item in plan.items} == {"csbm"}
    message = "dataset 'nowhere' is unavailable (cache: none in /home/me) (4 runs left out)"
    assert [str(error) for error in missing] == [message]
    assert store.rows() == []

    record_missing(missing, store)
    rows = store.rows("tiny")
    assert {(row.dataset, row.method, row.seed, row.status) for row in rows} == {
        ("nowhere", method, seed, "skipped") for method in ("fedavg", "local") for seed in (0, 1)
    }
    assert all("nowhere could not be had" in row.error and "/home" not in row.error for row in rows)
    assert make_plan(select(request), store).counts() == {"todo": 4, "skipped": 4}


def test_the_python_interface_continues_if_data_are_missing(half, tmp_path):
    store = Store(tmp_path / "results")
    for _, cell in select(Request(suites=(half,), datasets=("csbm",))):
        store.append_row(cell.row("tiny", status="ok", score=0.5, started="2026", environment="e"))
    options = {"suites": [half], "results": store.root}
    with (
        pytest.warns(UserWarning, match=r"'nowhere' is unavailable .* \(4 runs left out\)") as caught,
        pytest.raises(UserError, match="nothing could be run: none of the datasets could be loaded"),
    ):
        fglbench.run(**options)
    assert [warning.filename for warning in caught] == [__file__]
    assert len(store.rows()) == 4
    with pytest.warns(UserWarning, match="is unavailable"):
        frame = fglbench.run(**options, rerun=["all"], missing_rows=True, in_process=True, submitter="me")
    assert set(zip(frame["dataset"], frame["status"], frame["submitter"], strict=True)) == {
        ("nowhere", "skipped", "me"), ("csbm", "ok", "me"),
    }  # fmt: skip
    assert len(frame) == 8
    with pytest.warns(UserWarning, match="is unavailable"):
        assert (
            len(fglbench.run(**options, seeds=[5, 6], in_process=True)) == 4
        )  # no row for missing data, unless requested


def test_a_cell_claimed_by_another_run_is_left_to_it(suite, tmp_path):
    store = Store(tmp_path)
    (name, cell), *_ = select(Request(suites=(suite,), methods=("fedavg",), seeds=(0,)))
    store.prepare([name])
    claim = store.claim(name, cell.key)
    other_row = cell.row(name, status="ok", score=0.125, started="2026", environment="theirs")

    class Other(Observer):
        def finished(self, item, row, *, elsewhere):
            events.append((item.cell.method.name, elsewhere))
            if item.cell.method.name == "local":  # now the other run finishes its cell
                store.append_row(other_row)
                store.unclaim(claim)

    events = []
    frame = fglbench.run(suites=[suite], seeds=[0], results=tmp_path, jobs=1, observer=Other())
    assert events == [("local", False), ("fedavg", True)]
    assert dict(zip(frame["method"], frame["environment"] == "theirs", strict=True)) == {"fedavg": True, "local": False}
    assert [row.score for row in store.rows(name) if row.method == "fedavg"] == [0.125]


@pytest.mark.parametrize(
    "when", [pytest.param("removed", marks=pytest.mark.slow), "replaced", "its rows removed at the end"]
)
def test_a_results_folder_removed_during_a_run_is_an_error(when, suite, tmp_path):
    results = tmp_path / "results"

    class Vandal(Observer):
        cells = 0

        def finished(self, item, row, *, elsewhere):
            self.cells += 1
            if self.cells == (4 if when.endswith("end") else 2):
                shutil.rmtree(results / "tiny" if when.endswith("end") else results)
                if when == "replaced":
                    results.mkdir()

    with pytest.raises(LostFolder, match=r"was removed or replaced|4 of 4 rows of this run are no longer") as error:
        fglbench.run(suites=[suite], results=results, jobs=1, observer=Vandal())
    assert error.value.code == 1
    assert when == "replaced" or not list(results.glob("tiny/*.csv"))


def test_an_invalid_submitter_is_refused_before_any_run(suite, tmp_path):
    for name in ("a\x1b[31m", "x" * 300, "=cmd()"):
        with pytest.raises(UserError, match="is no name: one short line"):
            fglbench.run(suites=[suite], results=tmp_path / "results", jobs=1, submitter=name)
    assert not (tmp_path / "results" / "tiny" / "fedavg.csv").exists()


@pytest.mark.usefixtures("registries")
def test_workers_that_cannot_start_are_one_line(suite, tmp_path):
    plugin = tmp_path / "shy.py"
    plugin.write_text(
        "import os\nfrom fglbench.processes import MARK\nfrom fglbench.methods import METHODS\n"
        "from fglbench.methods.fedavg import FedAvg\n"
        "@METHODS.register('shy')\nclass Shy(FedAvg): pass\n"
        "assert MARK not in os.environ, 'not in a worker'"
    )
    with pytest.raises(UserError, match=r"a worker process cannot start: .* not in a worker"):
        fglbench.run(suites=[suite], methods=["shy"], results=tmp_path / "results", plugins=[str(plugin)], jobs=1)
    with pytest.raises(UserError, match=r"plug-in '.*nowhere.py' cannot be imported: FileNotFoundError"):
        fglbench.run(suites=[suite], results=tmp_path / "results", plugins=["nowhere.py"])


@pytest.mark.parametrize(
    ("error", "oom"),
    [
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (OSError("Cannot allocate memory"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_which_errors_are_a_lack_of_memory(error, oom):
    assert execute._lacks_memory(error) is oom


def test_a_run_seeds_all_generators(monkeypatch):
    drawn = []
    draw = lambda *_, **__: drawn.append((random.random(), np.random.random(), float(torch.rand(()))))  # noqa: E731
    monkeypatch.setattr(execute, "train", draw)
    store = SimpleNamespace(write_log=lambda *_: None)
    whole = SimpleNamespace(fingerprint="", synthetic=True, source="generated")
    federations = SimpleNamespace(get=lambda cell: SimpleNamespace(whole=whole, partition_hash=""))
    cell = next(cell for _, cell in select(Request(suites=("quick",), methods=("fedavg",))) if cell.seed == 1)
    for _ in range(2):
        execute.execute(cell, "quick", store, federations, {"environment": "0" * 12})
    generator = torch.Generator().manual_seed(1)
    expected = random.Random(1).random(), np.random.RandomState(1).random(), float(torch.rand((), generator=generator))
    assert drawn == [expected, expected]


def test_an_experiment_without_sound_data_or_a_score_is_not_ok(tmp_path, registries):
    """Features that are not finite, and a split without a test node."""

    class Broken(CSBM):
        """Features that are not finite."""

        def load(self):
            data = super().load()
            data.feat[3, 1] = float("nan")
            return data

    DATASETS.register("broken")(Broken)
    common = {"seeds": (0,), "methods": ("fedavg",), "partitions": ("uniform",), "clients": (2,), "splits": ("ratio",)}
    errors = []
    for dataset, extra in (("broken", ()), ("csbm", ("split.train=0.5", "split.val=0.49", "split.test=0.001"))):
        request = Request(datasets=(dataset,), settings=("training.rounds=1", "dataset.nodes=60", *extra), **common)
        ((suite, cell),) = select(request)
        row = execute.execute(cell, suite, Store(tmp_path), execute.FederationCache(), {"environment": "e"})
        assert row.status == "failed"
        assert row.score is None
        errors.append(row.error)
    assert errors[0].startswith("dataset 'broken': features of node 3 are not finite")
    assert errors[1] == "no score: no node is a test node; give the split a larger test share"
