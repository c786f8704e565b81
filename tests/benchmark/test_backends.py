"""The contract of backends: every ending of a run is a row, and the other runs continue, with the same numbers.

The Ray part runs on two Ray nodes of this machine."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import fglbench
from fglbench.benchmark.cli import main
from fglbench.benchmark.runner.backend import Observer
from fglbench.benchmark.runner.process import shipped_plugin
from fglbench.benchmark.store import Store, load_results, verified
from fglbench.benchmark.suites.select import Request, select
from fglbench.datasets import own_data
from fglbench.datasets.sources import cache_file
from fglbench.registry import UserError

from .test_signals import wait_until

TROUBLES = str(Path(__file__).with_name("troubles.py"))
SHIPPED = str(Path(__file__).with_name("shipped.py"))


def command(suite, results, backend, *more):
    # A shell starts background processes with Ctrl-C ignored: undo that.
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from fglbench.benchmark.cli import main; sys.exit(main())"
    )
    chosen = [f"--{name}={value}" for name, value in backend.items()]
    arguments = ["run", "-s", suite, "--results", str(results), "--plugin", TROUBLES, *chosen, *more]
    return [sys.executable, "-c", code, *arguments]


@pytest.fixture(scope="module")
def finished(suite, clean, tmp_path_factory):
    """A results folder with all rows of the suite, as from a clean checkout."""
    results = tmp_path_factory.mktemp("finished")
    fglbench.run(suites=[suite], results=results, in_process=True)
    return clean(results)


@pytest.fixture(scope="module")
def troubled(suite, backend, mark, tmp_path_factory):
    """Methods that end their worker and one that does so once, in one run of two workers."""
    results = tmp_path_factory.mktemp("troubled")
    Path(mark).unlink(missing_ok=True)
    methods = "t-killed,t-killed-once,t-hang,t-hungry"
    arguments = ["-m", methods, "--seeds", "1", "--timeout", "10", "--memory-limit", "1", "--jobs", "2"]
    run = command(suite, results, backend, *arguments)
    done = subprocess.run(run, capture_output=True, text=True, timeout=900)
    return done, results


def test_every_ending_of_a_worker_is_a_row(troubled):
    done, results = troubled
    frame = load_results(results).set_index("method")
    ending = {method: (row["status"], row["error"]) for method, row in frame.iterrows()}
    assert ending.pop("t-killed") == ("failed", "the worker was killed by SIGKILL, twice")
    assert ending.pop("t-killed-once") == ("ok", "")
    assert len([line for line in done.stdout.splitlines() if "t-killed-once seed" in line]) == 1  # its second try
    assert ending.pop("t-hang") == ("timeout", "no result after 10 s (in round 2 of 3)")
    assert ending.pop("t-hungry") == ("oom", "the worker took more than the --memory-limit of 1 GiB")
    assert ending == {}
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.usefixtures("registries")
def test_every_exception_of_a_method_is_a_row(suite, tmp_path):
    methods = ["t-bug", "t-painted", "t-memory-error", "t-allocation", "t-diverges", "t-skips"]
    frame = fglbench.run(
        suites=[suite], methods=methods, seeds=[0], plugins=[TROUBLES], results=tmp_path, in_process=True
    ).set_index("method")
    assert dict(frame["status"]) == dict(
        zip(methods, ("failed", "failed", "oom", "oom", "failed", "skipped"), strict=True)
    )
    assert frame.loc["t-bug", "error"].startswith("ValueError: first line second line (troubles.py:")
    assert "first line\nsecond line" in Store(tmp_path).log_file(frame.loc["t-bug", "key"]).read_text()
    assert frame.loc["t-painted", "error"].startswith("ValueError: red back xxx")
    assert frame.loc["t-painted", "error"].isprintable()
    assert frame.loc["t-skips", "error"] == "needs a moon"
    assert "finite" in frame.loc["t-diverges", "error"]


class Witness(Observer):
    """Records its notifications, and looks for side files when a row is new."""

    def __init__(self, store):
        self.store, self.events, self.complete = store, [], []

    def begun(self, items):
        self.events.append(("begun", len(items)))

    def started(self, item):
        self.events.append(("started", item.cell.key))

    def round(self, item, number, figures):
        self.events.append((item.cell.key, number, figures["val"] is not None))

    def finished(self, item, row, *, elsewhere):
        self.events.append(("finished", row.key))
        self.complete.append(self.store.history(row.suite, row.key) is not None)
        self.complete.append(self.store.environment(row.environment) is not None)

    def ended(self):
        self.events.append("ended")


def check_numbers_and_progress(suite, chosen, results, figures):
    """The cells in two runs and another order, against runs in this process; and the events of the second run."""
    expected = fglbench.run(suites=[suite], results=results / "expected", in_process=True)
    store = Store(results / "found")
    fglbench.run(suites=[suite], methods=["local"], seeds=[1], results=store.root, **chosen)
    (first,), witness = store.rows(), Witness(store)
    frame = fglbench.run(suites=[suite], methods=["local", "fedavg"], results=store.root, observer=witness, **chosen)
    assert figures(frame).equals(figures(expected))
    assert first in store.rows() and len(store.rows()) == 4
    keys = {row.key for row in store.rows()} - {first.key}
    assert (witness.events[0], witness.events[-1]) == (("begun", 3), "ended")
    for key in keys:
        events = [event for event in witness.events if key in event]
        assert events == [("started", key), (key, 1, True), (key, 2, True), (key, 3, True), ("finished", key)]
    assert len(witness.events) == 2 + 5 * 3
    assert all(witness.complete)
    assert not [path for path in (store.root / ".logs").glob("*") if path.name.startswith("worker")]


def test_numbers_are_identical_and_each_step_is_an_event(suite, backend, figures, tmp_path):
    check_numbers_and_progress(suite, {**backend, "jobs": 2}, tmp_path, figures)


def test_ray_is_started_and_stopped_without_an_address(suite, mark, tmp_path):
    ray = pytest.importorskip("ray", reason="needs Ray: pip install fglbench[ray]")
    frame = fglbench.run(suites=[suite], seeds=[0], results=tmp_path, backend="ray", jobs=1)
    assert list(frame["status"]) == ["ok", "ok"]
    assert not ray.is_initialized()


def test_interrupted_runs_resume_and_two_runs_share_the_work(tiny, backend, workers, tmp_path):
    path, results = tmp_path / "tiny.yaml", tmp_path / "results"
    path.write_text(tiny.replace("rounds: 3", "rounds: 150").replace("seeds: 2", "seeds: 4"))
    store = Store(results)
    store.prepare(["tiny"])
    # Two cells are claimed here, so that no run ends before its signal.
    held = [store.claim(name, cell.key) for name, cell in list(select(Request(suites=(str(path),))))[-2:]]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    runs = [subprocess.Popen(command(path, results, backend, "-j", "1"), **pipes) for _ in range(2)]
    wait_until(lambda: len(workers()) == 2, "workers")
    for run, rows, sign in zip(runs, (1, 3), (signal.SIGINT, signal.SIGKILL), strict=True):
        wait_until(lambda: len(Store(results).rows("tiny")) >= rows, "rows")  # noqa: B023
        run.send_signal(sign)
        _, errors = run.communicate(timeout=60)
        if sign == signal.SIGINT:
            assert run.returncode == 130
            assert errors == "fglbench: stopped; the same command continues from here\n"
        left = 1 if sign == signal.SIGINT else 0
        wait_until(lambda: len(workers()) <= left, "end of the workers that outlive their run")  # noqa: B023
    finished = {row.key: row for row in Store(results).rows("tiny")}
    assert 3 <= len(finished) <= 6
    for claim in held:
        store.unclaim(claim)

    frame = fglbench.run(suites=[str(path)], results=results, in_process=True)
    assert list(frame["status"]) == ["ok"] * 8
    rows = Store(results).rows("tiny")
    assert len(rows) == len({row.key: row for row in rows}) == 8
    assert {row.key: row for row in rows if row.key in finished} == finished


@pytest.mark.slow
def test_datasets_and_plugins_reach_nodes_that_have_none(cluster, mark, tmp_path, monkeypatch):
    monkeypatch.setenv("FGLBENCH_CACHE", str(tmp_path / "cache of the driver"))
    monkeypatch.setenv("SHIPPED_FROM_HERE", "1")  # the only source of the dataset
    chosen = {"plugins": [SHIPPED], "methods": ["fedavg"], "datasets": ["shipped"], "partitions": ["uniform"]}
    chosen |= {"clients": [3], "seeds": [0, 1], "settings": ["training.rounds=2"]}
    frame = fglbench.run(**chosen, results=tmp_path / "results", backend="ray", address=cluster.address, jobs=2)
    assert list(frame["status"]) == ["ok", "ok"], list(frame["error"])
    assert set(frame["source"]) == {"cache"}


def test_a_dataset_that_was_damaged_on_its_way_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("FGLBENCH_CACHE", str(tmp_path / "here"))
    assert own_data.packed("mine") is None
    cache_file("mine").parent.mkdir(parents=True)
    cache_file("mine").write_bytes(b"the file")
    name, digest, data = own_data.packed("mine")
    monkeypatch.setenv("FGLBENCH_CACHE", str(tmp_path / "there"))
    with pytest.raises(UserError, match="damaged on its way"):
        own_data.keep(name, digest, b"the fine")
    assert own_data.held() == []
    own_data.keep(name, digest, data)
    assert (own_data.held(), cache_file("mine").read_bytes()) == (["mine.npz"], b"the file")
    cache_file("mine").write_bytes(b"their own")
    own_data.keep(name, digest, data)
    assert cache_file("mine").read_bytes() == b"their own"


@pytest.mark.slow
def test_a_killed_node_costs_no_row(tiny, cluster, lose_node, figures, tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(tiny.replace("rounds: 3", "rounds: 400").replace("seeds: 2", "seeds: 6"))
    expected = fglbench.run(suites=[str(path)], results=tmp_path / "expected", jobs=2)

    class Killer(Observer):
        begun_cells, killed = 0, False

        def started(self, item):
            self.begun_cells += 1

        def round(self, item, number, figures):
            if self.begun_cells >= 4 and not self.killed:  # both workers are in the middle of a cell
                self.killed = True
                lose_node()

    witness = Killer()
    frame = fglbench.run(
        suites=[str(path)], results=tmp_path / "found", backend="ray", address=cluster.address, observer=witness
    )
    assert witness.killed
    assert list(frame["status"]) == ["ok"] * 12
    assert figures(frame).equals(figures(expected))
    assert witness.begun_cells == 13  # the cell of the killed node is repeated
    assert len(Store(tmp_path / "found").rows()) == 12


def test_a_host_on_a_node_imports_no_numerical_package():
    code = (
        "import sys, fglbench.benchmark.runner.process; "
        "print({'torch', 'dgl', 'pandas', 'pydantic'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_a_plugin_that_did_not_reach_the_node_is_named():
    with pytest.raises(ImportError, match=r"'far/gone_plugin\.py' did not reach the node"):
        shipped_plugin("far/gone_plugin.py")
    assert shipped_plugin("a.module") == "a.module"


# -- bad input -------------------------------------------------------------------------------------------------------


def refused(suite, results, **backend):
    with pytest.raises(UserError) as error:
        fglbench.run(suites=[suite], results=results, **backend)
    assert error.value.code == 2 and "\n" not in str(error.value)
    assert Store(results).rows() == []
    return str(error.value)


def test_unavailable_backends_are_one_line(suite, tmp_path, monkeypatch):
    assert "did you mean 'ray'" in refused(suite, tmp_path, backend="rey")
    assert "add --backend ray" in refused(suite, tmp_path, address="localhost:1")
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "fglbench.benchmark.runner.ray_backend", raising=False)
    assert refused(suite, tmp_path, backend="ray") == "--backend ray needs Ray: pip install 'fglbench[ray]'"


COMMANDS = {
    "run": ["-s", "SUITE", "--results", "NEW"],
    "tune": ["-s", "SUITE", "--results", "NEW", "--out", "NEW/chosen.yaml", "--trials", "1"],
    "verify": ["FINISHED", "--sample", "1", "--no-contract"],
    "reproduce": ["fgssl-table1", "--results", "NEW", "--only", "cora,fedavg", "-k", "5", "--seeds", "1"],
}


UNKNOWN = ("unknown backend 'rey'", ["--backend", "rey"])
ALONE = ("add --backend ray", ["--address", "localhost:1"])


@pytest.mark.parametrize(
    ("name", "message", "options"), [("run", *ALONE), ("tune", *UNKNOWN), ("verify", *ALONE), ("reproduce", *UNKNOWN)]
)
def test_every_command_has_the_backend_options_and_names_a_mistake(
    suite, finished, tmp_path, monkeypatch, capsys, name, message, options
):
    monkeypatch.setattr("fglbench.benchmark.runner.job.with_data", lambda plan: (plan, []))
    places = {"SUITE": suite, "NEW": str(tmp_path), "FINISHED": str(finished)}
    arguments = [places.get(word, word).replace("NEW", str(tmp_path)) for word in COMMANDS[name]]
    assert main([name, *arguments, *options]) == 2
    output = " ".join(capsys.readouterr().err.split())
    assert message in output and output.count("fglbench:") == 1
    assert Store(tmp_path).rows() == []


@pytest.mark.slow
def test_a_study_and_a_verification_run_on_a_cluster(suite, finished, cluster, mark, tmp_path, capfd):
    """The numbers equal those of local processes; several rungs share one connection."""
    ray = ["--backend", "ray", "--address", cluster.address]
    for where, backend in (("here", []), ("there", ray)):
        place = tmp_path / where
        out = ["--results", str(place), "--out", str(place / "chosen.yaml")]
        assert main(["tune", "-s", suite, "-m", "fedavg", "--trials", "3", "-j", "1", *out, *backend]) == 0
    rows = [
        sorted((row.key, row.val) for row in Store(tmp_path / where / "tuning").rows()) for where in ("here", "there")
    ]
    assert rows[0] == rows[1] and rows[0]
    capfd.readouterr()
    assert main(["verify", str(finished), "--sample", "1", "--seed", "0", "--no-contract", "-j", "1", *ray]) == 0
    assert "2 of 2 scores are equal to rounding" in capfd.readouterr().out


def test_a_recorded_verdict_names_the_machine_that_computed(finished, backend, tmp_path, monkeypatch, capfd):
    """This process pretends to be another machine than its worker."""
    elsewhere = ("0" * 12, {"cpu": "elsewhere"})
    monkeypatch.setattr("fglbench.benchmark.store.provenance.environment", lambda *_: elsewhere)
    monkeypatch.setattr("fglbench.benchmark.store.provenance.git_state", lambda: ("b" * 40, False))
    results = shutil.copytree(finished, tmp_path / "results")
    computed = {row.environment for row in Store(results).rows()}
    shutil.rmtree(results / "environments")
    chosen = [f"--{name}={value}" for name, value in backend.items()]
    chosen += ["--sample", "2", "--seed", "0", "--no-contract", "-j", "1", "--record", str(results), "--by", "me"]
    assert main(["verify", str(results), *chosen]) == 0
    assert "4 of 4 scores are equal to rounding" in capfd.readouterr().out
    verdicts = verified.read(results)
    assert [(each.verdict, each.git_sha, each.by) for each in verdicts] == [("passed", "b" * 40, "me")] * 4
    assert {each.environment for each in verdicts} == computed
    assert [path.stem for path in (results / "environments").iterdir()] == list(computed)
    assert all(Store(results).environment(digest)["machine"] for digest in computed)


def test_a_cluster_that_does_not_answer_is_one_line(suite, tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="needs Ray: pip install fglbench[ray]")
    from fglbench.benchmark.runner import ray_backend

    monkeypatch.setattr(ray_backend, "ANSWER", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        assert f"the Ray cluster at {address} does not answer" in refused(
            suite, tmp_path, backend="ray", address=address
        )

        def answer():
            stream, _ = mute.accept()  # the earlier connection
            stream.close()
            stream, _ = mute.accept()
            with stream:
                stream.recv(100)
                stream.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        other = threading.Thread(target=answer)
        other.start()
        message = refused(suite, tmp_path, backend="ray", address=address)
        assert f"what answers there is not the Ray cluster at {address}" in message
        other.join()
    assert f"the Ray cluster at {address} does not answer" in refused(suite, tmp_path, backend="ray", address=address)
    assert "does not answer" in refused(suite, tmp_path, backend="ray", address="localhost:http")


def test_a_cluster_without_workers_is_an_error_after_ten_minutes(monkeypatch):
    pytest.importorskip("ray", reason="needs Ray: pip install fglbench[ray]")
    from fglbench.benchmark.runner import ray_backend

    clock = iter([0.5, 0.5, 600.0, 601.0, 601.0, 1201.0, 1201.5])
    monkeypatch.setattr(ray_backend, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(ray_backend.ray, "wait", lambda *_, **__: None)
    alone, backend = SimpleNamespace(turn=None, up=False), object.__new__(ray_backend.Cluster)
    backend.without_workers_since = None
    backend.wait([alone], 0)  # from 0.5
    backend.wait([alone], 0)  # 600
    backend.wait([alone, SimpleNamespace(turn=None, up=True)], 0)  # a worker is up
    backend.wait([alone], 0)  # from 601, so that it may take until 1201
    backend.wait([alone], 0)
    with pytest.raises(UserError, match="no node of the Ray cluster has taken a worker for 10 minutes"):
        backend.wait([alone], 0)


class Strange:
    """A host class in a module that nodes do not have: Ray finds a class by the name of its module."""

    def __init__(self, options):
        self.options = options

    def listen(self, seconds):
        return self.options


@pytest.mark.slow
def test_nodes_of_other_versions_are_one_line(suite, cluster, mark, tmp_path, monkeypatch):
    import ray

    from fglbench.benchmark.runner import ray_backend as module

    chosen = {"backend": "ray", "address": cluster.address, "jobs": 1}
    with monkeypatch.context() as patch:
        patch.setattr(module, "code_version", lambda: "0" * 12)
        message = refused(suite, tmp_path, **chosen)
        assert (
            "a node of the Ray cluster has fglbench source" in message and "install the same on every node" in message
        )
    with monkeypatch.context() as patch:
        patch.setattr(ray, "__version__", "1.0.0")
        assert "cannot be used: Version mismatch" in refused(suite, tmp_path, **chosen)
    with monkeypatch.context() as patch:
        patch.setattr(module, "Host", Strange)
        patch.setattr(Strange, "__module__", "only_here")
        patch.setitem(sys.modules, "only_here", ModuleType("only_here"))
        patch.setattr(sys.modules["only_here"], "Strange", Strange, raising=False)
        message = refused(suite, tmp_path, **chosen)
        assert "a worker process cannot start: ModuleNotFoundError: No module named" in message
        assert message.endswith(f"; every node of the cluster needs fglbench {fglbench.__version__}")
    with monkeypatch.context() as patch:
        patch.setattr(module, "PATIENCE", 0.0)
        assert "no node of the Ray cluster has taken a worker" in refused(suite, tmp_path, **chosen)
    assert "no node of the Ray cluster has 64 CPUs" in refused(suite, tmp_path, **chosen, threads=64)
    assert not ray.is_initialized()
