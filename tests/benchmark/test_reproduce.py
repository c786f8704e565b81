"""The suites of papers against the published figures, and `fglbench reproduce`."""

from __future__ import annotations

import json
from functools import cache

import pandas as pd
import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.cell import Cell
from fglbench.benchmark.suites.suite import load_suite, suite_names
from fglbench.report.papers import tables
from fglbench.report.reproduction.match import SuiteRows


@cache
def cells(name: str) -> list[Cell]:
    return load_suite(name).cells()


@cache
def suite_rows(name: str) -> SuiteRows:
    """The suite's cells as if all had been run."""
    rows = [cell.row(name, status="ok", started="2026", environment="e").model_dump() for cell in cells(name)]
    return SuiteRows(pd.DataFrame(rows))


@cache
def seed_keys(name: str, reading: str) -> dict[str, list[tuple[int, str]]]:
    """(seed, key) of the suite's cells that each filter of a reading selects."""
    paper, table = tables()[name]
    (chosen,) = (frame for frame in paper.readings_of(table) if frame.id == reading)
    words = [paper.where(table, part) for f in paper.figures(table) for part in paper.components(table, f)]
    filters = {json.dumps(where): where for word in words for where in paper.cells(table, chosen, word)}
    rows = {text: suite_rows(name).select(where, ["seed", "key"]) for text, where in filters.items()}
    return {text: list(zip(map(int, frame["seed"]), frame["key"], strict=True)) for text, frame in rows.items()}


@pytest.mark.parametrize("name", tables())
def test_every_figure_has_cells_and_every_cell_a_figure(name):
    paper, table = tables()[name]
    used: set[str] = set()
    base, *other_readings = paper.readings_of(table)
    for reading in (base, *other_readings):
        counts = set()
        for where, runs in seed_keys(name, reading.id).items():
            assert sorted(seed for seed, _ in runs) == list(range(len(runs))), (where, reading.id)  # one cell per seed
            counts.add(len(runs))
            used |= {key for _, key in runs}
        assert min(counts if reading == base else counts - {0}, default=3) >= 3, reading.id
        for extra in table.extra:
            for where in paper.cells(table, reading, extra.where):
                used |= set(suite_rows(name).select(where, ["key"])["key"])
    assert used == {cell.key for cell in cells(name)}


def test_every_reading_has_cells_in_some_table():
    """Cells that the base lacks, unless the reading scores another round of the base's runs."""
    for name, (paper, table) in tables().items():
        base, *other_readings = paper.readings_of(table)
        same_paper = [other for other, (its_paper, _) in tables().items() if its_paper is paper]
        for reading in other_readings:
            places = [name] if reading in table.readings else same_paper
            base_keys, reading_keys = (
                {key for place in places for pairs in seed_keys(place, each).values() for _, key in pairs}
                for each in (base.id, reading.id)
            )
            assert reading_keys - base_keys or reading.round != base.round, (paper.name, reading.id)


def test_suites_of_papers_are_not_boards():
    assert set(tables()) <= set(suite_names())
    assert not {name for name in suite_names() if load_suite(name).leaderboard} & set(tables())
    named = {name for name in suite_names() if name.split("-")[0] in {"fgssl", "fedgl", "fclg", "fedomd", "fedgkc"}}
    assert named == set(tables())


def test_cells_have_the_protocols_of_the_papers():
    """The settings that the papers state, read from the cells."""
    for cell in cells("fgssl-table1"):
        training = cell.training
        assert (training.rounds, training.local_epochs, training.momentum, training.score_on) == (200, 4, 0.9, "global")
        if cell.method.name not in ("fedsage", "fedsage+"):
            assert (cell.backbone, cell.backbones[0].params["hidden"]) == ("gat", 128)
    for number in (2, 3, 4, 5, 6):
        for cell in cells(f"fedgl-table{number}"):
            training = cell.training
            assert (training.rounds, training.local_epochs, training.patience, training.lr) == (300, 10, 30, 0.01)
            assert (cell.backbones[0].params["hidden"], len(cell.partition.params["proportions"])) == (16, cell.clients)
            if "threshold" in cell.method.params:
                assert cell.method.params["threshold"] == (0.1 if cell.dataset.name == "wiki" else 0.5)
            if cell.method.name == "fedgl":
                assert cell.method.params["alpha"] == (0.1 if cell.dataset.name == "wiki" else 0.2)
    for number in (4, 5, 6, 7):
        for cell in cells(f"fedomd-table{number}"):
            several = cell.method.name in ("scaffold-mlp", "fedprox-mlp")
            training = cell.training
            assert (training.rounds, training.weight_decay) == (1000, 1e-4)
            assert training.patience in (200, None if cell.method.name in ("fedomd", "fedomd-cmd") else 200)
            assert training.local_epochs == (5 if several else 1)
            small = {100} if number == 4 else set()  # the reading of Table 4 in small communities
            admitted = {20} if cell.dataset.name.startswith("amazon") else {1} | small
            assert cell.partition.params["resolution"] in admitted
            assert cell.backbones[0].params["hidden"] == 64
    for number in (2, 3, 4, 5):
        for cell in cells(f"fedgkc-table{number}"):
            assert (cell.training.rounds, cell.training.local_epochs) == (100, 3)
            assert len(cell.backbones) == (1 if number == 4 else 5)
    assert {cell.clients for cell in cells("fclg-table2")} == {6}
    assert {round(6 * cell.training.participation) for cell in cells("fedgl-table4")} == {2, 3, 4, 5}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["fgssl-tabel1"], "unknown table 'fgssl-tabel1'; did you mean 'fgssl-table1'?"),
        (["--only", "cora"], "--only selects runs of one table: give its name too, as fgssl-table1"),
        (["--reading", "nope", "--dry-run"], "--reading selects runs of one table"),
        (["fgssl-table1", "--only", "coar"], "unknown dataset or method of fgssl-table1 'coar'; did you mean 'cora'?"),
        (["fgssl-table1", "-k", "10,6"], "fgssl-table1 has clients 5, 7, 10, not 6"),
        (["fgssl-table1", "--split", "per-class"], "fgssl-table1 has split "),
        (["fgssl-table1", "--only", "moon"], "unknown dataset or method of fgssl-table1 'moon'"),
        (["fgssl-table1", "--reading", "last-ruond"], "unknown reading of fgssl-table1 'last-ruond'; did you mean"),
        (
            ["fgssl-table1", "--reading", "stated-split", "--split", "fs-per-class"],
            "no run of fgssl-table1 is both asked for and of the readings stated-split",
        ),
        (["fedgl-table2", "--seeds", "x"], "--seeds is a count (3), a list (0,4) or a range (3-5, 0-0), got 'x'"),
        (["fedgl-table2", "-k", "x"], "numbers of clients are whole numbers"),
    ],
)
def test_a_mistake_is_one_line(capsys, tmp_path, arguments, line):
    assert main(["reproduce", *arguments, "--results", str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"fglbench: {line}")
    assert output.err.count("\n") == 1


def test_without_a_name_the_tables_are_listed(cli):
    output = cli("reproduce")
    assert {line.split()[0] for line in output.splitlines() if line[:1] not in ("", " ")} == {"table", *tables()}


def test_a_dry_run_without_a_name_gives_the_cost_of_each_table(cli, tmp_path):
    """One cell of FedAvg is finished, another has a row in another suite; half an hour per further cell of FedAvg on
    Cora."""
    fedavg_cells = [
        cell for cell in cells("fedgl-table2") if (cell.dataset.name, cell.method.name) == ("cora", "fedavg")
    ]
    done = next(cell for cell in fedavg_cells if cell.seed == 0)
    spent = {"started": "2026", "environment": "e", "rounds": done.training.rounds, "cpu_seconds": 1800.0}
    Store(tmp_path).append_row(done.row("fedgl-table2", status="ok", score=0.8, **spent))
    other = next(cell for cell in fedavg_cells if cell.seed == 2)
    Store(tmp_path).append_row(other.row("overlap", status="ok", score=0.8, **spent))
    output = cli(f"reproduce --dry-run --seeds 3 --results {tmp_path}")
    lines = {line.split()[0]: line.split()[1:] for line in output.splitlines()[1:-1]}
    assert set(lines) == set(tables())
    selected = [cell for cell in cells("fedgl-table2") if cell.seed < 3]
    known = [cell for cell in fedavg_cells if cell.seed == 1]
    assert len(known) == 1  # the cell with an estimate from the two rows
    assert lines["fedgl-table2"] == ["1", "20", "1", "0.5", str(len(selected) - 3)]
    selected = [cell for cell in cells("fgssl-table3") if cell.seed < 3]
    assert lines["fgssl-table3"] == ["0", "24", "0", "0.0", str(len(selected))]


@pytest.mark.parametrize(
    ("only", "planned"),
    [
        ("cora,FedGL", ["cora random-overlap x6 gcn fedgl (7 settings)"]),
        ("Centralized,ACM", ["acm random-overlap x6 gcn global"]),
        (
            "citeseer,fedgl-no-gpl,FEDERATED",
            ["citeseer random-overlap x6 gcn fedavg", "citeseer random-overlap x6 gcn fedgl-no-gpl (7 settings)"],
        ),
    ],
)
def test_only_accepts_our_names_and_those_of_the_paper(cli, tmp_path, only, planned):
    output = cli(f"reproduce fedgl-table2 --only {only} --seeds 1 --dry-run --results {tmp_path}")
    lines = [line for line in output.splitlines() if line.startswith("  ")]
    assert lines == [f"  fedgl-table2: {cell}, seeds 0" for cell in planned]


def test_the_cells_of_some_readings(cli, tmp_path):
    """Counted by hand: the columns of a dataset are three numbers of clients."""
    methods = ("fedproto", "fml", "fedkd", "fedtgp", "fedgkc")

    def run(*arguments: str) -> list[str]:
        where = ["--only", "cora", "--seeds", "1", "--dry-run", "--results", str(tmp_path)]
        output = cli(["reproduce", "fedgkc-table2", *where, *arguments])
        return [line for line in output.splitlines() if "by published timings" not in line]  # the cost

    assert run()[0].startswith("42 runs")  # six methods and eight settings of readings
    assert run("--reading", "together")[0].startswith("18 runs")
    assert run("--reading", "last-round") == run("--reading", "together")  # no additional run
    lines = run("--reading", "all-nodes", "-k", "5")
    assert lines[0].startswith("6 runs")
    assert {line.split()[5] for line in lines[1:]} == {f"{name}," for name in ("lg-fedavg", *methods)}
    assert run("--reading", "together,all-nodes")[0].startswith("24 runs")
    assert run("--reading", "batch-norm") == run("--reading", "together")  # it does not change this graph


def test_readings_of_a_backbone_have_separate_cells(cli, tmp_path):
    where = ["--only", "photo", "-k", "5", "--seeds", "1", "--dry-run", "--results", str(tmp_path)]
    counts = []
    for reading in ("together", "batch-norm"):
        counts.append(cli(["reproduce", "fedgkc-table2", *where, "--reading", reading]).splitlines()[0].split(":")[0])
    assert counts == ["6 runs", "6 runs"]
    assert cli(["reproduce", "fedgkc-table2", *where, "--reading", "together,batch-norm"]).startswith("12 runs")


def test_finished_cells_of_other_suites_are_reused(cli, tmp_path):
    store = Store(tmp_path)
    cora_cells = [cell for cell in cells("fedgl-table2") if cell.dataset.name == "cora" and cell.seed == 0]
    fedavg = next(cell for cell in cora_cells if cell.method.name == "fedavg")
    fedgl = next(cell for cell in cora_cells if cell.method.name == "fedgl")
    done = fedavg.row("overlap", status="ok", score=0.8, started="2026", environment="e", notes="a note")
    failed = fedgl.row("overlap", status="failed", error="because", started="2026", environment="e")
    stale = done.model_copy(update={"suite": "other", "method_version": "0" * 12, "score": 0.1})
    older = [done.model_copy(update={"suite": suite, "started": "2025", "score": 0.2}) for suite in ("early", "sweep")]
    for row in (done, failed, stale, *older):
        store.append_row(row)
    store.write_history("overlap", fedavg.key, {"history": {"round": [1]}})
    arguments = ["reproduce", "fedgl-table2", "--only", "cora,fedavg,fedgl", "--seeds", "1", "--results", str(tmp_path)]
    assert cli([*arguments, "--dry-run"]).startswith("1 of these would be reused from overlap\n8 runs: 8 to run")
    assert store.rows("fedgl-table2") == []
    output = cli([*arguments[:3], "cora,fedavg", *arguments[4:]])  # nothing is left to run
    assert output.startswith("1 reused from overlap\n1 run: 0 to run, 1 done")
    (row,) = store.rows("fedgl-table2")
    assert row == done.model_copy(update={"suite": "fedgl-table2", "notes": "a note; run for suite overlap"})
    assert store.history("fedgl-table2", fedavg.key) == {"history": {"round": [1]}}
    assert len(store.rows("overlap")) == 2
