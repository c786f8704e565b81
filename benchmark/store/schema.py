"""One result row: the columns of every CSV under results/, and nothing else decides them.

The runner writes rows, the report reads them, `validate` checks them: all through this model.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1

Fraction = float | None  # in [0, 1]; empty where the metric does not exist for the run


class Row(BaseModel):
    """One run of one cell. Field order is column order; an empty CSV field is None."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = SCHEMA_VERSION
    key: str = Field(description="sha256 (16 hex) of everything that defines the cell, seed included, code excluded")
    suite: str
    task: Literal["node", "graph"]
    dataset: str
    dataset_params: str = Field(description="canonical JSON (sorted keys, no spaces)")
    dataset_fingerprint: str = ""
    synthetic: bool = False
    source: str = Field("", description="where the data came from: cache, mirror, package index, upstream, generated")
    partition: str
    partition_params: str
    partition_hash: str = ""
    clients: int
    split: str
    split_params: str
    backbone: str = Field(description="a name, or 'a+b+c' for heterogeneous clients (client k has entry k mod length)")
    backbone_params: str
    method: str
    method_version: str = Field(description="first 12 hex of the sha256 of the method's source files")
    method_params: str
    training: str = Field(
        description="canonical JSON of the training configuration (rounds, local epochs, optimiser...)"
    )
    seed: int
    status: Literal["ok", "failed", "timeout", "oom", "skipped"]
    error: str = Field("", description="one line: why the cell is not ok")
    notes: str = ""
    score: Fraction = Field(None, ge=0, le=1, description="the protocol's primary test metric at the best round")
    score_metric: str = Field(
        "", description="what score is, e.g. 'accuracy/global model/local test/mean over clients'"
    )
    val: Fraction = Field(None, ge=0, le=1, description="the validation metric that selected the round")
    macro_f1: Fraction = Field(None, ge=0, le=1)
    score_weighted: Fraction = Field(None, ge=0, le=1, description="the primary metric weighted by test nodes")
    global_on_global: Fraction = Field(None, ge=0, le=1, description="global model, whole graph, all test nodes")
    global_on_local: Fraction = Field(None, ge=0, le=1, description="global model, own graphs, mean over clients")
    personal_on_global: Fraction = Field(
        None, ge=0, le=1, description="personal models, whole graph, mean over clients"
    )
    personal_on_local: Fraction = Field(None, ge=0, le=1, description="personal models, own graphs, mean over clients")
    best_round: int | None = Field(None, description="1-based")
    rounds: int | None = Field(None, description="rounds run")
    upload_bytes: int | None = Field(None, description="all clients, all rounds run")
    download_bytes: int | None = None
    upload_bytes_best: int | None = Field(None, description="up to and including the best round")
    download_bytes_best: int | None = None
    train_seconds: float | None = Field(None, description="training and aggregation, evaluation excluded")
    total_seconds: float | None = Field(None, description="the whole cell, data loading excluded")
    peak_memory_mb: float | None = Field(None, description="peak resident memory of the worker process, MiB")
    started: str = Field(description="UTC, ISO 8601, seconds")
    git_sha: str = ""
    git_dirty: bool | None = None
    environment: str = Field(description="hash of results/environments/<hash>.json")
    device: str = "cpu"
    submitter: str = ""
