"""Measuring: turns, totals, operators of a round; the comparison with another benchmark, which a stand-in replaces."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fglbench.benchmark.cli import machine
from fglbench.benchmark.engine import BACKBONES, METHODS, TrainConfig
from fglbench.benchmark.profile import peer, peer_process, speed
from fglbench.benchmark.profile.peer import Peer, write_clients
from fglbench.benchmark.profile.speed import Conditions, RoundOf, Timing, alternate, centralised, shares
from fglbench.registry import UserError
from fglbench.tests.conftest import build


@pytest.mark.parametrize("calls", [1, 3])
def test_cases_take_turns_and_are_timed_by_the_clock_given(calls: int) -> None:
    now, order = [0.0], []

    def case(name: str, seconds: float) -> Any:
        def work() -> None:
            order.append(name)
            now[0] += seconds

        return work

    cases = {"a": case("a", 0.001), "b": case("b", 0.004), "elsewhere": lambda: 0.25}
    timings = alternate(cases, rounds=3, warmup=2, clock=lambda: now[0], in_a_row=calls)
    assert order == (["a"] * calls + ["b"] * calls) * 5
    assert [round(timings[name].median, 9) for name in cases] == [1.0, 4.0, 250.0]


def test_a_timing_is_median_quartiles_and_mean() -> None:
    seconds = [0.001, 0.002, 0.003, 0.004, 0.1]
    timing = speed._timing(seconds)
    assert timing.median == pytest.approx(3.0)
    assert timing.mean == pytest.approx(22.0)
    assert timing.low == pytest.approx(1.5)
    assert timing.high == pytest.approx(52.0)


def test_the_total_of_a_phase_counts_every_round() -> None:
    line = speed._phase("m", Timing(2.0, 1, 3, 2), "p", 200, Timing(4.0, 1, 9, 50.0), {"x": 3.0, "y": 1.0})
    assert line["total, s"] == "10.0"
    assert line["relative to FedAvg"] == "2.00x"
    assert line["largest parts"] == "x 75%, y 25%"


@pytest.fixture
def conditions() -> Conditions:
    return Conditions(build(), [BACKBONES.build("gcn")], TrainConfig(local_epochs=1, rounds=4))


def test_a_round_is_trained_and_scored(conditions: Conditions) -> None:
    one_round = RoundOf(conditions, METHODS.build("fedavg"))
    assert one_round.rounds == 4
    before = one_round.simulation.models().server
    weights = {name: value.clone() for name, value in before.items()}
    one_round()
    after = one_round.simulation.models().server
    assert any(not torch.equal(weights[name], after[name]) for name in weights)
    assert one_round.simulation.seconds > 0


def test_phases_before_the_last_run_in_full(conditions: Conditions) -> None:
    rounds_of_phase = RoundOf(conditions, METHODS.build("adafgl"))
    names = [name for name, *_ in rounds_of_phase.before]
    assert names and rounds_of_phase.phase.name not in names
    assert all(rounds >= 1 and timing.mean > 0 and parts for _, rounds, timing, parts in rounds_of_phase.before)


def test_the_shares_are_all_of_a_round(conditions: Conditions) -> None:
    start = time.perf_counter()
    parts = shares(RoundOf(conditions, METHODS.build("fedavg")), 2)
    assert {"dense", "optimiser", "other"} <= set(parts)
    assert 0 < sum(parts.values()) < (time.perf_counter() - start) * 1e3


def test_the_centralised_reference_learns(conditions: Conditions) -> None:
    torch.manual_seed(0)
    epochs = centralised(conditions.federation, conditions.config)
    weights = epochs.__closure__
    assert weights is not None
    first = next(cell.cell_contents for cell in weights if isinstance(cell.cell_contents, torch.nn.Linear))
    before = first.weight.detach().clone()
    epochs()
    assert not torch.equal(before, first.weight)


def test_a_file_keeps_the_sections_that_are_not_measured() -> None:
    before = "# Speed\n\nold\n\n## A round\n\n1\n\n## Many clients\n\nby hand\n\n## And more\n\nx\n\n## Memory\n\n2\n"
    measured = "# Speed\n\nnew\n\n## A round\n\n3\n\n## Memory\n\n4\n\n## Every method\n\n5\n"
    assert machine._joined("", measured) == measured == machine._joined(measured, measured)
    assert machine._joined(before, measured) == (
        "# Speed\n\nnew\n\n## A round\n\n3\n\n## Many clients\n\nby hand\n\n## And more\n\nx\n\n## Memory\n\n4\n"
        "\n## Every method\n\n5\n"
    )


class Calls(TorchDispatchMode):
    """Counts the calls of torch's operators, also of the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def calls_of_a_round(clients: int) -> int:
    """A round of FedAvg with three epochs on a graph of Cora's size and density, with its evaluation."""
    sizes = tuple(np.diff(np.linspace(0, 2708, clients + 1).astype(int)).tolist())
    federation = build(sizes, features=1433, classes=7)
    conditions = Conditions(federation, [BACKBONES.build("gcn")], TrainConfig(local_epochs=3))

    one_round = RoundOf(conditions, METHODS.build("fedavg"), clients_per_batch=clients)  # one client batch
    one_round()
    with Calls() as calls:
        one_round()
    return calls.counts.total()


@pytest.mark.parametrize(("clients", "most"), [(10, 550), (100, 1680)])
def test_a_round_takes_few_operator_calls(clients: int, most: int) -> None:
    """One computation for all clients; the bounds are a tenth above the current numbers. Detects loops over clients."""
    assert calls_of_a_round(clients) <= most


CHILD = """
import json, sys
print(json.dumps({"torch": "9"}), flush=True)
for number, _ in enumerate(sys.stdin):
    if number == 2:
        raise ValueError("enough of " + sys.argv[3])
    print(json.dumps([number, number + 0.5]), flush=True)
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Peer:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    monkeypatch.setattr(peer_process, "__file__", str(script))
    return Peer(Path(sys.executable), tmp_path, str(tmp_path), "fedavg", 1, 1)


def test_a_peer_runs_one_round_per_call_and_gives_its_time(child: Peer) -> None:
    assert child.versions == {"torch": "9"}
    assert [child(), child()] == [0.5, 1.5]
    assert [child.training(), child.training()] == [0, 1]
    child.close()
    assert child.process.returncode == 0


def test_a_peer_that_ends_says_why_in_one_line(child: Peer) -> None:
    child(), child()
    with pytest.raises(UserError, match="the peer ended: ValueError: enough of fedavg"):
        child()
    child.close()


def test_the_peer_gets_our_clients_and_splits(tmp_path: Path) -> None:
    federation = build()
    write_clients(federation, tmp_path)
    whole = np.load(tmp_path / "whole.npz")
    assert whole["x"].shape == (len(whole["y"]), federation.num_features)
    for number, client in enumerate(federation.clients):
        arrays = np.load(tmp_path / f"client_{number}.npz")
        assert (arrays["x"] == whole["x"][arrays["nodes"]]).all()
        assert (arrays["y"] == whole["y"][arrays["nodes"]]).all()
        ends = {tuple(pair) for pair in arrays["nodes"][arrays["edges"]].T.tolist()}
        inside = np.isin(whole["edges"], arrays["nodes"]).all(axis=0)
        assert ends <= {tuple(pair) for pair in whole["edges"][:, inside].T.tolist()}
        for part in ("train", "val", "test"):
            assert (arrays[part] == client.graph.ndata[f"{part}_mask"].numpy()).all()


@pytest.mark.parametrize("name", peer.PEERS)
def test_every_compared_method_is_registered(name: str) -> None:
    for pair in peer.SAME[name]:
        assert METHODS.build(pair.method, pair.params).name == pair.method
    assert len({pair.label for pair in peer.SAME[name]}) == len(peer.SAME[name])


def test_the_peer_script_does_not_import_fglbench() -> None:
    code = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='x'); print('fglbench' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, peer_process.__file__], capture_output=True, text=True, cwd="/")
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("option", ["openfgl=/nowhere", "fedgb=/nowhere", "other=.", "openfgl", "openfgl="])
def test_a_folder_without_a_checkout_is_one_line(option: str, cli) -> None:
    assert "is not openfgl=PATH or fedgb=PATH with a checkout" in cli(["profile", "--peer", option], 2)
