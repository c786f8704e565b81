"""The runner, with real workers: every way a cell can end is a row, and the rest go on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import fglbench
from fglbench.benchmark.runner.plan import make_plan, with_data
from fglbench.benchmark.runner.supervisor import Observer, record_missing
from fglbench.benchmark.store import Store, load_results
from fglbench.benchmark.suites.selection import Request, select
from fglbench.datasets import DATASETS
from fglbench.datasets.csbm import CSBM
from fglbench.registry import UserError

TROUBLES = str(Path(__file__).with_name("troubles.py"))
SUITE = """
description: a tiny synthetic suite
training: {rounds: 3, local_epochs: 1}
cross:
  datasets: {name: csbm, params: {nodes: 60, classes: 2, features: 8}}
  partitions: uniform
  clients: 3
  splits: {name: ratio, params: {train: 0.4, val: 0.3, test: 0.3}}
  backbones: {name: gcn, params: {hidden: 4}}
  methods: [fedavg, local]
  seeds: 2
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("suites") / "tiny.yaml"
    path.write_text(SUITE)
    return str(path)


def command(suite, results, *more):
    # A shell starts what it puts in the background with Ctrl-C ignored, and the test may run there: undo that.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from fglbench.benchmark.cli import main; sys.exit(main())"
    )
    return [sys.executable, "-c", code, "run", "-s", suite, "--results", str(results), "--plugin", TROUBLES, *more]


def figures(frame):
    """Everything about a run but times, by cell."""
    timed = ["started", "train_seconds", "total_seconds", "peak_memory_mb", "git_sha", "git_dirty", "environment"]
    return frame.drop(columns=timed).sort_values("key").reset_index(drop=True)


@pytest.fixture(scope="module")
def troubled(suite, tmp_path_factory):
    """All troubles and a healthy method, in one run of two workers."""
    results = tmp_path_factory.mktemp("troubled")
    methods = "t-killed,t-exit,t-hang,t-bug,t-memory-error,t-allocation,t-hungry,t-diverges,t-skips,fedavg"
    arguments = ["-m", methods, "--seeds", "1", "--timeout", "10", "--memory-limit", "1", "--jobs", "2"]
    done = subprocess.run(command(suite, results, *arguments), capture_output=True, text=True, timeout=300)
    return done, results


def test_every_ending_is_a_row_that_says_so(troubled):
    done, results = troubled
    frame = load_results(results).set_index("method")
    ending = {method: (row["status"], row["error"]) for method, row in frame.iterrows()}
    assert ending.pop("fedavg") == ("ok", "")
    assert ending.pop("t-killed") == ("failed", "the worker was killed by SIGKILL")
    assert ending.pop("t-exit") == ("failed", "the worker ended with exit code 3")
    assert ending.pop("t-hang") == ("timeout", "no result after 10 s (in round 2 of 3)")
    assert ending.pop("t-hungry") == ("oom", "the worker took more than the --memory-limit of 1 GiB")
    assert ending.pop("t-skips") == ("skipped", "needs a moon")
    assert ending["t-bug"][0] == "failed"
    assert ending.pop("t-bug")[1].startswith("ValueError: first line second line (troubles.py:")
    assert ending["t-diverges"][0] == "failed"
    assert "finite" in ending.pop("t-diverges")[1]
    assert {status for status, _ in ending.values()} == {"oom"}  # memory-error, allocation
    assert len(ending) == 2
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr


def test_a_failed_row_tells_where_and_a_log_tells_all(troubled):
    _, results = troubled
    key = load_results(results).set_index("method").loc["t-bug", "key"]
    assert "first line\nsecond line" in Store(results).log_file(key).read_text()


@pytest.fixture(scope="module")
def healthy(suite, tmp_path_factory):
    results = tmp_path_factory.mktemp("healthy")
    return fglbench.run(suites=[suite], results=results, jobs=1), results


def test_rows_are_complete(healthy):
    frame, results = healthy
    assert list(frame["status"]) == ["ok"] * 4
    assert set(frame["suite"]) == {"tiny"}
    assert frame["synthetic"].all()
    assert frame["score"].between(0, 1).all()
    store = Store(results)
    for row in frame.itertuples():
        about = json.loads((results / "environments" / f"{row.environment}.json").read_text())
        assert about["packages"]["dgl"] == "1.1.3"
        curves = store.history("tiny", row.key)
        assert curves["history"]["round"] == [1, 2, 3]
        assert curves["history"]["val"][row.best_round - 1] == pytest.approx(row.val)
        assert len(curves["per_client"]["score"]) == 3
    fedavg = frame[frame["method"] == "fedavg"]
    assert (fedavg["upload_bytes"] == 3 * 3 * 4 * (8 * 4 + 4 + 4 * 2 + 2)).all()  # rounds, clients, float32, GCN
    assert frame.groupby("seed")["partition_hash"].nunique().eq(1).all()  # paired: the method does not matter
    assert frame["partition_hash"].nunique() == 2


def test_the_same_numbers_whatever_the_jobs_and_the_order(suite, healthy, tmp_path):
    frame, _ = healthy
    methods = ["local", "fedavg"]
    again = fglbench.run(suites=[suite], methods=methods, seeds=[1, 0], results=tmp_path, jobs=2)
    assert figures(again).equals(figures(frame))


def test_interrupted_runs_go_on_and_two_at_once_share_the_work(tmp_path):
    path, results = tmp_path / "tiny.yaml", tmp_path / "results"
    path.write_text(SUITE.replace("rounds: 3", "rounds: 300").replace("seeds: 2", "seeds: 4"))
    store = Store(results)
    store.prepare(["tiny"])
    # Two cells are kept from both runs, so that neither can be done before its signal, however fast the machine.
    held = [store.claim(name, cell.key) for name, cell in list(select(Request(suites=(str(path),))))[-2:]]
    runs = [
        subprocess.Popen(command(path, results, "-j", "1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for run, rows, sign in zip(runs, (1, 3), (signal.SIGINT, signal.SIGKILL), strict=True):
        wait_for_rows(results, rows)
        workers = wait_for_workers(run)  # a signal that comes during the imports may be lost in them
        run.send_signal(sign)
        _, errors = run.communicate(timeout=60)
        assert not psutil.wait_procs(workers, timeout=20)[1], "workers outlive their parent"
        if sign == signal.SIGINT:
            assert run.returncode == 130
            assert errors == "fglbench: stopped; the same command goes on from here\n"
    finished = {row.key: row for row in Store(results).rows("tiny")}
    assert 3 <= len(finished) <= 6
    for claim in held:
        store.unclaim(claim)

    frame = fglbench.run(suites=[str(path)], results=results, jobs=1)
    assert list(frame["status"]) == ["ok"] * 8
    rows = Store(results).rows("tiny")
    assert len(rows) == len({row.key for row in rows}) == 8
    assert {row.key: row for row in rows if row.key in finished} == finished


def test_missing_data_leaves_no_row_unless_asked(tmp_path, monkeypatch):
    class Nowhere(CSBM):
        name = "nowhere"
        synthetic = False

        def content(self):
            raise UserError("dataset 'nowhere' cannot be had (cache: none in /home/me)")

    monkeypatch.setitem(DATASETS._classes, "nowhere", Nowhere)
    path = tmp_path / "tiny.yaml"
    path.write_text(SUITE.replace("{name: csbm, params: {nodes: 60, classes: 2, features: 8}}", "[nowhere, csbm]"))
    store, request = Store(tmp_path / "results"), Request(suites=(str(path),))
    plan, missing = with_data(make_plan(select(request), store))
    assert {item.cell.dataset.name for item in plan.items} == {"csbm"}
    told = "dataset 'nowhere' cannot be had (cache: none in /home/me) (4 cells left out)"
    assert [str(one) for one in missing] == [told]
    assert store.rows() == []

    record_missing(missing, store)
    rows = store.rows("tiny")
    assert {(row.dataset, row.method, row.seed, row.status) for row in rows} == {
        ("nowhere", method, seed, "skipped") for method in ("fedavg", "local") for seed in (0, 1)
    }
    assert all("nowhere could not be had" in row.error and "/home" not in row.error for row in rows)
    assert make_plan(select(request), store).counts() == {"todo": 4, "skipped": 4}


def test_the_python_interface_goes_on_where_data_are_missing(tmp_path, monkeypatch):
    class Nowhere(CSBM):
        name = "nowhere"
        synthetic = False

        def content(self):
            raise UserError("dataset 'nowhere' cannot be had")

    monkeypatch.setitem(DATASETS._classes, "nowhere", Nowhere)
    path = tmp_path / "tiny.yaml"
    path.write_text(SUITE.replace("{name: csbm, params: {nodes: 60, classes: 2, features: 8}}", "[nowhere, csbm]"))
    store = Store(tmp_path / "results")
    for _, cell in select(Request(suites=(str(path),), datasets=("csbm",))):
        store.append(cell.row("tiny", status="ok", score=0.5, started="2026", environment="e"))
    options = {"suites": [str(path)], "results": store.root}
    with (
        pytest.warns(UserWarning, match=r"'nowhere' cannot be had \(4 cells left out\)") as told,
        pytest.raises(UserError, match="nothing could be run: none of the datasets could be loaded"),
    ):
        fglbench.run(**options)
    assert [warning.filename for warning in told] == [__file__]
    assert len(store.rows()) == 4
    with pytest.warns(UserWarning, match="cannot be had"):
        frame = fglbench.run(**options, rerun=["all"], missing_rows=True, jobs=1, submitter="me", memory_limit=8)
    assert set(zip(frame["dataset"], frame["status"], frame["submitter"], strict=True)) == {
        ("nowhere", "skipped", "me"), ("csbm", "ok", "me"),
    }  # fmt: skip
    assert len(frame) == 8
    with pytest.warns(UserWarning, match="cannot be had"):
        assert len(fglbench.run(**options, seeds=[5, 6], jobs=1)) == 4  # no row where data are missing, unless asked


def test_a_cell_that_another_run_has_in_hand_is_left_to_it(suite, tmp_path):
    store = Store(tmp_path)
    (name, cell), *_ = select(Request(suites=(suite,), methods=("fedavg",), seeds=(0,)))
    store.prepare([name])
    claim = store.claim(name, cell.key)
    theirs = cell.row(name, status="ok", score=0.125, started="2026", environment="theirs")

    class Other(Observer):
        def finished(self, item, row, *, elsewhere):
            told.append((item.cell.method.name, elsewhere))
            if item.cell.method.name == "local":  # ours is done: now the other run finishes its own
                store.append(theirs)
                store.unclaim(claim)

    told = []
    frame = fglbench.run(suites=[suite], seeds=[0], results=tmp_path, jobs=1, observer=Other())
    assert told == [("local", False), ("fedavg", True)]
    assert dict(zip(frame["method"], frame["environment"] == "theirs", strict=True)) == {"fedavg": True, "local": False}
    assert [row.score for row in store.rows(name) if row.method == "fedavg"] == [0.125]


def test_workers_that_cannot_start_are_one_line(suite, tmp_path):
    plugin = tmp_path / "shy.py"
    plugin.write_text("import multiprocessing\nassert multiprocessing.parent_process() is None, 'not in a worker'")
    with pytest.raises(UserError, match=r"a worker process cannot start: .* not in a worker"):
        fglbench.run(suites=[suite], results=tmp_path / "results", plugins=[str(plugin)], jobs=1)
    with pytest.raises(UserError, match=r"plug-in 'nowhere.py' cannot be imported: FileNotFoundError"):
        fglbench.run(suites=[suite], results=tmp_path / "results", plugins=["nowhere.py"])


def wait_for_workers(run, seconds=60.0):
    begun = time.monotonic()
    while not (workers := psutil.Process(run.pid).children(recursive=True)):
        assert time.monotonic() - begun < seconds, "no workers"
        time.sleep(0.05)
    return workers


def wait_for_rows(results, count, seconds=120.0):
    begun = time.monotonic()
    while len(Store(results).rows("tiny")) < count:
        assert time.monotonic() - begun < seconds, "no rows"
        time.sleep(0.05)
