"""`fglbench recommend`: facts against counts, the evidence, the budget, the answer, one full run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.recommend import answer, session
from fglbench.benchmark.recommend.answer import WORDS, answer_lines, chosen, results_of, table_lines
from fglbench.benchmark.recommend.evidence import distance, evidence_for
from fglbench.benchmark.recommend.session import planned, seconds_of
from fglbench.benchmark.runner.job import published_costs
from fglbench.benchmark.suites.catalogue import catalogue, published_tasks
from fglbench.registry import UserError


class Histories:
    """A store whose figures per client are given by key."""

    def __init__(self, sites: dict[str, list[float]]) -> None:
        self.sites = sites

    def history(self, suite: str, key: str) -> dict[str, Any]:
        return {"per_client": {"score": self.sites[key]}}


def rows_of(scores: dict[str, list[float]], traffic: dict[str, int]) -> tuple[pd.DataFrame, Any]:
    """Rows and side files of two sites: the first 2 points above the mean, the second 2 below; of `joint` turned."""
    lines, sites = [], {}
    for method, by_seed in scores.items():
        for seed, score in enumerate(by_seed):
            key = f"{method}{seed}"
            turn = -0.02 if method == "fedavg" else 0.02
            sites[key] = [score + turn, score - turn]
            lines.append({
                "suite": "custom", "key": key, "method": method, "seed": seed, "status": "ok", "score": score,
                "val": score - 0.01, "upload_bytes": traffic[method], "download_bytes": traffic[method], "rounds": 10,
                "clients": 2, "best_round": 5, "train_seconds": 1.0,
            })  # fmt: skip
    return pd.DataFrame(lines), Histories(sites)


SCORES = {"local": [0.80, 0.82, 0.81], "fedavg": [0.90, 0.91, 0.92], "fedprox": [0.903, 0.913, 0.923]}
TRAFFIC = {"local": 0, "fedavg": 20_000_000, "fedprox": 40_000_000}


def test_the_answer_is_the_cheapest_of_the_best_with_gains_and_uploads() -> None:
    results = results_of(*rows_of(SCORES, TRAFFIC))
    best = chosen(results)
    assert best.method == "fedavg"  # fedprox is 0.3 points better on validation and sends twice as much
    assert best.gain.mean == pytest.approx(0.1) and best.gain.low < 0.1 < best.gain.high
    assert best.megabytes == pytest.approx(2.0)  # 40 MB of two sites in ten rounds
    assert best.sites == pytest.approx([0.1 - 0.04, 0.1 + 0.04]) and (best.better, best.worse) == (2, 0)
    text = "\n".join(answer_lines(results, "accuracy", ["north", "south"]))
    assert (
        "Recommendation: fedavg" in text and "south (+14.0), north (+6.0)" in text and "Sites that lose: none" in text
    )
    assert "2.0 MB per site and round" in text and "weights of the model" in text
    assert "selected on the validation nodes: the least traffic of the methods within 0.5 points of the best" in text
    lines = table_lines(results, "accuracy", 2)
    assert any(line.split()[:3] == ["fedprox", "90.3", "91.3"] and "2 / 0 of 2" in line for line in lines)


def test_the_answer_is_local_training_if_federation_gains_nothing() -> None:
    results = results_of(*rows_of(SCORES | {"fedavg": [0.80, 0.82, 0.814], "fedprox": [0.7, 0.7, 0.7]}, TRAFFIC))
    assert chosen(results).method == "local"
    text = "\n".join(answer_lines(results, "macro-f1", ["north", "south"]))
    assert "train locally" in text and "Nothing leaves a site" in text


def test_a_reference_is_shown_and_never_recommended() -> None:
    rows, store = rows_of(SCORES | {"global": [0.99, 0.99, 0.99]}, TRAFFIC | {"global": 0})
    results = results_of(rows, store)
    assert chosen(results).method == "fedavg" and any("global" in line for line in table_lines(results, "accuracy", 2))
    rows, store = rows_of(
        {"local": SCORES["fedavg"], "global": [0.99] * 3, "fedavg": [0.5] * 3}, TRAFFIC | {"global": 0}
    )
    assert "The best federated method, fedavg," in "\n".join(
        answer_lines(results_of(rows, store), "accuracy", ["n", "s"])
    )
    with pytest.raises(UserError, match="only of references: global"):
        chosen({"global": results["global"]})


def test_nothing_leaves_a_site_that_only_trains_locally() -> None:
    rows, store = rows_of(SCORES | {"locgcn": [0.99, 0.99, 0.99]}, TRAFFIC | {"locgcn": 0})
    text = "\n".join(answer_lines(results_of(rows, store), "accuracy", ["north", "south"]))
    assert "Recommendation: locgcn" in text and "Nothing leaves a site." in text


def test_a_site_that_loses_is_named() -> None:
    rows, store = rows_of(SCORES, TRAFFIC)
    store.sites.update({f"fedavg{seed}": [0.7, 1.0] for seed in range(3)})
    text = "\n".join(answer_lines(results_of(rows, store), "accuracy", ["north", "south"]))
    assert "Sites that lose: north (-13.0)" in text


def test_every_upload_has_words() -> None:
    sent = {kind for facts in catalogue()["method"].values() for kind in facts["uploads"].split(", ")} - {"nothing"}
    assert sent <= WORDS.keys()


def test_evidence_is_of_the_nearest_datasets_and_its_interval_is_students() -> None:
    tasks = {str(task): task for task in published_tasks()}
    cora = tasks["cora (louvain, 10 clients)"]
    assert distance(cora.properties, cora.properties) == 0
    evidence = evidence_for(cora.properties, "macro-f1")
    assert evidence.tasks[0].dataset == "cora" and len({task.dataset for task in evidence.tasks}) == len(evidence.tasks)
    gaps = [task.methods["fedavg"]["macro_f1"] - task.methods["local"]["macro_f1"] for task in evidence.tasks]
    half = 2.776 * np.std(gaps, ddof=1) / math.sqrt(len(gaps))  # t of 4 degrees of freedom
    assert evidence.gains["fedavg"].mean == pytest.approx(np.mean(gaps))
    assert evidence.gains["fedavg"].high - evidence.gains["fedavg"].mean == pytest.approx(half, rel=1e-3)
    assert "cora" not in {task.dataset for task in evidence_for(cora.properties, "accuracy", without=["cora"]).tasks}


def test_candidates_start_with_the_best_of_each_family() -> None:
    for task in published_tasks():
        evidence = evidence_for(task.properties, "accuracy")
        families = {name: catalogue()["method"][name]["family"] for name in evidence.gains}
        order = evidence.candidates()
        first = order[: len(set(families.values()))]
        assert sorted(order) == sorted(evidence.gains) and len({families[name] for name in first}) == len(first)
        for name in first:  # the best of its family
            rivals = [gain.mean for other, gain in evidence.gains.items() if families[other] == families[name]]
            assert evidence.gains[name].mean == max(rivals)


def test_the_plan_fits_and_grows_with_the_budget() -> None:
    def cost(method: str, rounds: int) -> float:
        return 0.5 + 0.05 * rounds * (2 if method == "slow" else 1)

    names = ["local", "fedavg", "slow", "fedprox", "feddc"]
    small, large = (planned(names, cost, seconds, 2) for seconds in (60, 600))
    for plan, seconds in ((small, 60), (large, 600)):
        stages = {plan.rounds // 3: plan.trials, plan.rounds: max(2, plan.trials // 4) + plan.seeds}
        spent = sum(cost(name, rounds) * cells for name in plan.methods for rounds, cells in stages.items())
        assert plan.seconds == pytest.approx(spent / 2) and plan.seconds <= seconds
        assert plan.methods[:2] == ("local", "fedavg")
    assert large.seconds > small.seconds and large.rounds >= small.rounds and large.trials >= small.trials
    with pytest.raises(UserError, match="--budget 14s is too short: the smallest comparison takes about 25 s here"):
        planned(names, cost, 14, 2)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), ("3", 180)])
def test_budgets(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "ten", "-3m", "nanm"])
def test_invalid_budgets_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="--budget"):
        seconds_of(text)


def test_published_costs_are_relative_and_none_if_unknown() -> None:
    costs = published_costs()
    assert costs.relative("fedavg", "fedavg") == 1 and (costs.relative("fedsage+", "fedavg") or 0) > 2
    assert costs.relative("no-such", "fedavg") is None


@pytest.mark.usefixtures("in_process")
def test_one_command_from_data_to_answer_resumes(
    clinics: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cli
) -> None:
    for name, steps in (("ROUNDS", (4,)), ("TRIALS", (2,)), ("SEEDS", (3,))):
        monkeypatch.setattr(session, name, steps)
    command = "recommend --data clinics --metric macro-f1 --budget 20m -m fedprox -j 1"
    text = cli(command)
    assert "120 nodes" in text and "north 40, south 40, west 40" in text and "severe 12%" in text
    assert "Leaderboard tasks most like yours" in text and "Recommendation: " in text
    assert all(name in text for name in ("local", "fedavg", "fedprox", "better / worse than alone"))
    assert "Recommendation" in Path("runs/recommend-clinics/RECOMMENDATION.md").read_text()
    monkeypatch.setattr("fglbench.benchmark.recommend.session._cost", None)  # the plan is kept
    assert main(f"{command} --json".split()) == 0
    again = capsys.readouterr()
    document = json.loads(again.out)
    assert {entry["method"] for entry in document["methods"]} == {"ditto", "fedavg", "fedprox", "local"}
    assert document["plan"]["rounds"] == 4 and set(document["methods"][0]["sites"]) == {"north", "south", "west"}
    assert "[1/" not in again.err  # nothing ran again
    assert answer.ALONE == "local"


def test_a_dry_run_has_a_json_document(clinics: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "--data", "clinics", "--dry-run", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["properties"]["nodes"] == 120 and len(document["evidence"]["tasks"]) == 5
    assert document["evidence"]["gains"]["fedavg"].keys() == {"mean", "low", "high", "p"}


def test_facts_are_counts_of_the_files(clinics: Path, cli) -> None:
    text = cli("recommend --data clinics --dry-run")
    table = pd.read_csv(clinics / "nodes.csv")
    training = table[table["split"] == "train"]
    assert f"training nodes per class and client: {len(training) / 9:.0f} on average" in text
    severe = training[training["label"] == "severe"].groupby("client").size().reindex(["north", "south", "west"])
    assert f"{severe.fillna(0).mean():.0f} on average and {severe.fillna(0).min():.0f} at one client" in text
    assert not Path("runs").exists()


def test_data_without_validation_are_refused_before_the_budget_is_spent(clinics: Path, cli) -> None:
    nodes = clinics / "nodes.csv"
    nodes.write_text(nodes.read_text().replace(",val,", ",test,"))
    assert "no node is for validation, which selects the method" in cli("recommend --data clinics --budget 1m", 2)
    assert not Path("runs").exists()


def test_links_are_refused(clinics: Path, cli) -> None:
    error = cli("recommend --data clinics --split links --dry-run", 2)
    assert "`recommend` is for node classification; split links is for link-prediction" in error


def test_clients_are_described_as_the_data_name_them(clinics: Path, cli) -> None:
    assert "2 clients (made by uniform), split: your own" in cli("recommend --data clinics -p uniform -k 2 --dry-run")
    error = cli("recommend --data clinics -p uniform -k 2,3 --dry-run", 2)
    assert "for one partition, number of clients and split" in error


def test_an_unknown_method_is_refused_before_anything_is_read() -> None:
    code = "from fglbench.benchmark.cli import main; main(['recommend', '--data', 'nowhere', '-m', 'fedavgg'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "unknown method 'fedavgg'; did you mean 'fedavg'" in done.stderr


def test_recommend_without_data_is_refused(cli) -> None:
    assert "--data FOLDER" in cli("recommend", 2)
