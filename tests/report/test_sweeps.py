"""Which rows make a sweep, where its centre is, and that a board of settings is no contest."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from fglbench.report import build
from fglbench.report.figures import curves, found_figures
from fglbench.report.ranking import Ranking

DEFAULT = {"a": 1.0, "b": 5, "flag": True, "kind": "x"}


def tried(made: SimpleNamespace, score: float, seed: int = 0, **changes: object) -> object:
    params = json.dumps({**DEFAULT, **changes}, sort_keys=True)
    return made.row("cora", "alpha", seed, score, suite="sweep", method_params=params)


def two_sweeps(made: SimpleNamespace) -> list[object]:
    """Parameter a in 0, 0.5, 1, 10 and b in 1, 5, 9 around (1, 5); FedAvg beside them; two seeds."""
    rows = []
    for seed in (0, 1):
        noise = 0.02 * seed
        rows += [tried(made, 0.70 + noise, seed)]
        rows += [tried(made, score + noise, seed, a=a) for a, score in ((0, 0.5), (0.5, 0.6), (10, 0.4))]
        rows += [tried(made, score + noise, seed, b=b) for b, score in ((1, 0.65), (9, 0.66))]
        rows += [made.row("cora", "fedavg", seed, 0.62 + noise, suite="sweep")]
    return rows


def test_one_sweep_a_parameter_in_order_of_its_values(made: SimpleNamespace) -> None:
    board = made.board(two_sweeps(made), "sweep")
    a, b = board.sweeps
    assert (a.task, a.method, a.parameter, b.parameter) == ("cora", "alpha", "a", "b")
    assert [value for value, _ in a.points] == [0, 0.5, 1, 10]
    assert [value for value, _ in b.points] == [1, 5, 9]
    assert dict(a.points)[1.0] == dict(b.points)[5.0] == a.centre == b.centre


def test_what_is_drawn_is_the_mean_over_seeds(made: SimpleNamespace) -> None:
    found = curves.sensitivity_data(Ranking(made.board(two_sweeps(made), "sweep")))
    assert found is not None
    a, b = found["panels"]
    assert a["values"] == [0, 0.5, 1, 10]
    assert a["mean"] == pytest.approx([0.51, 0.61, 0.71, 0.41])
    assert a["std"] == pytest.approx([0.02 / 2**0.5] * 4)
    assert (a["centre"], b["centre"]) == (2, 1)
    assert b["mean"] == pytest.approx([0.66, 0.71, 0.67])
    assert a["reference"] == b["reference"] == pytest.approx([0.63, 0.02 / 2**0.5])


def test_a_single_sweep_has_no_centre(made: SimpleNamespace) -> None:
    board = made.board([tried(made, 0.5, a=a) for a in (1, 2, 3)])
    assert [(sweep.parameter, sweep.centre) for sweep in board.sweeps] == [("a", None)]


@pytest.mark.parametrize(
    "settings",
    [
        [{"a": 1.0}, {"a": 2.0}],  # two values are no curve
        [{"flag": False}, {"flag": True}],
        [{"kind": kind} for kind in "xyz"],
        [{"a": value, "kind": str(value)} for value in (1.0, 2.0, 3.0)],  # another setting goes with it
    ],
)
def test_what_is_no_sweep(made: SimpleNamespace, settings: list[dict[str, object]]) -> None:
    board = made.board([tried(made, 0.5, **changes) for changes in settings])
    assert board.sweeps == []
    assert not board.is_sweep


def test_backbones_and_training_may_vary_too(made: SimpleNamespace) -> None:
    rows = [
        made.row("cora", "alpha", 0, 0.5, backbone_params=json.dumps({"hidden": 64, "layers": layers}))
        for layers in (2, 4, 8)
    ]
    rows += [made.row("wiki", "alpha", 0, 0.5, training=json.dumps({"lr": lr})) for lr in (0.1, 0.01, 0.001)]
    found = [(sweep.task, sweep.parameter, [v for v, _ in sweep.points]) for sweep in made.board(rows).sweeps]
    assert found == [("cora", "backbone.layers", [2, 4, 8]), ("wiki", "training.lr", [0.001, 0.01, 0.1])]


def test_runs_without_a_score_leave_their_point_out(made: SimpleNamespace) -> None:
    rows = [tried(made, 0.5, a=a) for a in (0, 1, 2, 3)]
    rows[2] = made.row("cora", "alpha", 0, error="diverged", method_params=rows[2].method_params)
    (sweep,) = made.board(rows).sweeps
    assert [value for value, _ in sweep.points] == [0, 1, 3]


def test_settings_are_not_ranked_and_the_contest_figures_left_out(made: SimpleNamespace, tmp_path: Path) -> None:
    folder = made.write(tmp_path / "results", [*two_sweeps(made), *made.demo()])
    page = tmp_path / "README.md"
    page.write_text("<!-- leaderboard:begin --><!-- leaderboard:end -->")
    report = build.make(folder, page)
    assert {path.name for path in report.figures if path.parts[-3] == "sweep"} == {"sensitivity.png"}
    text = report.texts[folder / "LEADERBOARD.md"]
    assert "settings of one method, so nothing is ranked" in text
    assert "(sweep/figures/sensitivity.png)" in text
    assert "**demo**" in report.texts[page]
    assert "**sweep**" not in report.texts[page]
    plot, found = report.figures[folder / "sweep" / "figures" / "sensitivity.png"]
    assert plot.png(found) == plot.png(found)


def test_a_few_settings_among_many_methods_do_not_end_the_contest(made: SimpleNamespace) -> None:
    rows = [made.row(data, f"m{i}", 0, 0.5 + i / 100) for data in ("cora", "wiki") for i in range(4)]
    params = [(data, json.dumps({"mu": mu})) for data in ("cora", "wiki") for mu in (0.1, 1, 10)]
    rows += [made.row(data, "fedprox", 0, 0.5, method_params=own) for data, own in params]
    ranking = Ranking(made.board(rows))
    assert {sweep.parameter for sweep in ranking.board.sweeps} == {"mu"}
    assert len(ranking.board.ranked) == 7
    assert {"sensitivity.png", "rank_heatmap.png"} <= {plot.file for plot in found_figures(ranking)}
