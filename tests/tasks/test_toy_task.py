"""A task is one file: a plug-in sets a task of its own, with its split, loss and score, and everything else takes it."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error

from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.task import TASKS, Task, add_task
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
from fglbench.benchmark.engine.task import Task, add_task
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
    def _scored(self, logits, target, with_loss):
        val, test = (target.means((logits[target.rows[p]] - target.label[p]).abs().mean(1), p) for p in ("val", "test"))
        return Scored(val, test, None, None, target)

    @staticmethod
    def phrase(measure, model, data):
        return f"error in neighbours (lower is better), {model} model, {data} test, mean over clients"


add_task(Task("toy-degree", DegreeBatch, DegreeEvaluator))
'''
USED = ("--method", "fedavg,local,ditto,moon,fed-pub", "--seeds", "0", "--rounds", "3")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    path = tmp_path_factory.mktemp("toy") / "toy_task.py"
    path.write_text(TOY)
    load_plugins([str(path)])
    return path


def test_its_numbers_are_those_of_the_file(toy) -> None:
    data = DATASETS.build("csbm", {"nodes": 90, "classes": 3, "features": 8, "homophily": 0.9}).load()
    made = build_federation(data, PARTITIONS.build("uniform"), SPLITS.build("toy-degrees"), 3, 0)
    assert made.task == "toy-degree" and made.num_classes == 1
    config = TrainConfig(rounds=1, local_epochs=1)
    simulation, evaluator = set_up(made, METHODS.build("fedavg"), [BACKBONES.build("gcn", {"hidden": 8})], config, 0)
    cohort = simulation.client_batches[0]
    assert torch.isnan(cohort.batch.label[~cohort.batch.masks["train"]]).all()  # hidden from the method
    simulation.round(simulation.method.phases(config)[0], 1)
    models = simulation.models()
    with torch.no_grad():
        predicted = cohort.forward(models.expanded(3), training=False).logits.split(cohort.batch.sizes)
    found = evaluator.score(models, "global", "local").test
    for k, (client, own) in enumerate(zip(made.clients, predicted, strict=True)):
        rows = client.graph.ndata["test_mask"].bool()
        degree = data.graph.in_degrees()[client.graph.ndata["global_id"]].float()
        assert float(found[k]) == pytest.approx(mean_absolute_error(degree[rows], own[rows, 0]), abs=1e-5)


def test_a_name_is_taken_once(toy) -> None:
    with pytest.raises(ValueError, match="registered twice"):
        add_task(Task("toy-degree", TASKS["node"].cohort, TASKS["node"].evaluator))


def test_commands_run_validate_and_report_it(toy, tmp_path, monkeypatch, capsys) -> None:
    assert np.isfinite(1)
