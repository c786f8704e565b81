"""How a federation trains: everything of a cell that is neither data, backbone nor method."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from ...datasets.corruptions import Stress
from ...registry import LATER

ATTACKS = ("label_flip", "sign_flip", "gaussian", "small_deviation")  # conditions: the share of hostile clients


class TrainConfig(Stress):
    """The training protocol of a cell and the conditions that it trains under. Defaults are those of the board of
    published defaults (100 rounds of 3 local epochs, Adam, no condition).
    """

    model_config = ConfigDict(serialize_by_alias=True)

    rounds: int = Field(100, ge=1, description="communication rounds R")
    local_epochs: int = Field(3, ge=1, description="local epochs E a round")
    batch_size: int | None = Field(
        None, ge=2, description="graphs, or training nodes, a minibatch of a client; None = full batch"
    )
    fanout: tuple[int, ...] | None = Field(
        None,
        description="neighbours drawn for a node of a minibatch, a number for each layer, -1 = all; None = all",
        json_schema_extra=LATER,
    )
    optimiser: Literal["adam", "sgd"] = Field(
        "adam",
        description="local optimiser",
    )
    lr: float = Field(0.01, gt=0, description="local learning rate")
    weight_decay: float = Field(
        5e-4,
        ge=0,
        description="L2 penalty added to the gradient, as torch.optim does",
    )
    momentum: float = Field(0.0, ge=0, lt=1, description="SGD momentum; Adam ignores it")
    keep_optimiser: bool = Field(True, description="keep each client's optimiser state across rounds, or start anew")
    grad_clip: float | None = Field(None, gt=0, description="clip each client's gradient to this 2-norm")
    participation: float = Field(1.0, gt=0, le=1, description="fraction of clients that train in a round, at least one")
    weighting: Literal["nodes", "train_nodes", "uniform"] = Field(
        "nodes", description="aggregation weights: nodes (or graphs) held, training nodes held, or 1/K"
    )
    patience: int | None = Field(
        None, ge=1, description="stop after this number of rounds without a better validation value"
    )
    select_by: Literal["val_accuracy", "val_loss", "last"] = Field(
        "val_accuracy", serialization_alias="select", description="how the round is chosen"
    )
    score_model: Literal["auto", "global", "personal"] = Field(
        "auto",
        serialization_alias="model",
        description="the model that is scored: what the method delivers (auto), the aggregate, or each client's",
    )
    score_on: Literal["local", "global", "union"] = Field(
        "local",
        serialization_alias="data",
        description="score on each client's own graph (mean over clients), on the whole graph, or on the union of what "
        "the clients hold (FedGL's global goal)",
    )

    failure: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="probability that a client fails in a round: it gets and sends nothing, keeps its state",
        json_schema_extra=LATER,
    )
    straggle: float = Field(
        0.0,
        ge=0,
        le=1,
        description="probability that a client straggles in a round: it does 1 to E of its local epochs, drawn evenly",
        json_schema_extra=LATER,
    )
    sign_flip: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of clients that send -4 times their update",
        json_schema_extra=LATER,
    )
    gaussian: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of clients that send Gaussian noise as their update",
        json_schema_extra=LATER,
    )
    small_deviation: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of clients that send the mean update minus 1.5 standard deviations",
        json_schema_extra=LATER,
    )
    label_flip: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of clients that train on reversed labels: class c becomes C - 1 - c",
        json_schema_extra=LATER,
    )
    aggregator: Literal["mean", "median", "trimmed-mean", "krum", "multi-krum", "norm-clip"] = Field(
        "mean",
        description="the server's rule for uploaded models: the method's own mean, or a robust one",
        json_schema_extra=LATER,
    )
    tolerated: float = Field(
        0.3,
        ge=0,
        lt=0.5,
        description="share of hostile clients that a robust aggregator is set for",
        json_schema_extra=LATER,
    )
    unseen: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of clients, at least one, that never take part and are scored afterwards",
        json_schema_extra=LATER,
    )
    unseen_epochs: int = Field(
        0,
        ge=0,
        description="local epochs from the global model after which unseen clients are scored once more; 0 = none",
        json_schema_extra=LATER,
    )
    dp_clip: float | None = Field(
        None, gt=0, description="clip each client's update to this 2-norm", json_schema_extra=LATER
    )
    dp_noise: float = Field(
        0.0,
        ge=0,
        description="noise on the average, in units of the most that one client adds to it",
        json_schema_extra=LATER,
    )
    dp_delta: float = Field(
        1e-5, gt=0, lt=1, description="the delta that epsilon is given for, below 1 / clients", json_schema_extra=LATER
    )

    @model_validator(mode="after")
    def _bounded(self) -> TrainConfig:
        if self.dp_noise and self.dp_clip is None:
            raise ValueError("dp_noise is in units of dp_clip: give both")
        if self.fanout is not None and (self.batch_size is None or not all(n == -1 or n > 0 for n in self.fanout)):
            raise ValueError("fanout needs batch_size, and a positive number or -1 for each layer, as in [10, 5]")
        if self.dp_clip is not None and self.aggregator != "mean":
            raise ValueError("dp_clip protects the mean of the updates: leave aggregator at mean")
        self._check_unseen()
        attacks = [name for name in ATTACKS if getattr(self, name)]
        if len(attacks) > 1:
            raise ValueError(f"{' and '.join(attacks)} are given: a run has one attack")
        return self

    def _check_unseen(self) -> None:
        if self.unseen_epochs and not self.unseen:
            raise ValueError("unseen_epochs is of clients held out of training: give unseen, the share of these")
        if self.unseen and self.score_on != "local":
            raise ValueError(f"unseen clients are scored on their own graphs: make data 'local', not {self.score_on!r}")
        changed = [name for name in Stress.model_fields if getattr(self, name)]
        if self.unseen and changed:
            raise ValueError(f"unseen clients hold the data as they are: leave out unseen or {', '.join(changed)}")

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, values: Any) -> Any:
        """Take the former names, which stored rows and their keys keep."""
        if not isinstance(values, dict):
            return values
        for former, name in FORMER.items():
            if former in values and name in values:
                raise ValueError(f"{name} is given twice: {former} is its former name")
        return {FORMER.get(name, name): value for name, value in values.items()}


FORMER = {info.serialization_alias: name for name, info in TrainConfig.model_fields.items() if info.serialization_alias}
