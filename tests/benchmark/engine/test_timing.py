"""Sections: their own seconds, around a block or a function, and nothing without a measurement."""

from __future__ import annotations

import pytest

from fglbench.benchmark.engine import BACKBONES, METHODS, TrainConfig, measuring, section
from fglbench.benchmark.engine.simulation import Simulation


def test_nested_sections_share_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: now[0])

    @section("outer")
    def work(depth: int) -> int:
        """Docs."""
        now[0] += 1
        with section("inner"):
            now[0] += 10
        return work(depth - 1) + 1 if depth else 0

    assert work(1) == 1 and (work.__name__, work.__doc__) == ("work", "Docs.")  # not measured
    with measuring.measure() as table:
        assert work(2) == 2
    assert table == {"outer": 3, "inner": 30}
    work(0)
    assert table == {"outer": 3, "inner": 30}


def test_the_engine_times_a_methods_halves_and_objective(federation) -> None:
    world = federation((13, 7, 10, 9))
    method, config = METHODS.build("fedprox"), TrainConfig()
    simulation = Simulation(method, method.arrange(world), [BACKBONES.build("gcn")], config, 0)
    with measuring.measure() as table:
        simulation.round(method.phases(config)[0], 1)
    assert {"client half", "server half", "objective", "loss", "backward", "aggregation"} <= set(table)
