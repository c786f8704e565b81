"""How much a method depends on its settings, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from fglbench.benchmark.store.schema import TRIAL
from fglbench.report.loading import load_boards
from fglbench.report.ranking import Ranking, setting_loss
from fglbench.report.tables import ranking_table


def trial(method: str, dataset: str, val: float | None, rounds: int = 11) -> dict[str, object]:
    status = "failed" if val is None else "ok"
    return {
        "method": method,
        "dataset": dataset,
        "val": val,
        "status": status,
        "training": json.dumps({"rounds": rounds}),
    }


def test_a_median_setting_loses_the_best_less_the_median_of_the_first_stage() -> None:
    lines = [trial("steady", "cora", 0.8), trial("steady", "cora", 0.79), trial("steady", "cora", 0.7)]
    lines += [trial("steady", "cora", 0.95, 33)]  # a later stage does not count
    lines += [trial("steady", "wiki", 0.5), trial("steady", "wiki", 0.5), trial("steady", "wiki", 0.5)]
    lines += [trial("touchy", "cora", 0.9), trial("touchy", "cora", None), trial("touchy", "cora", None)]
    lines += [trial("touchy", "wiki", 0.6), trial("partly", "cora", 0.6), trial("steady", "other", 0.1)]
    found = setting_loss(pd.DataFrame(lines), ["cora", "wiki"])
    assert found == {"steady": pytest.approx((0.01 + 0.0) / 2), "touchy": pytest.approx((0.9 + 0.0) / 2)}
    assert setting_loss(pd.DataFrame(), ["cora"]) == {}


def test_a_tuned_board_has_the_column_and_others_have_none(made: SimpleNamespace, tmp_path: Path) -> None:
    rows = [made.row("cora", m, s, 0.5, suite=suite) for suite in ("node", "leaderboard")
            for m in ("fedavg", "feddc") for s in range(3)]  # fmt: skip
    folder = made.write(tmp_path / "results", rows)
    trials = [made.row("cora", "fedavg", 100, score, suite="node", tuning=TRIAL, method_params=f'{{"mu":{i}}}')
              for i, score in enumerate((0.8, 0.7, 0.5))]  # fmt: skip
    made.write(folder / "tuning", trials, curves=False)
    tables = {board.suite: ranking_table(Ranking(board)) for board in load_boards(folder)}
    title = "Loss of a median setting, points"
    assert title not in tables["leaderboard"].titles
    told = {line.entrant: line.cells[tables["node"].titles.index(title)].text for line in tables["node"].lines}
    assert told == {"fedavg": "10.0", "feddc": "\N{EN DASH}"}
