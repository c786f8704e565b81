"""The command line, in this process: output and exit codes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import warnings

import pytest

import fglbench
from fglbench.benchmark.cli import main
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.select import Request, select


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run"], "say what to run: --all, -s SUITE, or -m METHOD and -d DATASET"),
        (["run", "--alll"], "No such option: --alll"),
        (["run", "-s", "quik"], "unknown suite 'quik'; did you mean 'quick'?"),
        (["run", "-s", "quick", "--quick"], "--quick is the suite 'quick'"),
        (["run", "--quick", "-m", "fedavgg"], "unknown method 'fedavgg'; did you mean 'fedavg'?"),
        (["run", "--quick", "-k", "ten"], "numbers of clients are whole numbers"),
        (["run", "--quick", "--seeds", "x"], "--seeds is a count (3), a list (0,4) or a range (3-5, 0-0), got 'x'"),
        (["run", "--quick", "--jobs", "0"], "Invalid value for '-j' / '--jobs'"),
        (["list", "method"], "unknown kind of thing to list 'method'; did you mean 'methods'?"),
        (
            ["show", "fedporx"],
            "unknown method, dataset, partition, split, backbone or suite 'fedporx'; did you mean 'fedprox'?",
        ),
        (["rum"], "No such command 'rum'"),
        (["new", "rum"], "No such command 'rum'; see fglbench new -h"),
        (["show"], "Missing argument 'NAME'; see fglbench show -h"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(capsys, arguments, line):
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"fglbench: {line}")
    assert output.err.count("\n") == 1


@pytest.mark.parametrize(
    "option", [["-j", "0"], ["-j0"], ["--jobs=0"], ["--jobs", "3", "--jobs", "0"], ["--memory-limit", "0"]]
)
def test_a_number_outside_the_limits_is_repeated(cli, option):
    assert re.search(r"(?<![\w.])0(?![\w.])", cli(["run", "--quick", *option], 2))


def test_profile_refuses_an_unknown_method_before_it_loads_data(cli, monkeypatch):
    monkeypatch.setattr("fglbench.benchmark.known._others", lambda: False)
    assert cli("profile -m fedavgg", 2).startswith("fglbench: unknown method 'fedavgg'; did you mean 'fedavg'?")


def test_an_unwritable_folder_is_refused_before_any_run(cli, tmp_path):
    (tmp_path / "taken").write_text("")
    assert cli(["run", "--quick", "--results", str(tmp_path / "taken")], 2).startswith(
        "fglbench: cannot write results to"
    )


def test_dry_run_lists_the_runs_and_writes_nothing(cli, tmp_path):
    results = tmp_path / "results"
    plan, cost = cli(f"run --quick -m fedavg -d cora --seeds 4-6 --dry-run --results {results}").split("3 runs, about ")
    assert plan == (
        "3 runs: 3 to run, 0 done, 0 skipped, 0 failed\n  quick: cora louvain x10 gcn fedavg, seeds 4 5 6\n"
    )
    assert "workers (by published timings)" in cost or "1 worker (by published timings)" in cost
    assert not results.exists()


def test_earlier_failures_are_reported_with_exit_code_1(cli, tmp_path):
    store = Store(tmp_path)
    request = Request(quick=True, methods=("fedavg", "local"), datasets=("cora",), seeds=(0,))
    for (suite, cell), status in zip(select(request), ("failed", "skipped"), strict=True):
        store.append_row(cell.row(suite, status=status, error="because", started="2026", environment="e"))
    arguments = ["run", "--quick", "-m", "fedavg,local", "-d", "cora", "--seeds", "1", "--results", str(tmp_path)]
    lines = cli(arguments, 1).splitlines()
    assert lines[0] == "2 runs: 0 to run, 0 done, 1 skipped, 1 failed"
    assert {line.split(":", 1)[1] for line in lines[1:3]} == {" failed: because (1 run)", " skipped: because (1 run)"}
    assert "2 runs: 1 to run" in cli([*arguments, "--rerun", "failed", "--dry-run"])


def test_status_names_methods_that_have_not_converged(cli, tmp_path):
    store = Store(tmp_path)
    for (suite, cell), best in zip(
        select(Request(quick=True, methods=("fedavg",), seeds=(0, 1))), (29, 30, 12), strict=False
    ):
        values = {"best_round": best, "rounds": 30, "val": 0.5, "started": "2026", "environment": "e"}
        store.append_row(cell.row(suite, status="ok", **values))
    output = cli(f"status -s quick --results {tmp_path}")
    assert "quick: not converged: best in the last 5% of the rounds: fedavg (2)" in output


def test_status_says_that_a_folder_does_not_exist(cli, tmp_path):
    assert "nothing was run there" in cli(f"status --results {tmp_path / 'nowhere'}")


@pytest.mark.parametrize("kind", ["methods", "datasets", "partitions", "splits", "backbones", "suites"])
def test_list_names_everything_with_a_summary(cli, kind):
    lines = cli(["list", kind]).splitlines()
    sample = {"methods": "fedavg", "datasets": "cora", "partitions": "louvain", "splits": "ratio", "backbones": "gcn"}
    (line,) = [line for line in lines if line.split()[0] == sample.get(kind, "quick")]
    assert len(line.split()) > 2


@pytest.mark.parametrize(("version", "named"), [((3, 13), "Python 3.13"), ((3, 9), "Python 3.9")])
def test_an_unsupported_python_is_one_line(cli, monkeypatch, version, named):
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    output = cli("list methods", 2)
    assert output.startswith(f"fglbench: {named} cannot work: DGL has no build for it; use Python 3.10, 3.11 or 3.12")


def test_a_dgl_that_does_not_load_is_one_line_that_names_the_versions(tmp_path):
    (tmp_path / "dgl.py").write_text("raise FileNotFoundError('Cannot find DGL C++ library\\nat all')")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from fglbench.benchmark.cli import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "--quick", "--dry-run", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("fglbench: this combination cannot work (Python 3.1")
    assert "FileNotFoundError: Cannot find DGL C++ library; use Python 3.10, 3.11 or 3.12 with torch" in done.stderr
    assert done.stderr.count("\n") == 1


def test_bugs_are_not_hidden(monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("fglbench.benchmark.cli.common.parse_seeds", broken)
    with pytest.raises(ZeroDivisionError):
        main(["run", "--quick", "--dry-run"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--all", "-m", "fedavg,local", "--seeds", "2"],
            {"all_suites": True, "methods": ["fedavg", "local"], "seeds": [0, 1]},
        ),
        (
            ["--quick", "-d", "cora", "-d", "pubmed", "-m", "fedavg", "-k", "5,10", "--set", "training.lr=0.1",
             "--rerun", "stale,oom"],
            {
                "quick": True, "datasets": ["cora", "pubmed"], "methods": ["fedavg"], "clients": [5, 10],
                "settings": ["training.lr=0.1"], "rerun": ["stale", "oom"],
            },
        ),
        (
            ["-s", "overlap,leaderboard", "-m", "fedavg", "-d", "cora", "-p", "metis", "--split", "ratio",
             "-b", "gat"],
            {
                "suites": ["overlap", "leaderboard"], "methods": ["fedavg"], "datasets": ["cora"],
                "partitions": ["metis"], "splits": ["ratio"], "backbones": ["gat"],
            },
        ),
        (
            ["--quick", "-m", "fedavg", "-j", "3", "--threads", "2", "--timeout", "9", "--memory-limit", "1.5",
             "--submitter", "me", "--record-missing", "--embeddings"],
            {
                "quick": True, "methods": ["fedavg"], "jobs": 3, "threads": 2, "timeout": 9, "memory_limit": 1.5,
                "submitter": "me", "missing_rows": True, "embeddings": True,
            },
        ),
    ],
)  # fmt: skip
def test_the_command_and_the_python_interface_make_the_same_job(tmp_path, monkeypatch, arguments, words, cli):
    def stop(job, *_):
        jobs.append((job.what, job.options, job.rerun, job.missing_rows, job.store.root, job.plan()))
        raise KeyboardInterrupt

    jobs = []
    monkeypatch.setattr("fglbench.benchmark.runner.job.Job.load", stop)
    cli(["run", *arguments, "--results", str(tmp_path)], 130)
    with pytest.raises(KeyboardInterrupt):
        fglbench.run(**words, results=tmp_path)
    command, python = jobs
    assert command == python
    assert command[-1].todo


def test_the_command_line_restores_warnings_and_signals(tmp_path, monkeypatch, cli):
    def stop(*_):
        during.append((warnings.showwarning, signal.getsignal(signal.SIGTERM)))
        raise KeyboardInterrupt

    during = []
    monkeypatch.setattr("fglbench.benchmark.runner.job.Job.load", lambda job, plan, tell: plan)
    monkeypatch.setattr("fglbench.benchmark.runner.job.Job.run", stop)
    before = (warnings.showwarning, signal.getsignal(signal.SIGTERM))
    cli(f"run --quick -m fedavg -d cora --results {tmp_path}", 130)
    assert (warnings.showwarning, signal.getsignal(signal.SIGTERM)) == before
    assert during[0][0] != before[0]
    assert during[0][1] != before[1]


DEEP, LONG = "[" * 3000, "a" * 300


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--quick", "--dry-run", "--seeds", "9" * 30], "--seeds is a count"),
        (["run", "--quick", "--dry-run", "--seeds", "0-999999999999"], "--seeds is a count"),
        (["run", "--quick", "--dry-run", "--seeds", "2147483648,1"], "--seeds is a count"),
        (["run", "--quick", "--dry-run", "--set", f"training.rounds={'9' * 5000}"], "--set training.rounds: '999"),
        (["run", "--quick", "--dry-run", "--set", f"x={DEEP}"], "--set x: '[[["),
        (["run", "--quick", "--dry-run", "--results", LONG], "this cannot be done: File name too long"),
        (["status", "--results", LONG], "this cannot be done: File name too long"),
        (["status", "--results", "folder"], "folder/quick/fedavg.csv is a folder, where a file of rows"),
        (["run", "-s", "many.yaml", "--dry-run"], "many.yaml:3: cross.seeds: more than 10000 seeds"),
    ],
    ids=lambda value: value[-1][:20] if isinstance(value, list) else value[:20],
)
def test_too_large_arguments_are_one_line(arguments, message, tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder" / "quick" / "fedavg.csv").mkdir(parents=True)
    axes = "datasets: cora, partitions: louvain, clients: 3, splits: ratio, backbones: gcn, methods: fedavg"
    suite = f"description: x\ntraining: {{rounds: 1}}\ncross: {{{axes}, seeds: 1000000000}}\n"
    (tmp_path / "many.yaml").write_text(suite)
    output = cli(arguments, 2)
    assert output.startswith(f"fglbench: {message}")
    assert output.count("\n") == 1
    assert len(output) < 400


@pytest.mark.parametrize("variable", ["FGLBENCH_CACHE", "FGLBENCH_MIRROR"])
def test_an_unknown_home_is_one_line(variable, tmp_path, monkeypatch, cli):
    monkeypatch.setenv("FGLBENCH_CACHE", str(tmp_path))
    monkeypatch.setenv(variable, "~nosuchuser/data")
    assert f"{variable}: '~nosuchuser/data' names no user of this machine" in cli("data fetch acm", 2)
