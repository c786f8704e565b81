"""The Python interface: the public names and their results, by hand and against the rows of runs."""

from __future__ import annotations

import csv
import json
import linecache
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch

import fglbench
from fglbench import UserError
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.provenance import method_version
from fglbench.benchmark.suites.select import Request, select
from fglbench.methods import METHODS

SUITE = """
description: two rules on a generated graph
training: {rounds: 2}
cross:
  datasets: {name: csbm, params: {nodes: 120, features: 8}}
  partitions: louvain
  clients: 3
  splits: ratio
  backbones: {name: gcn, params: {hidden: 4}}
  methods: [majority, fedavg]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("face")
    (place / "own.yaml").write_text(SUITE)
    return place


@pytest.fixture(scope="module")
def rows(folder):
    return fglbench.run(suites=[str(folder / "own.yaml")], results=folder / "results", in_process=True)


@pytest.fixture(scope="module")
def csbm(folder):
    return fglbench.federation("csbm", suite=str(folder / "own.yaml"))


def test_every_public_name_is_there_and_documented():
    for name in fglbench.__all__:
        assert name == "__version__" or getattr(fglbench, name).__doc__, name
    assert set(fglbench.__all__) <= set(dir(fglbench))
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        fglbench.rum  # noqa: B018


def test_list_methods_and_show(rows, folder):
    frame = fglbench.list_methods()
    assert list(frame.index) == METHODS.names()
    assert dict(frame.loc["majority"]) == {
        "family": "reference", "what": frame.loc["majority", "what"], "task": "node", "reference": True,
    }  # fmt: skip
    assert "mu = 0.01 (float)" in str(fglbench.show("fedprox"))
    with pytest.raises(UserError, match="did you mean 'fedprox'"):
        fglbench.show("fedporx")
    assert (fglbench.show("links").kind, fglbench.show("links", kind="suite").kind) == ("split", "suite")
    own = fglbench.show(str(folder / "own.yaml"))
    assert (own.kind, own.name, own.facts["runs"]) == ("suite", "own", "2")
    with pytest.raises(UserError, match="unknown dataset 'links'"):
        fglbench.show("links", kind="dataset")


def majority(client):
    labels = client.graph.ndata["label"][client.graph.ndata["train_mask"].bool()].numpy()
    return np.full(client.graph.num_nodes(), np.bincount(labels, minlength=1).argmax())


def test_predictions_are_scored_as_a_run_is(rows, csbm):
    row = rows.set_index("method").loc["majority"]
    evaluation = fglbench.evaluate([majority(client) for client in csbm.clients], csbm)
    assert csbm.partition_hash == row["partition_hash"]
    assert (evaluation.score, evaluation.val) == pytest.approx((row["score"], row["val"]), abs=1e-7)
    assert evaluation.macro_f1 == pytest.approx(row["macro_f1"], abs=1e-7)
    assert evaluation.metric == row["score_metric"]


def test_one_prediction_for_every_node_against_a_count(csbm):
    rng = np.random.default_rng(0)
    guess = rng.integers(0, csbm.num_classes, len(csbm.whole.label))
    expected = []
    for client in csbm.clients:
        data = {name: value.numpy() for name, value in client.graph.ndata.items()}
        rows = data["test_mask"].astype(bool)
        if rows.any():
            expected.append(
                np.mean(guess[data["global_id"][rows]] == csbm.whole.label.numpy()[data["global_id"][rows]])
            )
    evaluation = fglbench.evaluate(guess, csbm)
    assert evaluation.score == pytest.approx(np.mean(expected), abs=1e-6)
    assert evaluation.clients["test_nodes"].sum() == sum(int(c.graph.ndata["test_mask"].sum()) for c in csbm.clients)
    numbers = torch.nn.functional.one_hot(torch.from_numpy(guess), csbm.num_classes).float()
    assert fglbench.evaluate(numbers, csbm).score == evaluation.score
    assert fglbench.evaluate(guess.tolist(), csbm).score == evaluation.score
    truth = fglbench.evaluate([client.graph.ndata["label"] for client in csbm.clients], csbm)
    assert (truth.score, truth.val, truth.macro_f1) == (1, 1, 1)


def test_two_classes_are_scored_by_the_area_under_the_curve(federation):
    from dataclasses import replace

    from sklearn.metrics import roc_auc_score

    toy = federation(classes=2, seed=3)
    toy = replace(toy, whole=replace(toy.whole, scored_by="roc_auc"))
    numbers = torch.from_numpy(np.random.default_rng(1).normal(size=(len(toy.whole.label), 2)).astype(np.float32))
    expected = []
    for client in toy.clients:
        rows = client.graph.ndata["test_mask"].bool()
        margin = numbers[client.graph.ndata["global_id"]][rows]
        label = client.graph.ndata["label"][rows]
        if len(label.unique()) == 2:  # a client with nodes of one class has no area
            expected.append(roc_auc_score(label, margin[:, 1] - margin[:, 0]))
    evaluation = fglbench.evaluate(numbers, toy)
    assert expected
    assert evaluation.score == evaluation.roc_auc == pytest.approx(np.mean(expected), abs=1e-6)
    with pytest.raises(UserError, match="scored by ROC AUC"):
        fglbench.evaluate(numbers.argmax(1), toy)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda n, c: np.zeros(n), "not 120 whole numbers"),
        (lambda n, c: np.zeros(n - 1, int), "of shape"),
        (lambda n, c: np.full(n, c), "classes are 0 to"),
        (lambda n, c: np.full((n, c), np.nan), "finite numbers"),
        (lambda n, c: torch.zeros(n, dtype=torch.bool), "120 whole numbers, or"),
        (lambda n, c: torch.zeros(n, dtype=torch.complex64), "120 whole numbers, or"),
        (lambda n, c: [np.zeros(n, int)], "predictions are of 1 of the 3 clients"),
        (lambda n, c: "no", "no array of numbers"),
    ],
)
def test_malformed_predictions_are_refused(csbm, make, words):
    with pytest.raises(UserError, match=words):
        fglbench.evaluate(make(len(csbm.whole.label), csbm.num_classes), csbm)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_unsigned_classes_are_classes(csbm, kind):
    classes = np.random.default_rng(0).integers(0, csbm.num_classes, len(csbm.whole.label))
    assert fglbench.evaluate(classes.astype(kind), csbm).score == fglbench.evaluate(classes, csbm).score
    with pytest.raises(UserError, match="classes are 0 to"):
        fglbench.evaluate(np.full(len(classes), np.iinfo(kind).max, kind), csbm)


def test_a_set_of_graphs_has_no_classes_to_score(graph_sets):
    with pytest.raises(UserError, match="set of graphs"):
        fglbench.evaluate([], graph_sets())


def test_a_suite_with_several_partitions_needs_a_choice(tmp_path):
    (tmp_path / "two.yaml").write_text(SUITE.replace("clients: 3", "clients: [2, 3]"))
    suite = str(tmp_path / "two.yaml")
    with pytest.raises(UserError, match="in several ways \\(louvain x2 ratio, louvain x3 ratio\\)"):
        fglbench.federation("csbm", suite=suite)
    assert len(fglbench.federation("csbm", suite=suite, clients=2).clients) == 2


def test_settings_are_columns_if_expanded(rows, folder):
    frame = fglbench.load_results(folder / "results", expand=True)
    plain = fglbench.load_results(folder / "results")
    assert not [name for name in frame if name.endswith("_params") or name == "training"]
    for at, line in frame.iterrows():
        training = json.loads(plain.loc[at, "training"])
        assert {key: line[f"training.{key}"] for key in training} == training
        assert line["dataset.nodes"] == json.loads(plain.loc[at, "dataset_params"])["nodes"]
    assert list(frame["score"]) == list(plain["score"])
    with (folder / "results" / "own" / "fedavg.csv").open() as stream:
        assert next(csv.DictReader(stream))["key"] in set(frame["key"])


def test_expanded_settings_of_mixed_backbones_and_invalid_json(tmp_path):
    ((_, cell),) = select(Request(quick=True, methods=("fedavg",), datasets=("cora",), seeds=(0,)))
    row = cell.row("quick", status="ok", started="2026", environment="e")
    mixed = row.model_copy(update={"backbone_params": '[{"hidden":4},{"hidden":8}]', "key": "1" * 16})
    odd = row.model_copy(update={"method_params": "no json", "key": "2" * 16})
    for each in (mixed, odd):
        Store(tmp_path).append_row(each)
    frame = fglbench.load_results(tmp_path, expand=True).set_index("key")
    assert frame.loc["1" * 16, "backbone.hidden"] == [4, 8]
    assert frame.loc["2" * 16, "method_params"] == "no json"


def test_two_methods_are_compared_and_reported(rows, folder):
    (duel,) = fglbench.compare("fedavg", "majority", results=folder / "results")
    scores = rows.set_index("method")["score"]
    assert duel.mean == pytest.approx(scores["fedavg"] - scores["majority"])
    with pytest.raises(UserError, match="'fedavg' cannot be compared with itself"):
        fglbench.compare("fedavg", "fedavg", results=folder / "results")
    written = fglbench.write_report(folder / "results", figures=False)
    assert folder / "results" / "LEADERBOARD.md" in written
    assert fglbench.write_report(folder / "results", figures=False) == []


NOTEBOOK = """
import fglbench
from fglbench.methods.fedavg import FedAvg

@fglbench.register("in-a-cell")
class InACell(FedAvg):
    "FedAvg, from a notebook. Messages as FedAvg."

asked = dict(suites=["quick"], methods=["in-a-cell"], datasets=["csbm"], seeds=[0], results="out")
try:
    fglbench.run(**asked)
except fglbench.UserError as error:
    print("REFUSED", error)
print("SCORES", fglbench.run(**asked, in_process=True)["status"].tolist())

from fglbench.datasets import PARTITIONS, PartitionSpec

@PARTITIONS.register("in-halves")
class InHalves(PartitionSpec):
    "Every second node."

    def deal(self, data, clients, rng):
        return [range(k, len(data.label), clients) for k in range(clients)]

try:
    fglbench.run(methods=["fedavg"], datasets=["csbm"], partitions=["in-halves"], results="out")
except fglbench.UserError as error:
    print("REFUSED", error)
"""


def test_a_method_of_the_session_runs_in_process_only(tmp_path: Path) -> None:
    """As in a notebook: the method is in no file. A partition of the session is refused too."""
    done = subprocess.run([sys.executable, "-"], input=NOTEBOOK, capture_output=True, text=True, cwd=tmp_path)
    assert "REFUSED partition 'in-halves' is defined in this session" in done.stdout, done.stderr
    assert "REFUSED method 'in-a-cell' is defined in this session" in done.stdout, done.stderr
    assert "in_process=True" in done.stdout
    assert "SCORES ['ok']" in done.stdout


def defined(module: str, text: str) -> type:
    """The class `Mine` of a session without a file, as in a notebook, which keeps the text of a cell."""
    session = sys.modules.setdefault(module, ModuleType(module))
    cell = f"<cell {hash(text)}>"
    linecache.cache[cell] = (len(text), None, text.splitlines(keepends=True), cell)
    exec(compile(text, cell, "exec"), vars(session))
    return vars(session)["Mine"]


@pytest.mark.usefixtures("registries")
def test_a_method_of_a_notebook_has_the_version_of_its_source() -> None:
    start = "from fglbench.methods.fedavg import FedAvg\nclass Mine(FedAvg):\n    "
    text = start + "def skip(self, facts):\n        return 1\n"
    texts = (text, text.replace("1", "2"), text)
    first, second, third = (method_version(defined("session_of_a_test", each)) for each in texts)
    assert first == third != second and all(version.startswith("1+") for version in (first, second))


@pytest.mark.usefixtures("registries")
def test_a_name_of_two_classes_is_refused_and_a_class_defined_again_is_not() -> None:
    text = "from fglbench.methods.fedavg import FedAvg\nclass Mine(FedAvg):\n    pass\n"
    METHODS.register("mine-twice")(defined("one_session", text))
    METHODS.register("mine-twice")(defined("one_session", text))
    with pytest.raises(ValueError, match="'mine-twice' is registered twice"):
        METHODS.register("mine-twice")(defined("another_session", text))


def test_mistakes_of_arguments_are_one_line(rows: pd.DataFrame) -> None:
    for call in (
        lambda: fglbench.run(observer=fglbench.Observer),
        lambda: fglbench.run(data=rows),
        lambda: fglbench.compare("fedavg", "local", results=rows),
        lambda: fglbench.plot.scores(rows.drop(columns="seed")),
    ):
        with pytest.raises(UserError):
            call()


def test_in_process_refuses_another_backend(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="in_process runs everything here, and backend is 'ray'"):
        fglbench.run(quick=True, methods=["local"], datasets=["csbm"], results=tmp_path, backend="ray", in_process=True)
