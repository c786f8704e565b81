"""Keys outlive the code: what is pinned here stays, with any options added."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.runner.job import Job, Options, Request
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites import cell as cells
from fglbench.benchmark.suites.cell import Cell, Choice, check_clients, registered_hash
from fglbench.benchmark.suites.suitefile import load_suite
from fglbench.datasets import PARTITIONS
from fglbench.methods import METHODS
from fglbench.registry import UserError, identity

RESULTS = Path(__file__).resolve().parents[2] / "results"
PINNED = {  # the key of one stored row a suite: a change of any of these orphans rows
    "clustering": "9e3807baf5e495da",  # intra-fedavg, enzymes, seed 1
    "fclg-table2": "73081008a3c9727a",  # intra-fedavg, proteins, seed 2
    "fedgkc-table2": "85ccaf482924950d",  # fedgkc, cora, seed 1
    "fedgkc-table3": "01c4e5bc68b154f9",  # fedgkc, cora, seed 0
    "fedgkc-table4": "87e6425f7729fd5c",  # fedgkc, coauthor-cs, seed 0
    "fedgkc-table5": "3b56ae731d24a149",  # fedgkc-kama, cora, seed 1
    "fedgl-table2": "c716ead5f5bcc0f7",  # fedgl-no-gpl, wiki, seed 2
    "fedgl-table3": "8e77da2be22e6731",  # fedgl, cora, seed 0
    "fedgl-table4": "6867eaf828639b72",  # fedgl, cora, seed 0
    "fedgl-table5": "16193ce78530e2c4",  # fedgl, cora, seed 0
    "fedgl-table6": "863a8d5727aa9ef1",  # fedgl, cora, seed 0
    "fedomd-table6": "ca44f35775ce4a8e",  # fedomd-cmd, cora, seed 0
    "fedomd-table4": "275400a4cdce4417",  # fedomd, cora, seed 0
    "fedomd-table5": "af371fa9125f3cb0",  # locgcn, coauthor-cs, seed 0
    "fedomd-table7": "c88ba4de00aef41f",  # fedomd, amazon-photo, seed 0
    "fgssl-table1": "57398635e95ac5df",  # fedsage+, citeseer, seed 0
    "fgssl-table2": "0832b2e917f2b029",  # fgssl, citeseer, seed 1
    "fgssl-table3": "368b27d6a2efc4ca",  # fgssl-fnsc, cora, seed 0
    "gcfl-one-dataset": "a0dbe3de20fb415f",  # gcfl+, proteins, seed 1
    "graph": "4e9187917183a13d",  # fedavg
    "heterogeneous": "a703ca84f44eddbd",  # fedproto, citeseer, seed 2
    "heterogeneous-depth": "e8b9cc9cc7c2f293",  # fedproto, citeseer, seed 2
    "leaderboard": "180150f8830e3786",  # fedprox, pubmed, seed 4
    "overlap": "77381214a83eba6a",  # fedgl, cora, seed 0
    "quick": "695215bb38629af3",  # global, cora, seed 0
    "sweep-fedgl": "417506f408e917f3",  # fedgl, cora, seed 1
    "sweep-fgssl": "bce4c4450d77c7a7",  # fgssl, cora, seed 2
    "node": "35b0ecf12351d21b",
    "node-3": "9933334a60c5d2ea",  # fedomd, cora, seed 1
    "node-3-random": "0ed124ff4140f9cf",  # fedavg, cora, seed 1
    "robust": "b83d6058c08c7de7",  # fedavg, cora, seed 1, median, sign flip
    "stress": "d8832bfe6b2dbab7",  # fedavg, cora, seed 1, label noise 0.4
    "stress-cut": "a5ad9958b68920dc",  # fedavg, cora
    "stress-homophily": "8785df0c2e7fc006",  # fedavg, csbm
    "stress-homophily-3": "8913e2d9b5d5c5e0",  # fedavg, csbm
    "privacy": "612332fdc24cf1be",  # fedavg, cora
    "graph-tuned": "4e9187917183a13d",  # fedavg, mutag
    "unseen": "00f3d4a6e0d9934f",  # fedavg, cora, seed 0
}

# Every registered spec and the training configuration get one more option, before the suites are read.
PLAN = """
import json, sys
from pydantic import Field, create_model
import fglbench.benchmark.engine.config as config
from fglbench.benchmark.cli import main
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.datasets import DATASETS, PARTITIONS, SPLITS
from fglbench.methods import METHODS
from fglbench.registry import LATER

def wider(cls):
    new = (float, Field(0.25, json_schema_extra=LATER))
    return create_model(cls.__name__, __base__=cls, __module__=cls.__module__, added_later=new)

config.TrainConfig = wider(config.TrainConfig)
for registry in (BACKBONES, DATASETS, PARTITIONS, SPLITS, METHODS):
    for name in registry.names():
        registry._classes[name] = wider(registry.cls(name))

from fglbench.benchmark.runner.plan import make_plan
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.cell import check_clients, registered_hash
from fglbench.benchmark.suites.suitefile import load_suite

store, found = Store(sys.argv[1]), {}
for suite in store.suites():
    cells = load_suite(suite).cells()
    assert "added_later" in cells[0].method.params
    found[suite] = dict(make_plan([(suite, cell) for cell in cells], store).counts())
print(json.dumps(found, sort_keys=True))
"""


@pytest.mark.parametrize("suite", PINNED)
def test_keys_of_stored_rows_stay(suite: str) -> None:
    assert PINNED[suite] in {row.key for row in Store(RESULTS).rows(suite)}
    assert PINNED[suite] in {cell.key for cell in load_suite(suite).cells()}


def test_every_suite_with_rows_is_pinned() -> None:
    assert set(PINNED) == set(Store(RESULTS).suites())


def test_every_stored_row_names_the_cell_of_its_key() -> None:
    assert [row.key for row in Store(RESULTS).rows() if Cell.of(row).key != row.key] == []


@pytest.mark.filterwarnings("ignore:suite '")
def test_a_new_option_of_every_spec_leaves_every_plan_as_it_is() -> None:
    """The plans by the catalogue, whose keys are those of the classes as they are (test_plan.py)."""
    command = [sys.executable, "-c", PLAN, str(RESULTS)]
    after = json.loads(subprocess.run(command, capture_output=True, check=True).stdout.splitlines()[-1])
    for suite, counts in after.items():
        outlook = Job(Request(suites=(suite,)), Store(RESULTS), Options()).outlook()
        assert outlook is not None and dict(outlook.counts()) == counts
    assert after["leaderboard"]["done"] >= 1025  # the first rows


def test_a_later_option_counts_where_it_is_not_neutral() -> None:
    cell = load_suite("leaderboard").cells()[0]
    louvain = Choice(name="louvain", params={**cell.partition.params, "ordering": "size"})
    other = Cell(**{**{name: getattr(cell, name) for name in Cell.model_fields}, "partition": louvain})
    assert other.key != cell.key
    row = other.row("leaderboard", status="failed", error="none", started="", environment="")
    assert json.loads(row.partition_params)["ordering"] == "size"
    plain = cell.row("leaderboard", status="ok", started="", environment="")
    assert "ordering" not in json.loads(plain.partition_params)
    assert Cell.of(row).key == row.key


def test_only_options_marked_later_are_left_out_at_their_default() -> None:
    assert identity(METHODS.cls("fedprox"), {"mu": 0.01}) == {"mu": 0.01}
    assert identity(METHODS.cls("feddc"), {"alpha": 0.1, "client_size": False}) == {"alpha": 0.1}
    assert identity(METHODS.cls("feddc"), {"client_size": True}) == {"client_size": True}


def test_the_clients_of_the_committed_rows_are_registered() -> None:
    for row in Store(RESULTS).rows():
        if row.partition_hash:
            wanted = registered_hash(Cell.of(row))
            assert wanted is not None and row.partition_hash.startswith(wanted), "run `make published`"


def test_other_clients_than_the_registered_ones_are_an_error_that_names_both() -> None:
    cell = load_suite("leaderboard").cells()[0]
    wanted = registered_hash(cell)
    assert wanted is not None
    check_clients(cell, wanted + 48 * "0")
    with pytest.raises(UserError, match=rf"gives other clients here .*{16 * 'f'}.*{wanted}.*results/environments"):
        check_clients(cell, 64 * "f")
    other = Cell(**{**{name: getattr(cell, name) for name in Cell.model_fields}, "clients": 7})
    check_clients(other, 64 * "f")  # this was never run: nothing to compare with
    dealt = next(cell for cell in load_suite("graph").cells() if cell.dataset.name == "mutag")
    with pytest.raises(UserError, match="gives other clients here") as caught:
        check_clients(dealt, 64 * "f")
    assert "ordering" not in str(caught.value)  # which only Louvain's partition has


def test_rows_are_registered_once_and_no_entry_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copy(cells.CLIENTS, tmp_path))
    monkeypatch.setattr(cells, "CLIENTS", copy)
    before = copy.read_text()
    assert main(["data", "register", "--results", str(RESULTS)]) == 0
    assert capsys.readouterr().out == "nothing new: all clients are registered\n"
    assert copy.read_text() == before
    cell = load_suite("leaderboard").cells()[0]
    parts = {name: getattr(cell, name) for name in Cell.model_fields}
    new = Cell(**{**parts, "clients": 7, "method": Choice(name="of-my-own", params={"mu": 0.5})})
    values = {"status": "ok", "started": "now", "environment": "here", "partition_hash": 64 * "e"}
    row = cell.row("mine", **values).model_copy(
        update={"clients": 7, "method": "of-my-own", "method_params": '{"mu":0.5}', "key": new.key}
    )
    Store(tmp_path / "results").append(row)
    assert main(["data", "register", "--results", str(tmp_path / "results")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"registered: clients of {cell.dataset.name} louvain x7 ratio seed {cell.seed}",
    ]  # fmt: skip
    assert registered_hash(new) == 16 * "e"
    assert main(["data", "register", "--results", str(tmp_path / "results")]) == 0
    assert "nothing new" in capsys.readouterr().out
    assert copy.read_text().startswith(before)
    cells._registered.cache_clear()


def test_a_whole_number_for_a_fraction_is_the_same_cell() -> None:
    """1 == 1.0 in Python and not in a key: what is filled in has the type of its field."""
    typed = Choice(name="label-dirichlet", params={"alpha": 1, "minimum": 20}).filled(PARTITIONS)
    assert typed.part("partition").text == '{"name":"label-dirichlet","params":{"alpha":1.0,"minimum":20}}'
    assert typed.filled(PARTITIONS) is typed
