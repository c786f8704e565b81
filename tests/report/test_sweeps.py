"""Sweeps of a parameter and of privacy noise: rows, centre, figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fglbench.report import build
from fglbench.report.cells import to_markdown
from fglbench.report.figures import curves, found_figures
from fglbench.report.figures.style import COLOURS
from fglbench.report.privacy_cost import privacy_table
from fglbench.report.text import ABSENT

from . import samples

DEFAULT = {"a": 1.0, "b": 5, "flag": True, "kind": "x"}


def tried(score: float, seed: int = 0, **changes: object) -> object:
    params = json.dumps({**DEFAULT, **changes}, sort_keys=True)
    return samples.row("cora", "alpha", seed, score, suite="sweep", method_params=params)


def two_sweeps() -> list[object]:
    """Parameter a in 0, 0.5, 1, 10 and b in 1, 5, 9 around (1, 5), and FedAvg; two seeds."""
    rows = []
    for seed in (0, 1):
        noise = 0.02 * seed
        rows += [tried(0.70 + noise, seed)]
        rows += [tried(score + noise, seed, a=a) for a, score in ((0, 0.5), (0.5, 0.6), (10, 0.4))]
        rows += [tried(score + noise, seed, b=b) for b, score in ((1, 0.65), (9, 0.66))]
        rows += [samples.row("cora", "fedavg", seed, 0.62 + noise, suite="sweep")]
    return rows


def test_one_sweep_per_parameter_in_order_of_values() -> None:
    board = samples.board(two_sweeps(), "sweep")
    a, b = board.sweeps
    assert (a.task, a.method, a.parameter, b.parameter) == ("cora", "alpha", "a", "b")
    assert [value for value, _ in a.points] == [0, 0.5, 1, 10]
    assert [value for value, _ in b.points] == [1, 5, 9]
    assert dict(a.points)[1.0] == dict(b.points)[5.0] == a.centre == b.centre


def test_figure_shows_the_mean_over_seeds() -> None:
    data = curves.sensitivity_data(samples.ranking(two_sweeps(), "sweep"))
    a, b = data["panels"]
    assert a["values"] == [0, 0.5, 1, 10]
    assert a["mean"] == pytest.approx([0.51, 0.61, 0.71, 0.41])
    assert a["std"] == pytest.approx([0.02 / 2**0.5] * 4)
    assert (a["centre"], b["centre"]) == (2, 1)
    assert b["mean"] == pytest.approx([0.66, 0.71, 0.67])
    assert a["reference"] == b["reference"] == pytest.approx([0.63, 0.02 / 2**0.5])


def test_the_figure_of_sensitivity_names_the_data_and_the_band() -> None:
    figure = curves.draw_sensitivity(curves.sensitivity_data(samples.ranking(two_sweeps(), "sweep")))
    assert [axes.get_title() for axes in figure.axes] == ["alpha, cora", "alpha, cora"]
    shown = [text.get_text() for text in figure.legends[0].texts]
    assert shown == ["alpha", "held while others vary", "FedAvg", "its standard deviation"]


def test_a_single_sweep_has_no_centre() -> None:
    board = samples.board([tried(0.5, a=a) for a in (1, 2, 3)])
    assert [(sweep.parameter, sweep.centre) for sweep in board.sweeps] == [("a", None)]


@pytest.mark.parametrize(
    "settings",
    [
        [{"a": 1.0}, {"a": 2.0}],  # two values are no curve
        [{"flag": False}, {"flag": True}],
        [{"kind": kind} for kind in "xyz"],
        [{"a": value, "kind": str(value)} for value in (1.0, 2.0, 3.0)],  # two parameters change
    ],
)
def test_settings_that_are_no_sweep(settings: list[dict[str, object]]) -> None:
    board = samples.board([tried(0.5, **changes) for changes in settings])
    assert board.sweeps == []
    assert not board.is_sweep


def test_sweeps_of_backbones_and_training() -> None:
    rows = [
        samples.row("cora", "alpha", 0, 0.5, backbone_params=json.dumps({"hidden": 64, "layers": layers}))
        for layers in (2, 4, 8)
    ]
    rows += [samples.row("wiki", "alpha", 0, 0.5, training=json.dumps({"lr": lr})) for lr in (0.1, 0.01, 0.001)]
    sweeps = [(sweep.task, sweep.parameter, [v for v, _ in sweep.points]) for sweep in samples.board(rows).sweeps]
    assert sweeps == [("cora", "backbone.layers", [2, 4, 8]), ("wiki", "training.lr", [0.001, 0.01, 0.1])]


def test_runs_without_a_score_leave_their_point_out() -> None:
    rows = [tried(0.5, a=a) for a in (0, 1, 2, 3)]
    rows[2] = samples.row("cora", "alpha", 0, error="diverged", method_params=rows[2].method_params)
    (sweep,) = samples.board(rows).sweeps
    assert [value for value, _ in sweep.points] == [0, 1, 3]


def test_sweeps_have_no_ranking_and_no_ranking_figures(tmp_path: Path) -> None:
    folder = samples.write(tmp_path / "results", [*two_sweeps(), *samples.demo()])
    page = tmp_path / "README.md"
    page.write_text("<!-- leaderboard:begin --><!-- leaderboard:end -->")
    report = build.make(folder, page)
    assert {path.name for path in report.figures if path.parts[-3] == "sweep"} == {"sensitivity.png"}
    text = report.texts[folder / "LEADERBOARD.md"]
    assert "settings of one method, so nothing is ranked" in text
    assert "(figures/sensitivity.png)" in report.texts[folder / "sweep" / "LEADERBOARD.md"]
    assert "**demo**" in report.texts[page] and "**sweep**" not in report.texts[page]


def test_few_settings_of_one_method_keep_the_ranking() -> None:
    rows = [samples.row(data, f"m{i}", 0, 0.5 + i / 100) for data in ("cora", "wiki") for i in range(4)]
    params = [(data, json.dumps({"mu": mu})) for data in ("cora", "wiki") for mu in (0.1, 1, 10)]
    rows += [samples.row(data, "fedprox", 0, 0.5, method_params=params_text) for data, params_text in params]
    ranking = samples.ranking(rows)
    assert {sweep.parameter for sweep in ranking.board.sweeps} == {"mu"}
    assert len(ranking.board.ranked) == 7
    assert {"sensitivity.png", "rank_heatmap.png"} <= {plot.file for plot in found_figures(ranking)}


EPSILON = {0.5: 1211.8, 1.0: 30.0, 5.0: 4.0}
FALL = {0.5: 0.1, 1.0: 0.2, 5.0: 0.5}  # fall of the score per noise


def run(method: str, score: float, seed: int, **privacy: float) -> Any:
    training = json.dumps({"local_epochs": 3, "rounds": 20, **privacy}, sort_keys=True)
    spent = EPSILON.get(privacy.get("dp_noise", 0.0))
    return samples.row("cora", method, seed, score - 0.02 * seed, suite="demo", training=training, dp_epsilon=spent)


def rows(clip: float = 1.0) -> list[Any]:
    """Two methods and local training, two seeds 0.02 apart."""
    entries = []
    for method, plain in (("fedavg", 0.8), ("moon", 0.7)):
        for seed in (0, 1):
            entries += [run(method, plain, seed), run(method, plain - 0.05, seed, dp_clip=clip)]
            entries += [run(method, plain - f, seed, dp_clip=clip, dp_noise=n) for n, f in FALL.items()]
    return [*entries, *(run("local", 0.6, seed) for seed in (0, 1))]


def test_curves_and_levels_by_hand() -> None:
    cost = samples.ranking(rows()).privacy
    assert list(cost.curves) == [("cora", "fedavg", 1.0), ("cora", "moon", 1.0)]
    fedavg = cost.curves["cora", "fedavg", 1.0]
    assert fedavg["epsilon"].to_dict() == EPSILON
    assert fedavg["score"].to_dict() == pytest.approx({noise: 0.79 - fall for noise, fall in FALL.items()})
    assert fedavg["std"].tolist() == pytest.approx([0.02 / 2**0.5] * 3)
    assert cost.level("cora", "fedavg") == pytest.approx((0.79, 0.02 / 2**0.5))
    assert cost.level("cora", "fedavg", 1.0)[0] == pytest.approx(0.74)
    assert cost.level("cora", "local")[0] == pytest.approx(0.59)
    assert cost.shown == [*sorted(cost.curves)[:1], ("cora", "local", 0.0), *sorted(cost.curves)[1:]]


def test_the_table_has_every_noise_and_the_clip_alone() -> None:
    sheet = privacy_table(samples.ranking(rows()).privacy)
    assert sheet.titles == ["Task", "Method", "Not private", "Clip alone", "Noise 0.5", "Noise 1", "Noise 5"]
    fedavg, local, _ = sheet.lines
    assert [cell.text for cell in fedavg.cells[2:5]] == ["79.00 ± 1.41", "74.00 ± 1.41", "69.00 ± 1.41 (ε 1,212)"]
    assert [cell.text for cell in local.cells[2:]] == ["59.00 ± 1.41", *[ABSENT] * 4]
    assert "ε 1,212" in to_markdown(sheet)


def test_several_clips_are_several_curves() -> None:
    ranking = samples.ranking([*rows(), *rows(clip=3.0)])
    assert [place[1:] for place in ranking.privacy.curves] == [("fedavg", 1), ("fedavg", 3), ("moon", 1), ("moon", 3)]
    assert "Clip" in privacy_table(ranking.privacy).titles
    data = curves.privacy_data(ranking)
    assert [line["name"] for line in data["panels"][0]["lines"]][:2] == ["fedavg, clip 1", "fedavg, clip 3"]


def test_the_figure_is_logarithmic_with_levels_and_bands() -> None:
    ranking = samples.ranking(rows())
    data = curves.privacy_data(ranking)
    (panel,) = data["panels"]
    assert panel["alone"] == pytest.approx(0.59)
    assert [line["epsilon"] for line in panel["lines"]] == [[4.0, 30.0, 1211.8]] * 2
    (axes,) = curves.draw_privacy(data).axes
    assert axes.get_xscale() == "log"
    assert sorted(
        float(line.get_ydata()[0]) for line in axes.lines if len(set(line.get_ydata())) == 1
    ) == pytest.approx([59.0, 69.0, 79.0])
    assert len(axes.collections) == 2
    names = [plot.file for plot in found_figures(ranking)]
    assert "privacy.png" in names
    assert curves.sensitivity_data(ranking) is None  # the same points by noise


def test_levels_have_the_colours_of_the_legend() -> None:
    """FedAvg and local training have fixed colours, MOON one that is free."""
    figure = curves.draw_privacy(curves.privacy_data(samples.ranking(rows())))
    levels = [line for line in figure.axes[0].lines if len(set(line.get_ydata())) == 1]
    handles = figure.legends[0].get_lines()
    assert [line.get_color() for line in levels] == [line.get_color() for line in handles]
    assert [line.get_color() for line in handles] == [COLOURS[0], COLOURS[2], COLOURS[1]]
    assert [text.get_text() for text in figure.legends[0].texts] == ["FedAvg", "MOON", "Local training"]


def test_privacy_curves_need_three_noises(tmp_path: Path) -> None:
    short = [row for row in rows() if '"dp_noise": 5.0' not in row.training]
    assert curves.privacy_data(samples.ranking(short)) is None
    assert not samples.ranking(samples.demo()).privacy.curves
    folder = samples.write(tmp_path / "results", rows())
    text = build.make(folder, None).texts[folder / "demo" / "LEADERBOARD.md"]
    assert "## What privacy costs" in text
    assert "3 methods with 11 settings" in text
    assert "most entries are settings of 2 methods, so nothing is ranked" in text


def test_tasks_of_fewer_clients_come_first() -> None:
    known = [row.model_copy(update={"clients": n, "key": f"{n}{row.key}"}) for n in (100, 50, 10) for row in rows()]
    curves_of = samples.ranking(known).privacy.curves
    assert [task for task, method, _ in curves_of if method == "moon"] == [f"cora ({n} clients)" for n in (10, 50, 100)]
