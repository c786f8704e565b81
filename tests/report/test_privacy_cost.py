"""What privacy costs: the points by hand, the table and the figure; none on a board without."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fglbench.report import build, privacy_cost
from fglbench.report.figures import curves as figure, found_figures
from fglbench.report.privacy_cost import privacy_table
from fglbench.report.ranking import Ranking
from fglbench.report.table import to_markdown
from fglbench.report.text import ABSENT

EPSILON = {0.5: 80.0, 1.0: 30.0, 5.0: 4.0}
FALL = {0.5: 0.1, 1.0: 0.2, 5.0: 0.5}  # of the score, at that noise


def run(made: SimpleNamespace, method: str, score: float, seed: int, **privacy: float) -> Any:
    training = json.dumps({"local_epochs": 3, "rounds": 20, **privacy}, sort_keys=True)
    spent = EPSILON.get(privacy.get("dp_noise", 0.0))
    return made.row("cora", method, seed, score - 0.02 * seed, suite="demo", training=training, dp_epsilon=spent)


def rows(made: SimpleNamespace, clip: float = 1.0) -> list[Any]:
    """Two methods, two seeds 0.02 apart, and one that trains locally."""
    found = []
    for method, plain in (("fedavg", 0.8), ("moon", 0.7)):
        for seed in (0, 1):
            found += [run(made, method, plain, seed), run(made, method, plain - 0.05, seed, dp_clip=clip)]
            found += [run(made, method, plain - f, seed, dp_clip=clip, dp_noise=n) for n, f in FALL.items()]
    return [*found, *(run(made, "local", 0.6, seed) for seed in (0, 1))]


def test_curves_and_levels_by_hand(made: SimpleNamespace) -> None:
    cost = Ranking(made.board(rows(made))).privacy
    assert list(cost.curves) == [("cora", "fedavg", 1.0), ("cora", "moon", 1.0)]
    fedavg = cost.curves["cora", "fedavg", 1.0]
    assert fedavg["epsilon"].to_dict() == EPSILON
    assert fedavg["score"].to_dict() == pytest.approx({noise: 0.79 - fall for noise, fall in FALL.items()})
    assert fedavg["std"].tolist() == pytest.approx([0.02 / 2**0.5] * 3)
    assert cost.level("cora", "fedavg") == pytest.approx((0.79, 0.02 / 2**0.5))
    assert cost.level("cora", "fedavg", 1.0)[0] == pytest.approx(0.74)
    assert cost.level("cora", "local")[0] == pytest.approx(0.59)
    assert cost.shown == [*sorted(cost.curves)[:1], ("cora", "local", 0.0), *sorted(cost.curves)[1:]]


def test_the_table_has_every_noise_and_the_clip_alone(made: SimpleNamespace) -> None:
    sheet = privacy_table(Ranking(made.board(rows(made))).privacy)
    assert sheet.titles == ["Task", "Method", "Not private", "Clip alone", "Noise 0.5", "Noise 1", "Noise 5"]
    fedavg, local, _ = sheet.lines
    assert [cell.text for cell in fedavg.cells[2:5]] == ["79.00 ± 1.41", "74.00 ± 1.41", "69.00 ± 1.41 (ε 80)"]
    assert [cell.text for cell in local.cells[2:]] == ["59.00 ± 1.41", *[ABSENT] * 4]
    assert "ε 80" in to_markdown(sheet)


def test_several_clips_are_several_curves(made: SimpleNamespace) -> None:
    ranking = Ranking(made.board([*rows(made), *rows(made, clip=3.0)]))
    assert [place[1:] for place in ranking.privacy.curves] == [("fedavg", 1), ("fedavg", 3), ("moon", 1), ("moon", 3)]
    assert "Clip" in privacy_table(ranking.privacy).titles
    found = figure.privacy_data(ranking)
    assert found is not None
    assert [line["name"] for line in found["panels"][0]["lines"]][:2] == ["fedavg, clip 1", "fedavg, clip 3"]


def test_the_figure_is_logarithmic_with_levels_and_bands(made: SimpleNamespace) -> None:
    ranking = Ranking(made.board(rows(made)))
    found = figure.privacy_data(ranking)
    assert found is not None
    (panel,) = found["panels"]
    assert panel["alone"] == pytest.approx(0.59)
    assert [line["epsilon"] for line in panel["lines"]] == [[4.0, 30.0, 80.0]] * 2
    (axes,) = figure.draw_privacy(found).axes
    assert axes.get_xscale() == "log"
    assert sorted(
        float(line.get_ydata()[0]) for line in axes.lines if len(set(line.get_ydata())) == 1
    ) == pytest.approx([59.0, 69.0, 79.0])
    assert len(axes.collections) == 2
    names = [plot.file for plot in found_figures(ranking)]
    assert "privacy.png" in names
    assert figure.sensitivity_data(ranking) is None  # the same points by noise


def test_two_noises_are_no_curve_and_most_boards_have_none(made: SimpleNamespace, tmp_path: Path) -> None:
    short = [row for row in rows(made) if '"dp_noise": 5.0' not in row.training]
    assert figure.privacy_data(Ranking(made.board(short))) is None
    assert not Ranking(made.board(made.demo())).privacy.curves
    folder = made.write(tmp_path / "results", rows(made))
    text = build.make(folder, None).texts[folder / "LEADERBOARD.md"]
    assert "### What privacy costs" in text


def test_tasks_of_fewer_clients_come_first() -> None:
    places = [(f"cora ({n} clients)", "fedavg", 1.0) for n in (100, 50, 10)] + [("cora (50 clients)", "moon", 1.0)]
    assert [place[0] for place in sorted(places, key=privacy_cost._in_order)] == [
        f"cora ({n} clients)" for n in (10, 50, 50, 100)
    ]  # fmt: skip
    assert [privacy_cost._short(value) for value in (1211.8, 354.9, 81.12, 4.162)] == ["1,212", "355", "81.1", "4.16"]
