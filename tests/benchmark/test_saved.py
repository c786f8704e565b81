"""Saved models: after loading, they predict the scored results of the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

import fglbench
from fglbench.benchmark import engine
from fglbench.benchmark.engine import Client, TorchMethod
from fglbench.datasets import DATASETS
from fglbench.datasets.federation import NodeData
from fglbench.registry import UserError

METHODS = ["fedavg", "fedprox", "local", "ditto", "fedproto", "torch-saved"]
QUICK = {"quick": True, "datasets": ["csbm"], "seeds": [0], "settings": ["training.rounds=2"], "in_process": True}


class TorchSaved(TorchMethod):
    """FedAvg of a linear model with parameters not in alphabetical order. Messages: the model up and down."""

    def build(self, features: int, classes: int) -> torch.nn.Module:
        class Linear(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.out, self.inner = torch.nn.Linear(8, classes), torch.nn.Linear(features, 8)

            def forward(self, graph: object, feat: torch.Tensor) -> torch.Tensor:
                logits: torch.Tensor = self.out(self.inner(feat))
                return logits

        return Linear()

    def train(self, model: torch.nn.Module, client: Client) -> None:
        optimiser = client.optimiser(model.parameters())
        for _ in range(client.config.local_epochs):
            optimiser.zero_grad()
            logits = model(client.graph, client.feat)
            torch.nn.functional.cross_entropy(logits[client.train_mask], client.label[client.train_mask]).backward()
            optimiser.step()


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.METHODS, "_classes", dict(engine.METHODS._classes))
        engine.METHODS.register("torch-saved")(TorchSaved)
        yield


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, Path]:
    folder = tmp_path_factory.mktemp("saved")
    return fglbench.run(**QUICK, methods=METHODS, results=folder, save_models=True), folder


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_model_has_the_score_of_its_run(rows: tuple[pd.DataFrame, Path], method: str) -> None:
    table, folder = rows
    row = table.set_index("method", drop=False).loc[method]
    model = fglbench.load_model(row, folder)
    kind = "personal" if "personal model" in row["score_metric"] else "global"
    logits = model.predict()
    assert all(map(torch.equal, logits, model.predict(kind)))
    assert [len(values) for values in logits] == [client.graph.num_nodes() for client in model.federation.clients]
    scored = fglbench.evaluate(logits, model.federation)
    assert scored.score == pytest.approx(row["score"], abs=1e-6)
    assert scored.macro_f1 == pytest.approx(row["macro_f1"], abs=1e-6)
    if kind == "global":
        assert all(isinstance(value, torch.Tensor) for value in model.state_dict().values())


def test_a_saved_model_of_a_regression_has_the_errors_of_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Numbers(DATASETS.cls("csbm")):  # type: ignore[misc]
        goal = "node-regression"

        def load(self) -> NodeData:
            data = super().load()
            about = {"label": torch.zeros_like(data.label), "num_classes": 1, "goal": self.goal, "scored_by": "rmse"}
            return replace(data, target=3 * data.feat[:, :1] - 2, **about)

    monkeypatch.setitem(DATASETS._classes, "csbm-numbers", Numbers)
    options = {"methods": ["fedavg"], "datasets": ["csbm-numbers"], "clients": [3], "partitions": ["uniform"]}
    (row,) = fglbench.run(
        **options, seeds=[0], settings=["training.rounds=2"], results=tmp_path, save_models=True, in_process=True
    ).to_dict("records")
    model = fglbench.load_model(row, tmp_path)
    errors = []
    for predicted, client in zip(model.predict(), model.federation.clients, strict=True):
        gaps = (predicted - client.graph.ndata["label"])[client.graph.ndata["test_mask"]]
        errors.append(float((gaps**2).mean().sqrt()))
    assert row["score_metric"].startswith("RMSE") and row["score"] == pytest.approx(sum(errors) / len(errors), abs=1e-6)


def test_a_missing_model_is_refused_with_a_reason(rows: tuple[pd.DataFrame, Path], tmp_path: Path) -> None:
    table, folder = rows
    row = table.iloc[0]
    with pytest.raises(UserError, match="--save-models"):
        fglbench.load_model(row, tmp_path)
    with pytest.raises(UserError, match="no row of"):
        fglbench.load_model({"key": "x"}, folder)
    with pytest.raises(UserError, match="give one row"):
        fglbench.load_model(table, folder)
    local = table.set_index("method", drop=False).loc["local"]
    with pytest.raises(UserError, match=r"no global model|none at the server"):
        fglbench.load_model(local, folder).predict("global")


def test_a_finished_run_without_models_runs_again(tmp_path: Path) -> None:
    (first,) = fglbench.run(**QUICK, methods=["fedavg"], results=tmp_path).to_dict("records")
    assert not list(tmp_path.rglob("*.safetensors"))
    (again,) = fglbench.run(**QUICK, methods=["fedavg"], results=tmp_path, save_models=True).to_dict("records")
    assert again["score"] == first["score"]
    assert [path.stem for path in tmp_path.rglob("*.safetensors")] == [again["key"]]
