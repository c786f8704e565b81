"""What a plug-in leaves behind in its process reaches no other cell: rows are those of a run by itself."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import fglbench
from fglbench.benchmark.runner.backend import needs
from fglbench.benchmark.suites.cell import Choice
from fglbench.benchmark.suites.select import Request, select

POISON = str(Path(__file__).with_name("poison.py"))
ON_IMPORT = str(Path(__file__).with_name("poison_on_import.py"))
TIMED = "started train_seconds total_seconds cpu_seconds peak_memory_mb git_sha git_dirty environment".split()  # noqa: SIM905


def figures(frame: pd.DataFrame) -> pd.DataFrame:
    """Everything about a run but times, by cell."""
    return frame.drop(columns=TIMED).sort_values("key").reset_index(drop=True)


def ran(suite: str, results: Path, **options: object) -> pd.DataFrame:
    return fglbench.run(suites=[suite], results=results, **{"jobs": 1, **options})


def check(suite: str, folder: Path, methods: list[str], **backend: object) -> None:
    """Every method poisons with seed 0; rows of seed 1, and of fedavg, are as if it had not."""
    poisoned = ran(suite, folder / "all", methods=[*methods, "fedavg"], plugins=[POISON], **backend)
    clean = fglbench.run(suites=[suite], results=folder / "fedavg", methods=["fedavg"], in_process=True)
    assert figures(poisoned[poisoned["method"] == "fedavg"]).equals(figures(clean))
    for method in methods:
        own = poisoned[(poisoned["method"] == method) & (poisoned["seed"] == 1)]
        alone = ran(suite, folder / method, methods=[method], seeds=[1], plugins=[POISON])
        assert figures(own).equals(figures(alone))
        if method != "p-remembers":  # which trains as fedavg does
            assert own["score"].item() == clean.set_index("seed")["score"][1]
    wild = poisoned[(poisoned["method"] == "p-scores") & (poisoned["seed"] == 0)]
    assert (wild["score"] == 1).all()  # it did strike


@pytest.mark.usefixtures("registries")
def test_a_plug_in_reaches_no_other_cell(suite: str, tmp_path: Path) -> None:
    check(suite, tmp_path, ["p-scores"])


@pytest.mark.slow
@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("backend", ["processes", "ray"])
def test_no_way_of_poisoning_reaches_another_cell(suite: str, tmp_path: Path, backend: str) -> None:
    if backend == "ray":
        pytest.importorskip("ray", reason="needs Ray: pip install fglbench[ray]")
    methods = ["p-scores", "p-torch", "p-class", "p-thread", "p-remembers"]
    check(suite, tmp_path, methods, backend=backend)


@pytest.mark.usefixtures("registries")
def test_what_is_imported_beside_a_registered_method_does_not_reach_it(suite: str, tmp_path: Path) -> None:
    clean, beside = (ran(suite, tmp_path / str(len(own)), seeds=[0], plugins=own) for own in ((), [ON_IMPORT]))
    assert figures(beside).equals(figures(clean))


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
def test_only_cells_that_name_something_from_outside_are_kept_apart(suite: str) -> None:
    from fglbench.benchmark.suites.plugins import load_plugins

    load_plugins([POISON])
    wanted = {("fedavg", ""): (False, False), ("p-scores", ""): (True, True), ("fedavg", "p-data"): (True, False)}
    for (method, dataset), told in wanted.items():
        request = Request(suites=(suite,), methods=(method,), datasets=(dataset,) if dataset else ())
        assert {tuple(needs(cell)) for _, cell in select(request)} == {told}


def test_a_name_that_nobody_knows_counts_as_one_from_outside(suite: str) -> None:
    (cell, *_) = [cell for _, cell in select(Request(suites=(suite,), methods=("fedavg",)))]
    assert tuple(needs(cell)) == (False, False)
    assert tuple(needs(cell.model_copy(update={"method": Choice(name="no-such-method")}))) == (True, True)
