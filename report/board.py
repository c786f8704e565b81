"""A board: the rows of one suite, arranged as tasks x entries. Tables, rankings and figures all start from here.

A *task* is what is to be solved (dataset, partition, clients, split); an *entry* is what is compared (a method, and its
settings where it has several). A *cell* is a task, an entry and a seed. Results are averaged over
seeds before anything is compared.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..benchmark.store.schema import RULES, conditions, mapping
from ..benchmark.store.verified import Verified
from ..benchmark.suites.catalogue import board_title
from ..metrics import ADAPTED, SCORES, UNSEEN, sign
from .display_names import TASK_COLUMNS, by_text, entrant_labels, task_labels
from .sweeps import Sweep, find_sweeps, harder

FEDAVG, LOCAL = "fedavg", "local"  # the baselines
NATURAL = ("own", "source")  # partitions whose clients come with the data
CLIENT_SCORES = ("score", "global_on_local", "personal_on_local")
KEY = re.compile(r"[0-9a-f]{8,64}")  # nothing else becomes part of a path
PARTS: dict[str, list[str]] = {}  # measure -> the columns of a row that it is the sum of
for _name, _rule in RULES.items():
    if _rule.measure:
        PARTS.setdefault(_rule.measure, []).append(_name)
MEASURES = list(PARTS)

# key -> {"history": {column: [...]}, "per_client": {column: [...]}, "label_counts": [[...]]} or None
Histories = Callable[[str], dict[str, Any] | None]
Embeddings = Callable[[str], dict[str, np.ndarray] | None]  # key -> arrays (runner/best_round.py) or None


@dataclass(frozen=True, eq=False)
class Board:
    """rows: one line per cell, sorted, with the columns of `frame`, `task_label`, `entrant`, `conditions` (JSON, those
    of the task), `traffic` (bytes of all clients, both directions, to the best round); errors are negative, so that
    higher is better everywhere. histories and embeddings read the side files of a key. verdicts: on rows that the
    maintainers ran again. read: what side files hold besides histories, of a board and of those made of a part of it.
    sites: names of the clients of own data, by fingerprint. trials: rows of `fglbench tune` of a tuned board."""

    suite: str
    rows: pd.DataFrame
    histories: Histories = field(repr=False)
    embeddings: Embeddings = field(repr=False, default=lambda key: None)
    verdicts: Sequence[Verified] = field(repr=False, default=())
    read: dict[str, dict[str, Any]] = field(repr=False, default_factory=dict)
    sites: Mapping[str, Sequence[str]] = field(repr=False, default_factory=dict)
    trials: pd.DataFrame = field(repr=False, default_factory=pd.DataFrame)

    @classmethod
    def build(
        cls,
        suite: str,
        rows: pd.DataFrame,
        histories: Histories = lambda key: None,
        embeddings: Embeddings = lambda key: None,
        verdicts: Sequence[Verified] = (),
    ) -> Board:
        """The board of `rows` (a `frame` of the current row of each key), in any order."""
        rows = rows.astype({"seed": int, "clients": int})
        for measure, columns in PARTS.items():
            rows[measure] = sum(pd.to_numeric(rows[column]).astype(float) for column in columns)
        rows["conditions"] = by_text(rows["training"], lambda text: json.dumps(conditions(text)))
        rows["decoder"] = by_text(rows["backbone_params"], lambda text: mapping(text).get("decoder", "dot"))
        rows["task_label"] = task_labels(rows)
        rows["entrant"] = entrant_labels(rows, rows["task_label"])
        rows["computed_with"] = rows.get("computed_with", rows["method_version"])
        rows[list(SCORES)] = rows[list(SCORES)].mul(rows["score_metric"].fillna("").map(sign), axis=0)
        place = ["task_label", "entrant", "seed"]
        rows = rows.sort_values([*place, "started", "key"], kind="stable").drop_duplicates(place, keep="last")
        return cls(suite, rows.reset_index(drop=True), histories, embeddings, verdicts)

    @property
    def title(self) -> str:
        return board_title(self.suite)

    @cached_property
    def scored(self) -> pd.DataFrame:
        """The rows that have a score."""
        return self.rows[(self.rows["status"] == "ok") & self.rows["score"].notna()]

    @cached_property
    def tasks(self) -> list[str]:
        """Tasks on which some entry has a score; the others cannot be part of a comparison."""
        return sorted(self.scored["task_label"].unique())

    @cached_property
    def plain(self) -> Board:
        """The board of the tasks under no stress condition and, where a setting of the task is varied, at its mild end;
        all of it where there are none, or no others."""
        plain_rows = self.rows[(self.rows["conditions"] == "{}") & ~self.rows.index.isin(harder(self.rows))]
        return self if len(plain_rows) in (0, len(self.rows)) else replace(self, rows=plain_rows.reset_index(drop=True))

    @cached_property
    def dead_tasks(self) -> list[str]:
        """Tasks on which no entry has a score."""
        return sorted(set(self.rows["task_label"]) - set(self.tasks))

    @cached_property
    def entrants(self) -> list[str]:
        return sorted(self.rows["entrant"].unique())

    @cached_property
    def method_of(self) -> dict[str, str]:
        return dict(zip(self.rows["entrant"], self.rows["method"], strict=True))

    @cached_property
    def references(self) -> set[str]:
        """Entries that are shown and never ranked: they train on data that no federation has in one place, or not at
        all, or they took more than the others may."""
        return {*self.rows.loc[self.rows["reference"].astype(bool), "entrant"], *self.over_budget}

    @cached_property
    def untuned(self) -> set[str]:
        """Ranked entries without tuned settings, where others have them."""
        tuned = set(self.scored.loc[self.scored["tuning"] != "", "entrant"])
        return set(self.scored["entrant"]) - tuned - self.references if tuned else set()

    @cached_property
    def over_budget(self) -> dict[str, str]:
        """Entries with a run that took more than its cell gives: what the first of these took."""
        took = self.scored[self.scored["over_budget"] != ""].drop_duplicates("entrant")
        return dict(zip(took["entrant"], took["over_budget"], strict=True))

    @cached_property
    def verified(self) -> dict[str, tuple[int, int]]:
        """For each entry with rows that the maintainers ran again: how many of them passed, and how many there are.

        The last verdict on a row counts, and none on a row that has been superseded.
        """
        rows = self.scored[["key", "method_version", "entrant", "score"]].itertuples(index=False, name=None)
        standing = {(key, version): (entrant, score) for key, version, entrant, score in rows}
        last: dict[str, tuple[str, bool]] = {}
        for each in self.verdicts:
            entrant, score = standing.get((each.key, each.method_version), ("", None))
            if each.suite == self.suite and score is not None and each.concerns(score):
                last[each.key] = entrant, each.verdict == "passed"
        counts: dict[str, tuple[int, int]] = {}
        for entrant, passed in last.values():
            good, every = counts.get(entrant, (0, 0))
            counts[entrant] = good + passed, every + 1
        return counts

    @cached_property
    def expected(self) -> dict[str, list[int]]:
        """Seeds of each task: those for which any entry has a score."""
        return {str(task): sorted(rows["seed"].unique()) for task, rows in self.scored.groupby("task_label")}

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Indexed `(task, entrant)`: n, and mean of every measure over seeds; `score_std` is the sample deviation."""
        grouped = self.scored.groupby(["task_label", "entrant"], sort=True)
        table = grouped[MEASURES].mean()
        table["n"] = grouped.size()
        table["score_std"] = grouped["score"].std(ddof=1)
        return table

    @cached_property
    def clock(self) -> str:
        """What time is measured by: the CPU seconds of the whole cell where all scored rows have them, which the load
        of a machine hardly changes; else the wall seconds of training."""
        return "train_seconds" if self.scored["cpu_seconds"].isna().any() else "cpu_seconds"

    def measures(self, task: str, entrant: str) -> dict[str, float]:
        """The line of `summary` for a task and an entry, with that of `unseen`; empty without a score."""
        return self._measures.get((task, entrant), {})

    @cached_property
    def _measures(self) -> dict[tuple[str, str], dict[str, float]]:
        every = self.summary.join(self.unseen) if len(self.unseen) else self.summary
        names = [str(name) for name in every.columns]
        lines = zip(every.index, every.to_numpy(dtype=float).tolist(), strict=True)
        return {place: dict(zip(names, line, strict=True)) for place, line in lines}

    @cached_property
    def counts(self) -> pd.DataFrame:
        """Tasks x entries: the number of seeds with a score."""
        return self.grid("n").fillna(0).astype(int)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Tasks x entries: mean score over seeds, NaN where any expected seed has none."""
        return self.grid("score").where(self.full)

    @cached_property
    def full(self) -> pd.DataFrame:
        """Tasks x entries: whether every expected seed has a score."""
        expected = np.array([len(self.expected[task]) for task in self.tasks])
        return self.counts.eq(expected, axis=0)

    @cached_property
    def complete(self) -> list[str]:
        """Entries with a score for every seed of every task."""
        return [entrant for entrant in self.entrants if self.tasks and self.full[entrant].all()]

    @cached_property
    def scored_as(self) -> dict[str, str]:
        """What the score of each entry is: whose model, on which nodes."""
        kinds = self.scored.groupby("entrant")["score_metric"].unique()
        return {name: "; ".join(sorted(kinds.get(name, ()))) or "no score" for name in self.entrants}

    @cached_property
    def metrics(self) -> dict[str, str]:
        """The metric of each dataset, that of most of its scores: accuracy, ROC AUC, ..."""
        kinds = [re.split(r"[,/]", text)[0] for text in self.scored["score_metric"]]
        counted = Counter(zip(self.scored["dataset"], kinds, strict=True))
        return {dataset: kind for (dataset, kind), _ in reversed(counted.most_common())}  # the most common is the last

    @cached_property
    def metric(self) -> str:
        """The main metric: that of most datasets."""
        return max(sorted(set(kinds := list(self.metrics.values()))), key=kinds.count, default="score")

    def datasets_of(self, metric: str) -> list[str]:
        """The datasets that are scored by a metric. Scores of two metrics are never averaged."""
        return [name for name in self.by_dataset.index if self.metrics[name] == metric]

    def client_scores(self, key: str) -> NDArray[np.float64]:
        """The score of each client in the side file of a row, without clients that have none; empty if not stored."""
        numbers = self.per_client(key)
        return numbers[np.isfinite(numbers)]

    def per_client(self, key: str, columns: Sequence[str] = CLIENT_SCORES) -> NDArray[np.float64]:
        """As `client_scores`, nan for a client that has none. columns: the first that has more than one client."""
        stored = self.stored(key).get("per_client")
        for column in columns:
            values = stored.get(column) if isinstance(stored, dict) else None
            if isinstance(values, list) and len(values) > 1:
                try:
                    numbers = np.array(values, dtype=float)
                except (TypeError, ValueError):  # a file that anyone may have written
                    numbers = pd.to_numeric(pd.Series(values, dtype=object), errors="coerce").to_numpy(dtype=float)
                return numbers * self._sign.get(key, 1)
        return np.empty(0)

    @cached_property
    def _sign(self) -> dict[str, int]:
        """By key: -1 where the score is an error, of which lower is better."""
        return {key: sign(text) for key, text in zip(self.scored["key"], self.scored["score_metric"], strict=True)}

    @cached_property
    def natural(self) -> bool:
        """Whether the clients of every task come with the data, so that each is a real site."""
        return bool(self.scored["partition"].isin(NATURAL).all())

    @cached_property
    def client_gains(self) -> pd.DataFrame:
        """Indexed `(task, entrant)`: the gain of clients over local training, same seed. `gaining`: share of clients
        whose score is higher; `least`: the lowest gain of a client. Means over seeds; NaN of local training itself,
        and where a seed has no scores of the same clients."""
        rows = self.scored[["task_label", "entrant", "method", "seed", "key"]]
        alone = rows[rows["method"] == LOCAL].drop_duplicates(["task_label", "seed"])
        key_of = alone.set_index(["task_label", "seed"])["key"].to_dict()
        gaining, least = [], []
        for task, method, seed, key in rows[["task_label", "method", "seed", "key"]].itertuples(index=False, name=None):
            base, scores = self.per_client(str(key_of.get((task, seed), ""))), self.per_client(str(key))
            gain = scores - base if scores.shape == base.shape and method != LOCAL else np.empty(0)
            gain = gain[np.isfinite(gain)]
            gaining.append(float((gain > 0).mean()) if len(gain) else np.nan)
            least.append(float(gain.min()) if len(gain) else np.nan)
        table = rows[["task_label", "entrant"]].assign(gaining=gaining, least=least)
        return table.groupby(["task_label", "entrant"]).agg(lambda seeds: seeds.mean(skipna=False))

    @cached_property
    def unseen(self) -> pd.DataFrame:
        """Indexed `(task, entrant)`: `UNSEEN` and `ADAPTED`, the score of the clients held out of training, mean over
        them and over seeds; NaN where a seed has none. Empty where no client was held out."""
        rows = self.scored.loc[self.scored["training"].str.contains('"unseen":'), ["task_label", "entrant", "key"]]
        figures = {name: [self._mean_of_clients(str(key), name) for key in rows["key"]] for name in (UNSEEN, ADAPTED)}
        table = rows[["task_label", "entrant"]].assign(**figures)
        return table.groupby(["task_label", "entrant"]).agg(lambda seeds: seeds.mean(skipna=False))

    def _mean_of_clients(self, key: str, name: str) -> float:
        scores = self.per_client(key, (name,))
        return float(scores[np.isfinite(scores)].mean()) if np.isfinite(scores).any() else np.nan

    @cached_property
    def client_summary(self) -> pd.DataFrame:
        """Indexed `(task, entrant)`: `worst` and `spread`, the lowest score of a client and the standard deviation over
        clients, means over seeds; NaN where a seed has fewer than two clients with a score."""
        rows = self.scored[["task_label", "entrant", "key"]]
        of_runs = [self.client_scores(str(key)) for key in rows["key"]]
        worst = [scores.min() if len(scores) > 1 else np.nan for scores in of_runs]
        spread = [scores.std(ddof=1) if len(scores) > 1 else np.nan for scores in of_runs]
        table = rows[["task_label", "entrant"]].assign(worst=worst, spread=spread)
        return table.groupby(["task_label", "entrant"]).agg(lambda seeds: seeds.mean(skipna=False))

    def status(self, entrant: str) -> str:
        if entrant in self.references:
            return "over budget" if entrant in self.over_budget else "reference"
        if entrant in self.ranked:
            return "ranked"
        return "complete" if entrant in self.complete else "incomplete"  # complete: a setting of a sweep

    @property
    def incomplete(self) -> list[str]:
        return [name for name in self.entrants if self.tasks and name not in self.complete]

    @cached_property
    def sweeps(self) -> list[Sweep]:
        return find_sweeps(self.scored)

    @cached_property
    def is_sweep(self) -> bool:
        """Whether most entries are settings of a method that is tried out: nothing to rank."""
        tried = {entrant for one in self.sweeps for _, entrant in one.points}
        return 2 * len(tried) > len([entrant for entrant in self.entrants if entrant not in self.references])

    @cached_property
    def ranked(self) -> list[str]:
        """Entries that take part in the ranking: complete, and not a reference. None on a board that is a sweep."""
        return [] if self.is_sweep else [entrant for entrant in self.complete if entrant not in self.references]

    @cached_property
    def by_dataset(self) -> pd.DataFrame:
        """Datasets x ranked entries: the unit of every comparison."""
        return self.averaged(self.scores[self.ranked])

    def averaged(self, grid: pd.DataFrame) -> pd.DataFrame:
        """Tasks x anything to datasets x anything: several tasks of one dataset are averaged."""
        owner = self.rows.drop_duplicates("task_label").set_index("task_label")["dataset"]
        return grid.groupby(owner.loc[grid.index].to_numpy()).mean()

    def floor(self, task: str, methods: Sequence[str]) -> float:
        """The highest mean score that an entry of one of `methods` has on a task; minus infinity without one."""
        names = [name for name in self.entrants if self.method_of[name] in methods]
        return max((score for name in names if (score := self._scores_of[task][name]) == score), default=-np.inf)

    @cached_property
    def _scores_of(self) -> dict[Any, dict[Any, float]]:
        return self.scores.to_dict("index")

    def has_floor(self, methods: Sequence[str]) -> bool:
        return any(self.floor(task, methods) > -np.inf for task in self.tasks)

    def rows_of(self, task: str) -> pd.DataFrame:
        return self._rows_of[task]

    @cached_property
    def _rows_of(self) -> dict[str, pd.DataFrame]:
        return {str(task): rows for task, rows in self.rows.groupby("task_label")}

    def seeds_of(self, task: str) -> pd.DataFrame:
        """Scores of one task, seeds x entries."""
        return self._seeds_of[task]

    @cached_property
    def _seeds_of(self) -> dict[str, pd.DataFrame]:
        scores = self.scored[["task_label", "seed", "entrant", "score"]].groupby("task_label")
        grids = {str(task): long.pivot(index="seed", columns="entrant", values="score") for task, long in scores}
        return {task: grid.sort_index() for task, grid in grids.items()}

    def task_row(self, task: str) -> pd.Series:
        """The settings of a task."""
        return self._task_rows[task]

    @cached_property
    def _task_rows(self) -> dict[str, pd.Series]:
        first = self.rows.drop_duplicates("task_label").set_index("task_label")[TASK_COLUMNS]
        return {str(task): row for task, row in first.iterrows()}

    def stored(self, key: str) -> dict[str, Any]:
        """The side file of a row except its history; empty where there is none. What is in it was not checked."""
        if key not in self.read:
            self.history(key)
        return self.read[key]

    def label_counts(self, key: str) -> NDArray[np.int64] | None:
        """Labels (clients, classes) that a row's side file tells; None where it holds no such table."""
        try:
            table = np.array(self.stored(key).get("label_counts"))
        except ValueError:
            return None
        sound = table.ndim == 2 and table.size and table.dtype.kind == "i" and table.min() >= 0 and table.max() > 0
        return table if sound else None

    def history(self, key: str) -> dict[str, Any]:
        """The history in the side file of a row, as `stored`. It is too large to keep."""
        arrays = (self.histories(key) if KEY.fullmatch(key) else None) or {}
        self.read[key] = {name: part for name, part in arrays.items() if name != "history"}
        history = arrays.get("history")
        return history if isinstance(history, dict) else {}

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """The embeddings of a row; empty where there are none."""
        return (self.embeddings(key) if KEY.fullmatch(key) else None) or {}

    @cached_property
    def score_curves(self) -> pd.DataFrame:
        return self.curves("score")

    def curves(self, column: str) -> pd.DataFrame:
        """One history column of all scored rows in long form: task_label, `entrant`, seed, round, value."""
        place = ["task_label", "entrant", "seed"]
        owners, lengths, every = list[dict[str, Any]](), list[int](), dict[str, list[Any]](round=[], value=[])
        for row in self.scored[[*place, "key"]].to_dict("records"):
            history, key = self.history(str(row["key"])), str(row.pop("key"))
            rounds, values = (history.get(name) for name in ("round", column))
            if isinstance(rounds, list) and isinstance(values, list) and len(rounds) == len(values) > 0:
                owners.append(row | {"sign": self._sign[key] if column in SCORES else 1})
                lengths.append(len(rounds))
                every["round"] += rounds
                every["value"] += values
        frame = pd.DataFrame(owners, columns=[*place, "sign"]).loc[np.repeat(np.arange(len(owners)), lengths)]
        for name, figures in every.items():  # of all rows at once: one frame per row takes seconds
            frame[name] = pd.to_numeric(pd.Series(figures, dtype=object), errors="coerce").to_numpy()
        frame["value"] *= frame.pop("sign")
        return frame.dropna(subset="round").reset_index(drop=True)

    def grid(self, measure: str) -> pd.DataFrame:
        return self.summary[measure].unstack("entrant").reindex(index=self.tasks, columns=self.entrants)
