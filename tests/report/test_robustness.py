"""Curves of score against strength and their areas by hand; conditions as part of the task."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.config import ATTACKS
from fglbench.benchmark.store.schema import NEUTRAL, conditions, strength, wording
from fglbench.datasets.federation import Stress
from fglbench.report.cells import to_markdown
from fglbench.report.figures import curves as figure, found_figures
from fglbench.report.figures.style import GREYS
from fglbench.report.ranking import Ranking
from fglbench.report.robustness import robustness_legend, robustness_table
from fglbench.report.text import slug

from . import samples

TRAINING = {"local_epochs": 3, "participation": 1.0, "rounds": 100}
# (condition, value) -> score of seed 0; seed 1 is 0.1 lower. sturdy starts lower and falls less.
CURVES = {
    "frail": {(): 0.8, ("label_noise", 0.2): 0.7, ("label_noise", 0.6): 0.3,
              ("participation", 0.5): 0.7, ("participation", 0.1): 0.6},
    "sturdy": {(): 0.7, ("label_noise", 0.2): 0.7, ("label_noise", 0.6): 0.6,
               ("participation", 0.5): 0.5, ("participation", 0.1): 0.4},
}  # fmt: skip
# Trapezoids by hand: frail (0.75 x 0.2 + 0.5 x 0.4) / 0.6 and (0.75 x 0.5 + 0.65 x 0.4) / 0.9,
# sturdy (0.7 x 0.2 + 0.65 x 0.4) / 0.6 and (0.6 x 0.5 + 0.45 x 0.4) / 0.9.
AREAS = {
    "frail": {"label_noise": 0.35 / 0.6, "participation": 0.635 / 0.9},
    "sturdy": {"label_noise": 0.40 / 0.6, "participation": 0.48 / 0.9},
}


def run(dataset: str, method: str, seed: int, score: float, condition: Any = (), **more: Any) -> Any:
    training = json.dumps({**TRAINING, **(dict([condition]) if condition else {})}, sort_keys=True)
    return samples.row(dataset, method, seed, score, suite="stress", training=training, **more)


def rows(dataset: str = "cora") -> list[Any]:
    return [
        run(dataset, method, seed, score - 0.1 * seed, condition)
        for method, points in CURVES.items()
        for condition, score in points.items()
        for seed in (0, 1)
    ]


def test_the_conditions_of_a_row_are_those_that_training_has() -> None:
    assert set(NEUTRAL) == {*Stress.model_fields, "participation", "failure", "straggle", *ATTACKS}
    plain = TrainConfig()
    assert {name: getattr(plain, name) for name in NEUTRAL} == dict(NEUTRAL)
    assert conditions(json.dumps(plain.model_dump(mode="json"))) == {}
    assert conditions('{"label_noise":0.2,"lr":0.1,"participation":0.3}') == {"label_noise": 0.2, "participation": 0.3}
    assert conditions("no json") == conditions('{"label_noise":"much"}') == {}
    assert (strength("label_noise", 0.2), strength("participation", 0.3), strength("failure", 0.1)) == (0.2, 0.7, 0.1)
    assert wording({"label_noise": 0.2}) == "label noise 0.2"
    assert wording({}) == "plain"


def test_each_condition_is_a_separate_task() -> None:
    board = samples.board(rows(), "stress")
    assert board.tasks == ["cora (label noise 0.2)", "cora (label noise 0.6)", "cora (participation 0.1)",
                           "cora (participation 0.5)", "cora (plain)"]  # fmt: skip
    assert board.entrants == ["frail", "sturdy"]
    assert not board.is_sweep
    assert board.plain.tasks == ["cora (plain)"]
    usual = samples.board(samples.demo())
    assert usual.plain is usual


def test_settings_have_equal_names_under_all_conditions() -> None:
    tried = [
        run("cora", "frail", 0, 0.5, condition, method_params=json.dumps({"mu": mu}))
        for mu in (1, 2)
        for condition in ((), ("label_noise", 0.2))
    ]
    assert samples.board(tried, "stress").entrants == ["frail (mu=1)", "frail (mu=2)"]


def test_areas_by_hand() -> None:
    """Two datasets and two seeds, each 0.1 apart: means are 0.1 below seed 0 of the first dataset."""
    lower = [row.model_copy(update={"score": row.score - 0.1, "key": f"{i:016x}"}) for i, row in
             enumerate(rows("wiki"))]  # fmt: skip
    robustness = samples.ranking([*rows(), *lower], "stress").robustness
    assert robustness.conditions == ["label_noise", "participation"]
    assert list(robustness.curves) == [(task, name) for task in ("cora", "wiki") for name in robustness.conditions]
    assert list(robustness.curves["cora", "participation"].columns) == [0.0, 0.5, 0.9]
    for method, areas in AREAS.items():
        row = robustness.table.loc[method]
        for condition, area in areas.items():
            assert robustness.areas.loc[(method, 0), ("cora", condition)] == pytest.approx(area)
            assert row[condition] == pytest.approx(area - 0.1)
            assert row[f"{condition} loss"] == pytest.approx(CURVES[method][()] - area)
        assert row["area"] == pytest.approx(sum(areas.values()) / 2 - 0.1)
        assert row["std"] == pytest.approx(0.1 / 2**0.5)
        assert row["plain"] == pytest.approx(CURVES[method][()] - 0.1)
    assert list(robustness.table.index) == ["frail", "sturdy"]  # 0.644 and 0.600


def test_areas_need_all_runs_and_curves_three_strengths() -> None:
    lacking = [row for row in rows() if (row.method, row.seed) != ("sturdy", 1) or "label" not in row.training]
    robustness = samples.ranking(lacking, "stress").robustness
    assert set(robustness.curves["cora", "label_noise"].index.get_level_values("entrant")) == {"frail"}
    assert list(robustness.table.index) == ["frail"]
    short = [row for row in rows() if '"label_noise": 0.2' not in row.training]
    assert samples.ranking(short, "stress").robustness.conditions == ["participation"]
    assert samples.ranking(samples.demo()).robustness.table.empty


def test_table_shows_area_and_loss_and_marks_the_best() -> None:
    sheet = robustness_table(samples.ranking(rows(), "stress").robustness)
    assert sheet.titles == ["Method", "Area, %", "Plain, %", "Label noise", "Participation"]
    frail, sturdy = sheet.lines
    assert [cell.mark for cell in frail.cells] == ["", "best", "best", "", "best"]
    assert [cell.mark for cell in sturdy.cells] == ["", "", "", "best", ""]
    assert frail.cells[3].text == "53.33 (-21.7)"
    assert "sturdy" in to_markdown(sheet)


def test_figure_shows_means_and_deviations_over_seeds() -> None:
    ranking = samples.ranking(rows(), "stress")
    data = figure.robustness_data(ranking)
    noise, absence = data["panels"]
    assert (noise["task"], noise["condition"], noise["strengths"]) == ("cora", "label_noise", [0.0, 0.2, 0.6])
    assert absence["strengths"] == [0.0, 0.5, 0.9]
    (frail, _) = noise["lines"]
    assert frail["mean"] == pytest.approx([0.75, 0.65, 0.25])
    assert frail["std"] == pytest.approx([0.1 / 2**0.5] * 3)
    assert "robustness.png" in [plot.file for plot in found_figures(ranking)]
    assert figure.robustness_data(samples.ranking(samples.demo())) is None


def test_only_coloured_curves_have_bars() -> None:
    """The first five methods have colours and bars; the others are black and grey."""
    names = [f"m{i}" for i in range(10)]
    lines = [{"name": name, "mean": [0.7, 0.6], "std": [0.1, 0.1]} for name in names]
    panel = {"task": "cora", "condition": "label_noise", "strengths": [0.0, 0.5], "lines": lines}
    drawn = figure.draw_robustness({"panels": [panel], "order": names})
    assert [curve.has_yerr for curve in drawn.axes[0].containers] == [True] * 5 + [False] * 5
    assert {line.get_color() for line in drawn.legends[0].get_lines()[5:]} == {*GREYS}


def test_report_has_no_table_per_strength(tmp_path: Path) -> None:
    _, texts = samples.pages(tmp_path, rows())
    names = {path.rpartition("/")[2] for path in texts if "/tables/" in path}
    assert names == {f"{slug('cora (plain)')}.md", f"{slug('cora (plain)')}.csv", "robustness.csv"}
    assert "## How scores fall" in texts["stress/LEADERBOARD.md"]
    assert "(tables/robustness.csv)" in texts["stress/LEADERBOARD.md"]
    points = list(csv.DictReader(texts["stress/tables/robustness.csv"].splitlines()))
    assert len(points) == 2 * 2 * 3  # methods, conditions, strengths
    assert points[0] == {"task": "cora", "condition": "label_noise", "strength": "0", "method": "frail",
                         "score": "0.75", "score_std": "0.0707107", "n": "2"}  # fmt: skip


def test_a_condition_without_a_curve_has_tables_and_a_caution(tmp_path: Path) -> None:
    hard = json.dumps({"label_noise": 0.4})
    lines = [samples.row("cora", name, seed, score, suite="custom", training=training)
             for name in ("frail", "tough") for seed in (0, 1)
             for score, training in ((0.8, "{}"), (0.3, hard))]  # fmt: skip
    _, texts = samples.pages(tmp_path, lines)
    names = {path.rpartition("/")[2] for path in texts if path.endswith(".csv")}
    assert names == {f"{slug(task)}.csv" for task in ("cora (plain)", "cora (label noise 0.4)")}
    assert "30.00" in texts["custom/LEADERBOARD.md"]
    assert "**Caution**: means over datasets include runs under conditions" in texts["LEADERBOARD.md"]
    assert "include runs under conditions" not in samples.pages(tmp_path / "curves", rows())[1]["LEADERBOARD.md"]


# Score of seed 0: it falls with the number of clients; large alpha is the mild end.
ALONG = {5: 0.8, 10: 0.7, 40: 0.5, 80: 0.4}
SKEW = {0.1: 0.5, 1.0: 0.6, 10.0: 0.8, 100.0: 0.7}


def cut(dataset: str, score: float, seed: int = 0, method: str = "fedavg", **more: Any) -> Any:
    return samples.row(dataset, method, seed, score, suite="stress", **more)


def tasks_of() -> list[Any]:
    """Both axes on one dataset, two seeds 0.1 apart; three homophilies of another dataset, which give no curve."""
    by_clients = [cut("cora", s - 0.1 * seed, seed, clients=k) for k, s in ALONG.items() for seed in (0, 1)]
    by_alpha = [
        cut("cora", s - 0.1 * seed, seed, partition="label-dirichlet", partition_params=f'{{"alpha":{alpha}}}')
        for alpha, s in SKEW.items()
        for seed in (0, 1)
    ]
    few = [
        cut("csbm", 0.5, seed, dataset_params=f'{{"homophily":{homophily}}}')
        for homophily in (0.1, 0.5, 0.9)
        for seed in (0, 1)
    ]
    return [*by_clients, *by_alpha, *few]


def test_settings_of_the_task_have_curves_too() -> None:
    """Areas by hand over log2 of the clients (widths 1, 2, 1) and log10 of alpha (widths 1)."""
    board = samples.board(tasks_of(), "stress")
    robustness = Ranking(board).robustness
    assert list(robustness.curves) == [("cora", "alpha"), ("cora", "clients")]
    assert list(robustness.curves["cora", "clients"].columns) == [5, 10, 40, 80]
    (row,) = robustness.table.to_dict("records")
    clients = (0.75 * 1 + 0.6 * 2 + 0.45 * 1) / 4 - 0.05
    alpha = (0.55 + 0.7 + 0.75) / 3 - 0.05
    assert row["clients"] == pytest.approx(clients)
    assert row["alpha"] == pytest.approx(alpha)
    assert row["area"] == pytest.approx((clients + alpha) / 2)
    assert row["clients loss"] == pytest.approx(0.75 - clients)  # fewest clients are the mild end
    assert row["alpha loss"] == pytest.approx(0.65 - alpha)  # so is the largest alpha, with a lower score
    assert row["plain"] == pytest.approx(0.7)


def test_plain_rows_are_mild_ends_and_rows_on_no_axis() -> None:
    shown = samples.board(tasks_of(), "stress").plain.rows
    by_clients, by_alpha = ("cora", 5, '{"resolution":1.0}'), ("cora", 10, '{"alpha":100.0}')
    off_axis = ("csbm", 10, '{"resolution":1.0}')
    places = shown[["dataset", "clients", "partition_params"]].itertuples(index=False, name=None)
    assert sorted(places) == [by_clients] * 2 + [by_alpha] * 2 + [off_axis] * 6


def test_a_homophily_of_four_values_is_a_curve_on_an_even_axis() -> None:
    rows = [cut("csbm", s, dataset_params=f'{{"homophily":{h}}}') for h, s in
            {0.1: 0.2, 0.3: 0.4, 0.5: 0.6, 0.9: 1.0}.items()]  # fmt: skip
    ranking = samples.ranking(rows, "stress")
    assert ranking.robustness.table.loc["fedavg", "homophily"] == pytest.approx(0.6)
    assert "homophily" in robustness_table(ranking.robustness).titles[-1].lower()
    assert "mild end" in robustness_legend(ranking.robustness)
    assert "mild end" not in robustness_legend(samples.ranking(tasks_of()[:2], "stress").robustness)


def test_axes_of_ratios_are_drawn_in_logarithms() -> None:
    data = figure.robustness_data(samples.ranking(tasks_of(), "stress"))
    assert data is not None
    assert [axes.get_xscale() for axes in figure.draw_robustness(data).axes] == ["log", "log"]
    noise = figure.robustness_data(samples.ranking(rows(), "stress"))
    assert noise is not None
    assert {axes.get_xscale() for axes in figure.draw_robustness(noise).axes} == {"linear"}


def test_runs_under_a_condition_are_on_no_axis() -> None:
    hard = [run("cora", "frail", 0, 0.5, ("label_noise", 0.2), clients=k) for k in ALONG]
    assert samples.ranking(hard, "stress").robustness.points["condition"].unique().tolist() == ["label_noise"]
