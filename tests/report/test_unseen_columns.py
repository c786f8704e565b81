"""The columns of clients that were held out of training, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fglbench.report.board import Board
from fglbench.report.ranking import Ranking
from fglbench.report.tables import ranking_table, task_table
from fglbench.report.text import ABSENT

TRAINED = '{"local_epochs":3,"rounds":100,"unseen":0.3,"unseen_epochs":5}'
UNSEEN = {  # two of three clients; the mean over them, then over seeds
    ("alpha", 0): [0.5, None, 0.7],
    ("alpha", 1): [None, 0.8, 0.6],
    ("beta", 0): [0.2, None, 0.2],
    ("beta", 1): [None, 0.4, None],  # the third has no test node of its own
}


def board(made: SimpleNamespace, training: str = TRAINED, metric: str = "accuracy") -> Board:
    words = f"{metric}, global model, local test, mean over clients"
    rows = {key: made.row("twitch", *key, 0.5, training=training, score_metric=words) for key in UNSEEN}
    stored = {}
    for (method, seed), own in UNSEEN.items():
        figures = {"score": [0.5, 0.5, 0.5], "unseen": own}
        if method == "alpha":
            figures["unseen_adapted"] = [None if value is None else value / 2 for value in own]
        stored[rows[method, seed].key] = {"per_client": figures}
    plain = made.board(rows.values())
    return Board(plain.suite, plain.rows, stored.get)


def shown(table) -> dict[str, list[str]]:
    places = [k for k, column in enumerate(table.columns) if column.title.startswith("Unseen")]
    return {line.entrant: [line.cells[k].text for k in places] for line in table.lines}


def test_means_by_hand(made: SimpleNamespace) -> None:
    found = board(made).unseen.droplevel("task_label")
    assert found.loc["alpha"].tolist() == pytest.approx([0.65, 0.325])
    assert found.loc["beta", "unseen"] == pytest.approx(0.3) and found.loc["beta"].isna()["unseen_adapted"]


def test_both_tables_have_the_columns(made: SimpleNamespace) -> None:
    ranking = Ranking(board(made))
    expected = {"alpha": ["65.00", "32.50"], "beta": ["30.00", ABSENT]}
    assert shown(ranking_table(ranking)) == expected
    told = shown(task_table(ranking, ranking.board.tasks[0]))
    assert told["alpha"] == ["65.00", "32.50"] and told["beta"] == ["30.00", ABSENT]


def test_errors_are_in_their_own_unit(made: SimpleNamespace) -> None:
    ranking = Ranking(board(made, metric="RMSE (lower is better)"))
    assert shown(ranking_table(ranking)) == {"alpha": ["0.650", "0.325"], "beta": ["0.300", ABSENT]}


def test_without_the_condition_there_is_no_column(made: SimpleNamespace) -> None:
    ranking = Ranking(board(made, training='{"local_epochs":3,"rounds":100}'))
    titles = [column.title for column in ranking_table(ranking).columns]
    assert not [title for title in titles if "nseen" in title] and ranking.unseen.empty
