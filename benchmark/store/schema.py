"""One result row: the columns of every CSV under results/, and nothing else decides them.

The runner writes rows, the report reads them, `validate` checks them: all through this model. It refuses what no reader
can work with: a value of the wrong type, a fraction beyond [0, 1]. The form, length and range that a column asks for
besides (`metrics.Column`) are for rows that are to count, and `validate` compares them with these: what a run yields is
always stored, and what was stored can be read.

A column is never changed or removed. A new one has a default and is last in a line; `SCHEMA_VERSION` goes up by
one, and all stored rows get the empty field.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from tabulate import tabulate

from ...metrics import Column, Metrics, columns


def mapping(text: object) -> dict[str, Any]:
    """The object that a text holds; empty where it holds something else."""
    return parse(text) or {}


def parse(text: object) -> dict[str, Any] | None:
    """The object that a text holds, or None where it holds something else."""
    value = loaded(text)
    return value if isinstance(value, dict) else None


def parameters(text: object) -> dict[str, Any]:
    """The object that a text holds; of a list of them, as of mixed architectures, all that they say together, of two
    values for one name the later; else nothing."""
    value = loaded(text)
    objects = value if isinstance(value, list) else [value]
    return {name: entry for item in objects if isinstance(item, dict) for name, entry in item.items()}


def loaded(text: object) -> Any:
    """What a text holds, or None where it is no JSON."""
    try:
        return json.loads(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, RecursionError):
        return None


NEUTRAL: Mapping[str, float] = {  # a condition -> the value at which it is none; a test holds it against the engine's
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
    """The conditions of a row's `training` column that are set, by name; none where the column has another text."""
    asked = mapping(training)
    known = {name: asked[name] for name in NEUTRAL if isinstance(asked.get(name), int | float)}
    return {name: float(value) for name, value in known.items() if value != NEUTRAL[name]}


def strength(condition: str, value: float) -> float:
    """How strong a condition is: its distance from none, as participation 0.3 is 0.7."""
    return round(abs(value - NEUTRAL[condition]), 9)


def wording(set_conditions: Mapping[str, float]) -> str:
    """'label noise 0.4', or 'plain' without a condition."""
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in set_conditions.items()) or "plain"


MODELS = 2  # trained side by side, each for every epoch, as in mutual distillation: the most of the field's papers


def excess(row: Mapping[str, Any]) -> str:
    """What a run took beyond its cell's budget, in words; empty where it kept within, or where that is not known.

    row: the columns of a result row by name. A run may take no more scored rounds and no more participation than
    `training` says, no more steps on one parameter than plain FedAvg takes (`budget_steps`), and not more than MODELS
    times as many in all. Rows of a schema before 3 do not say what they took, so only rounds are compared.
    """
    asked, effective = mapping(row.get("training")), mapping(row.get("effective_training"))
    budget = _number(row.get("budget_steps"))
    limits = [
        ("scored rounds", row.get("rounds"), asked.get("rounds")),
        ("of the clients in a round", effective.get("participation"), asked.get("participation", 1.0)),
        ("steps of a model", row.get("model_steps"), budget),
        ("optimiser steps", row.get("optimiser_steps"), MODELS * budget),
    ]
    counts = [(what, _number(took), _number(given)) for what, took, given in limits]
    return "; ".join(f"{took:g} {what}, {given:g} given" for what, took, given in counts if given and took > given)


def _number(value: object) -> float:
    """0 for what is no number, or none that can be compared."""
    fits = isinstance(value, int | float) and abs(value) < 1e18  # neither nan nor more than a float can hold
    return float(value) if fits else 0.0  # type: ignore[arg-type]


Json = Annotated[str, Column(json=True, longest=4000)]
Version = Annotated[str, Column(pattern=r"[0-9a-f]{12}|[0-9]{1,4}(\+[0-9a-f]{12})?")]
Digest = Annotated[str, Column(pattern="[0-9a-f]{12}")]
Content = Annotated[str, Column(pattern="([0-9a-f]{64})?", needed=True)]
FORMULA = tuple("=+-@")  # a spreadsheet would run a text that begins so
RISING = 0.05  # a best round in this last share of the rounds: a later one might have been better


class Identity(BaseModel):
    """What was run, on what, and how it went: the columns before the figures."""

    schema_version: int = Field(
        default_factory=lambda: SCHEMA_VERSION,
        description="version of the columns that it was written with; those added later are empty or at their default",
    )
    key: Annotated[str, Column(pattern="[0-9a-f]{16}")] = Field(
        description="sha256 (16 hex) of everything that defines the cell, seed included, code excluded"
    )
    suite: Annotated[str, Column(pattern=r"[A-Za-z0-9_+][\w.+-]*")] = Field(
        description="what it is filed under: a suite, or custom for changed settings"
    )
    task: Annotated[str, Column(pattern="[a-z][a-z-]*")] = Field(
        description="node (classification), graph (clustering), graph-classification, or the name of another task"
    )
    dataset: str = Field(description="its name")
    dataset_params: Json = Field(description="canonical JSON (sorted keys, no spaces)")
    dataset_fingerprint: Content = Field("", description="sha256 of edges, features, labels and published split")
    synthetic: bool = Field(False, description="generated data: no accuracy on a real dataset")
    source: Annotated[str, Column(pattern="[a-z ]{0,20}")] = Field(
        "", description="where the data came from: cache, mirror, package index, upstream, generated"
    )
    partition: str = Field(description="how the dataset is cut into clients")
    partition_params: Json = Field(description="canonical JSON")
    partition_hash: Content = Field("", description="sha256 of who holds what, in which part of the split")
    clients: Annotated[int, Column(least=1)] = Field(description="how many")
    split: str = Field(description="which nodes are for training, validation and test")
    split_params: Json = Field(description="canonical JSON")
    backbone: Annotated[str, Column(longest=2000)] = Field(
        description="a name, or 'a+b+c' for heterogeneous clients (client k has entry k mod length)"
    )
    backbone_params: Annotated[str, Column(json=True, longest=20_000)] = Field(
        description="canonical JSON; a list of such where clients differ"
    )
    method: str = Field(description="its name")
    method_version: Version = Field(
        description="revision of the method, plus a plug-in's source hash; before 0.2.0 a source hash alone"
    )
    method_params: Json = Field(description="canonical JSON")
    training: Json = Field(
        description="canonical JSON of the training configuration (rounds, local epochs, optimiser...)"
    )
    seed: int = Field(description="of partition, split, first weights and every draw")
    status: Literal["ok", "failed", "timeout", "oom", "skipped"] = Field(description="how it ended")
    error: Annotated[str, Column(longest=1000)] = Field("", description="one line: why the cell is not ok")
    notes: Annotated[str, Column(longest=4000)] = Field("", description="what a reader of the figures must know")


TRIAL = '{"trial":true}'  # `tuning` of a row of `fglbench tune`, which is no score of any suite
TAKEN_OVER = "run for suite "  # in `notes` of a copy of another suite's row, before that suite's name


class Row(Metrics, Identity):
    """One run of one cell: identity, figures, then how it was made. An empty CSV field is None."""

    model_config = ConfigDict(extra="forbid")

    peak_memory_mb: Annotated[float | None, Column(measure="peak_memory_mb")] = Field(
        None, description="peak resident memory of the worker process, MiB"
    )
    started: Annotated[str, Column(pattern=r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z")] = Field(
        description="UTC, ISO 8601, seconds"
    )
    git_sha: Annotated[str, Column(pattern="([0-9a-f]{40})?")] = Field(
        "", description="commit of the code; empty of an installed package"
    )
    git_dirty: bool | None = Field(None, description="whether the checkout had changes that are no commit")
    environment: Digest = Field(description="hash of `results/environments/<hash>.json`: machine and packages")
    device: Annotated[str, Column(pattern=r"cpu|cuda(:[0-9]{1,3})?")] = Field(
        "cpu", description="what it was trained on"
    )
    submitter: str = Field("", description="who ran it")
    reference: bool = Field(
        False, description="a reference such as centralised training: shown, never ranked; the method's class says so"
    )
    code: Annotated[str, Column(pattern="([0-9a-f]{12})?")] = Field(
        "", description="first 12 hex of the sha256 of the package's own source"
    )
    origin: Annotated[str, Column(json=True, longest=2000)] = Field(
        "", description="canonical JSON of a plug-in method's distribution, version, commit, dirty, source; or empty"
    )
    effective_training: Annotated[str, Column(json=True, longest=4000)] = Field(
        "", description="canonical JSON of the training configuration that ran, where the method's is not `training`"
    )
    optimiser_steps: int | None = Field(
        None, description="optimiser steps of the client that took most, in all phases, for all that it trained"
    )
    model_steps: int | None = Field(None, description="the most optimiser steps that a client took on one parameter")
    budget_steps: int | None = Field(
        None, description="the same of plain FedAvg in `training`: rounds x local epochs x minibatches"
    )
    cpu_seconds: float | None = Field(
        None, description="of all threads of the process and of processes that it ended, data loading excluded"
    )
    tuning: Annotated[str, Column(json=True, longest=1000)] = Field(
        "", description="canonical JSON of the study that chose the settings: study, trials, rounds, seeds; or TRIAL"
    )

    dp_epsilon: float | None = Field(
        None, description="client-level (epsilon, delta)-privacy of what was uploaded, all rounds; empty: none"
    )
    dp_delta: float | None = Field(None, description="the delta of dp_epsilon")

    peak_device_memory_mb: float | None = Field(
        None, description="most memory of the GPU that tensors of the run took, MiB; empty: trained on the CPU"
    )

    @property
    def over_budget(self) -> str:
        """What the run took beyond what its cell gives (see `budget.excess`); empty: nothing that is known."""
        return excess(vars(self))

    @property
    def in_time(self) -> bool:
        """Whether the best round is one of its rounds."""
        return 1 <= (self.best_round or 0) <= (self.rounds or 0)

    @property
    def rising(self) -> bool:
        """See `cut_off`."""
        return cut_off(self.rounds, self.best_round, self.val, self.training)


def cut_off(rounds: int | None, best_round: int | None, val: float | None, training: str) -> bool:
    """Whether the number of rounds cut a run off: the best one is among the last 5%, and no patience was at an end.

    A run whose last round counts by rule, or for want of a validation value, does not tell; a single round neither.
    """
    rounds, best, asked = rounds or 0, best_round or 0, _training(training)
    if rounds == 1 or not 1 <= best <= rounds or val is None or asked.get("select") == "last":
        return False
    patience = asked.get("patience")
    patient = not isinstance(patience, int) or rounds - best < patience
    return patient and rounds - best < RISING * rounds


@lru_cache(maxsize=1000)
def _training(text: str) -> Mapping[str, object]:
    """A training configuration, which many rows have in common; to be read only."""
    return mapping(text)


SCHEMA_VERSION = 5
RULES = columns(Row)
COLUMNS = list(RULES)  # in the order of a line
COLUMNS.insert(COLUMNS.index("origin"), COLUMNS.pop(COLUMNS.index("roc_auc")))  # added later than the other figures


HEAD = """# The columns of a row

A row is one run of one cell: a line of `results/<suite>/<method>.csv`. This page is made from the model that every
row is read by (`benchmark/store/schema.py` and `metrics.py`), and a test keeps it fresh. An empty field means that the
figure does not exist for this run. Scores are fractions from 0 to 1. `fglbench.load_results("results")` gives the rows
as a data frame, and with `expand=True` a column for each setting in the place of the JSON texts.

"""
SECTIONS = {  # the first column of each part of a line
    "schema_version": "What was run",
    "score": "How it went",
    "peak_memory_mb": "How it was made",
}


def glossary() -> str:
    """The page."""
    parts, title, sections = [HEAD.rstrip("\n")], "", dict[str, list[list[str]]]()
    for name in COLUMNS:
        title = SECTIONS.get(name, title)
        info = Row.model_fields[name]
        sections.setdefault(title, []).append([f"`{name}`", _kind(name), info.description or ""])
    for title, lines in sections.items():
        headers = ["Column", "Type", "Meaning"]
        table = tabulate([[cell.replace("|", "\\|") for cell in line] for line in lines], headers, tablefmt="github")
        parts.append(f"## {title}\n\n{table}")
    return "\n\n".join(parts) + "\n"


def _kind(name: str) -> str:
    """The type of a column in words."""
    if RULES[name].json:
        return "JSON"
    annotation = Row.model_fields[name].annotation
    if typing.get_origin(annotation) is typing.Literal:
        return ", ".join(map(str, typing.get_args(annotation)))
    several = typing.get_args(annotation) if isinstance(annotation, types.UnionType) else (annotation,)
    words = {str: "text", int: "whole number", float: "number", bool: "True or False", types.NoneType: ""}
    return ", ".join(filter(None, (words[kind] for kind in map(_bare, several))))


def _bare(annotation: typing.Any) -> typing.Any:
    """A type without what is said of it."""
    return typing.get_args(annotation)[0] if typing.get_origin(annotation) is typing.Annotated else annotation


class Standing(BaseModel):
    """A row without what tells nothing of progress. No other column is checked."""

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
        return cut_off(self.rounds, self.best_round, self.val, self.training)


AnyRow = TypeVar("AnyRow", Row, Standing)
