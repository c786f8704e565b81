"""Changes that a plug-in makes in its process do not reach other cells: rows equal those of separate runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest

import fglbench
from fglbench.benchmark.runner.backend import needs
from fglbench.benchmark.runner.plan import Item
from fglbench.benchmark.suites import apart
from fglbench.benchmark.suites.select import Request, select

POISON = str(Path(__file__).with_name("poison.py"))
ON_IMPORT = str(Path(__file__).with_name("poison_on_import.py"))
Figures = Callable[[pd.DataFrame], pd.DataFrame]


def ran(suite: str, results: Path, **options: object) -> pd.DataFrame:
    return fglbench.run(suites=[suite], results=results, **{"jobs": 1, **options})


def check(suite: str, folder: Path, methods: list[str], figures: Figures, **backend: object) -> None:
    """Every method poisons with seed 0; rows of seed 1, and of fedavg, are unchanged."""
    poisoned = ran(suite, folder / "all", methods=[*methods, "fedavg"], plugins=[POISON], **backend)
    clean = fglbench.run(suites=[suite], results=folder / "fedavg", methods=["fedavg"], in_process=True)
    assert figures(poisoned[poisoned["method"] == "fedavg"]).equals(figures(clean))
    for method in methods:
        rows = poisoned[(poisoned["method"] == method) & (poisoned["seed"] == 1)]
        arguments = {"suites": [suite], "methods": [method], "seeds": [1], "plugins": [POISON]}
        alone = fglbench.run(**arguments, results=folder / method, in_process=True)  # with seed 1 it poisons nothing
        assert figures(rows).equals(figures(alone))
        if method != "p-remembers":  # it trains like fedavg
            assert rows["score"].item() == clean.set_index("seed")["score"][1]
    wild = poisoned[(poisoned["method"] == "p-scores") & (poisoned["seed"] == 0)]
    assert (wild["score"] == 1).all()  # it did strike


class Order(fglbench.Observer):
    """Notes the methods in the order of their cells."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    def started(self, item: Item) -> None:
        self.methods.append(item.cell.method.name)


@pytest.mark.usefixtures("registries")
def test_changes_of_a_plug_in_on_import_do_not_reach_other_cells(
    suite: str, tiny: str, figures: Figures, tmp_path: Path
) -> None:
    (tmp_path / "tiny.yaml").write_text(tiny.replace("[fedavg, local]", "[p-scores, fedavg]"))
    order = Order()
    rows = ran(str(tmp_path / "tiny.yaml"), tmp_path / "all", plugins=[POISON, ON_IMPORT], seeds=[0], observer=order)
    clean = fglbench.run(suites=[suite], results=tmp_path / "clean", methods=["fedavg"], seeds=[0], in_process=True)
    assert order.methods == ["p-scores", "fedavg"]
    assert rows.set_index("method")["score"]["p-scores"] == 1  # it did strike
    assert figures(rows[rows["method"] == "fedavg"]).equals(figures(clean))


@pytest.mark.slow
@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("backend", ["processes", "ray"])
def test_no_poisoning_reaches_another_cell(suite: str, tmp_path: Path, figures: Figures, backend: str) -> None:
    if backend == "ray":
        pytest.importorskip("ray", reason="needs Ray: pip install fglbench[ray]")
    methods = ["p-scores", "p-torch", "p-class", "p-thread", "p-remembers"]
    check(suite, tmp_path, methods, figures, backend=backend)


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize(("thread", "processes"), [pytest.param("", 1, marks=pytest.mark.slow), ("yes", 2)])
def test_a_worker_with_a_thread_left_over_gets_no_more_cells(
    suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: str, processes: int
) -> None:
    monkeypatch.setenv("POISON_LOADS", str(tmp_path / "loads"))
    monkeypatch.setenv("POISON_THREAD", thread)
    frame = ran(suite, tmp_path / "rows", datasets=["p-data"], methods=["fedavg", "local"], seeds=[0], plugins=[POISON])
    assert list(frame["status"]) == ["ok", "ok"], list(frame["error"])
    assert len(set((tmp_path / "loads").read_text().split())) == processes


@pytest.mark.usefixtures("registries")
def test_only_cells_with_plug_ins_run_separately(suite: str) -> None:
    from fglbench.benchmark.suites.plugins import load_plugins

    load_plugins([POISON])
    wanted = {("fedavg", ""): (False, False), ("p-scores", ""): (True, True), ("fedavg", "p-data"): (True, False)}
    for (method, dataset), expected in wanted.items():
        request = Request(suites=(suite,), methods=(method,), datasets=(dataset,) if dataset else ())
        assert {tuple(needs(cell)) for _, cell in select(request)} == {expected}


JUDGED = """
import os
from pathlib import Path

from pydantic import Field

from fglbench.benchmark.engine import method
from fglbench.benchmark.runner import process
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg
from fglbench.registry import LATER, tunable

with open(Path(__file__).with_name("imports"), "a") as stream:
    stream.write(f"{os.getpid()}\\n")
CHANGE = os.environ.get("JUDGED_CHANGE", "")
sent = process._send


def send(pipe, word, *values):
    if word == process.DONE:
        row, files, left = values
        if CHANGE == "file":
            files["../outside.csv"] = "eA=="
        elif CHANGE == "form":
            row = [1, 2]
        elif CHANGE:
            row[CHANGE] = {"method": "local", "seed": 3}[CHANGE]
        values = row, files, left
    sent(pipe, word, *values)


process._send = send
method.ADJUSTABLE.add("rounds")  # where it is imported, the guard of `protocol` is gone


@METHODS.register("judged")
class Judged(FedAvg):
    \"\"\"FedAvg at a rate of its own.\"\"\"

    half: float = Field(0.5, gt=0, le=1, description="the rate in units of 0.01", json_schema_extra=tunable(0.25, 1.0))
    added: int = Field(3, json_schema_extra=LATER)

    def protocol(self, config):
        more = {"rounds": 4 * config.rounds} if CHANGE == "rounds" else {}
        return config.model_copy(update={"lr": self.half / 100, **more})
"""


@pytest.fixture
def judged(tmp_path: Path) -> Iterator[Path]:
    """The file of a plug-in that records which processes import it."""
    path = tmp_path / "judged.py"
    path.write_text(JUDGED)
    yield path
    importers = (tmp_path / "imports").read_text().split() if (tmp_path / "imports").exists() else []
    assert str(os.getpid()) not in importers
    assert "fglbench_plugin_judged" not in sys.modules


def test_a_plug_in_is_imported_in_other_processes_and_its_cells_have_the_keys_of_an_import(
    suite: str, tmp_path: Path, judged: Path, cli
) -> None:
    run = ["run", "-s", suite, "-m", "judged", "--plugin", str(judged), "-j", "1", "--results", str(tmp_path / "rows")]
    cli([*run, "--seeds", "1", "--set", "method.half=0.25"])
    (row,) = fglbench.load_results(tmp_path / "rows").to_dict("records")
    assert (row["status"], row["method_params"]) == ("ok", '{"half":0.25}')
    assert '"lr":0.0025' in row["training"]
    assert row["method_version"].startswith("1+")
    assert "did you mean 'half'" in cli([*run, "--set", "method.hallf=1"], 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("file", "../outside.csv"),
        pytest.param("method", ": method", marks=pytest.mark.slow),
        pytest.param("seed", ": seed", marks=pytest.mark.slow),
        pytest.param("form", "of another form", marks=pytest.mark.slow),
    ],
)
def test_a_result_of_another_cell_is_a_failure(
    suite: str, tmp_path: Path, judged: Path, monkeypatch: pytest.MonkeyPatch, change: str, message: str
) -> None:
    monkeypatch.setenv("JUDGED_CHANGE", change)
    options = {"plugins": [str(judged)], "results": tmp_path / "rows", "jobs": 1, "seeds": [0]}
    (row,) = fglbench.run(suites=[suite], methods=["judged"], **options).to_dict("records")
    assert (row["status"], row["method"], row["seed"]) == ("failed", "judged", 0)
    assert "the worker sent what is not of its cell" in row["error"]
    assert message in row["error"]
    assert not (tmp_path / "outside.csv").exists()


def test_protocol_is_guarded_outside_of_the_plug_in_process(
    suite: str, tmp_path: Path, judged: Path, monkeypatch: pytest.MonkeyPatch, cli
) -> None:
    monkeypatch.setenv("JUDGED_CHANGE", "rounds")
    error = cli(f"run -s {suite} -m judged --plugin {judged} --results {tmp_path / 'rows'}", 2)
    assert "judged changes rounds in `protocol`: the suite decides that" in error


@pytest.mark.parametrize("plan", [["--dry-run"], pytest.param([], marks=pytest.mark.slow)])
def test_tune_and_compete_plan_a_plug_in_from_its_process(
    suite: str, tmp_path: Path, judged: Path, cli, plan: list[str]
) -> None:
    options = ["--plugin", str(judged), "--results", str(tmp_path / "rows"), "--out", str(tmp_path / "chosen.yaml")]
    output = cli(["tune", "-s", suite, "-m", "judged", "--trials", "3", "-j", "1", *options, *plan])
    assert "judged" in (output if plan else (tmp_path / "chosen.yaml").read_text())
    if not plan:
        following = output.strip().splitlines()[-1].partition("next: fglbench ")[2]
        assert f"-m judged --tuned {tmp_path / 'chosen.yaml'}" in following
        assert "gcn judged, seeds 0" in cli(f"{following} --seeds 1 --dry-run")
    assert "1 study" in cli(f"compete {judged} --quick -d cora --dry-run")


REGISTERS = """
from fglbench.methods import METHODS

METHODS.register("x-x")(type("X", (METHODS.cls("fedavg"),), {}))
"""


def test_a_plug_in_process_that_ends_or_sends_nonsense_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ends.py"
    for code, message in {
        "import os; os._exit(7)": "the process that imports plug-ins ended with exit code 7",
        "import fglbench.benchmark.suites.apart as a; a._described = lambda *_: {'kind': 'method'}": "invalid",
    }.items():
        path.write_text(f"{code}\n{REGISTERS}")
        with pytest.raises(fglbench.UserError, match=message):
            apart.use([str(path)])
        apart.end()


CUT = """
import numpy as np
from fglbench.datasets import PARTITIONS, PartitionSpec

@PARTITIONS.register("thirds")
class Thirds(PartitionSpec):
    def deal(self, data, clients, rng):
        return np.array_split({order}, clients)
"""


def test_an_edited_partition_makes_rows_of_built_in_methods_stale(tmp_path: Path, cli) -> None:
    path = tmp_path / "cut.py"
    where = f"--plugin {path} --results {tmp_path / 'rows'}"
    command = f"run -m fedavg -d csbm -p thirds --seeds 1 --set training.rounds=1 -j 1 {where}"
    for order, states in (
        ("np.arange(len(data.label))", "1 to run, 0 done"),
        ("np.arange(len(data.label))", "0 to run, 1 done"),
        ("np.arange(len(data.label))[::-1]", "1 done with an earlier revision of the method or plug-in"),
    ):
        path.write_text(CUT.format(order=order))
        assert states in cli(command)
    assert "1 to run, 0 done" in cli(f"{command} --rerun stale")
    assert "0 to run, 1 done" in (done := cli(command)) and "earlier" not in done
    hashes = fglbench.load_results(tmp_path / "rows")["partition_hash"]
    assert len(set(hashes)) == 1
