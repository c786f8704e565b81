"""Data and families: properties by hand, gains over `local`, key findings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.catalogue import TASK, read_properties
from fglbench.report.cells import to_markdown
from fglbench.report.characteristics import characteristics_table, label_properties, training_share
from fglbench.report.leaderboard import key_findings
from fglbench.report.loading import load_boards
from fglbench.report.ranking import Ranking
from fglbench.report.special_tables import kinds_table

from . import samples

ALIKE, UNLIKE = [[5, 5], [5, 5]], [[10, 0], [0, 10]]


def test_ranks_by_kind_of_data_by_hand() -> None:
    """Alpha is first on both citation graphs and last on the products, gamma is first on the products."""
    scores = {"alpha": (0.9, 0.8, 0.1), "beta": (0.5, 0.7, 0.2), "gamma": (0.6, 0.3, 0.3)}
    datasets = ("cora", "pubmed", "amazon-photo")
    rows = [samples.row(data, name, 0, values[i]) for name, values in scores.items() for i, data in enumerate(datasets)]
    sheet = kinds_table(samples.ranking(rows))
    assert [(column.title, column.note) for column in sheet.columns[1:]] == [
        ("Citations", "2 datasets"), ("Products", "1 dataset"),
    ]  # fmt: skip
    cells = {line.entrant: [cell.text for cell in line.cells[1:]] for line in sheet.lines}
    assert cells == {"alpha": ["1.0", "3.0"], "beta": ["2.5", "2.0"], "gamma": ["2.5", "1.0"]}
    assert [line.entrant for line in sheet.lines if line.cells[1].mark == "best"] == ["alpha"]
    assert kinds_table(samples.ranking([row for row in rows if row.dataset != "amazon-photo"])) is None


def test_properties_by_hand() -> None:
    assert label_properties(np.array(ALIKE)) == {"label skew": 0.0, "majority share": 0.5}
    assert label_properties(np.array([*UNLIKE, [0, 0]])) == {"label skew": 0.5, "majority share": 1.0}
    properties = label_properties(np.array([[3, 1], [1, 3], [2, 2]]))  # shares .75/.25, .25/.75, .5/.5 against .5/.5
    assert properties == pytest.approx({"label skew": (0.25 + 0.25) / 3, "majority share": (0.75 + 0.75 + 0.5) / 3})


@pytest.fixture
def ranking(tmp_path: Path) -> Ranking:
    """Shared models gain 10, 20 and 30 points on three datasets with equal clients and lose 5 on three with different
    clients. fedtgp sends a hundredth of the bytes and is always one point below fedavg."""
    rows = []
    for place, dataset in enumerate("abcxyz"):
        gain = (0.1, 0.2, 0.3, -0.05, -0.05, -0.05)[place]
        for method, score in {"local": 0.5, "fedavg": 0.5 + gain, "fedprox": 0.5 + gain, "fedtgp": 0.49 + gain}.items():
            cost = {"fedtgp": 40_000, "local": 0}.get(method, 4_000_000)
            sent = {"upload_bytes_best": cost, "download_bytes_best": cost}
            noise = 0.001 * (place % 3 + 1) * (method != "local")
            rows += [samples.row(dataset, method, s, score + noise * (s - 1), **sent) for s in range(3)]
    folder = samples.write(tmp_path / "results", rows, curves=False)
    store = Store(folder)
    for row in store.rows("demo"):
        store.write_history("demo", row.key, {"label_counts": ALIKE if row.dataset in "abc" else UNLIKE})
    (board,) = load_boards(folder)
    return Ranking(board)


def test_correlation_of_gain_and_skew_by_hand(ranking: Ranking) -> None:
    characteristics = ranking.characteristics
    assert characteristics.skew_groups == {"more alike": ["a", "b", "c"], "less alike": ["x", "y", "z"]}
    gains, skew = [0.1, 0.2, 0.3, -0.05, -0.05, -0.05], [0, 0, 0, 0.5, 0.5, 0.5]
    expected = np.corrcoef(stats.rankdata(gains), stats.rankdata(skew))[0, 1]  # Spearman's rho is that of the ranks
    assert characteristics.correlations["label skew"][0] == pytest.approx(expected)
    (sentence,) = characteristics.sentences
    assert f"over 6 datasets: label skew {expected:+.2f} (" in sentence
    assert "| Shared model (n=2) |" in to_markdown(characteristics_table(characteristics)).replace("  ", "")


def test_training_nodes_per_class_come_from_the_split() -> None:
    ratio = pd.Series({"split": "ratio", "split_params": '{"train":0.2,"val":0.4}', "dataset": "cora"})
    assert training_share(ratio) == 0.2
    assert training_share(pd.Series({"split": "fixed", "split_params": "{}", "dataset": "actor"})) == 0.48
    assert np.isnan(training_share(pd.Series({"split": "fixed", "split_params": "{}", "dataset": "x"})))


def test_key_findings_are_three_sentences(ranking: Ranking) -> None:
    against, alone, thrifty = key_findings([ranking])
    assert against.startswith(
        "Compared with FedAvg, with a probability of 95%: equivalent (within one point): FedProx, FedTGP;"
    )
    assert against.endswith("undecided: Local training.")
    gap = ranking.inference.against["local"]["fedavg"]
    assert f"accuracy {100 * gap.mean:+.1f} (" in alone  # the mean of +10, +20, +30 and three times -5
    assert f"{gap.verdict}" in alone
    assert "FedAvg sends 8.0 MB; FedTGP sends 80.0 kB and differs from FedAvg by -1.0 points (" in thrifty
    assert "Local training sends nothing" in thrifty


def test_a_board_without_local_has_no_regimes() -> None:
    ranking = samples.ranking([samples.row(d, m, s, 0.5) for d in "abcxyz" for m in "mn" for s in range(3)])
    assert ranking.characteristics.skew_groups == {}
    assert key_findings([ranking]) == []


def test_datasets_without_any_property_keep_their_order(tmp_path: Path) -> None:
    """A board of rows whose curves were not copied."""
    scores = {"local": 0.5, "fedavg": 0.6}
    rows = [samples.row(d, m, s, score + 0.01 * s) for d in "abcxyz" for m, score in scores.items() for s in range(3)]
    (board,) = load_boards(samples.write(tmp_path / "results", rows, curves=False))
    lines = characteristics_table(Ranking(board).characteristics).lines
    assert [line.cells[0].text for line in lines] == list("abcxyz")


def test_published_properties_are_joined_by_task() -> None:
    (task, known), *_ = read_properties().items()
    asked = dict(zip(TASK[1:], task[1:], strict=True)) | {"clients": int(task[-1])}
    row = samples.row(task[0], "a", 0, 0.5, **asked)
    properties = samples.ranking([row]).characteristics.properties.iloc[0]
    assert properties["edge homophily"] == known["homophily"]
    assert properties["lost edges"] == known["lost_edges"]
