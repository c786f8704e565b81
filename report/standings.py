"""The ranking of a board: tiers, mean ranks with intervals, wins, and who leads each task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from .board import Board
from .contest import Contest
from .orders import Orders
from .privacycost import PrivacyCost
from .regimes import Regimes
from .robustness import Robustness
from .statistics import DECIMALS, bootstrap_mean, indistinguishable, ranks, wins


@dataclass(frozen=True, eq=False)
class Standings:
    """The ranking of a board."""

    board: Board

    @cached_property
    def orders(self) -> Orders:
        return Orders(self.board, list(self.table.index) if self.board.ranked else [])

    @cached_property
    def regimes(self) -> Regimes:
        return Regimes(self.board.plain)

    @cached_property
    def plain(self) -> Standings:
        """Those of the tasks under no stress condition, which are all tasks of most boards."""
        return self if self.board.plain is self.board else Standings(self.board.plain)

    @cached_property
    def robustness(self) -> Robustness:
        return Robustness(self.board)

    @cached_property
    def privacy(self) -> PrivacyCost:
        return PrivacyCost(self.board)

    @cached_property
    def contest(self) -> Contest:
        return Contest(self.board)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Ranked entrants by tier and mean rank: tier, mean_rank, low, high, score, wins, traffic, seconds.

        tier is 0 where no tiers are formed. score is the mean over datasets; traffic and seconds are medians over tasks
        of the mean over seeds; seconds are of the board's clock.
        """
        scores = self.board.by_dataset
        by_dataset = ranks(scores)
        result = pd.DataFrame({"mean_rank": by_dataset.mean().round(12)})
        result[["low", "high"]] = bootstrap_mean(by_dataset)
        tiers = self.contest.tiers
        result["tier"] = [tiers.get(name, 0) for name in result.index]
        result["score"] = scores.mean()
        result["wins"] = wins(scores)
        result[["traffic", "seconds"]] = self._cost.reindex(result.index)
        return result.sort_values(["tier", "mean_rank"], kind="stable")

    @cached_property
    def references(self) -> pd.DataFrame:
        """Complete entrants that are never ranked: score, traffic, seconds as in `table`."""
        board = self.board
        names = [name for name in board.complete if name in board.references]
        result = pd.DataFrame({"score": board.averaged(board.scores[names]).mean()}, index=names)
        result[["traffic", "seconds"]] = self._cost.reindex(names)
        return result

    def figures(self, entrant: str) -> dict[str, float]:
        """The line of `table` or `references` for an entrant, empty where it is in neither."""
        table = self.table if entrant in self.board.ranked else self.references
        return {str(k): float(v) for k, v in table.loc[entrant].items()} if entrant in table.index else {}

    @property
    def outcome(self) -> str:
        """What the ranking can say, or why there is none."""
        if self.board.ranked:
            return self.contest.text
        if self.board.is_sweep:
            return "A sweep: its entrants are settings of one method, so nothing is ranked."
        return "No method is complete on this board yet, so nothing is ranked."

    @cached_property
    def order(self) -> list[str]:
        """All entrants: the ranked, then the incomplete, then references."""
        ranked = list(self.table.index) if self.board.ranked else []
        rest = [name for name in self.board.entrants if name not in ranked]
        return ranked + sorted(rest, key=lambda name: (name in self.board.references, name))

    @cached_property
    def _cost(self) -> pd.DataFrame:
        costs = ["traffic", self.board.clock]
        means = self.board.scored.groupby(["task_label", "entrant"])[costs].mean().astype(float)
        return means.groupby("entrant").median()

    @cached_property
    def leaders(self) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
        """For each task: entrants with the best mean, and entrants that paired seeds cannot tell apart from the best.

        Only entrants with every seed of the task take part, and references do not.
        """
        found = {}
        full = self.board.full.to_dict("index")
        for task in self.board.tasks:
            own = [str(name) for name, whole in full[task].items() if whole and name not in self.board.references]
            means = self.board.scores.loc[task, own].round(DECIMALS)
            best = list(means.index[means == means.max()])
            equal = indistinguishable(self.board.seeds_of(task)[own], best[0]) if best else set()
            found[task] = frozenset(best), frozenset(equal - set(best))
        return found
