"""A user's graph with another metric: tuning on its sites, a run with the chosen settings, a table per site."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

import fglbench
from fglbench.benchmark.engine.target import Target
from fglbench.registry import UserError


def read(path: str) -> list[dict[str, str]]:
    with Path(path).open() as stream:
        return list(csv.DictReader(stream))


def figures(seed: int, classes: int) -> tuple[Target, torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    label, owner = torch.randint(classes, (60,), generator=draw), torch.arange(60) % 3
    label[owner == 2] = 0  # one class only
    logits = torch.randn((60, classes), generator=draw)
    rows = torch.arange(60)
    return Target({"test": rows}, {"test": owner}, {"test": label}, 4), logits, label, owner


def by_hand(truth: np.ndarray, chance: np.ndarray) -> float:
    """Average precision by definition: precision at each positive in the ranking, weighted by the gain in recall."""
    order = np.argsort(-chance, kind="stable")
    hits = truth[order].astype(float)
    precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
    return float((precision * hits).sum() / hits.sum())


@pytest.mark.parametrize("classes", [2, 3])
def test_average_precision_and_area_are_one_against_rest(classes: int) -> None:
    target, logits, label, owner = figures(0, classes)
    precision = target.by_class(logits, "test", "average_precision")
    area = target.by_class(logits, "test", "roc_auc")
    chance = logits.double().softmax(1).numpy()
    for client in (0, 1):
        rows = (owner == client).numpy()
        truth, chances = label.numpy()[rows], chance[rows]
        wanted = [1] if classes == 2 else range(3)
        assert float(precision[client]) == pytest.approx(np.mean([by_hand(truth == c, chances[:, c]) for c in wanted]))
        pairs = [
            np.mean([a > b for a in chances[truth == c, c] for b in chances[truth != c, c]]) for c in wanted
        ]  # no ties among random numbers
        assert float(area[client]) == pytest.approx(np.mean(pairs))
    assert math.isnan(precision[2]) and math.isnan(area[2]) and math.isnan(precision[3])


def test_macro_f1_of_each_client_has_the_mean_of_the_column() -> None:
    target, logits, label, owner = figures(1, 3)
    scores = target.macro_f1_each(logits.argmax(1), "test")
    expected = [f1_score(label[owner == k], logits.argmax(1)[owner == k], average="macro") for k in range(3)]
    assert scores[:3].tolist() == pytest.approx(expected) and math.isnan(scores[3])
    assert target.macro_f1(logits.argmax(1), "test") == pytest.approx(np.mean(expected))


@pytest.mark.parametrize(
    ("metric", "column"), [("macro-f1", "macro_f1"), ("roc-auc", ""), ("average-precision", ""), ("accuracy", "")]
)
def test_a_metric_is_the_score_and_selects(clinics: Path, metric: str, column: str) -> None:
    rows = fglbench.run(data=clinics, metric=metric, methods=["fedavg"], seeds=[0], settings=["training.rounds=3"],
                        results="runs", in_process=True)  # fmt: skip
    (row,) = rows.to_dict("records")
    words = {"macro-f1": "macro-F1", "roc-auc": "ROC AUC", "average-precision": "average precision"}
    assert row["score_metric"].startswith(f"{words.get(metric, metric)}, global model")
    assert 0 < row["score"] <= 1 and 0 < row["val"] <= 1
    if column:
        assert row["score"] == pytest.approx(row[column])


def test_a_metric_needs_own_data_and_a_known_name(clinics: Path, cli) -> None:
    with pytest.raises(UserError, match="--data FOLDER"):
        fglbench.run(datasets=["csbm"], metric="macro-f1")
    assert "macro-f1" in cli("run --data clinics --metric macro-f2 -m fedavg", 2)


@pytest.mark.usefixtures("in_process")
def test_tuning_is_on_the_sites_and_its_next_command_runs(clinics: Path, cli) -> None:
    command = "tune --data clinics --metric macro-f1 -m fedavg,local --trials 2 --rounds 3 -j 1 --results runs"
    output = cli(command)
    trials = read("runs/tuning/leaderboard/fedavg.csv")
    assert {(row["partition"], row["clients"], row["split"]) for row in trials} == {("own", "3", "fixed")}
    assert all('"metric":"macro-f1"' in row["dataset_params"] for row in trials)
    following = output.strip().splitlines()[-1].partition("next: fglbench ")[2].split()
    cli([*following, "--seeds", "2", "--set", "training.rounds=3", "-j", "1"])
    rows = read("runs/custom/fedavg.csv")
    assert len(rows) == 2 and all("leaderboard/fedavg/own:clinics" in row["tuning"] for row in rows)

    cli("report --no-figures --results runs")
    (page,) = Path("runs/custom/tables").glob("*.md")
    table = page.read_text().partition("## Each site")[2]
    assert all(f"| {name} " in table for name in ("north", "south", "west"))
    shown = cli("status --results runs")
    assert "own:clinics" in shown and "macro-F1, %" in shown and "baseline" in shown


def test_show_knows_the_folder(clinics: Path, monkeypatch: pytest.MonkeyPatch, cli) -> None:
    monkeypatch.setenv("FGLBENCH_OWN", str(clinics))
    cli("show own:clinics")
