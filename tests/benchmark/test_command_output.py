"""Output of commands: short sentences for users, JSON for programs, one record per line into a pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fglbench.benchmark.cli.common import command, why
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.catalogue import FAMILIES
from fglbench.benchmark.suites.select import Request, select
from fglbench.datasets import DATASETS
from fglbench.datasets.own_data import announce
from fglbench.methods import METHODS
from fglbench.registry import UserError
from fglbench.report.groups import family

QUICK = ["run", "--quick", "-m", "fedavg", "-d", "cora", "--dry-run"]


def test_every_method_is_listed_on_one_line_with_a_summary(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    lines = cli("list methods").splitlines()
    assert {line.split()[0] for line in lines} == set(METHODS.names())
    ours = {name for name in METHODS.names() if METHODS.is_own(METHODS.cls(name))}  # other tests may register theirs
    lines = [line for line in lines if line.split()[0] in ours]
    for line in lines:
        name = line.split()[0]
        assert METHODS.cls(name).summary and line.rstrip().endswith(METHODS.cls(name).summary), name
        assert family(name) in line
    order = [list(FAMILIES).index(family(line.split()[0])) for line in lines]
    assert order == sorted(order)


def test_lists_and_show_as_json(json_of):
    methods = {entry["name"]: entry for entry in json_of("list methods")}
    assert methods["fedprox"]["family"] == "shared model"
    shown = json_of("show fedprox")
    assert (shown["kind"], shown["parameters"][0]["name"]) == ("method", "mu")
    assert json_of("show louvain")["facts"]["for"] == "node datasets"
    assert json_of("show cora")["facts"]["citation"].startswith("Sen et al.")


def test_a_suite_is_shown(json_of, cli):
    facts = json_of("show quick")["facts"]
    assert facts["datasets"] == "cora, citeseer, pubmed"
    assert facts["runs"] == str(len(select(Request(quick=True))))
    assert "fglbench run -s quick" in cli("show quick")


def test_a_plan_as_json(json_of, tmp_path, cli):
    plan = json_of([*QUICK, "--results", str(tmp_path)])
    assert plan["counts"] == {"todo": 2, "done": 0, "skipped": 0, "failed": 0}
    wanted = select(Request(quick=True, methods=("fedavg",), datasets=("cora",)))
    assert [(entry["suite"], entry["key"]) for entry in plan["cells"]] == [(suite, cell.key) for suite, cell in wanted]
    assert plan["cells"][0]["method"]["name"] == "fedavg"
    assert "--json prints a plan" in cli(f"run --quick --json --results {tmp_path}", 2)


def store_rows(root, request, status, **values):
    store = Store(root)
    for suite, cell in select(request):
        store.append_row(cell.row(suite, status=status, started="2026", environment="e", **values))


def test_status_gives_each_reason_once(json_of, tmp_path, cli):
    four = ("fedavg", "local", "fedprox", "scaffold")
    store_rows(tmp_path, Request(quick=True, methods=four, datasets=("cora",)), "skipped", error="no data")
    store_rows(tmp_path, Request(quick=True, methods=("moon",), datasets=("cora",)), "failed", error="a bug")
    lines = [line.rstrip() for line in cli(f"status --results {tmp_path}").splitlines()]
    assert "4 methods: skipped: no data (8 runs of quick)" in lines
    assert "moon: failed: a bug (2 runs of quick)" in lines  # not a method of the suite, but shown
    assert lines[1].split() == ["quick", "36", "0", "0", "8", "28", "0", "2"]
    assert any(line.startswith("others: ") for line in lines)
    (entry,) = json_of(f"status --results {tmp_path}")
    assert (entry["suite"], entry["skipped"], entry["others"], len(entry["reasons"])) == ("quick", 8, 2, 10)


def test_status_explains_stale(cli, tmp_path):
    ((suite, cell),) = select(Request(quick=True, methods=("fedavg",), datasets=("cora",), seeds=(0,)))
    row = cell.row(suite, status="ok", started="2026", environment="e")
    Store(tmp_path).append_row(row.model_copy(update={"method_version": "0" * 12}))
    output = cli(f"status --results {tmp_path}")
    assert f"fglbench run -s SUITE --rerun stale --results {tmp_path}" in output


def test_few_methods_are_named():
    (_, cell), *_ = select(Request(quick=True, methods=("fedavg",), datasets=("cora",), seeds=(0,)))
    row = cell.row("quick", status="oom", error="too large", started="2026", environment="e")
    assert why([row]) == ["fedavg: oom: too large (1 run)"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["-m", "fedavg", "-d", "enzymes", "-p", "louvain"], "'louvain' cuts node datasets and 'enzymes' is a graph"),
        (["-m", "fedavg", "-d", "twitch", "-p", "source", "-k", "3"], "'twitch' comes with 7 clients, not 3; give -k"),
        (["-m", "fedavg", "-d", "domains:mutag+bzr", "-k", "3"], "'domains:mutag+bzr' comes with 2 clients, not 3"),
        (
            ["-m", "fedavg", "-d", "mutag", "-p", "own"],
            "'mutag' comes without clients; choose one of fclg, label-dirichlet,",
        ),
        (["-m", "fedavg", "-d", "domains:mutag+bzr", "-p", "uniform"], "which no client can mix; use partition own"),
        (["-m", "fedgta", "-d", "mutag"], "fedgta is defined for node classification, not for graph classification"),
        (["-d", "tu:"], "dataset 'tu:': tu:NAME is a set of the TU collection"),
        (["-d", "domains:mutag"], "dataset 'domains:mutag': give at least two sets of graphs, each once"),
        (["-d", "domains:mutag+no"], "dataset 'domains:mutag+no': unknown dataset 'no'"),
        (["-m", "o-pfgl", "-d", "cora", "--set", "lam_min=3"], "lam_min is 3, must be at most lam_max, 0.2"),
        (["-s", "clustering", "-d", "cora"], "partition 'fclg' cuts graph datasets and 'cora' is a node dataset"),
        (["-s", "heterogeneous", "-m", "fedavg"], "fedavg averages whole models and cannot mix architectures"),
        (["--quick", "-d", "cora", "--split", "none"], "split 'none' is for graph datasets and 'cora' is a node"),
    ],
)
def test_a_partition_of_another_task_is_refused_while_planning(cli, tmp_path, options, words):
    assert words in cli(["run", *options, "--results", str(tmp_path / "results")], 2)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("options", "suite", "line"),
    [
        ({"datasets": ("cora", "enzymes")}, "graph", "enzymes label-dirichlet x6 gin fedavg"),
        ({"datasets": ("cora", "enzymes")}, "leaderboard", "cora louvain x10 gcn fedavg"),
        ({"datasets": ("twitch",), "partitions": ("source", "louvain")}, "custom", "twitch source x7 gcn fedavg"),
        ({"datasets": ("twitch",), "partitions": ("source", "louvain")}, "custom", "twitch louvain x10 gcn fedavg"),
        ({"datasets": ("enzymes",)}, "graph", "enzymes label-dirichlet x6 gin fedavg"),
        ({"datasets": ("nci109", "mutag")}, "graph", "nci109 label-dirichlet x6 gin fedavg"),
        ({"datasets": ("tu:MSRC_9",)}, "graph", "tu:MSRC_9 label-dirichlet x6 gin fedavg"),
        ({"datasets": ("esol",)}, "regression", "esol uniform x5 gin fedavg"),
        ({"datasets": ("bbbp",)}, "molecules", "bbbp scaffold x5 gin fedavg"),
        ({"datasets": ("domains:mutag+bzr",)}, "natural-graphs", "domains:mutag+bzr own x2 gin fedavg"),
        ({"datasets": ("twitch",), "partitions": ("source",)}, "custom", "twitch source x7 gcn fedavg"),
        ({"datasets": ("twitch",)}, "leaderboard", "twitch louvain x10 gcn fedavg"),
    ],
)
def test_a_dataset_without_a_suite_is_run_as_on_a_board_of_its_task(options, suite, line):
    runs = {(name, str(cell)) for name, cell in select(Request(methods=("fedavg",), seeds=(0,), **options))}
    assert (suite, f"{line} seed 0") in runs and len(runs) <= 2


def test_a_set_of_graphs_from_a_plugin_is_run_as_on_the_board_of_such_sets(monkeypatch):
    class Rings(DATASETS.cls("mutag")):
        pass

    monkeypatch.setitem(DATASETS._classes, "rings", Rings)
    runs = {(name, str(cell)) for name, cell in select(Request(methods=("fedavg",), datasets=("rings",), seeds=(0,)))}
    assert runs == {("graph", "rings label-dirichlet x6 gin fedavg seed 0")}


def test_methods_without_a_dataset_are_run_on_a_board_of_their_task():
    for methods, suite in ((("gcfl", "fedstar"), "graph"), (("fclg",), "clustering"), (("fedgta",), "leaderboard")):
        assert {name for name, _ in select(Request(methods=methods, seeds=(0,)))} == {suite}
    with pytest.warns(UserWarning, match="gcfl is defined for graph classification, not for node classification"):
        assert {cell.method.name for _, cell in select(Request(methods=("gcfl", "fedgta")))} == {"fedgta"}


def test_all_leaves_out_suites_without_the_dataset():
    cells = select(Request(all_suites=True, methods=("fedavg",), datasets=("mutag",)))
    assert {name for name, _ in cells} == {"graph", "graph-tuned"}


def test_clients_of_the_users_data_are_not_those_of_another_dataset(clinics):
    own = announce(clinics)
    cells = select(Request(methods=("fedavg",), seeds=(0,), datasets=("cora",), own_dataset=own))
    assert {str(cell) for _, cell in cells} == {
        "cora louvain x10 gcn fedavg seed 0",
        f"{own} own x3 gcn fedavg seed 0",
    }


def test_cells_of_another_task_are_left_out_with_a_warning():
    with pytest.warns(UserWarning, match="cuts node datasets and 'enzymes' is a graph dataset"):
        cells = select(Request(quick=True, methods=("fedavg",), datasets=("cora", "enzymes"), seeds=(0,)))
    assert [cell.dataset.name for _, cell in cells] == ["cora"]


def test_the_next_command_is_for_the_folder_of_the_rows():
    assert command("report", Path("runs")) == "fglbench report"
    assert command("report", Path("runs/my own")) == "fglbench report --results 'runs/my own'"


def test_doctor_is_short_and_names_the_sources_of_data(json_of, tmp_path, monkeypatch, cli):
    monkeypatch.setenv("FGLBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FGLBENCH_MIRROR", str(tmp_path / "mirror"))
    (tmp_path / "mirror" / "acm").mkdir(parents=True)
    (tmp_path / "mirror" / "acm" / "ACM.npz").write_bytes(b"")
    (tmp_path / "cache" / "datasets").mkdir(parents=True)
    (tmp_path / "cache" / "datasets" / "wiki.npz").write_bytes(b"")
    document = json_of(["doctor", "--results", str(tmp_path / "results")])
    wanted = {"wiki": "cache", "acm": "mirror", "cora": "package index", "actor": "upstream", "csbm": "generator"}
    assert {name: document["sources"][name] for name in wanted} == wanted
    assert document["sound"] and document["facts"]["torch and DGL"] == "work together"
    assert "made when needed" in document["facts"]["results"]
    assert len(cli(["doctor", "--results", str(tmp_path / "results")]).splitlines()) <= 40
    assert not (tmp_path / "results").exists()


def test_doctor_names_the_problem(cli, monkeypatch):
    def unfit() -> None:
        raise UserError("DGL has no build")

    monkeypatch.setattr("fglbench.benchmark.cli.machine.check_packages", unfit)
    assert json.loads(cli("doctor --json", 1))["facts"]["torch and DGL"] == "DGL has no build"


def test_the_shell_completes():
    code = "import sys; from fglbench.benchmark.cli import main; main(sys.argv[1:])"
    environment = {"_FGLBENCH_COMPLETE": "complete_bash", "COMP_WORDS": "fglbench rep", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    assert sorted(done.stdout.split()) == ["report", "reproduce"]
