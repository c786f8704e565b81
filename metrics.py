"""The metrics of a run: each one is a column of the result rows, with its checks and its place in the report.

A new metric is one field of `Metrics` and the code that computes it: rows, outcome, contract, `validate`, `verify` and
report read this model. It is a new column of the rows (benchmark/store/schema.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError


@dataclass(frozen=True)
class Column:
    """Requirements of a column in addition to its type. Reading a row checks the type only, because each result of a
    run must be stored; `validate` also checks `pattern`, `longest`, `least` and `json`."""

    pattern: str = ""  # regular expression for the whole text
    longest: int = 200  # maximal number of characters of a text
    json: bool = False  # the text is canonical JSON
    least: float = 0  # minimal number
    needed: bool = False  # required if the status is ok
    measure: str = ""  # name of the report's measure; columns with the same name are added
    exact: bool = False  # a count: equal if the run is repeated on the same type of machine
    floor: float = 0  # allowed difference if the run is repeated; 0: not compared
    curve: str = ""  # column of the run's history that has this value at the round `at`
    at: str = "best"  # "best" or "last" round


def columns(model: type[BaseModel]) -> dict[str, Column]:
    """Return the `Column` of each field of a model, in the order of the fields."""
    return {
        name: next((each for each in info.metadata if isinstance(each, Column)), Column())
        for name, info in model.model_fields.items()
    }


Fraction = Annotated[float | None, Field(ge=0, le=1)]  # None if the run does not have the metric
Figure = Annotated[float | None, Field(ge=0)]  # a fraction, or an error, which has no upper bound
ABOVE = "above_one"  # type of the validation error for a fraction above 1; its context names the column
FALLING = "(lower is better)"  # part of `score_metric` if the score is an error


def sign(score_metric: str) -> int:
    """Return -1 if a lower score is better, else 1: of score * sign, higher is better."""
    return -1 if FALLING in score_metric else 1


def metric_name(score_metric: str) -> str:
    """Return the metric without what it is measured on: "accuracy" of "accuracy/global model/local test"."""
    return re.split("[,/]", score_metric)[0]


def bound(score_metric: str) -> float:
    """Return the upper bound of a score."""
    return 1.0 if sign(score_metric) > 0 else float("inf")


Count = int | None
Seconds = float | None


class Metrics(BaseModel):
    """The metrics of one run; None for a metric that does not exist for it."""

    score: Annotated[Figure, Column(needed=True, measure="score", floor=0.01, curve="score")] = Field(
        None, description="the protocol's primary test metric at the best round"
    )
    score_metric: Annotated[str, Column(needed=True)] = Field(
        "", description="what score is, e.g. 'accuracy/global model/local test/mean over clients'"
    )
    val: Annotated[Figure, Column(measure="val", floor=0.01, curve="val")] = Field(
        None, description="the validation metric that selected the round"
    )
    macro_f1: Annotated[Fraction, Column(measure="macro_f1", floor=0.03)] = Field(  # sensitive to single nodes
        None, description="F1 over classes on a client's test nodes, mean over clients"
    )
    score_weighted: Annotated[Figure, Column(measure="score_weighted")] = Field(
        None, description="the primary metric weighted by test nodes"
    )
    global_on_global: Annotated[Figure, Column(measure="global_on_global")] = Field(
        None, description="global model, whole graph, all test nodes"
    )
    global_on_local: Annotated[Figure, Column(measure="global_on_local")] = Field(
        None, description="global model, own graphs, mean over clients"
    )
    personal_on_global: Annotated[Figure, Column(measure="personal_on_global")] = Field(
        None, description="personal models, whole graph, mean over clients"
    )
    personal_on_local: Annotated[Figure, Column(measure="personal_on_local")] = Field(
        None, description="personal models, own graphs, mean over clients"
    )
    best_round: Annotated[Count, Column(needed=True, measure="best_round", exact=True, curve="round")] = Field(
        None, description="the round with the best validation metric, 1-based; score and val belong to it"
    )
    rounds: Annotated[Count, Column(needed=True, exact=True, curve="round", at="last")] = Field(
        None, description="rounds run"
    )
    upload_bytes: Annotated[Count, Column(needed=True, exact=True, curve="upload_bytes", at="last")] = Field(
        None, description="sent by all clients in all rounds run"
    )
    download_bytes: Annotated[Count, Column(needed=True, exact=True, curve="download_bytes", at="last")] = Field(
        None, description="received by all clients in all rounds run"
    )
    upload_bytes_best: Annotated[Count, Column(needed=True, measure="traffic", exact=True, curve="upload_bytes")] = (
        Field(None, description="sent up to and including the best round")
    )
    download_bytes_best: Annotated[
        Count, Column(needed=True, measure="traffic", exact=True, curve="download_bytes")
    ] = Field(None, description="received up to and including the best round")
    roc_auc: Annotated[Fraction, Column(measure="roc_auc", floor=0.03)] = Field(
        None, description="area under the ROC curve, mean over the clients with both classes; datasets of two classes"
    )
    train_seconds: Annotated[Seconds, Column(needed=True, measure="train_seconds")] = Field(
        None, description="training and aggregation, evaluation excluded"
    )
    total_seconds: Annotated[Seconds, Column(needed=True, measure="total_seconds")] = Field(
        None, description="the whole run, data loading excluded"
    )

    @model_validator(mode="after")
    def _fractions(self) -> Metrics:
        above = sign(self.score_metric) > 0 and [name for name in SCORES if (getattr(self, name) or 0) > 1]
        if above:
            raise PydanticCustomError(ABOVE, "Input should be less than or equal to 1", {"column": above[0]})
        return self


METRICS = columns(Metrics)
# The columns with the same unit as the score.
SCORES = (
    "score", "val", "score_weighted", "global_on_global", "global_on_local", "personal_on_global", "personal_on_local",
)  # fmt: skip
# Scores of the clients without training, in the side file of a row: the global model on their test rows, and the same
# model after their local epochs.
UNSEEN, ADAPTED = "unseen", "unseen_adapted"
# The columns of a run's history that `validate` requires.
CURVES = [*dict.fromkeys(column.curve for column in METRICS.values() if column.curve)]
