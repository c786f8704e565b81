"""How much a method depends on its settings, from the trials of `fglbench tune`."""

from __future__ import annotations

import pandas as pd

from ..benchmark.store.json_columns import mapping

LEGEND = (
    "Loss of a median setting: validation score of the best trial less that of the median trial, mean over datasets. "
    "Of all trials after the first stage of the search, which have the same rounds; a failed trial counts 0. A small "
    "loss: the method works with most settings."
)


def setting_loss(trials: pd.DataFrame, datasets: list[str]) -> dict[str, float]:
    """Method -> its loss, a fraction, for the methods that have trials on all of `datasets`.

    trials: rows with method, dataset, training (JSON), status and val.
    """
    if trials.empty:
        return {}
    rounds = pd.Series([mapping(text).get("rounds") for text in trials["training"]], index=trials.index)
    known = trials.assign(rounds=rounds, val=pd.to_numeric(trials["val"]).where(trials["status"] == "ok").fillna(0.0))
    known = known[known["dataset"].isin(datasets)]
    first = known[known["rounds"] == known.groupby(["method", "dataset"])["rounds"].transform("min")]
    scores = first.groupby(["method", "dataset"])["val"]
    losses = (scores.max() - scores.median()).unstack("dataset").reindex(columns=datasets)
    return {str(method): float(loss) for method, loss in losses.dropna().mean(axis=1).items()}
