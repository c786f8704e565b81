"""Cells that differ in their seed, run as one program: the same rows, and none is lost when it comes to nothing.

What runs cells is both backends' matter: processes, and in the slow tests two Ray nodes of this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import psutil
import pytest
import torch

import fglbench
from fglbench.benchmark.cli import main
from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.runner import execute as executing, supervisor, together
from fglbench.benchmark.runner.execute import FederationCache, execute_together
from fglbench.benchmark.runner.plan import Item
from fglbench.benchmark.runner.stamp import stamped
from fglbench.benchmark.runner.supervisor import Observer
from fglbench.benchmark.runner.worker import Options
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.parcel import Parcel
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.suites.cell import Cell
from fglbench.benchmark.suites.suitefile import load_suite

TROUBLES = str(Path(__file__).with_name("troubles.py"))
TIMED = ["started", "train_seconds", "total_seconds", "cpu_seconds", "peak_memory_mb", "git_sha", "git_dirty", "notes"]
SLOW = pytest.mark.slow
GREEDY = "the worker took more than the --memory-limit of 0.001 GiB"
NOTE = "one program with seeds 0, 1, 2: times are this run's share, memory is that of all"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, tiny: str) -> str:
    """The tiny suite with three seeds."""
    path = tmp_path_factory.mktemp("suites") / "tiny.yaml"
    path.write_text(tiny.replace("seeds: 2", "seeds: 3"))
    return str(path)


@pytest.fixture(scope="module")
def alone(three: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its rows, each of a run by itself."""
    results = tmp_path_factory.mktemp("alone")
    ran(three, results)
    return results


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory, tiny: str) -> str:
    """The same for seconds: time to hear of a round before the last, which a node tells once a second."""
    path = tmp_path_factory.mktemp("suites") / "tiny.yaml"
    path.write_text(tiny.replace("seeds: 2", "seeds: 3").replace("rounds: 3", "rounds: 300"))
    return str(path)


@pytest.fixture(scope="module")
def long_alone(long: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its rows, each of a run by itself."""
    results = tmp_path_factory.mktemp("long")
    ran(long, results)
    return results


def ran(suite: str, results: Path, **more: Any) -> pd.DataFrame:
    return fglbench.run(suites=[suite], results=results, jobs=1, **more)


def check_equal(results: Path, others: Path, *methods: str, tolerance: float = 1e-6) -> None:
    """Rows and curves, but for times and notes."""
    frames = [fglbench.load_results(where).sort_values("key").drop(columns=TIMED) for where in (results, others)]
    frames = [frame[frame["method"].isin(methods)] for frame in frames]
    pd.testing.assert_frame_equal(
        *(frame.reset_index(drop=True) for frame in frames), rtol=0, atol=tolerance, check_dtype=False
    )
    for row in Store(results).rows("tiny"):
        if row.method not in methods:
            continue
        curves = [Store(where).history("tiny", row.key) or {} for where in (results, others)]
        assert curves[0]["label_counts"] == curves[1]["label_counts"]
        for own in curves:
            own["history"].pop("seconds")
        assert curves[0]["history"].keys() == curves[1]["history"].keys()
        for name, column in curves[0]["history"].items():
            assert column == pytest.approx(curves[1]["history"][name], rel=0, abs=tolerance), name


class Watching(Observer):
    """Notes what is told; what is to be done at the first round of a fleet, is done."""

    def __init__(self, act: Any = None) -> None:
        self.told, self.act = list[tuple[str, str, int]](), act

    def started(self, item: Item) -> None:
        self.told.append(("started", item.cell.method.name, item.cell.seed))

    def round(self, item: Item, number: int, figures: dict[str, Any]) -> None:
        self.told.append((f"round {number}", item.cell.method.name, item.cell.seed))
        act, self.act = self.act, None
        if act:
            act()

    def finished(self, item: Item, row: Row, *, elsewhere: bool) -> None:
        self.told.append(("finished", item.cell.method.name, item.cell.seed))


def test_the_rows_of_a_fleet_are_those_of_single_runs(
    three: str, alone: Path, backend: dict[str, str], tmp_path: Path
) -> None:
    watch = Watching()
    frame = ran(three, tmp_path, fleet=True, embeddings=True, observer=watch, **backend)
    check_equal(tmp_path, alone, "fedavg", "local")
    assert set(frame["notes"]) == {NOTE}
    assert all(Store(tmp_path).embeddings_file("tiny", key).exists() for key in frame["key"])
    words = ["started", *(f"round {number}" for number in (1, 2, 3)), "finished"]
    own = [told for told in watch.told if told[1] == "fedavg"]
    assert own == [(word, "fedavg", seed) for word in words for seed in range(3)]
    for _, rows in frame.groupby("method"):
        assert rows["peak_memory_mb"].nunique() == 1
        assert rows["train_seconds"].nunique() == 1  # they had as many rounds each
        assert (rows["train_seconds"] <= rows["total_seconds"]).all()
    single = fglbench.load_results(alone)
    assert not single["notes"].str.contains("one program").any()


def test_what_is_done_stays_out_and_what_must_be_alone_is(
    three: str, alone: Path, backend: dict[str, str], tmp_path: Path
) -> None:
    """A finished seed is not run again; a plug-in's method and one that is told to be apart are in no fleet."""
    ran(three, tmp_path, methods=["fedavg"], seeds=[1])
    chosen = {"methods": ["fedavg", "fed-pub", "t-skips"], "plugins": [TROUBLES]}
    frame = ran(three, tmp_path, fleet=True, **chosen, **backend).set_index(["method", "seed"])
    assert set(frame["status"]) == {"ok", "skipped"}
    notes = frame["notes"].to_dict()
    assert notes.pop(("fedavg", 0)) == notes.pop(("fedavg", 2)) == NOTE.replace("0, 1, 2", "0, 2")
    assert set(notes.values()) == {""}
    check_equal(tmp_path, alone, "fedavg")


@pytest.mark.parametrize(
    ("act", "limits", "reason"),
    [
        pytest.param(psutil.Process.kill, {}, "the worker was killed by SIGKILL", id="killed"),
        pytest.param(psutil.Process.suspend, {"timeout": 1.0}, "no result after 1 s (in round ", id="hung", marks=SLOW),
        pytest.param(lambda _: None, {"memory_limit": 0.001}, GREEDY, id="greedy", marks=SLOW),
    ],
)
def test_a_fleet_that_loses_its_worker_runs_one_by_one(
    act: Any, limits: dict[str, float], reason: str, long: str, long_alone: Path, backend: dict[str, str],
    workers: Callable[[], list[psutil.Process]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    """limits: of fleets, so that the cells by themselves keep to theirs however slow the machine is."""
    plain = supervisor._Run._overdue

    def overdue(run: Any, seat: Any) -> Any:
        with monkeypatch.context() as meanwhile:
            if seat.task and len(seat.task.held) > 1:
                meanwhile.setattr(run, "options", replace(run.options, **limits))
            return plain(run, seat)

    monkeypatch.setattr(supervisor._Run, "_overdue", overdue)
    watch = Watching(lambda: act(*workers()))
    frame = ran(long, tmp_path, methods=["fedavg"], fleet=True, observer=watch, **backend)
    (note,) = set(frame["notes"])
    assert note.startswith(f"no fleet: {reason}")
    check_equal(tmp_path, long_alone, "fedavg")
    again = [told for told in watch.told if told[0] in ("started", "finished")]
    order = [("started", "fedavg", seed) for seed in range(3)]
    assert again == order + [(word, "fedavg", seed) for seed in range(3) for word in ("started", "finished")]


def test_a_fleet_that_fails_runs_one_by_one(three: str, backend: dict[str, str], tmp_path: Path) -> None:
    """Each cell then has the row that it has alone, and says that it was to be in a fleet."""
    settings = ["training.optimiser=sgd", "training.lr=1e30"]
    rows = {}
    for fleet in (False, True):
        frame = ran(three, tmp_path / str(fleet), methods=["fedavg"], fleet=fleet, settings=settings, **backend)
        assert set(frame["status"]) == {"failed"}
        rows[fleet] = frame
    assert list(rows[True]["error"]) == list(rows[False]["error"])
    assert rows[True]["notes"].str.startswith("no fleet: Diverged: ").all()


@SLOW
def test_a_fleet_whose_node_is_lost_runs_one_by_one_and_no_other_does(
    long: str, long_alone: Path, cluster: Any, lose_node: Callable[[], None], tmp_path: Path
) -> None:
    """A fleet on each node. The rows are those of processes to the last digit: of single runs, and of a fleet."""
    begun = list[str]()

    class Losing(Observer):
        def started(self, item: Item) -> None:
            begun.append(item.cell.method.name)

        def round(self, item: Item, number: int, figures: dict[str, Any]) -> None:
            if len(begun) == 6:
                begun.append("lost")
                lose_node()

    chosen = {"suites": [long], "fleet": True, "jobs": 2}
    fglbench.run(**chosen, results=tmp_path / "fleets")
    there = {"backend": "ray", "address": cluster.address, "observer": Losing()}
    frame = fglbench.run(**chosen, **there, results=tmp_path / "lost")
    assert sorted(begun[:7]) == ["fedavg"] * 3 + ["local"] * 3 + ["lost"]
    assert len(begun) == 10 and len(set(begun[7:])) == 1
    lost, kept = begun[7], {"fedavg": "local", "local": "fedavg"}[begun[7]]
    notes = {method: set(rows["notes"]) for method, rows in frame.groupby("method")}
    assert notes.pop(lost) == {"no fleet: the worker's node was lost"}
    assert [note.startswith("one program with seeds") for note in notes[kept]] == [True]
    check_equal(tmp_path / "lost", long_alone, lost, tolerance=0)
    check_equal(tmp_path / "lost", tmp_path / "fleets", kept, tolerance=0)


def test_a_fleet_that_finds_too_little_memory_says_so(three: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    monkeypatch.setattr(executing, "train_together", full)
    cells = [cell for cell in load_suite(three).cells() if cell.method.name == "fedavg"]
    parcels = [Parcel() for _ in cells]
    made = execute_together(cells, "tiny", parcels, FederationCache(), stamped(1, "")[0])
    assert isinstance(made, str) and "CUDA out of memory" in made
    assert not any(parcel.contents for parcel in parcels)


def test_a_cell_that_another_run_has_claimed_is_left_to_it(three: str, alone: Path, tmp_path: Path) -> None:
    store = Store(tmp_path)
    cells = {cell.seed: cell for cell in load_suite(three).cells() if cell.method.name == "fedavg"}
    store.prepare(["tiny"])
    claim = store.claim("tiny", cells[1].key)
    assert claim is not None
    watch = Watching(lambda: store.unclaim(claim))
    frame = ran(three, tmp_path, methods=["fedavg"], fleet=True, observer=watch).set_index("seed")
    check_equal(tmp_path, alone, "fedavg")
    assert frame["notes"].to_dict() == {0: NOTE.replace("0, 1, 2", "0, 2"), 1: "", 2: NOTE.replace("0, 1, 2", "0, 2")}


def test_a_fleet_has_the_time_of_all_its_cells() -> None:
    run: Any = object.__new__(supervisor._Run)
    run.options = Options(timeout=10.0)
    item = SimpleNamespace(cell=SimpleNamespace(training=SimpleNamespace(rounds=5)))
    for held, seconds, over in ((1, 9, False), (1, 11, True), (3, 29, False), (3, 31, True)):
        task = SimpleNamespace(held=[None] * held, items=[item] * held, seconds=seconds, round=1)
        assert (run._overdue(SimpleNamespace(task=task)) is not None) == over


@pytest.mark.parametrize(
    ("asked", "device", "answer"),
    [(None, "cpu", False), (None, "cuda:1", True), (False, "cuda:0", False), (True, "cpu", True)],
)
def test_fleets_are_for_gpus_unless_somebody_says_otherwise(asked: bool | None, device: str, answer: bool) -> None:
    assert together.wanted(asked, device) is answer


def test_who_may(three: str) -> None:
    cell = next(iter(load_suite(three).cells()))
    assert together.may(cell)

    def changed(**values: object) -> Cell:
        return cell.model_copy(update={"training": TrainConfig(**values)})

    assert not together.may(changed(participation=0.5))
    assert not together.may(changed(failure=0.1))
    assert not together.may(changed(straggle=0.5))
    assert together.may(changed(patience=3))
    unknown = cell.model_copy(update={"method": cell.method.model_copy(update={"name": "nobody's"})})
    assert not together.may(unknown)
    seeds = [Item("tiny", cell.model_copy(update={"seed": seed}), "todo") for seed in range(20)]
    elsewhere = Item("other", seeds[1].cell, "todo")
    assert together.fellows(seeds[0], [elsewhere, *seeds[1:]]) == seeds[1:10]  # ten in all


def test_a_parcel_is_delivered_to_the_folder_that_was_prepared(tmp_path: Path) -> None:
    store, parcel = Store(tmp_path / "results"), Parcel()
    store.prepare(["tiny"])
    parcel.put(Path("tiny/history/a.json"), b"{}")
    parcel.deliver(store)
    assert (store.root / "tiny" / "history" / "a.json").read_bytes() == b"{}"


@pytest.mark.parametrize("command", [["run"], ["reproduce", "fgssl-table1"], ["tune", "-s", "quick"]])
def test_the_commands_pass_the_wish_on(command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = list[tuple[bool | None, bool]]()

    class Noted(Options):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            seen.append((self.fleet, self.graphs))

    monkeypatch.setattr("fglbench.benchmark.runner.job.Options", Noted)
    more = ["--quick"] if command == ["run"] else []
    for wish in ([], ["--fleet"], ["--no-fleet", "--no-graphs"]):
        assert main([*command, *more, *wish, "--results", str(tmp_path), "--dry-run"]) == 0
    assert seen == [(None, True), (True, True), (False, False)]
