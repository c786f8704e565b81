"""One result row: the columns of every CSV under results/, and nothing else decides them.

The runner writes rows, the report reads them, `validate` checks them: all through this model. It refuses what no reader
can work with: a value of the wrong type, a fraction beyond [0, 1]. The form, length and range that a column asks for
besides (`metrics.Column`) are for rows that are to count, and `validate` holds them against these: what a run yields is
stored whatever it is, and what was stored can be read.

Columns are added, never changed or removed: a new one has `Column(since=...)`, stands behind all others in a line, and
has a default for rows of an older schema, which keep their bytes.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...metrics import Column, Metrics, columns

Json = Annotated[str, Column(json=True, longest=4000)]
Digest = Annotated[str, Column(pattern="[0-9a-f]{12}")]
Content = Annotated[str, Column(pattern="([0-9a-f]{64})?", needed=True)]


class Identity(BaseModel):
    """What was run, on what, and how it went: the columns before the figures."""

    schema_version: int = Field(default_factory=lambda: SCHEMA_VERSION)
    key: Annotated[str, Column(pattern="[0-9a-f]{16}")] = Field(
        description="sha256 (16 hex) of everything that defines the cell, seed included, code excluded"
    )
    suite: Annotated[str, Column(pattern=r"[A-Za-z0-9_+][\w.+-]*")]
    task: Literal["node", "graph"]
    dataset: str
    dataset_params: Json = Field(description="canonical JSON (sorted keys, no spaces)")
    dataset_fingerprint: Content = ""
    synthetic: bool = False
    source: str = Field("", description="where the data came from: cache, mirror, package index, upstream, generated")
    partition: str
    partition_params: Json
    partition_hash: Content = ""
    clients: Annotated[int, Column(least=1)]
    split: str
    split_params: Json
    backbone: Annotated[str, Column(longest=2000)] = Field(
        description="a name, or 'a+b+c' for heterogeneous clients (client k has entry k mod length)"
    )
    backbone_params: Annotated[str, Column(json=True, longest=20_000)]  # one set of parameters a client at worst
    method: str
    method_version: Digest = Field(description="first 12 hex of the sha256 of the source that it computes with")
    method_params: Json
    training: Json = Field(
        description="canonical JSON of the training configuration (rounds, local epochs, optimiser...)"
    )
    seed: int
    status: Literal["ok", "failed", "timeout", "oom", "skipped"]
    error: Annotated[str, Column(longest=1000)] = Field("", description="one line: why the cell is not ok")
    notes: Annotated[str, Column(longest=4000)] = ""


class Row(Metrics, Identity):
    """One run of one cell: identity, figures, then how it was made. An empty CSV field is None."""

    model_config = ConfigDict(extra="forbid")

    peak_memory_mb: Annotated[float | None, Column(measure="peak_memory_mb")] = Field(
        None, description="peak resident memory of the worker process, MiB"
    )
    started: Annotated[str, Column(pattern=r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z")] = Field(
        description="UTC, ISO 8601, seconds"
    )
    git_sha: Annotated[str, Column(pattern="([0-9a-f]{40})?")] = ""
    git_dirty: bool | None = None
    environment: Digest = Field(description="hash of results/environments/<hash>.json")
    device: Annotated[str, Column(pattern=r"cpu|cuda(:[0-9]+)?")] = "cpu"
    submitter: str = ""
    reference: Annotated[bool, Column(since=2)] = Field(
        False, description="a reference such as centralised training: shown, never ranked; the method's class says so"
    )
    code: Annotated[str, Column(since=2, pattern="([0-9a-f]{12})?")] = Field(
        "", description="first 12 hex of the sha256 of the package's own source"
    )
    origin: Annotated[str, Column(since=2, json=True, longest=2000)] = Field(
        "", description="canonical JSON of a plug-in method's distribution, version, commit, dirty, source; or empty"
    )

    @model_validator(mode="after")
    def _reference_of_old(self) -> Row:
        """Schema 1 has no column `reference`, and had one reference only: "global"."""
        if self.schema_version == 1:
            self.reference = self.method == "global"
        return self

    def has(self, column: str) -> bool:
        """Whether the row's schema has a column; others have their defaults."""
        return RULES[column].since <= self.schema_version

    @property
    def in_time(self) -> bool:
        """Whether the best round is one of its rounds."""
        return 1 <= (self.best_round or 0) <= (self.rounds or 0)


RULES = columns(Row)
SCHEMA_VERSION: int = max(rule.since for rule in RULES.values())
COLUMNS = sorted(RULES, key=lambda name: RULES[name].since)  # in the order of a line; an older schema has the first few
WIDTHS = {version: sum(rule.since <= version for rule in RULES.values()) for version in range(1, SCHEMA_VERSION + 1)}
