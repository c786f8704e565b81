"""A board: the rows of one suite, arranged as tasks x entries. It is the input of all tables, rankings and figures.

A *task* is a dataset, partition, number of clients and split. An *entry* is a method, with its settings if the board
has several. A *cell* is a task, an entry and a seed. Results are averaged over seeds before entries are compared.
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
from ..metrics import ADAPTED, SCORES, UNSEEN, metric_name, sign
from .display_names import TASK_COLUMNS, by_text, entrant_labels, task_labels
from .inference import FEDAVG as FEDAVG, LOCAL as LOCAL
from .sweeps import Sweep, find_sweeps, harder

CLIENT_SCORES = ("score", "global_on_local", "personal_on_local")
UNSCALED = '"scaled":false'  # in the parameters of a dataset: its errors are in the unit of its targets
KEY = re.compile(r"[0-9a-f]{8,64}")  # nothing else becomes part of a path
MEASURES = list(dict.fromkeys(rule.measure for rule in RULES.values() if rule.measure))

# key -> {"history": {column: [...]}, "per_client": {column: [...]}, "label_counts": [[...]]} or None
Histories = Callable[[str], dict[str, Any] | None]
Embeddings = Callable[[str], dict[str, np.ndarray] | None]  # key -> arrays (runner/best_round.py) or None


@dataclass(frozen=True, eq=False)
class Board:
    """The rows of a suite and their side files.

    rows: one line per cell, sorted: the columns of `frame`, `task_label`, `federation` (that of tasks with the same
    clients: the label without the decoder), `entrant`, `conditions` (JSON, those of the task), `traffic` (bytes of all
    clients, both directions, to the best round). Errors are negative, so that higher is
    better in every score. histories, embeddings: read the side files of a key. verdicts: on rows that the maintainers
    ran again. read: the parts of side files except histories, shared with boards of a part of the rows. sites: names
    of the clients of own data, by fingerprint. trials: rows of `fglbench tune` of a tuned board.
    damaged: key -> reason, of side files that could not be read so far.
    """

    suite: str
    rows: pd.DataFrame
    histories: Histories = field(repr=False, default=lambda key: None)
    embeddings: Embeddings = field(repr=False, default=lambda key: None)
    verdicts: Sequence[Verified] = field(repr=False, default=())
    read: dict[str, dict[str, Any]] = field(repr=False, default_factory=dict)
    sites: Mapping[str, Sequence[str]] = field(repr=False, default_factory=dict)
    trials: pd.DataFrame = field(repr=False, default_factory=pd.DataFrame)
    damaged: dict[str, str] = field(repr=False, default_factory=dict)

    @classmethod
    def build(cls, suite: str, rows: pd.DataFrame, **fields: Any) -> Board:
        """Make the board of `rows`, a `frame` of the current row of each key in any order. fields: the other fields."""
        rows = rows.astype({"seed": int, "clients": int})
        for measure in MEASURES:
            parts = [name for name, rule in RULES.items() if rule.measure == measure]
            rows[measure] = sum(pd.to_numeric(rows[column]).astype(float) for column in parts)
        rows["conditions"] = by_text(rows["training"], lambda text: json.dumps(conditions(text)))
        rows["decoder"] = by_text(rows["backbone_params"], lambda text: mapping(text).get("decoder", "dot"))
        rows["task_label"] = task_labels(rows)
        several = rows["decoder"].nunique() > 1  # labels take an eighth of the time of loading
        rows["federation"] = task_labels(rows.assign(decoder="")) if several else rows["task_label"]
        rows["entrant"] = entrant_labels(rows, rows["task_label"])
        rows["computed_with"] = rows.get("computed_with", rows["method_version"])
        rows[list(SCORES)] = rows[list(SCORES)].mul(rows["score_metric"].fillna("").map(sign), axis=0)
        place = ["task_label", "entrant", "seed"]
        rows = rows.sort_values([*place, "started", "key"], kind="stable").drop_duplicates(place, keep="last")
        return cls(suite, rows.reset_index(drop=True), **fields)

    @property
    def title(self) -> str:
        return board_title(self.suite)

    @cached_property
    def scored(self) -> pd.DataFrame:
        """The rows that have a score."""
        return self.rows[(self.rows["status"] == "ok") & self.rows["score"].notna()]

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks on which at least one entry has a score."""
        return sorted(self.scored["task_label"].unique())

    @cached_property
    def plain(self) -> Board:
        """The board of the tasks without stress conditions, and with the mildest value of a setting that varies; the
        board itself if all of its tasks, or none, are such."""
        rows = self.rows[(self.rows["conditions"] == "{}") & ~self.rows.index.isin(harder(self.rows))]
        return self if len(rows) in (0, len(self.rows)) else replace(self, rows=rows.reset_index(drop=True))

    @cached_property
    def dead_tasks(self) -> list[str]:
        """The tasks on which no entry has a score."""
        return sorted(set(self.rows["task_label"]) - set(self.tasks))

    @cached_property
    def entrants(self) -> list[str]:
        return sorted(self.rows["entrant"].unique())

    @cached_property
    def method_of(self) -> dict[str, str]:
        return dict(zip(self.rows["entrant"], self.rows["method"], strict=True))

    @cached_property
    def untuned(self) -> set[str]:
        """Entries without tuned settings, if others have them; without references that do not train."""
        tuned = set(self.scored.loc[self.scored["tuning"] != "", "entrant"])
        trained = set(self.scored.loc[pd.to_numeric(self.scored["optimiser_steps"]) > 0, "entrant"])
        return set(self.entrants) - tuned - (self.references - trained) if tuned else set()

    @cached_property
    def references(self) -> set[str]:
        """Entries that are shown and never ranked: they train on data that no federation has in one place, or they do
        not train, or they exceed the budget."""
        return {*self.rows.loc[self.rows["reference"].astype(bool), "entrant"], *self.over_budget}

    @cached_property
    def over_budget(self) -> dict[str, str]:
        """The excess of each entry with a run over budget, from the first of these runs."""
        excess = self.scored[self.scored["over_budget"] != ""].drop_duplicates("entrant")
        return dict(zip(excess["entrant"], excess["over_budget"], strict=True))

    @cached_property
    def verified(self) -> dict[str, tuple[int, int]]:
        """For each entry with rows that the maintainers ran again: how many rows passed, and how many were run.

        The last verdict on a row counts. A verdict on a superseded row does not count.
        """
        rows = self.scored[["key", "method_version", "entrant", "score"]].to_dict("records")
        current = {(row["key"], row["method_version"]): row for row in rows}
        last = {}
        for verdict in self.verdicts:
            row = current.get((verdict.key, verdict.method_version))
            if verdict.suite == self.suite and row and verdict.concerns(row["score"]):
                last[verdict.key] = str(row["entrant"]), verdict.verdict == "passed"
        outcomes = list(last.values())
        total = Counter(entrant for entrant, _ in outcomes)
        return {entrant: (outcomes.count((entrant, True)), count) for entrant, count in total.items()}

    @cached_property
    def expected(self) -> dict[str, list[int]]:
        """The seeds of each task: those for which at least one entry has a score."""
        return {str(task): sorted(rows["seed"].unique()) for task, rows in self.scored.groupby("task_label")}

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Indexed `(task, entrant)`: MEASURES (means over seeds), `n` (seeds), `score_std` (sample deviation)."""
        grouped = self.scored.groupby(["task_label", "entrant"], sort=True)
        table = grouped[MEASURES].mean()
        table["n"] = grouped.size()
        table["score_std"] = grouped["score"].std(ddof=1)
        return table

    @cached_property
    def clock(self) -> str:
        """The column of times: `cpu_seconds`, which machine load hardly changes, if all scored rows have it."""
        return "train_seconds" if self.scored["cpu_seconds"].isna().any() else "cpu_seconds"

    def measures(self, task: str, entrant: str) -> dict[str, float]:
        """The line of `summary` and `unseen` for a task and an entry; empty if the entry has no score."""
        return self._measures.get((task, entrant), {})

    @cached_property
    def _measures(self) -> dict[Any, dict[Any, float]]:
        table = self.summary.join(self.unseen) if len(self.unseen) else self.summary
        return table.astype(float).to_dict("index")

    @cached_property
    def counts(self) -> pd.DataFrame:
        """Tasks x entries: the number of seeds with a score."""
        return self.grid("n").fillna(0).astype(int)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Tasks x entries: mean score over seeds; NaN if an expected seed has no score."""
        return self.grid("score").where(self.full)

    @cached_property
    def full(self) -> pd.DataFrame:
        """Tasks x entries: whether every expected seed has a score."""
        return self.counts.eq([len(self.expected[task]) for task in self.tasks], axis=0)

    @cached_property
    def complete(self) -> list[str]:
        """Entries with a score for every seed of every task."""
        return [entrant for entrant in self.entrants if self.tasks and self.full[entrant].all()]

    @cached_property
    def metric_of(self) -> dict[str, str]:
        """The most common metric of each task's scores: accuracy, ROC AUC, ... Errors in the unit of a dataset
        (`scaled` is false) are a metric of that dataset alone."""
        columns = self.scored[["score_metric", "dataset", "dataset_params"]].itertuples(index=False)
        kinds = (
            metric_name(metric) + f", unscaled {dataset}" * (UNSCALED in params) for metric, dataset, params in columns
        )
        counted = Counter(zip(self.scored["task_label"], kinds, strict=True))
        return {task: kind for (task, kind), _ in reversed(counted.most_common())}  # the last entry is kept

    @cached_property
    def dataset_of(self) -> dict[str, str]:
        """The dataset of each task, "cora (ROC AUC)" if the dataset has tasks of several metrics: their scores are
        averaged apart."""
        named = {task: str(self.task_row(task)["dataset"]) for task in self.tasks}
        several = Counter(name for name, _ in {(named[task], self.metric_of[task]) for task in self.tasks})
        return {task: f"{name} ({self.metric_of[task]})" if several[name] > 1 else name for task, name in named.items()}

    @cached_property
    def metrics(self) -> dict[str, str]:
        """The metric of each dataset, as `dataset_of` names it."""
        return {self.dataset_of[task]: self.metric_of[task] for task in self.tasks}

    @cached_property
    def metric(self) -> str:
        """The main metric: that of most datasets; if several have as many, that of the first dataset."""
        return next((metric for metric, _ in Counter(self.metrics.values()).most_common(1)), "score")

    def datasets_of(self, metric: str) -> list[str]:
        """The datasets with this metric. Scores of two metrics are never averaged."""
        return [name for name in self.by_dataset.index if self.metrics[name] == metric]

    def client_scores(self, key: str) -> NDArray[np.float64]:
        """The scores of the clients that have one, from the side file of a row; empty if the file has none."""
        numbers = self.per_client(key)
        return numbers[np.isfinite(numbers)]

    def per_client(self, key: str, columns: Sequence[str] = CLIENT_SCORES) -> NDArray[np.float64]:
        """(clients,) from the first of `columns` with more than one client; NaN for a client without a value."""
        stored = self.stored(key).get("per_client")
        for column in columns:
            values = stored.get(column) if isinstance(stored, dict) else None
            if isinstance(values, list) and len(values) > 1:
                try:
                    return np.array(values, dtype=float) * self._sign.get(key, 1)
                except (TypeError, ValueError):  # nothing in a side file was checked
                    break
        return np.empty(0)

    @cached_property
    def _sign(self) -> dict[str, int]:
        return {key: sign(text) for key, text in zip(self.scored["key"], self.scored["score_metric"], strict=True)}

    @cached_property
    def unseen(self) -> pd.DataFrame:
        """Indexed `(task, entrant)`: `UNSEEN`, `ADAPTED`, mean scores of the clients held out of training; or empty."""
        rows = self.scored[self.scored["training"].str.contains('"unseen":')]
        runs = {
            name: [pd.Series(self.per_client(str(key), (name,))) for key in rows["key"]] for name in (UNSEEN, ADAPTED)
        }
        return over_seeds(rows, **{name: [scores.mean() for scores in of_name] for name, of_name in runs.items()})

    def status(self, entrant: str) -> str:
        """'ranked', 'complete' (a setting of a sweep), 'incomplete', 'reference' or 'over budget'."""
        if entrant in self.references:
            return "over budget" if entrant in self.over_budget else "reference"
        if entrant in self.ranked:
            return "ranked"
        return "complete" if entrant in self.complete else "incomplete"

    def entry(self, name: str) -> tuple[str, str, str]:
        """Name, method and status of an entry, for `Table.of`."""
        return name, self.method_of[name], self.status(name)

    @property
    def incomplete(self) -> list[str]:
        return [name for name in self.entrants if self.tasks and name not in self.complete]

    @cached_property
    def sweeps(self) -> list[Sweep]:
        return find_sweeps(self.scored)

    @cached_property
    def is_sweep(self) -> bool:
        """Whether most entries are settings of methods that are swept; then nothing is ranked."""
        tried = {entrant for sweep in self.sweeps for _, entrant in sweep.points}
        return 2 * len(tried) > len([entrant for entrant in self.entrants if entrant not in self.references])

    @cached_property
    def ranked(self) -> list[str]:
        """The entries of the ranking: complete, and no reference. Empty on a board that is a sweep."""
        return [] if self.is_sweep else [entrant for entrant in self.complete if entrant not in self.references]

    @cached_property
    def by_dataset(self) -> pd.DataFrame:
        """Datasets x ranked entries: mean score over the tasks of a dataset."""
        return self.averaged(self.scores[self.ranked])

    def averaged(self, grid: pd.DataFrame) -> pd.DataFrame:
        """Average the tasks of each dataset: tasks x columns to datasets x columns."""
        # an array: pandas takes a list for names of columns if a method has the name of each dataset
        return grid.groupby(np.array([self.dataset_of[str(task)] for task in grid.index], dtype=object)).mean()

    def over_datasets(self, values: pd.Series) -> pd.Series:
        """Mean of `values`, indexed `(task, entrant)`, over the datasets of the main metric, by entry; NaN if one has
        none."""
        grid = self.averaged(values.unstack("entrant").reindex(self.tasks))
        return grid.loc[self.datasets_of(self.metric)].mean(skipna=False)

    def rows_of(self, task: str) -> pd.DataFrame:
        return self.rows[self.rows["task_label"] == task]

    def seeds_of(self, task: str) -> pd.DataFrame:
        """Scores of one task, seeds x entries with a score."""
        return pd.DataFrame(self._seeds.loc[task]).dropna(axis=1, how="all")

    @cached_property
    def _seeds(self) -> pd.DataFrame:
        return self.scored.pivot(index=["task_label", "seed"], columns="entrant", values="score").sort_index()

    def task_row(self, task: str) -> pd.Series:
        """The settings of a task: TASK_COLUMNS."""
        return self._settings.loc[task]

    @cached_property
    def _settings(self) -> pd.DataFrame:
        return self.rows.drop_duplicates("task_label").set_index("task_label")[TASK_COLUMNS]

    def stored(self, key: str) -> dict[str, Any]:
        """The side file of a row without its history; empty if there is no file. Nothing in it was checked."""
        if key not in self.read:
            self.history(key)
        return self.read[key]

    def label_counts(self, key: str) -> NDArray[np.int64] | None:
        """(clients, classes): label counts in the side file of a row; None if there are none, no valid ones, or no
        classes, as in regression."""
        try:
            table = np.array(self.stored(key).get("label_counts"))
        except ValueError:
            return None
        if table.ndim != 2 or table.shape[1] < 2:
            return None
        valid = table.size and table.dtype.kind == "i" and table.min() >= 0 and table.max() > 0
        return table if valid else None

    def history(self, key: str) -> dict[str, Any]:
        """The history in the side file of a row, not checked; empty if there is none. It is too large to keep."""
        content = (self.histories(key) if KEY.fullmatch(key) else None) or {}
        self.read[key] = {name: part for name, part in content.items() if name != "history"}
        history = content.get("history")
        return history if isinstance(history, dict) else {}

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """The embeddings of a row; empty if there are none."""
        return (self.embeddings(key) if KEY.fullmatch(key) else None) or {}

    @cached_property
    def score_curves(self) -> pd.DataFrame:
        """The score at every round of all scored rows: `task_label`, `entrant`, seed, round, value."""
        place = ["task_label", "entrant", "seed"]
        runs, lengths, columns = list[dict[str, Any]](), list[int](), dict[str, list[Any]](round=[], value=[])
        for row in self.scored[[*place, "key"]].to_dict("records"):
            key = str(row.pop("key"))
            history = self.history(key)
            rounds, values = history.get("round"), history.get("score")
            if isinstance(rounds, list) and isinstance(values, list) and len(rounds) == len(values) > 0:
                runs.append(row | {"sign": self._sign[key]})
                lengths.append(len(rounds))
                columns["round"] += rounds
                columns["value"] += values
        frame = pd.DataFrame(runs, columns=[*place, "sign"]).loc[np.repeat(np.arange(len(runs)), lengths)]
        for name, numbers in columns.items():  # for all rows at once: one frame per row takes seconds
            frame[name] = pd.to_numeric(pd.Series(numbers, dtype=object), errors="coerce").to_numpy()
        frame["value"] *= frame.pop("sign")
        return frame.dropna(subset="round").reset_index(drop=True)

    def grid(self, measure: str) -> pd.DataFrame:
        """Tasks x entries: the mean of a measure over seeds; NaN for an entry without a score."""
        return self.summary[measure].unstack("entrant").reindex(index=self.tasks, columns=self.entrants)


def over_seeds(rows: pd.DataFrame, **figures: Sequence[float]) -> pd.DataFrame:
    """Indexed `(task, entrant)`: mean over seeds of figures of each row; NaN if a seed has none."""
    grouped = rows[["task_label", "entrant"]].assign(**figures).groupby(["task_label", "entrant"])
    return grouped.agg(lambda seeds: seeds.mean(skipna=False))
