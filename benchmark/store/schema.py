"""The model of a result row: it defines the columns of every CSV file under results/.

The runner writes rows, the report reads them and `validate` checks them with this model. It rejects values that no
reader can use: a wrong type, a fraction outside [0, 1]. The form, length and range of a column (`metrics.Column`) are
checked by `validate` only, so every result of a run can be stored, and everything stored can be read.

A column is never changed or removed. A new column has a default and is last in a line; `SCHEMA_VERSION` is raised by
one, and all stored rows get the empty field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ...metrics import Column, Metrics, columns


def mapping(text: object) -> dict[str, Any]:
    """The JSON object of a text; empty for any other text."""
    return parse(text) or {}


def parse(text: object) -> dict[str, Any] | None:
    """The JSON object of a text; None for any other text."""
    value = loaded(text)
    return value if isinstance(value, dict) else None


def parameters(text: object) -> dict[str, Any]:
    """The JSON object of a text; for a list of objects (mixed architectures) their union, in which the later value of a
    name counts; empty for any other text."""
    value = loaded(text)
    objects = value if isinstance(value, list) else [value]
    return {name: entry for item in objects if isinstance(item, dict) for name, entry in item.items()}


def loaded(text: object) -> Any:
    """The value of a JSON text; None for any other text."""
    try:
        return json.loads(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, RecursionError):
        return None


NEUTRAL: Mapping[str, float] = {  # condition -> value without effect; a test compares it with the engine
    "feature_noise": 0.0,
    "missing_features": 0.0,
    "edge_noise": 0.0,
    "dropped_edges": 0.0,
    "label_noise": 0.0,
    "missing_labels": 0.0,
    "participation": 1.0,
    "failure": 0.0,
    "straggle": 0.0,
    "label_flip": 0.0,
    "sign_flip": 0.0,
    "gaussian": 0.0,
    "small_deviation": 0.0,
}


def conditions(training: object) -> dict[str, float]:
    """Condition -> value, of the conditions that are set in the `training` column of a row."""
    settings = mapping(training)
    known = {name: settings[name] for name in NEUTRAL if isinstance(settings.get(name), int | float)}
    return {name: float(value) for name, value in known.items() if value != NEUTRAL[name]}


def strength(condition: str, value: float) -> float:
    """The strength of a condition: the distance from its neutral value (participation 0.3: 0.7)."""
    return round(abs(value - NEUTRAL[condition]), 9)


def wording(set_conditions: Mapping[str, float]) -> str:
    """'label noise 0.4', or 'plain' without a condition."""
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in set_conditions.items()) or "plain"


MODELS = 2  # models that a client may train in every epoch, as in mutual distillation; no paper of the field has more


def excess(row: Mapping[str, Any]) -> str:
    """The excess of a run over the budget of its cell, in words; empty if there is none, or if it is not known.

    row: the columns of a result row by name. The limits: scored rounds and participation as in `training`; for steps on
    one parameter those of plain FedAvg (`budget_steps`); for all steps MODELS times as many. Rows of a schema before 3
    have no numbers of steps, so only their rounds are compared.
    """
    settings, effective = mapping(row.get("training")), mapping(row.get("effective_training"))
    budget = _number(row.get("budget_steps"))
    limits = [
        ("scored rounds", row.get("rounds"), settings.get("rounds")),
        ("of the clients in a round", effective.get("participation"), settings.get("participation", 1.0)),
        ("steps of a model", row.get("model_steps"), budget),
        ("optimiser steps", row.get("optimiser_steps"), MODELS * budget),
    ]
    counts = [(unit, _number(used), _number(limit)) for unit, used, limit in limits]
    return "; ".join(f"{used:g} {unit}, {limit:g} given" for unit, used, limit in counts if limit and used > limit)


def _number(value: object) -> float:
    """The number; 0 for other values, NaN, and numbers that are too large."""
    valid = isinstance(value, int | float) and abs(value) < 1e18
    return float(value) if valid else 0.0  # type: ignore[arg-type]


Json = Annotated[str, Column(json=True, longest=4000)]
Version = Annotated[str, Column(pattern=r"[0-9a-f]{12}|[0-9]{1,4}(\+[0-9a-f]{12})?")]
Digest = Annotated[str, Column(pattern="[0-9a-f]{12}")]
Content = Annotated[str, Column(pattern="([0-9a-f]{64})?", needed=True)]
FORMULA = tuple("=+-@")  # a spreadsheet reads a text with this first character as a formula
RISING = 0.05  # last share of the rounds: if the best round is in it, a later one might have been better


class Identity(BaseModel):
    """The identity and status of a run: the columns before the metrics."""

    schema_version: int = Field(
        default_factory=lambda: SCHEMA_VERSION,
        description="version of the columns when it was written; later columns are empty or at their default",
    )
    key: Annotated[str, Column(pattern="[0-9a-f]{16}")] = Field(
        description="sha256 (16 hex) of everything that defines the cell, with the seed, without the code"
    )
    suite: Annotated[str, Column(pattern=r"[A-Za-z0-9_+][\w.+-]*")] = Field(
        description="the suite, or custom for changed settings"
    )
    task: Annotated[str, Column(pattern="[a-z][a-z-]*")] = Field(
        description="node (classification), graph (clustering), graph-classification, or the name of another task"
    )
    dataset: str = Field(description="its name")
    dataset_params: Json = Field(description="canonical JSON (sorted keys, no spaces)")
    dataset_fingerprint: Content = Field("", description="sha256 of edges, features, labels and published split")
    synthetic: bool = Field(False, description="generated data: no accuracy on a real dataset")
    source: Annotated[str, Column(pattern="[a-z ]{0,20}")] = Field(
        "", description="source of the data: cache, mirror, package index, upstream, generated"
    )
    partition: str = Field(description="how the dataset is divided among clients")
    partition_params: Json = Field(description="canonical JSON")
    partition_hash: Content = Field("", description="sha256 of the nodes of each client and of their part of the split")
    clients: Annotated[int, Column(least=1)] = Field(description="number of clients")
    split: str = Field(description="how nodes are divided into training, validation and test")
    split_params: Json = Field(description="canonical JSON")
    backbone: Annotated[str, Column(longest=2000)] = Field(
        description="a name, or 'a+b+c' for heterogeneous clients (client k has entry k mod length)"
    )
    backbone_params: Annotated[str, Column(json=True, longest=20_000)] = Field(
        description="canonical JSON; a list if clients differ"
    )
    method: str = Field(description="its name")
    method_version: Version = Field(
        description="revision of the method, for a plug-in with its source hash; before 0.2.0 a source hash only"
    )
    method_params: Json = Field(description="canonical JSON")
    training: Json = Field(
        description="canonical JSON of the training configuration (rounds, local epochs, optimiser...)"
    )
    seed: int = Field(description="of partition, split, initial weights and all random draws")
    status: Literal["ok", "failed", "timeout", "oom", "skipped"] = Field(description="outcome of the run")
    error: Annotated[str, Column(longest=1000)] = Field("", description="one line: why the status is not ok")
    notes: Annotated[str, Column(longest=4000)] = Field("", description="remarks for readers of the results")


TRIAL = '{"trial":true}'  # `tuning` of a row of `fglbench tune`, which is no score of a suite
TAKEN_OVER = "run for suite "  # before the name of the other suite, in `notes` of a copy of its row


def cut_off(row: Row | Standing) -> bool:
    """Whether a run ended too early: the best round is among the last 5%, and the run was not stopped by patience.

    False if this is not known: the last round counts by rule or without a validation value, or there is one round.
    """
    rounds, best, settings = row.rounds or 0, row.best_round or 0, _training(row.training)
    if rounds == 1 or not 1 <= best <= rounds or row.val is None or settings.get("select") == "last":
        return False
    patience = settings.get("patience")
    stopped = isinstance(patience, int) and rounds - best >= patience
    return not stopped and rounds - best < RISING * rounds


@lru_cache(maxsize=1000)
def _training(text: str) -> Mapping[str, object]:
    """A training configuration, cached because many rows share it. Do not change the result."""
    return mapping(text)


class Row(Metrics, Identity):
    """One run of one cell: identity, metrics, then provenance. An empty CSV field is None."""

    model_config = ConfigDict(extra="forbid")

    peak_memory_mb: Annotated[float | None, Column(measure="peak_memory_mb")] = Field(
        None, description="peak resident memory of the worker process, MiB"
    )
    started: Annotated[str, Column(pattern=r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z")] = Field(
        description="UTC, ISO 8601, seconds"
    )
    git_sha: Annotated[str, Column(pattern="([0-9a-f]{40})?")] = Field(
        "", description="commit of the code; empty for an installed package"
    )
    git_dirty: bool | None = Field(None, description="whether the checkout had uncommitted changes")
    environment: Digest = Field(description="hash of `results/environments/<hash>.json`: machine and packages")
    device: Annotated[str, Column(pattern=r"cpu|cuda(:[0-9]{1,3})?")] = Field(
        "cpu", description="device of the training"
    )
    submitter: str = Field("", description="person or group who ran it")
    reference: bool = Field(
        False,
        description="a reference such as centralised training: shown, never ranked; set by the class of the method",
    )
    code: Annotated[str, Column(pattern="([0-9a-f]{12})?")] = Field(
        "", description="first 12 hex of the sha256 of the source of the package"
    )
    origin: Annotated[str, Column(json=True, longest=2000)] = Field(
        "",
        description="canonical JSON of a plug-in method's distribution, version, commit, dirty, source; `parts`: "
        "sources of other parts from plug-ins; or empty",
    )
    effective_training: Annotated[str, Column(json=True, longest=4000)] = Field(
        "", description="canonical JSON of the training configuration of the method, if it differs from `training`"
    )
    optimiser_steps: int | None = Field(
        None, description="optimiser steps in all phases and models, of the client with most steps"
    )
    model_steps: int | None = Field(None, description="the most optimiser steps of a client on one parameter")
    budget_steps: int | None = Field(
        None, description="model_steps of plain FedAvg with `training`: rounds x local epochs x minibatches"
    )
    cpu_seconds: float | None = Field(
        None, description="CPU time of all threads and finished child processes, without loading of data"
    )
    tuning: Annotated[str, Column(json=True, longest=1000)] = Field(
        "", description="canonical JSON of the study that chose the settings: study, trials, rounds, seeds; or TRIAL"
    )
    dp_epsilon: float | None = Field(
        None, description="client-level (epsilon, delta)-privacy of all uploads of all rounds; empty: none"
    )
    dp_delta: float | None = Field(None, description="the delta of dp_epsilon")
    peak_device_memory_mb: float | None = Field(
        None, description="peak GPU memory of the tensors of the run, MiB; empty: trained on the CPU"
    )

    @property
    def over_budget(self) -> str:
        """See `excess`."""
        return excess(vars(self))

    @property
    def in_time(self) -> bool:
        """Whether the best round is one of its rounds."""
        return 1 <= (self.best_round or 0) <= (self.rounds or 0)

    @property
    def rising(self) -> bool:
        """See `cut_off`."""
        return cut_off(self)


PARTS = ("method", "dataset", "partition", "split", "backbone")  # each has a name and parameters
EXPERIMENT = (*PARTS, *(f"{part}_params" for part in PARTS), "clients", "training")  # columns, without the seed
SCHEMA_VERSION = 5
RULES = columns(Row)
COLUMNS = list(RULES)  # in the order of a line
COLUMNS.insert(COLUMNS.index("origin"), COLUMNS.pop(COLUMNS.index("roc_auc")))  # added later than the other metrics


class Standing(BaseModel):
    """The columns of a row that show progress. The others are not checked."""

    key: str
    suite: str
    dataset: str
    method: str
    method_version: str
    training: str
    seed: int
    status: str
    error: str = ""
    val: float | None = None
    best_round: int | None = None
    rounds: int | None = None
    git_sha: str = ""

    @property
    def rising(self) -> bool:
        """See `cut_off`."""
        return cut_off(self)


AnyRow = TypeVar("AnyRow", Row, Standing)
