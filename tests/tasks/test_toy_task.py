"""A task is one file: a plug-in defines a task with its split, loss and score, and all commands accept it."""

from __future__ import annotations

import csv
import gzip
import json

import pytest
import torch
from sklearn.metrics import mean_absolute_error

from fglbench.benchmark.cli import main
from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.evaluate import TASKS, Task, add_task
from fglbench.benchmark.engine.train import set_up
from fglbench.benchmark.suites.plugins import load_plugins
from fglbench.datasets import DATASETS, PARTITIONS, SPLITS, build_federation
from fglbench.methods import METHODS

TOY = '''
"""How many neighbours a node has: a Huber loss, and the mean absolute error beyond a tolerance."""

from dataclasses import replace

import torch
import torch.nn.functional as F

from fglbench.benchmark.engine.client_batch import ClientBatch
from fglbench.benchmark.engine.evaluate import Evaluator, Scored
from fglbench.benchmark.engine.evaluate import Task, add_task
from fglbench.datasets import SPLITS
from fglbench.datasets.splits import Ratio


@SPLITS.register("toy-degrees")
class Degrees(Ratio):
    """The shares of `ratio`; the target of a node is its number of neighbours."""

    goal = "toy-degree"

    def choose(self, data, seed):
        return replace(data, target=data.graph.in_degrees().float().unsqueeze(1))


class DegreeBatch(ClientBatch):
    def loss(self, logits):
        rows = self.batch.rows["train"]
        return self.mean_over(F.huber_loss(logits[rows], self.batch.label[rows], reduction="none").mean(1), rows)


class DegreeEvaluator(Evaluator):
    def measured(self, logits, target, with_loss):
        val, test = (target.means((logits[target.rows[p]] - target.label[p]).abs().mean(1), p) for p in ("val", "test"))
        return Scored(val, test, None, None, target)

    @staticmethod
    def phrase(measure, model, data):
        return f"error in neighbours (lower is better), {model} model, {data} test, mean over clients"


add_task(Task("toy-degree", DegreeBatch, DegreeEvaluator))
'''


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    path = tmp_path_factory.mktemp("toy") / "toy_task.py"
    path.write_text(TOY)
    load_plugins([str(path)])
    yield path
    del TASKS["toy-degree"], SPLITS._classes["toy-degrees"]


SUITE = """
description: "toy"
training: {rounds: 8, local_epochs: 1}
cross:
  datasets: {name: csbm, params: {nodes: 90, classes: 3, features: 8, homophily: 0.9}}
  partitions: uniform
  clients: 3
  splits: toy-degrees
  backbones: {name: gcn, params: {hidden: 8}}
  methods: [local, fedavg, ditto, moon, feddc, fed-pub]
  seeds: 1
"""


def test_scores_of_the_toy_task_equal_its_file(toy) -> None:
    data = DATASETS.build("csbm", {"nodes": 90, "classes": 3, "features": 8, "homophily": 0.9}).load()
    world = build_federation(data, PARTITIONS.build("uniform"), SPLITS.build("toy-degrees"), 3, 0)
    assert world.task == "toy-degree" and world.num_classes == 1
    config = TrainConfig(rounds=1, local_epochs=1)
    simulation, evaluator = set_up(world, METHODS.build("fedavg"), [BACKBONES.build("gcn", {"hidden": 8})], config, 0)
    clients = simulation.client_batches[0]
    assert torch.isnan(clients.batch.label[~clients.batch.masks["train"]]).all()  # hidden from the method
    simulation.round(simulation.method.phases(config)[0], 1)
    models = simulation.models()
    with torch.no_grad():
        predicted = clients.forward(models.expanded(3), training=False).logits.split(clients.batch.sizes)
    errors = evaluator.score(models, "global", "local").test
    for k, (client, estimate) in enumerate(zip(world.clients, predicted, strict=True)):
        rows = client.graph.ndata["test_mask"].bool()
        degree = data.graph.in_degrees()[client.graph.ndata["global_id"]].float()
        assert float(errors[k]) == pytest.approx(mean_absolute_error(degree[rows], estimate[rows, 0]), abs=1e-5)


def test_a_task_is_registered_once(toy) -> None:
    with pytest.raises(ValueError, match="registered twice"):
        add_task(Task("toy-degree", TASKS["node"].batch, TASKS["node"].evaluator))


@pytest.mark.usefixtures("in_process")
def test_commands_run_validate_and_report_the_toy_task(toy, tmp_path, monkeypatch, capsys, cli) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.yaml").write_text(SUITE)
    cli(f"run -s toy.yaml --plugin {toy} -y -j 1")
    rows = [
        row
        for path in (tmp_path / "runs").glob("*/*.csv")
        for row in csv.DictReader(path.open())
    ]  # fmt: skip
    assert {row["task"] for row in rows} == {"toy-degree"}
    assert {row["method"]: row["status"] for row in rows} == dict.fromkeys(
        ("local", "fedavg", "ditto", "moon", "feddc"), "ok"
    )
    for row in rows:
        if row["status"] == "ok":  # the best round is that of the lowest validation error
            with gzip.open(next((tmp_path / "runs").glob(f"**/{row['key']}.json.gz"))) as file:
                history = json.load(file)["history"]
            assert float(row["val"]) == min(history["val"]) and float(row["score"]) > 0.2
    main(["validate", "runs"])
    output = capsys.readouterr()
    problems = [line for line in (output.out + output.err).splitlines() if line.startswith("runs/")]
    assert all("git_dirty" in line for line in problems)  # of this checkout
    cli("report --results runs")
    scores = {row["method"]: float(row["score"]) for row in rows if row["status"] == "ok"}
    with (tmp_path / "runs/toy/tables/csbm.csv").open() as file:
        table = {line["method"]: float(line["score"]) for line in csv.DictReader(file)}
    assert list(table) == sorted(scores, key=scores.get)  # the lowest error is first
    assert table == pytest.approx(scores, rel=1e-5)  # as in the rows, not negative
