"""What a training run hands back."""

from __future__ import annotations

from pydantic import Field, SkipValidation

from ...metrics import Metrics


class Outcome(Metrics):
    """The figures of one run, and what lies behind them.

    history: per-round columns of equal length ("round", "val", "score", "val_loss", "train_loss", "upload_bytes",
    "download_bytes", "seconds"). per_client, at the best round: "val" and "score" (one entry where the whole graph or
    the union is scored), and on each client's own test nodes "global_on_local" and "personal_on_local", where there are
    such models.
    """

    history: SkipValidation[dict[str, list[float]]] = Field(
        default_factory=dict
    )  # kept as they are: bytes are integers
    per_client: SkipValidation[dict[str, list[float]]] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def matrix(self) -> dict[str, float | None]:
        """The four model x data figures."""
        kinds = [f"{model}_on_{data}" for model in ("global", "personal") for data in ("global", "local")]
        return {kind: getattr(self, kind) for kind in kinds}
