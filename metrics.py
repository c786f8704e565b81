"""What a run yields, said once: every figure is a column of the result rows, and what its readers do with it.

A new metric is one field of `Metrics` and the code that computes it: rows, outcome, contract, `validate`, `verify` and
report read this model. It is a new column of the rows (benchmark/store/schema.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError


@dataclass(frozen=True)
class Column:
    """What is asked of a column beyond its type. The model reads any value of the type, for what a run yields must be
    stored in any case; `pattern`, `longest`, `least` and `json` are what `validate` asks of a row that counts."""

    pattern: str = ""  # of the whole text
    longest: int = 200  # characters of a text
    json: bool = False  # canonical JSON
    least: float = 0  # of a number
    needed: bool = False  # by a row with status ok
    measure: str = ""  # the measure of the report that it is; what has one name is added up
    exact: bool = False  # a count: equal when the cell runs again on the same type of machine
    floor: float = 0  # a figure: when the cell runs again it may always differ by this; 0: not compared
    curve: str = ""  # the column of the run's history whose value at `at` it is
    at: str = "best"  # round of that value: best or last


def columns(model: type[BaseModel]) -> dict[str, Column]:
    """What the fields of a model say of themselves, in their order."""
    return {
        name: next((each for each in info.metadata if isinstance(each, Column)), Column())
        for name, info in model.model_fields.items()
    }


Fraction = Annotated[float | None, Field(ge=0, le=1)]  # empty where the metric does not exist for the run
Figure = Annotated[float | None, Field(ge=0)]  # a fraction, or an error, which has no bound
ABOVE = "above_one"  # the type of the error of a fraction that is none; its context has the column
FALLING = "(lower is better)"  # what `score_metric` says of an error


def sign(score_metric: str) -> int:
    """-1 for a score of which lower is better, else 1: times this, higher is better."""
    return -1 if FALLING in score_metric else 1


def bound(score_metric: str) -> float:
    """What a score may be at most."""
    return 1.0 if sign(score_metric) > 0 else float("inf")


Count = int | None
Seconds = float | None


class Metrics(BaseModel):
    """The figures of one run. None where a figure does not exist."""

    score: Annotated[Figure, Column(needed=True, measure="score", floor=0.01, curve="score")] = Field(
        None, description="the protocol's primary test metric at the best round"
    )
    score_metric: Annotated[str, Column(needed=True)] = Field(
        "", description="what score is, e.g. 'accuracy/global model/local test/mean over clients'"
    )
    val: Annotated[Figure, Column(measure="val", floor=0.01, curve="val")] = Field(
        None, description="the validation metric that selected the round"
    )
    macro_f1: Annotated[Fraction, Column(measure="macro_f1", floor=0.03)] = Field(  # one node of a rare class moves it
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
        None, description="the round that validation chose, 1-based; score and val are of it"
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
        None, description="the whole cell, data loading excluded"
    )

    @model_validator(mode="after")
    def _fractions(self) -> Metrics:
        given = vars(self)
        beyond = sign(self.score_metric) > 0 and [name for name in SCORES if (given[name] or 0) > 1]
        if beyond:
            raise PydanticCustomError(ABOVE, "Input should be less than or equal to 1", {"column": beyond[0]})
        return self


METRICS = columns(Metrics)
# The figures that are of one kind with the score.
SCORES = (
    "score", "val", "score_weighted", "global_on_global", "global_on_local", "personal_on_global", "personal_on_local",
)  # fmt: skip
# Figures of clients that were held out of training, which stand beside those of the others in the side file of a row:
# the global model on their test rows, and the same after local epochs of their own.
UNSEEN, ADAPTED = "unseen", "unseen_adapted"
# The columns of a run's history that `validate` asks for.
CURVES = [*dict.fromkeys(column.curve for column in METRICS.values() if column.curve)]
