"""What clients gain over local training, on boards whose clients come with the data."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fglbench.report.board import Board
from fglbench.report.inference_tables import clients_table
from fglbench.report.ranking import Ranking
from fglbench.report.text import ABSENT

SCORES: dict[
    tuple[str, int], list[float | None]
] = {  # of three clients, the second without a test node of both classes
    ("local", 0): [0.5, None, 0.6],
    ("local", 1): [0.4, None, 0.7],
    ("alpha", 0): [0.6, None, 0.5],  # +0.1, -0.1
    ("alpha", 1): [0.5, None, 0.9],  # +0.1, +0.2
    ("beta", 0): [0.5, None, 0.4],  # 0, -0.2
    ("beta", 1): [0.5, None, 0.6],  # +0.1, -0.1
}


def board(made: SimpleNamespace, partition: str, scores: dict[tuple[str, int], list[float | None]] = SCORES) -> Board:
    rows = {
        key: made.row("twitch", *key, float(np.mean([x for x in own if x is not None])), partition=partition)
        for key, own in scores.items()
    }
    stored = {rows[key].key: {"per_client": {"score": own}} for key, own in scores.items()}
    plain = made.board(rows.values())
    return Board(plain.suite, plain.rows, stored.get)


def test_gains_by_hand(made: SimpleNamespace) -> None:
    found = board(made, "source").client_gains.droplevel("task_label")
    assert found.loc["alpha"].tolist() == pytest.approx([0.75, 0.0])  # a half and all; -0.1 and +0.1
    assert found.loc["beta"].tolist() == pytest.approx([0.25, -0.15])
    assert found.loc["local"].isna().all()


@pytest.mark.parametrize("partition", ["source", "own", "louvain"])
def test_the_columns_stand_where_clients_come_with_the_data(partition: str, made: SimpleNamespace) -> None:
    table = clients_table(Ranking(board(made, partition)))
    assert table is not None
    titles = [column.title for column in table.columns]
    assert "Worst client, %" in titles and "Spread between clients, points" in titles
    gains = ["Clients above local training, %", "Least gain of a client, points"]
    assert [title for title in titles if title in gains] == (gains if partition != "louvain" else [])
    if partition == "louvain":
        return
    shown = {line.cells[0].text: [line.cells[titles.index(title)].text for title in gains] for line in table.lines}
    assert shown["alpha"] == ["75.00", "0.0"]
    assert shown["beta"] == ["25.00", "-15.0"]
    assert shown["Local training"] == [ABSENT, ABSENT]


def test_without_local_training_or_with_other_clients_there_is_no_gain(made: SimpleNamespace) -> None:
    without = {key: own for key, own in SCORES.items() if key[0] != "local"}
    assert board(made, "source", without).client_gains.isna().all(axis=None)
    other = SCORES | {("alpha", 1): [0.5, 0.9]}
    found = board(made, "source", other).client_gains.droplevel("task_label")
    assert found.loc["alpha"].isna().all() and found.loc["beta"].notna().all()
