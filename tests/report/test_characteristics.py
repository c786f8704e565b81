"""Data and families: properties by hand, gains over `local`, and what is said of a regime."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fglbench import methods  # noqa: F401  registers them
from fglbench.benchmark.engine import METHODS
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.published import TASK, read_properties
from fglbench.report.characteristics import characteristics_table, label_properties, training_share
from fglbench.report.groups import kind_of_data, models
from fglbench.report.leaderboard import key_findings
from fglbench.report.loading import load_boards
from fglbench.report.ranking import Ranking
from fglbench.report.special_tables import kinds_table
from fglbench.report.text import to_markdown

ALIKE, UNLIKE = [[5, 5], [5, 5]], [[10, 0], [0, 10]]


def test_the_table_says_which_methods_take_clients_of_mixed_architectures() -> None:
    own = {name: METHODS.cls(name) for name in METHODS.names() if METHODS.is_own(METHODS.cls(name))}
    assert {name: models(name) for name in own} == {
        name: "may differ" if cls.heterogeneous else "all alike" for name, cls in own.items()
    }
    assert models("a-plug-in") == "other"


def test_a_users_own_dataset_is_of_another_kind() -> None:
    assert (kind_of_data("cora"), kind_of_data("own:villages")) == ("citations", "other")


def test_ranks_by_kind_of_data_by_hand(made: SimpleNamespace) -> None:
    """Alpha is first of three on both citation graphs and last on the products, where gamma is first."""
    scores = {"alpha": (0.9, 0.8, 0.1), "beta": (0.5, 0.7, 0.2), "gamma": (0.6, 0.3, 0.3)}
    datasets = ("cora", "pubmed", "amazon-photo")
    rows = [made.row(data, name, 0, own[i]) for name, own in scores.items() for i, data in enumerate(datasets)]
    sheet = kinds_table(Ranking(made.board(rows)))
    assert [(column.title, column.note) for column in sheet.columns[1:]] == [
        ("Citations", "2 datasets"), ("Products", "1 dataset"),
    ]  # fmt: skip
    found = {line.entrant: [cell.text for cell in line.cells[1:]] for line in sheet.lines}
    assert found == {"alpha": ["1.0", "3.0"], "beta": ["2.5", "2.0"], "gamma": ["2.5", "1.0"]}
    assert [line.entrant for line in sheet.lines if line.cells[1].mark == "best"] == ["alpha"]
    assert kinds_table(Ranking(made.board([row for row in rows if row.dataset != "amazon-photo"]))) is None


def test_properties_by_hand() -> None:
    assert label_properties(np.array(ALIKE)) == {"label skew": 0.0, "majority share": 0.5}
    assert label_properties(np.array([*UNLIKE, [0, 0]])) == {"label skew": 0.5, "majority share": 1.0}
    found = label_properties(np.array([[3, 1], [1, 3], [2, 2]]))  # shares .75/.25, .25/.75, .5/.5 against .5/.5
    assert found == pytest.approx({"label skew": (0.25 + 0.25) / 3, "majority share": (0.75 + 0.75 + 0.5) / 3})


@pytest.fixture
def ranking(tmp_path: Path, made: SimpleNamespace) -> Ranking:
    """Three datasets of clients that are alike, where the shared models gain 10, 20 and 30 points, and three where they
    lose 5; fedtgp sends a hundredth of what the others send and is a point below fedavg everywhere."""
    rows = []
    for place, dataset in enumerate("abcxyz"):
        gain = (0.1, 0.2, 0.3, -0.05, -0.05, -0.05)[place]
        for method, score in {"local": 0.5, "fedavg": 0.5 + gain, "fedprox": 0.5 + gain, "fedtgp": 0.49 + gain}.items():
            cost = {"fedtgp": 40_000, "local": 0}.get(method, 4_000_000)
            sent = {"upload_bytes_best": cost, "download_bytes_best": cost}
            noise = 0.001 * (place % 3 + 1) * (method != "local")
            rows += [made.row(dataset, method, s, score + noise * (s - 1), **sent) for s in range(3)]
    folder = made.write(tmp_path / "results", rows, curves=False)
    store = Store(folder)
    for row in store.rows("demo"):
        store.write_history("demo", row.key, {"label_counts": ALIKE if row.dataset in "abc" else UNLIKE})
    (board,) = load_boards(folder)
    return Ranking(board)


def test_the_gain_of_fedavg_beside_properties_by_hand(ranking: Ranking) -> None:
    found = ranking.characteristics
    assert found.skew_groups == {"more alike": ["a", "b", "c"], "less alike": ["x", "y", "z"]}
    gains, skew = [0.1, 0.2, 0.3, -0.05, -0.05, -0.05], [0, 0, 0, 0.5, 0.5, 0.5]
    expected = np.corrcoef(stats.rankdata(gains), stats.rankdata(skew))[0, 1]  # Spearman's rho is that of the ranks
    assert found.correlations["label skew"][0] == pytest.approx(expected)
    (sentence,) = found.sentences
    assert f"over 6 datasets: label skew {expected:+.2f} (" in sentence
    assert "| Shared model (n=2) |" in to_markdown(characteristics_table(found)).replace("  ", "")


def test_training_nodes_per_class_come_from_the_split(made: SimpleNamespace) -> None:
    ratio = pd.Series({"split": "ratio", "split_params": '{"train":0.2,"val":0.4}', "dataset": "cora"})
    assert training_share(ratio) == 0.2
    assert training_share(pd.Series({"split": "fixed", "split_params": "{}", "dataset": "actor"})) == 0.48
    assert np.isnan(training_share(pd.Series({"split": "fixed", "split_params": "{}", "dataset": "x"})))


def test_the_answer_in_three_sentences(ranking: Ranking) -> None:
    against, alone, thrifty = key_findings([ranking])
    assert against.text.startswith(
        "Compared with FedAvg, with a probability of 95%: equivalent (within one point): FedProx, FedTGP;"
    )
    assert against.text.endswith("undecided: Local training.")
    gap = ranking.inference.against["local"]["fedavg"]
    assert f"accuracy {100 * gap.mean:+.1f} (" in alone.text  # the mean of +10, +20, +30 and three times -5
    assert f"{gap.verdict}" in alone.text
    assert against.table == "overall:demo"
    assert "FedAvg sends 8.0 MB; FedTGP sends 80.0 kB and differs from FedAvg by -1.0 points (" in thrifty.text
    assert "Local training sends nothing" in thrifty.text
    assert thrifty.table == "overall:demo"


def test_a_board_without_local_has_no_regimes(made: SimpleNamespace) -> None:
    ranking = Ranking(made.board([made.row(d, m, s, 0.5) for d in "abcxyz" for m in "mn" for s in range(3)]))
    assert ranking.characteristics.skew_groups == {}
    assert key_findings([ranking]) == []


def test_what_is_known_of_a_task_stands_beside_what_its_rows_say(made: SimpleNamespace) -> None:
    (task, known), *_ = read_properties().items()
    asked = dict(zip(TASK[1:], task[1:], strict=True)) | {"clients": int(task[-1])}
    row = made.row(task[0], "a", 0, 0.5, **asked)
    found = Ranking(made.board([row])).characteristics.properties.iloc[0]
    assert found["edge homophily"] == known["homophily"]
    assert found["lost edges"] == known["lost_edges"]
