"""Which methods a board tells apart: the unit of its tests, controls and tiers, on rows that can be judged by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from fglbench.report.contest import Contest
from fglbench.report.standings import Standings

NOISE = {"fedavg": (0, 1, -1), "local": (1, -1, 0), "high": (-1, 0, 1), "level": (-1, 1, 0)}


def rows(made: SimpleNamespace, datasets: str, seeds: int = 3) -> list:
    """`high` is 5 points above fedavg, local 5 below, `level` where fedavg is, give or take a tenth of a point."""
    lift = {"fedavg": 0.0, "local": -0.05, "high": 0.05, "level": 0.0}
    return [
        made.row(dataset, name, seed, 0.6 + 0.01 * at + lift[name] + 0.001 * (at + 1) * NOISE[name][seed])
        for at, dataset in enumerate(datasets)
        for name in lift
        for seed in range(seeds)
    ]


def test_few_datasets_are_judged_by_their_seeds(made: SimpleNamespace) -> None:
    contest = Contest(made.board(rows(made, "abc")))
    assert (contest.unit, contest.comparisons, contest.controls) == ("seed", 6, ["fedavg", "local"])
    assert contest.tiers == {"high": 1, "fedavg": 2, "level": 2, "local": 3}
    assert "hold for these tasks" in contest.text.replace("holds", "hold")
    assert "would need 8 datasets, and there are 3" in contest.text  # 6 * 2/2^8 = 0.047
    assert "Tier 1 has 1 method of 4." in contest.text
    assert "from fedavg would be told in four of five repetitions from " in contest.text
    told = {(one, name): each.p <= 0.05 for one, own in contest.against.items() for name, each in own.items()}
    assert {pair for pair, apart in told.items() if not apart} == {("fedavg", "level")}
    assert contest.against["fedavg"]["high"].mean == pytest.approx(0.05)


def test_holm_is_over_both_controls(made: SimpleNamespace) -> None:
    contest = Contest(made.board(rows(made, "abc")))
    raw = [contest.difference(name, one).p for one, own in contest.against.items() for name in own]
    shown = [each.p for own in contest.against.values() for each in own.values()]
    assert min(shown) == pytest.approx(6 * min(raw))
    assert len(raw) == 6


def test_enough_datasets_are_the_unit(made: SimpleNamespace) -> None:
    contest = Contest(made.board(rows(made, "abcdefgh", seeds=1)))
    assert contest.unit == "dataset"
    assert contest.difference("high", "fedavg").p == pytest.approx(2 / 2**8)
    assert contest.tiers["high"] == 1
    assert "expected of other datasets" in contest.text
    assert "the other way on at most 0 of them" in contest.text  # 2 * 2/2^8 * 6 = 0.09


def test_an_outlier_against_the_ranks_tells_nothing(made: SimpleNamespace) -> None:
    """Odd is above fedavg on nine datasets by a point and below on one by fifty."""
    found = [made.row(d, "fedavg", 0, 0.6 + 0.001 * i) for i, d in enumerate("abcdefghij")]
    found += [made.row(d, "odd", 0, 0.1 if d == "j" else 0.61 + 0.002 * i) for i, d in enumerate("abcdefghij")]
    contest = Contest(made.board(found))
    assert contest.unit == "dataset"
    difference = contest.difference("odd", "fedavg")
    assert difference.mean < 0
    assert difference.p == 1.0
    assert set(contest.tiers.values()) == {1}


def test_two_seeds_tell_nothing(made: SimpleNamespace) -> None:
    standings = Standings(made.board(rows(made, "abc", seeds=2)))
    assert standings.contest.unit == "none"
    assert standings.contest.tiers == {}
    assert set(standings.table["tier"]) == {0}
    assert "Too few seeds for a test" in standings.outcome
    assert all(not equal for _, equal in standings.leaders.values())


def test_tasks_of_one_dataset_share_its_weight(made: SimpleNamespace) -> None:
    """Cora twice with +2 and +4 points, wiki once with +9: (3 + 9) / 2, and not the mean over three tasks."""
    found = []
    for dataset, clients, gap in (("cora", 5, 0.02), ("cora", 10, 0.04), ("wiki", 5, 0.09)):
        for seed, noise in enumerate((0.001, -0.001, 0.0)):
            found += [made.row(dataset, "a", seed, 0.5, clients=clients)]
            found += [made.row(dataset, "b", seed, 0.5 + gap + noise, clients=clients)]
    difference = Contest(made.board(found)).difference("b", "a")
    assert difference.mean == pytest.approx(0.06)
    parts = np.array([0.25, 0.25, 0.5]) ** 2 * 1e-6 / 3
    freedom = parts.sum() ** 2 / (parts**2 / 2).sum()
    assert difference.p == pytest.approx(2 * stats.t.sf(0.06 / parts.sum() ** 0.5, freedom))


def test_one_method_is_nothing_to_compare(made: SimpleNamespace) -> None:
    contest = Contest(made.board([made.row("cora", "a", seed, 0.5) for seed in range(3)]))
    assert contest.unit == "none"
    assert "nothing to compare" in contest.text
