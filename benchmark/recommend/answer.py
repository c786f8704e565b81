"""The recommendation from rows: the method, its gain, sites that gain and lose, costs, data that leave a site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from ...registry import UserError
from ...report.statistics import Difference, paired_difference
from ...report.text import data_size, with_bounds
from ..store import Store
from ..suites.catalogue import entry

ALONE, BASELINE = "local", "fedavg"
TIE = 0.005  # methods with a validation this close to the best are equal; the one with the least traffic is chosen
SITE = 0.005  # the smallest difference that counts as a gain or loss of a site
MEGABIT = 1e6 / 8  # bytes
WORDS = {  # kind of upload -> an explanation for a data-protection officer
    "models": "the weights of the model after training on the site's records. They contain no record. From weights one "
    "can sometimes infer whether a record was used, or a typical record; differential privacy limits this",
    "one-bit sketches": "the signs of random sums of the model's weights: less than the weights, the same kind of risk",
    "control variates": "average gradients of the site, as many numbers as the model has weights; the same risk as "
    "weights",
    "embeddings": "vectors that the site's model computes. If they are computed for records, each vector describes one "
    "record: treat them as personal data",
    "predictions": "the model's prediction for each record: treat them as personal data",
    "node ids": "the identifiers of records: personal data",
    "moments": "means and higher moments of the site's vectors: aggregates over all records; for a small site they can "
    "describe single records",
    "feature sums": "for each record, the sum of its features and those of its neighbours: treat them as personal data",
    "statistics": "a few counts and norms of the site: aggregates",
    "prototypes": "a mean vector of each class or cluster: aggregates. With few records, a mean is close to a record",
    "classes held": "which classes the site has, for example whether it has the rare one",
    "generators": "a model that was trained to generate records' features, or its gradients: it may repeat records",
    "neighbour counts": "how many neighbours each record has at other sites, or at all",
    "neighbour lists": "which records are neighbours: personal data",
    "rows of the propagation matrix": "the weights between records over several hops, which show which records are "
    "neighbours: personal data",
    "gradients of node vectors": "a vector for each record and each record near it: treat them as personal data",
    "condensed features": "synthetic records of each class, fitted to the site's records: they may resemble some",
    "clusters of nodes and of their neighbours": "the group of each record and of some neighbours: personal data",
    "features": "features of records: personal data",
}


@dataclass(frozen=True)
class Result:
    """The result of a method. val, score: means over seeds; sd: of the score. gain, over_fedavg: differences of the
    test score from `local` and from FedAvg over paired seeds. sites: each site's mean difference from `local`, NaN for
    a site without a score. megabytes: up and down per site and round. rounds: mean best round. seconds: of training,
    all sites, one run."""

    method: str
    val: float
    score: float
    sd: float
    seeds: int
    gain: Difference
    over_fedavg: Difference
    sites: list[float]
    megabytes: float
    rounds: float
    seconds: float

    @property
    def better(self) -> int:
        return sum(gain >= SITE for gain in self.sites)

    @property
    def worse(self) -> int:
        return sum(gain <= -SITE for gain in self.sites)


def results_of(rows: pd.DataFrame, store: Store) -> dict[str, Result]:
    """The results of all methods with scores, the best validation first."""
    done = rows[(rows["status"] == "ok") & rows["score"].notna() & rows["val"].notna()]
    scores = done.pivot_table(index="seed", columns="method", values="score")
    sites = {method: _sites(group, store) for method, group in done.groupby("method")}
    results = []
    for method, group in done.groupby("method"):
        gains = sites[method] - sites[ALONE] if ALONE in sites and sites[method].shape == sites[ALONE].shape else []
        traffic = (group["upload_bytes"] + group["download_bytes"]) / group["rounds"] / group["clients"]
        results.append(
            Result(
                str(method), float(group["val"].mean()),
                float(group["score"].mean()), float(group["score"].std(ddof=1)),
                len(group), _gap(scores, str(method), ALONE), _gap(scores, str(method), BASELINE),
                [float(value) for value in gains], float(traffic.mean()) / 1e6,
                float(group["best_round"].mean()), float(group["train_seconds"].mean()),
            )
        )  # fmt: skip
    return {result.method: result for result in sorted(results, key=lambda result: -result.val)}


def _gap(scores: pd.DataFrame, method: str, other: str) -> Difference:
    if other not in scores:
        return Difference(np.nan, np.nan, np.nan, np.nan)
    both = scores[[method, other]].dropna() if method != other else scores[[method]].dropna()
    return paired_difference(both[method], both[other])


def _sites(rows: pd.DataFrame, store: Store) -> np.ndarray:
    by_seed = []
    for suite, key in zip(rows["suite"], rows["key"], strict=True):
        values = (store.history(suite, key) or {}).get("per_client", {}).get("score", [])
        by_seed.append(np.array(values, dtype=float))
    return np.mean(by_seed, axis=0) if len({scores.shape for scores in by_seed}) == 1 else np.empty(0)


def chosen(results: Mapping[str, Result]) -> Result:
    """The recommended method: of those within `TIE` of the best validation, the one with the least traffic.

    References are shown but never recommended: `global`, for example, needs all data in one place. UserError if
    nothing else has a result.
    """
    ranked = _methods(results)
    if not ranked:
        raise UserError(f"no result of a method to recommend, only of references: {', '.join(results)}; add fedavg")
    best = max(result.val for result in ranked)
    near = [result for result in ranked if result.val >= best - TIE]
    return min(near, key=lambda result: (result.megabytes, -result.val))


def _methods(results: Mapping[str, Result]) -> list[Result]:
    """The results of methods that are no references."""
    return [result for name, result in results.items() if not entry("method", name).get("reference")]


def table_lines(results: Mapping[str, Result], metric: str, sites: int) -> list[str]:
    """A table with one line per method, for the terminal and for the page."""
    heads = ("method", "validation, %", f"test {metric}, % (mean ± sd)", "vs local (95% interval)",
             "sites better / worse than alone", "traffic per site and round", "training, s")  # fmt: skip
    lines = [heads]
    for result in sorted(results.values(), key=lambda result: -result.score):
        alone = result.method == ALONE
        lines.append((
            result.method, f"{100 * result.val:.1f}", f"{100 * result.score:.1f} ± {100 * result.sd:.1f}",
            "baseline" if alone else with_bounds(result.gain),
            "" if alone or not result.sites else f"{result.better} / {result.worse} of {sites}",
            data_size(1e6 * result.megabytes), f"{result.seconds:.1f}",
        ))  # fmt: skip
    widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
    return [
        "  ".join(text.ljust(width) if place == 0 else text.rjust(width)
                  for place, (text, width) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in lines
    ]  # fmt: skip


def answer_lines(results: Mapping[str, Result], metric: str, sites: Sequence[str]) -> list[str]:
    """The recommendation in words."""
    best = chosen(results)
    if best.method == ALONE:
        return _alone(results, metric)
    return [
        f"Recommendation: {best.method} ({entry('method', best.method).get('summary', 'a method of your own')}).",
        f"It is selected on the validation nodes: the least traffic of the methods within {100 * TIE:.1f} points of "
        "the best there. Test scores are not used, so another method may be higher on the test nodes.",
        f"Difference from training locally: {with_bounds(best.gain)} points of {metric} over {best.seeds} seeds: "
        f"{_verdict(best.gain)}.",
        *([] if best.method == BASELINE or BASELINE not in results else
          [f"Difference from FedAvg: {with_bounds(best.over_fedavg)} points: {_verdict(best.over_fedavg)}."]),
        *_site_lines(best, sites),
        f"Traffic: {data_size(1e6 * best.megabytes)} per site and round, "
        f"{data_size(1e6 * best.megabytes * best.rounds)} per site up to the selected round ({best.rounds:.0f}); "
        f"at 10 Mbit/s {best.megabytes * 1e6 / (10 * MEGABIT):.1f} s per round.",
        f"Training time: {best.seconds:.1f} s for all sites on this machine.",
        *_leaving(best.method),
    ]  # fmt: skip


def _alone(results: Mapping[str, Result], metric: str) -> list[str]:
    others = [result for result in _methods(results) if result.method != ALONE]
    lines = ["Recommendation: train locally. Nothing leaves a site."]
    if others:
        best = others[0]
        lines.append(
            f"The best federated method, {best.method}, is not more than {100 * TIE:.1f} points better on validation; "
            f"on the test nodes it differs from training locally by {with_bounds(best.gain)} points of {metric}."
        )
    return lines


def _site_lines(best: Result, sites: Sequence[str]) -> list[str]:
    if len(best.sites) != len(sites):
        return []
    order = sorted(range(len(sites)), key=lambda k: -np.nan_to_num(best.sites[k], nan=-9.0))
    named: dict[bool, list[str]] = {True: [], False: []}
    for k in order:
        if abs(best.sites[k]) >= SITE:
            named[best.sites[k] > 0].append(f"{sites[k]} ({100 * best.sites[k]:+.1f})")
    unscored = [sites[k] for k in order if best.sites[k] != best.sites[k]]
    lines = [f"Sites that gain: {', '.join(named[True]) or 'none'}.",
             f"Sites that lose: {', '.join(named[False]) or 'none'}."]  # fmt: skip
    if named[False]:
        lines.append("A site that loses may keep its own model: the difference is in points, mean over seeds.")
    return [*lines, *([f"Sites without a score: {', '.join(unscored)}."] if unscored else [])]


def _leaving(method: str) -> list[str]:
    kinds = [part.strip() for part in entry("method", method).get("uploads", "").split(",") if part.strip()]
    if kinds == ["nothing"]:
        return ["Nothing leaves a site."]
    if not kinds:
        return [f"What leaves a site: not known for {method}; see its documentation."]
    return ["What leaves a site in each round:", *(f"  {kind}: {WORDS.get(kind, 'see the method')}." for kind in kinds)]


def _verdict(gap: Difference) -> str:
    if gap.low != gap.low:
        return "one seed says nothing about its spread"
    if gap.low > 0 or gap.high < 0:
        return "significant at 5%"
    return "not significant; more seeds (--seeds 10) narrow the interval"


def as_data(results: Mapping[str, Result], sites: Sequence[str]) -> dict[str, Any]:
    """The results as JSON values."""
    methods = [{**asdict(result), "gain": result.gain._asdict(), "over_fedavg": result.over_fedavg._asdict(),
             "sites": dict(zip(sites, result.sites, strict=False))} for result in results.values()]  # fmt: skip
    return {"recommended": chosen(results).method, "methods": methods}
