"""The training configuration: all settings of a run that are not of its data, backbone or method."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, model_validator

from ...datasets.federation import Stress
from ...registry import option

ATTACKS = ("label_flip", "sign_flip", "gaussian", "small_deviation")  # conditions: the share of hostile clients


class TrainConfig(Stress):
    """The training protocol of a run and its conditions. Defaults are those of the board of published defaults
    (100 rounds of 3 local epochs, Adam, no condition).
    """

    model_config = ConfigDict(serialize_by_alias=True)

    rounds: int = option(100, "communication rounds R", ge=1)
    local_epochs: int = option(3, "local epochs E per round", ge=1)
    batch_size: int | None = option(None, "graphs or training nodes per minibatch and client; None = full batch", ge=2)
    fanout: tuple[int, ...] | None = option(
        None, "neighbours drawn per node of a minibatch, one number per layer, -1 = all; None = all", later=True
    )
    optimiser: Literal["adam", "sgd"] = option("adam", "local optimiser")
    lr: float = option(0.01, "local learning rate", gt=0)
    weight_decay: float = option(5e-4, "L2 penalty added to the gradient, as torch.optim does", ge=0)
    momentum: float = option(0.0, "SGD momentum; Adam ignores it", ge=0, lt=1)
    keep_optimiser: bool = option(True, "keep each client's optimiser state across rounds, or start anew")
    grad_clip: float | None = option(None, "clip each client's gradient to this 2-norm", gt=0)
    participation: float = option(1.0, "fraction of clients that train in a round, at least one", gt=0, le=1)
    weighting: Literal["nodes", "train_nodes", "uniform"] = option(
        "nodes", "aggregation weights: number of nodes (or graphs), of training nodes, or 1/K"
    )
    patience: int | None = option(None, "stop after this number of rounds without a better validation value", ge=1)
    select_by: Literal["val_accuracy", "val_loss", "last"] = option(
        "val_accuracy", "how the round is chosen", serialization_alias="select"
    )
    score_model: Literal["auto", "global", "personal"] = option(
        "auto",
        "the model that is scored: what the method delivers (auto), the aggregate, or each client's",
        serialization_alias="model",
    )
    score_on: Literal["local", "global", "union"] = option(
        "local",
        "score on each client's own graph (mean over clients), on the whole graph, or on the union of the "
        "clients' graphs (FedGL's global goal)",
        serialization_alias="data",
    )

    failure: float = option(
        0.0,
        "probability that a client fails in a round: it gets and sends nothing and keeps its state",
        ge=0,
        lt=1,
        later=True,
    )
    straggle: float = option(
        0.0,
        "probability that a client straggles in a round: it does 1 to E local epochs, drawn uniformly",
        ge=0,
        le=1,
        later=True,
    )
    sign_flip: float = option(0.0, "share of clients that send -4 times their update", ge=0, lt=1, later=True)
    gaussian: float = option(0.0, "share of clients that send Gaussian noise as their update", ge=0, lt=1, later=True)
    small_deviation: float = option(
        0.0, "share of clients that send the mean update minus 1.5 standard deviations", ge=0, lt=1, later=True
    )
    label_flip: float = option(
        0.0, "share of clients that train on reversed labels: class c becomes C - 1 - c", ge=0, lt=1, later=True
    )
    aggregator: Literal["mean", "median", "trimmed-mean", "krum", "multi-krum", "norm-clip"] = option(
        "mean", "the server's rule for uploaded models: the method's own mean, or a robust one", later=True
    )
    tolerated: float = option(
        0.3, "share of hostile clients that a robust aggregator tolerates", ge=0, lt=0.5, later=True
    )
    unseen: float = option(
        0.0, "share of clients, at least one, that never take part and are scored afterwards", ge=0, lt=1, later=True
    )
    unseen_epochs: int = option(
        0,
        "local epochs that unseen clients train from the global model before a second scoring; 0 = none",
        ge=0,
        later=True,
    )
    dp_clip: float | None = option(None, "clip each client's update to this 2-norm", gt=0, later=True)
    dp_noise: float = option(
        0.0, "noise on the average, in units of the largest contribution of one client", ge=0, later=True
    )
    dp_delta: float = option(1e-5, "delta of (epsilon, delta) privacy, below 1 / clients", gt=0, lt=1, later=True)

    @property
    def total_epochs(self) -> int:
        """Local epochs per client in all rounds together."""
        return self.rounds * self.local_epochs

    @property
    def attacks(self) -> list[str]:
        """Names of the given attacks; a valid configuration has at most one."""
        return [name for name in ATTACKS if getattr(self, name)]

    @property
    def needs_clients(self) -> list[str]:
        """Names of the given options that are about the data or uploads of single clients."""
        others = {"dp_clip": self.dp_clip is not None, "aggregator": self.aggregator != "mean"}
        return [*self.attacks, *(name for name, given in others.items() if given)]

    def unfit(self, clients: int) -> str:
        """Return why the configuration does not fit this number of clients; empty if it does."""
        for name in self.attacks:
            share = getattr(self, name)
            if not round(share * clients):
                least = f"{0.5 / clients:.3g}"
                return f"{name} is {share:g}, so none of {clients} clients is hostile; give more than {least}"
        if self.dp_noise and self.dp_delta >= 1 / clients:
            return f"dp_delta is {self.dp_delta:g}, must be below 1 / clients, {1 / clients:.3g}"
        return ""

    @model_validator(mode="after")
    def _bounded(self) -> TrainConfig:
        if self.dp_noise and self.dp_clip is None:
            raise ValueError("dp_noise is in units of dp_clip: give both")
        if self.fanout is not None and (self.batch_size is None or not all(n == -1 or n > 0 for n in self.fanout)):
            raise ValueError("fanout needs batch_size, and a positive number or -1 for each layer, as in [10, 5]")
        if self.dp_clip is not None and self.aggregator != "mean":
            raise ValueError("dp_clip protects the mean of the updates: leave aggregator at mean")
        if self.dp_clip is not None and self.small_deviation:
            raise ValueError("small_deviation replaces models after dp_clip has clipped them: leave out one of them")
        if self.unseen_epochs and not self.unseen:
            raise ValueError("unseen_epochs is of clients held out of training: give unseen, the share of these")
        if self.unseen and self.score_on != "local":
            raise ValueError(f"unseen clients are scored on their own graphs: make data 'local', not {self.score_on!r}")
        if self.unseen and self.present:
            raise ValueError(f"unseen clients hold the data as they are: leave out unseen or {', '.join(self.present)}")
        if len(self.attacks) > 1:
            raise ValueError(f"{' and '.join(self.attacks)} are given: a run has one attack")
        return self

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, values: Any) -> Any:
        """Accept the former names of options, which stored rows and their keys keep."""
        if not isinstance(values, dict):
            return values
        for former, name in FORMER.items():
            if former in values and name in values:
                raise ValueError(f"{name} is given twice: {former} is its former name")
        return {FORMER.get(name, name): value for name, value in values.items()}


FORMER = {info.serialization_alias: name for name, info in TrainConfig.model_fields.items() if info.serialization_alias}
