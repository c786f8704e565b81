"""What a training run hands back."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Outcome:
    """The figures of one run. All metrics are fractions in [0, 1]; None where a metric does not exist for the run.

    score is the primary test metric at the round that validation chose; score_metric says in words what it is.
    matrix: the four model x data figures ("global_on_global", "global_on_local", "personal_on_global",
    "personal_on_local"). history: per-round columns of equal length ("round", "val", "score", "val_loss",
    "train_loss", "upload_bytes", "download_bytes", "seconds"). per_client, at the best round: "val" and "score" (one
    entry where the whole graph or the union is scored), and on each client's own test nodes "global_on_local" and
    "personal_on_local", where there are such models.
    """

    score: float | None
    score_metric: str
    val: float | None
    macro_f1: float | None
    score_weighted: float | None
    matrix: dict[str, float | None]
    best_round: int
    rounds: int
    upload_bytes: int
    download_bytes: int
    upload_bytes_best: int
    download_bytes_best: int
    train_seconds: float
    total_seconds: float
    history: dict[str, list[float]] = field(default_factory=dict)
    per_client: dict[str, list[float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
