"""Statements that test_findings_pages.py and findings_pages.py compute from the boards."""

from __future__ import annotations

from pathlib import Path

from scipy import stats

from fglbench.benchmark.suites.catalogue import TASK, read_properties
from fglbench.report.characteristics import LABELS
from fglbench.report.ranking import Ranking
from fglbench.report.statistics import signed_rank_posterior
from fglbench.report.text import points

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"


def squeezed(text: str) -> str:
    return " ".join(text.split())


def span(difference: object) -> str:
    return f"({points(difference.low)} to {points(difference.high)})"


def effect(difference: object) -> str:
    return f"{points(difference.mean)} {span(difference)}"


def homophilous(boards: dict[str, Ranking]) -> list[str]:
    """The datasets of the node board with an adjusted homophily above 0.1."""
    known, board = read_properties(), boards["node"].board
    rows = board.rows.drop_duplicates("dataset")
    properties = {row["dataset"]: known[tuple(str(row[name]) for name in TASK)] for _, row in rows.iterrows()}
    return [name for name, values in properties.items() if values["adjusted_homophily"] > 0.1]


def correlation(boards: dict[str, Ranking], datasets: list[str]) -> str:
    """Spearman's rho of FedAvg's gain in accuracy with labelled nodes per class and client, and its p."""
    ranking = boards["node"]
    scores = ranking.board.by_dataset.loc[datasets]
    rho, p = stats.spearmanr(
        ranking.characteristics.properties.loc[datasets, LABELS], scores["fedavg"] - scores["local"]
    )
    return f"{rho:+.2f} (p = {p:.2f})"


def same_graphs(boards: dict[str, Ranking], method: str, tuned: bool):
    """The method minus FedAvg on the nine graphs of the board at published defaults, in ten Louvain clients."""
    defaults, node = boards["leaderboard"].board, boards["node"].board
    if not tuned:
        scores = defaults.by_dataset
    else:
        rows = node.rows.drop_duplicates("task_label").set_index("dataset")
        rows = rows[(rows["partition"] == "louvain") & (rows["clients"] == 10)]
        scores = node.scores.loc[rows.loc[list(defaults.by_dataset.index), "task_label"]]
    return signed_rank_posterior(scores[method] - scores["fedavg"]), float(scores["fedavg"].mean())
