"""Keys do not depend on the code: they stay the same with any added options."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fglbench.benchmark.runner.job import Job, Options, Request
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.provenance import canonical
from fglbench.benchmark.suites import cell as cells
from fglbench.benchmark.suites.cell import Cell, Choice, check_clients, register_clients, registered_hash
from fglbench.benchmark.suites.request import select_listed
from fglbench.benchmark.suites.suite import load_suite
from fglbench.datasets import PARTITIONS
from fglbench.methods import METHODS
from fglbench.registry import UserError, identity

RESULTS = Path(__file__).resolve().parents[2] / "results"
# Adds an option to every registered spec and to the training configuration, before the suites are read.
PLAN = """
import json, sys
from pydantic import Field, create_model
import fglbench.benchmark.engine.config as config
from fglbench.benchmark.cli import main
from fglbench.benchmark.engine import Backbone
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
for module in {sys.modules[METHODS.cls(name).__module__] for name in METHODS.names()}:  # architectures of methods
    for name, cls in list(vars(module).items()):
        if isinstance(cls, type) and issubclass(cls, Backbone) and cls.__module__ == module.__name__:
            setattr(module, name, wider(cls))

from fglbench.benchmark.runner.plan import make_plan
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.cell import check_clients, registered_hash
from fglbench.benchmark.suites.request import select_listed
from fglbench.benchmark.suites.suite import load_suite

store, plans = Store(sys.argv[1]), {}
for suite in sys.argv[2:]:
    cells = load_suite(suite).cells()
    assert "added_later" in cells[0].method.params
    plans[suite] = dict(make_plan([(suite, cell) for cell in cells], store).counts())
print(json.dumps(plans, sort_keys=True))
"""


def test_stored_rows_have_keys_of_their_suites() -> None:
    """Except rows of `graph` with changed settings of the method; test_golden.py pins the keys."""
    for suite in Store(RESULTS).suites():
        listed = select_listed(Request(suites=(suite,)))
        assert listed is not None
        keys = {cell.key for _, cell in listed[0]}
        left = {row.method for row in Store(RESULTS).rows(suite) if row.key not in keys}
        assert left <= ({"scaffold", "gcfl", "gcfl+"} if suite == "graph" else set()), suite


@pytest.mark.filterwarnings("ignore:suite '")
def test_a_new_option_of_every_spec_changes_no_plan() -> None:
    """The plans by the catalogue, whose keys equal those of the classes (test_plan.py)."""
    suites = [*random.Random(0).sample(Store(RESULTS).suites(), 6), "leaderboard"]
    command = [sys.executable, "-c", PLAN, str(RESULTS), *suites]
    after = json.loads(subprocess.run(command, capture_output=True, check=True).stdout.splitlines()[-1])
    for suite, counts in after.items():
        outlook = Job(Request(suites=(suite,)), Store(RESULTS), Options()).outlook()
        assert outlook is not None and dict(outlook.counts()) == counts
    assert after["leaderboard"]["done"] >= 1025  # the first rows


def test_a_later_option_is_in_the_key_if_not_at_its_default() -> None:
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
    known: dict[Any, Any] = {}
    for row in Store(RESULTS).rows():
        if row.partition_hash:
            wanted = registered_hash(Cell.of(row, known))
            assert wanted is not None and row.partition_hash.startswith(wanted), "run `make published`"


def test_other_clients_than_the_registered_ones_are_an_error() -> None:
    cell = load_suite("leaderboard").cells()[0]
    wanted = registered_hash(cell)
    assert wanted is not None
    check_clients(cell, wanted + 48 * "0")
    with pytest.raises(UserError, match=rf"gives other clients here .*{16 * 'f'}.*{wanted}.*results/environments"):
        check_clients(cell, 64 * "f")
    other = Cell(**{**{name: getattr(cell, name) for name in Cell.model_fields}, "clients": 7})
    check_clients(other, 64 * "f")  # not registered: not compared
    dealt = next(cell for cell in load_suite("graph").cells() if cell.dataset.name == "mutag")
    with pytest.raises(UserError, match="gives other clients here") as caught:
        check_clients(dealt, 64 * "f")
    assert "ordering" not in str(caught.value)  # only Louvain's partition has it


def test_rows_are_registered_once_and_no_entry_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Path(shutil.copy(cells.CLIENTS, tmp_path))
    monkeypatch.setattr(cells, "CLIENTS", copy)
    before = copy.read_text()
    assert register_clients(Store(RESULTS).rows()) == []
    assert copy.read_text() == before
    cell = load_suite("leaderboard").cells()[0]
    parts = {name: getattr(cell, name) for name in Cell.model_fields}
    new = Cell(**{**parts, "clients": 7, "method": Choice(name="of-my-own", params={"mu": 0.5})})
    values = {"status": "ok", "started": "now", "environment": "here", "partition_hash": 64 * "e"}
    row = cell.row("mine", **values).model_copy(
        update={"clients": 7, "method": "of-my-own", "method_params": '{"mu":0.5}', "key": new.key}
    )
    assert register_clients([row]) == [f"clients of {cell.dataset.name} louvain x7 ratio seed {cell.seed}"]
    assert registered_hash(new) == 16 * "e"
    assert register_clients([row]) == []
    assert copy.read_text().startswith(before)
    cells._registered.cache_clear()


def test_an_integer_for_a_float_has_the_same_key() -> None:
    """1 == 1.0 in Python but not in a key: values get the type of their field."""
    typed = Choice(name="label-dirichlet", params={"alpha": 1, "minimum": 20}).filled(PARTITIONS)
    assert canonical(typed.part("partition")) == '{"name":"label-dirichlet","params":{"alpha":1.0,"minimum":20}}'
    assert typed.filled(PARTITIONS) is typed
