"""The ranking of a board: mean ranks, comparisons, costs, and the best methods of each task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from ..benchmark.store.schema import mapping
from .board import Board
from .characteristics import Characteristics
from .inference import Inference
from .privacy_cost import PrivacyCost
from .robustness import Robustness
from .statistics import DECIMALS, indistinguishable, ranks

COSTS = {"traffic": "median", "seconds": "median", "peak": "max"}  # column -> how its tasks are summarised
LAST = "Last round"
MEASURES = {"Selected round": "score", LAST: "", "Macro-F1": "macro_f1", "Own model": "personal_on_local"}
SETTING = ["training", "method_params", "backbone_params"]  # columns that tell the trials of a study apart
MIN_METHODS = 3  # fewer methods are not ordered by the measures
LEARNS_NOTHING = ("majority", "one-cluster", "label-counts")  # references that no method should be below


def setting_loss(trials: pd.DataFrame, datasets: list[str]) -> dict[str, float]:
    """Method -> loss of a median setting, a fraction, for the methods with trials on all of `datasets`.

    trials: rows with method, dataset, the columns of `SETTING`, status and val, several per trial if it has several
    seeds.
    """
    if trials.empty:
        return {}
    rounds = pd.Series([mapping(text).get("rounds") for text in trials["training"]], index=trials.index)
    known = trials.assign(rounds=rounds, val=pd.to_numeric(trials["val"]).where(trials["status"] == "ok").fillna(0.0))
    known = known[known["dataset"].isin(datasets)]
    first = known[known["rounds"] == known.groupby(["method", "dataset"])["rounds"].transform("min")]
    scores = first.groupby(["method", "dataset", *SETTING])["val"].mean().groupby(["method", "dataset"])
    losses = (scores.max() - scores.median()).unstack("dataset").reindex(columns=datasets)
    return {str(method): float(loss) for method, loss in losses.dropna().mean(axis=1).items()}


@dataclass(frozen=True, eq=False)
class Ranking:
    """The ranking of a board, and its analyses, computed on first use."""

    board: Board

    @cached_property
    def characteristics(self) -> Characteristics:
        return Characteristics(self.board.plain)

    @cached_property
    def plain(self) -> Ranking:
        """The ranking of the plain tasks, see `Board.plain`."""
        return self if self.board.plain is self.board else Ranking(self.board.plain)

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks that have a table: the plain ones, and those under conditions that are no point of a curve."""
        return list(dict.fromkeys([*self.board.plain.tasks, *self.robustness.without_curve]))

    @cached_property
    def floors(self) -> dict[str, float]:
        """Task -> the highest mean score of a reference that learns nothing; without tasks that have none."""
        names = [name for name, method in self.board.method_of.items() if method in LEARNS_NOTHING]
        return {str(task): float(score) for task, score in self.board.scores[names].max(axis=1).dropna().items()}

    @cached_property
    def robustness(self) -> Robustness:
        return Robustness(self.board)

    @cached_property
    def privacy(self) -> PrivacyCost:
        return PrivacyCost(self.board)

    @cached_property
    def inference(self) -> Inference:
        """The comparisons by score. Means and differences are over the datasets of the main metric."""
        return self._by(self.board.metric)

    @cached_property
    def second(self) -> Inference | None:
        """The comparisons by the second metric, over its datasets; None without one."""
        return self._by(self.other_metric) if self.other_metric and self.board.ranked else None

    def _by(self, metric: str) -> Inference:
        board = self.board
        seeds = {task: board.seeds_of(task)[board.ranked] for task in board.tasks}
        return Inference(board.by_dataset, seeds, board.dataset_of, averaged=board.datasets_of(metric))

    @cached_property
    def macro_f1(self) -> Inference | None:
        """The comparisons by macro-F1 over all datasets; None if a run of a ranked entry has no macro-F1."""
        board = self.board
        rows = board.scored[board.scored["entrant"].isin(board.ranked)]
        if not board.ranked or rows["macro_f1"].isna().any():
            return None
        by_dataset = board.averaged(board.grid("macro_f1")[board.ranked])
        tasks = {
            str(task): runs.pivot(index="seed", columns="entrant", values="macro_f1")
            for task, runs in rows.groupby("task_label")
        }
        return Inference(by_dataset, tasks, board.dataset_of)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Ranked entries by mean rank: group, mean_rank, low, high, score, wins, other, and `COSTS`.

        group: letters, empty without comparisons. score: mean over the datasets of the main metric. other: mean over
        the datasets of the second metric. traffic, seconds (of the board's clock), peak (memory, MiB): mean over seeds,
        then the median over tasks, of peak the maximum.
        """
        table = self.inference.table.copy()
        table["other"] = self.board.by_dataset.loc[self.board.datasets_of(self.other_metric)].mean()
        table[[*COSTS]] = self._cost.reindex(table.index)
        return table

    @cached_property
    def unseen(self) -> pd.DataFrame:
        """Entries x `UNSEEN`, `ADAPTED`: mean of `Board.unseen` over the datasets of the main metric; NaN if a task
        has none."""
        return pd.DataFrame({name: self.board.over_datasets(values) for name, values in self.board.unseen.items()})

    @cached_property
    def setting_loss(self) -> dict[str, float]:
        """Method -> loss of a median setting, a fraction; empty without trials."""
        trials = self.board.trials
        if len(trials):  # those of the revisions of the rows
            revisions = ["method", "method_version"]
            trials = trials.merge(self.board.scored[revisions].drop_duplicates(), on=revisions)
        return setting_loss(trials, list(self.board.by_dataset.index))

    @property
    def other_metric(self) -> str:
        """The second metric of the board; empty unless the board has two metrics."""
        others = {*self.board.metrics.values()} - {self.board.metric}
        return others.pop() if len(others) == 1 else ""

    @cached_property
    def references(self) -> pd.DataFrame:
        """The complete references: score, other and `COSTS` as in `table`."""
        board = self.board
        names = [name for name in board.complete if name in board.references]
        scores = board.averaged(board.scores[names])
        table = pd.DataFrame({"score": scores.loc[board.datasets_of(board.metric)].mean()}, index=names)
        table["other"] = scores.loc[board.datasets_of(self.other_metric)].mean()
        table[[*COSTS]] = self._cost.reindex(names)
        return table

    def figures(self, entrant: str) -> dict[str, float]:
        """The line of `table` or `references` for an entry; empty if the entry is in neither."""
        table = self.table if entrant in self.board.ranked else self.references
        figures = table.drop(columns="group", errors="ignore")
        return {str(k): float(v) for k, v in figures.loc[entrant].items()} if entrant in table.index else {}

    @property
    def outcome(self) -> str:
        """The result of the tests, or the reason why there is no ranking."""
        if self.board.ranked:
            return self.inference.text
        if self.board.is_sweep:
            swept = {sweep.method for sweep in self.board.sweeps}
            methods = "one method" if len(swept) == 1 else f"{len(swept)} methods"
            return f"A sweep: most entries are settings of {methods}, so nothing is ranked."
        return "No method is complete on this board yet, so nothing is ranked."

    @cached_property
    def order(self) -> list[str]:
        """All entries: ranked by mean rank, then incomplete, then references."""
        ranked = list(self.table.index) if self.board.ranked else []
        rest = [name for name in self.board.entrants if name not in ranked]
        return ranked + sorted(rest, key=lambda name: (name in self.board.references, name))

    @cached_property
    def _cost(self) -> pd.DataFrame:
        columns = ["traffic", self.board.clock, "peak_memory_mb"]
        means = self.board.scored.groupby(["task_label", "entrant"])[columns].mean().astype(float)
        return means.set_axis([*COSTS], axis=1).groupby("entrant").agg(COSTS)

    @cached_property
    def leaders(self) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
        """For each task: entries with the best mean, and entries that do not differ significantly from the best.

        References are left out, and entries without a score for every seed of the task.
        """
        leaders = {}
        full = self.board.full.to_dict("index")
        for task in self.board.tasks:
            names = [str(n) for n, every_seed in full[task].items() if every_seed and n not in self.board.references]
            means = self.board.scores.loc[task, names].round(DECIMALS)
            best = list(means.index[means == means.max()])
            equal = indistinguishable(self.board.seeds_of(task)[names], best[0]) if best else set()
            leaders[task] = frozenset(best), frozenset(equal - set(best))
        return leaders

    @cached_property
    def mean_ranks(self) -> pd.DataFrame:
        """Ranked entries x measures: mean rank over datasets, among the entries with the measure on every task."""
        by_measure, order = {}, list(self.table.index) if self.board.ranked else []
        for name, column in MEASURES.items():
            grid = self._last if name == LAST else self.board.grid(column)
            full = grid.reindex(columns=order).dropna(axis=1)
            if len(grid) == len(self.board.tasks) and full.shape[1] >= MIN_METHODS:
                by_measure[name] = ranks(self.board.averaged(full)).mean()
        return pd.DataFrame(by_measure, index=order)

    @cached_property
    def agreement(self) -> pd.DataFrame:
        """Measures x measures of `mean_ranks`: Kendall's tau over the entries with both measures."""
        return self.mean_ranks.corr("kendall", min_periods=MIN_METHODS)

    @property
    def _last(self) -> pd.DataFrame:
        """Tasks x entries: score at the last round, mean over seeds; NaN if a seed has no stored history."""
        curves = self.board.score_curves.sort_values("round", kind="stable")
        ends = curves.groupby(["task_label", "entrant", "seed"])["value"].last()
        grouped = ends.groupby(level=["task_label", "entrant"])
        grid, counts = grouped.mean().unstack("entrant"), grouped.size().unstack("entrant")
        expected = pd.Series({task: len(seeds) for task, seeds in self.board.expected.items()})
        return grid.where(counts.eq(expected.reindex(grid.index), axis=0))
