"""A plug-in: methods that can be tuned well, badly or not at all, and a dataset of numbers."""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field

from fglbench.benchmark.engine import METHODS, TrainConfig
from fglbench.datasets import DATASETS
from fglbench.datasets.csbm import CSBM
from fglbench.methods.fedavg import FedAvg
from fglbench.registry import tunable


@METHODS.register("t-planted")
class Planted(FedAvg):
    """FedAvg that predicts the worst class unless `key` is 7: the optimum of its space is known."""

    key: int = Field(0, ge=0, json_schema_extra=tunable(0, 3, 7, 9))

    @torch.no_grad()
    def predict(self, params, network, data):
        scores = super().predict(params, network, data)
        return scores if self.key == 7 else -scores


@METHODS.register("t-broken")
class Broken(FedAvg):
    """Fails with any setting."""

    def local_loss(self, clients):
        raise ValueError("no luck")


@METHODS.register("t-outside")
class Outside(FedAvg):
    """A range beyond the bounds of the field."""

    mu: float = Field(0.1, ge=0, json_schema_extra=tunable(-1.0, 0.1))


@METHODS.register("t-greedy")
class Greedy(FedAvg):
    """Too many tunable parameters."""

    a: int = Field(0, json_schema_extra=tunable(0, 1))
    b: int = Field(0, json_schema_extra=tunable(0, 1))
    c: int = Field(0, json_schema_extra=tunable(0, 1))


@METHODS.register("t-few")
class Few(FedAvg):
    """Sets all values that could be tuned but dropout."""

    def protocol(self, config: TrainConfig) -> TrainConfig:
        return config.model_copy(update={"optimiser": "sgd", "lr": 0.1, "weight_decay": 0.0})


@METHODS.register("t-fixed")
class Fixed(Few):
    """Sets all values that could be tuned."""

    def architecture(self, backbones):
        return [backbone.model_copy(update={"dropout": 0.0}) for backbone in backbones]


@DATASETS.register("t-numbers")
class Numbers(CSBM):
    """A block model with a number per node; its errors are above 1."""

    def load(self):
        data = super().load()
        return replace(
            data, label=torch.zeros_like(data.label), num_classes=1, target=9 * data.feat[:, :1] + 5,
            goal="node-regression", scored_by="rmse",
        )  # fmt: skip
