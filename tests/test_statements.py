"""README and FINDINGS say what the stored runs say: each statement and number is recomputed from the rows.

`phrases` holds the statements as they must read, with the numbers computed here. Each must be on its page, and no
number may be on a page outside of them (`NAMES` aside), so that a new number needs a new line here.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fglbench.benchmark.suites.catalogue import catalogue
from fglbench.benchmark.suites.published import TASK, read_properties
from fglbench.report.characteristics import LABELS
from fglbench.report.loading import load_boards
from fglbench.report.ranking import Ranking
from fglbench.report.statistics import paired_difference, signed_rank_posterior
from fglbench.report.text import data_size

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
WORDS = 900
NAMES = (  # numbers that are no results
    "IJCAI 2023", "(2021)", "BigData 2024", "ICPP-W 2024", "(2025)", "Python 3.10, 3.11 or 3.12", "macro-F1",
    "95% interval", "95% intervals", "at least 95%", "of 95%", "(95%)", "about 30 s on two cores", "36 short runs",
    "as in 1;", "as in 1.", "beta = 1 ", "**1.", "**2.", "**3.", "**4.", "**5.",
)  # fmt: skip
STATED = {  # paper -> the reading that follows what the paper states
    "FGSSL": "stated-split-last-round", "FedGL": "ours", "FCLG": "attributes-raw", "FedOMD": "printed",
    "FedGKC": "together",
}  # fmt: skip
PAPERS = {"fgssl": "FGSSL", "fedomd": "FedOMD", "fedgkc": "FedGKC"}  # methods of the papers on the tuned board


def signed(value: float) -> str:
    rounded = round(100 * value, 1)
    return f"{rounded:+.1f}" if rounded else "0.0"


def span(found: object) -> str:
    return f"({signed(found.low)} to {signed(found.high)})"


def effect(found: object) -> str:
    return f"{signed(found.mean)} {span(found)}"


def lost(gains: pd.Series, dataset: str) -> str:
    """How far FedAvg is below local training on a dataset, in points."""
    return f"{-100 * gains[dataset]:.1f}"


def squeezed(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def boards() -> dict[str, Ranking]:
    return {board.suite: Ranking(board) for board in load_boards(RESULTS)}


def gap(boards: dict[str, Ranking], place: str, first: str = "fedavg", second: str = "local"):
    """Paired difference on a task of the board of clients and label skew."""
    seeds = boards["stress-cut"].board.seeds_of(place)
    return paired_difference(seeds[first], seeds[second])


def lost_to_skew(boards: dict[str, Ranking], dataset: str) -> str:
    return f"{-100 * gap(boards, f'{dataset} (label-dirichlet, alpha=0.1, 10 clients)').mean:.1f}"


def homophilous(boards: dict[str, Ranking]) -> list[str]:
    """The datasets of the node board with an adjusted homophily above 0.1."""
    known, board = read_properties(), boards["node"].board
    rows = board.rows.drop_duplicates("dataset")
    found = {row["dataset"]: known[tuple(str(row[name]) for name in TASK)] for _, row in rows.iterrows()}
    return [name for name, own in found.items() if own["adjusted_homophily"] > 0.1]


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
    own, node = boards["leaderboard"].board, boards["node"].board
    if not tuned:
        scores = own.by_dataset
    else:
        rows = node.rows.drop_duplicates("task_label").set_index("dataset")
        rows = rows[(rows["partition"] == "louvain") & (rows["clients"] == 10)]
        scores = node.scores.loc[rows.loc[list(own.by_dataset.index), "task_label"]]
    return signed_rank_posterior(scores[method] - scores["fedavg"]), float(scores["fedavg"].mean())


def node_phrases(boards: dict[str, Ranking]) -> tuple[list[str], list[str]]:
    """What README and FINDINGS say of the tuned board of node classification."""
    ranking, earlier = boards["node-3"], boards["node"]
    against, alone = ranking.inference.against["fedavg"], ranking.inference.against["local"]
    gain, macro = alone["fedavg"], ranking.macro_f1.against["local"]["fedavg"]
    equivalent = ["fedadam", "fedyogi", "moon", "fgssl-fgsd"]
    worse = ["local", "lg-fedavg", "fedproto", "fedtgp", "fml", "fedkd", "fedlit"]
    for verdict, names in (("better", []), ("equivalent", equivalent), ("worse", worse)):
        assert sorted(name for name, found in against.items() if found.verdict == verdict) == sorted(names)
    assert max(against, key=lambda name: against[name].mean) == "fedsage"
    low_f1 = {name for name, found in ranking.macro_f1.against["fedavg"].items() if found.verdict == "worse"}
    assert low_f1 - set(worse) == {"adafgl", "fedomd", "fedgkc"} and set(worse) <= low_f1
    assert gain.verdict == macro.verdict == "better"
    low, high = ranking.inference.new_dataset("fedavg", "local")
    higher, lower = ranking.inference.task_counts["local"]["fedavg"]
    datasets = len(ranking.board.by_dataset)
    assert len(ranking.inference.scores) == len(ranking.board.tasks) == datasets
    scores = earlier.board.by_dataset
    heterophilous = ["chameleon-filtered", "tolokers", "actor", "squirrel-filtered"]
    assert (scores.loc[heterophilous, "local"] > scores.loc[heterophilous, "fedavg"]).tolist() == [
        True,
        True,
        False,
        False,
    ]
    tolokers = earlier.board.seeds_of("tolokers")
    assert paired_difference(tolokers["fedavg"], tolokers["local"]).high < 0
    traffic = ranking.table["traffic"]
    assert traffic["local"] == 0
    assert {len(own) for own in ranking.board.expected.values()} == {5}
    assert len(catalogue()["method"]) > 50 and len(catalogue()["dataset"]) > 20
    best, ranked = against["fedsage"], len(ranking.board.ranked)
    papers = [f"{title} {effect(against[name])}" for name, title in PAPERS.items()]
    assert all(against[name].verdict == "undecided" for name in ("fedsage", "scaffold", *PAPERS))
    assert len(against) - len(equivalent) - len(worse) == 12  # FedSage, SCAFFOLD and ten more are undecided
    losses = [-100 * against[name].mean for name in worse]
    gains = ranking.board.by_dataset["fedavg"] - ranking.board.by_dataset["local"]
    low_f1, high_f1 = ranking.macro_f1.new_dataset("fedavg", "local")
    assert lower == 0 and gains.drop("chameleon-filtered").idxmin() == "amazon-photo"
    assert (gains[["actor", "squirrel-filtered"]] > 0).all()
    assert ranking.table.index[0] == "scaffold"
    assert all(
        traffic[name] < 1e6 and alone[name].verdict == "equivalent" for name in ("fedproto", "fedtgp", "lg-fedavg")
    )
    readme = [
        "per dataset the best of 8 settings on validation nodes (16 for methods with many hyperparameters)",
        f"The main leaderboard has {ranked} tuned methods on {datasets} graphs: "
        "Cora, CiteSeer, ACM, Wiki, Photo, Actor, Chameleon, Squirrel. "
        "None is shown to be better than FedAvg by more than one point of accuracy. Then try FedSage: "
        f"it has the highest mean accuracy, {signed(best.mean)} points against FedAvg (95% interval {span(best)[1:]}, "
        "but its network is GraphSAGE, not GCN. "
        "SCAFFOLD has the best mean rank. Both are *undecided*: the runs do not show whether the difference "
        "is above or below one point. So are "
        f"ten more, among them {papers[0]}, {papers[1]} and {papers[2]}",
        f"worse than FedAvg, by {min(losses):.1f} to {max(losses):.1f} points",
        f"by {signed(gain.mean)[1:]} points of accuracy {span(gain)} and {signed(macro.mean)[1:]} points of macro-F1 "
        f"{span(macro)}",
        f"On a new, similar graph the 95% prediction is {signed(low)} to {signed(high)} points of accuracy (macro-F1: "
        f"{signed(low_f1)} to {signed(high_f1)}): a loss is possible",
        f"Two heterophilous graphs: Chameleon by {lost(gains, 'chameleon-filtered')} points (not "
        f"significant), Tolokers (another leaderboard) by "
        f"{lost(scores['fedavg'] - scores['local'], 'tolokers')} (ROC AUC, significant)",
        f"FedProto, FedTGP and LG-FedAvg send less than 1 MB (FedAvg: {data_size(traffic['fedavg'])}), but gain less "
        "than one point over local training",
        f"Main leaderboard: {datasets} datasets, each in ten clients, 5 seeds",
        "Built on DGL, it has over 50 methods (ablations and baselines included) and over 20 datasets",
    ]
    findings = [
        f"FedSage {effect(best)} and SCAFFOLD {effect(against['scaffold'])} have the highest means.",
        f"{papers[0]}, {papers[1]} and {papers[2]}: undecided",
        "FedAdam, FedYogi, MOON and FGSSL's ablation FGSD are equivalent to FedAvg. FedLIT, FML, FedKD, FedTGP, "
        "FedProto, LG-FedAvg and local training are worse. In macro-F1 also AdaFGL, FedOMD and FedGKC are worse.",
        f"over {datasets} datasets",
        f"ten Louvain clients, 5 seeds, {ranked} methods, each with 8 or 16 tuning trials per dataset",
        f"accuracy {effect(gain)}, better; macro-F1 {effect(macro)}, better.",
        f"ignificantly higher on {higher} of {datasets} datasets; not significantly different on Photo (higher) and "
        "Chameleon (lower).",
    ]
    return readme, findings


def cut_phrases(boards: dict[str, Ranking]) -> list[str]:
    """What FINDINGS says of the number of clients and of label skew."""
    few, many = (gap(boards, f"citeseer (louvain, {clients} clients)") for clients in (5, 100))
    alpha = "{} (label-dirichlet, alpha={}, 10 clients)"
    skewed = {name: gap(boards, alpha.format(name, 0.1)) for name in ("cora", "citeseer", "amazon-photo")}
    alike = {name: gap(boards, alpha.format(name, 10.0)) for name in skewed}
    assert all(found.mean < 0 for found in skewed.values())
    assert [name for name, found in skewed.items() if found.high < 0] == ["citeseer"]
    assert all(found.low > 0 for found in alike.values())
    one, gains = skewed["citeseer"], [signed(own.mean) for own in alike.values()]
    return [
        f"CiteSeer: {signed(few.mean)} with 5 clients, {signed(many.mean)} with 100",
        "At Dirichlet alpha 0.1 local training is higher on Cora, CiteSeer and Photo, significantly only on CiteSeer, "
        f"by {signed(-one.mean)[1:]} ({signed(-one.high)} to {signed(-one.low)}). At alpha 10 FedAvg leads "
        f"significantly: Cora {gains[0]}, CiteSeer {gains[1]}, Photo {gains[2]}.",
        "results on clients and skew: 3 graphs, 3 seeds, 40 rounds",
        "Two stress leaderboards (clients and skew in finding 2) stop after 40 rounds with settings chosen for 400.",
    ]


def default_phrases(boards: dict[str, Ranking]) -> list[str]:
    before, after, slow, fast = (
        same_graphs(boards, name, tuned=own)[0] for name in ("feddc", "scaffold") for own in (False, True)
    )
    assert (len(boards["leaderboard"].board.by_dataset), after.verdict) == (9, "equivalent")
    return [
        "Two other leaderboards share nine graphs. A: published defaults, 100 rounds; B: tuned by an "
        f"earlier protocol, up to 400 rounds. Against FedAvg: FedDC {effect(before)} on A, {effect(after)} on B; "
        f"SCAFFOLD {effect(slow)} on A, {effect(fast)} on B.",
    ]


def privacy_phrases(boards: dict[str, Ranking]) -> list[str]:
    board = boards["privacy"].board
    own = board.scored[(board.scored["clients"] == 10) & board.scored["method"].isin(["fedavg", "local"])]
    epsilon = own["dp_epsilon"].astype(float).round()
    free = own["entrant"].eq("fedavg") | own["training"].map(lambda text: "dp_clip" not in text)
    avg = own["method"].eq("fedavg")
    found = [own.loc[chosen, "score"] for chosen in (avg & free, epsilon.eq(355) & avg, epsilon.eq(12) & avg, ~avg)]
    assert [len(scores) for scores in found] == [3, 3, 3, 3]
    without, weak, strong, alone = (f"{100 * scores.mean():.1f}" for scores in found)
    assert 0 < float(strong) < float(without) / 2
    private = set(board.scored.loc[board.scored["dp_epsilon"].notna(), "entrant"])
    assert len(private) > 30
    for clients in (10, 50, 100):
        seeds = board.seeds_of(f"cora ({clients} clients)")
        assert all(paired_difference(seeds[name], seeds["local"]).low <= 0 for name in private)
    return [
        f"FedAvg on Cora, 10 clients, 20 rounds: {without} without privacy, {weak} at epsilon 355, {strong} at epsilon "
        f"12; local training: {alone}. ",
        "at epsilon 12 loses over half of the accuracy",
        "With 10, 50 or 100 clients no private model is significantly above local training.",
        "paired t over 3 seeds.",
    ]


def graph_phrases(boards: dict[str, Ranking]) -> list[str]:
    clusters, graphs = boards["clustering"].board, boards["graph"].board
    trivial = [name for name in clusters.scores if clusters.method_of[name] in ("one-cluster", "label-counts")]
    above = clusters.scores[clusters.ranked].max(axis=1) > clusters.scores[trivial].max(axis=1)
    assert not above.any()
    lead = graphs.scores[graphs.ranked].max(axis=1) - graphs.scores["count-classifier"]
    assert sorted(lead[lead > 0].index) == ["dhfr", "nci1"]
    assert list(boards["graph-tuned"].board.by_dataset.index) == ["mutag"]
    for name in ("dhfr", "nci1"):
        seeds = graphs.seeds_of(next(task for task in graphs.tasks if name in task))
        assert paired_difference(seeds[seeds[graphs.ranked].mean().idxmax()], seeds["count-classifier"]).low < 0
    alone = boards["graph"].inference.against["local"]["fedavg"]
    assert (boards["graph"].inference.unit, alone.verdict) == ("seed", "worse")
    rows = graphs.scored.pivot(index=["task_label", "seed"], columns="entrant", values="score")
    released, relative = (
        [name for name in rows if name.startswith("gcfl") and part in name] for part in ("0.03", "largest")
    )
    same = int((rows[released[0]] == rows[released[1]]).sum())
    gains = [100 * (rows[own] - rows["fedavg"]).mean() for own in sorted(relative, key=len)]
    assert min(gains) > 0
    again = pd.read_csv(RESULTS / "verified.csv")
    again = again[again["environment"].isin(again.loc[again["suite"] == "graph", "environment"])]
    again["change"] = 100 * (again["ours"] - again["score"]).abs()
    sets, nodes = (again.loc[again["suite"].isin(suites), "change"] for suites in (["graph"], ["node", "stress"]))
    return [
        f"on none of {len(above)} datasets does a method beat both",
        f"on none of {len(lead)} datasets is the best method significantly above logistic regression",
        f"FedAvg is {100 * -alone.mean:.1f} ({100 * -alone.high:.1f} to {100 * -alone.low:.1f}) below local training",
        "3 seeds (NCI1 clustering: one), published defaults, 12 to 137 test graphs per client",
        f"On another brand of CPU, {len(sets)} scores of graph classification change by {sets.mean():.1f} points on "
        f"average (at most {sets.max():.1f}), {len(nodes)} of node classification by {nodes.mean():.2f} (at most "
        f"{nodes.max():.1f}).",
        "GCFL and GCFL+ never split a cluster at the released thresholds, so both have the same score "
        f"in {same} of {len(rows)} runs",
        "they are above FedAvg",
    ]


def claim_phrases() -> list[str]:
    """The lines of the scoreboard, from the index of the papers' tables, which the report makes from the rows."""
    found: dict[str, dict[str, tuple[int, ...]]] = {}
    for line in (RESULTS / "REPRODUCTION.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if reading := re.match(r".*; ([\w-]+)$", cells[0]):
            suite = re.match(r"\[([\w-]+)\]", cells[1])[1]
            found.setdefault(suite, {})[reading[1]] = tuple(map(int, cells[5:8]))
    lines = []
    for paper, stated in STATED.items():
        own = [readings for suite, readings in found.items() if suite.startswith(f"{paper.lower()}-")]
        others = [[counts for name, counts in readings.items() if name != stated] for readings in own]
        best = [max(each, key=lambda counts: (counts[0], -counts[1])) for each in others]
        sums = [" / ".join(map(str, np.sum(counts, axis=0))) for counts in ([each[stated] for each in own], best)]
        lines.append(f"| {paper} | {sums[0]} | {sums[1]} |")
    return lines


@pytest.fixture(scope="module")
def phrases(boards: dict[str, Ranking]) -> dict[str, list[str]]:
    readme, findings = node_phrases(boards)
    for own in (cut_phrases, default_phrases, privacy_phrases, graph_phrases):
        findings += own(boards)
    alone = boards["graph"].inference.against["local"]["fedavg"]
    skewed = [lost_to_skew(boards, name) for name in ("cora", "amazon-photo", "citeseer")]
    readme.append(
        f"Strong label skew (alpha 0.1; 40 rounds): Cora by {skewed[0]} points, Photo by {skewed[1]}, "
        f"CiteSeer by {skewed[2]}; only the last is significant"
    )
    readme.append(f"Classification of sets of graphs, untuned: by {100 * -alone.mean:.1f} points")
    return {"README.md": readme, "results/FINDINGS.md": [*findings, *claim_phrases()]}


PAGES = ("README.md", "results/FINDINGS.md")


def prose(page: str) -> str:
    """A page without the block that the report writes, code, and the targets of links."""
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"<!-- leaderboard:begin -->.*<!-- leaderboard:end -->", "", text, flags=re.S)
    text = re.sub(r"(?m)^ {4}.*$|```.*?```|`[^`]*`", "", text, flags=re.S if "```" in text else 0)
    return squeezed(re.sub(r"\]\([^)]*\)", "]", text))


@pytest.mark.parametrize("page", PAGES)
def test_each_statement_is_as_the_rows_have_it(page: str, phrases: dict[str, list[str]]) -> None:
    text = prose(page)
    assert [own for own in phrases[page] if squeezed(own) not in text] == []


@pytest.mark.parametrize("page", PAGES)
def test_no_number_stands_outside_of_a_statement(page: str, phrases: dict[str, list[str]]) -> None:
    text = prose(page)
    for own in sorted([*phrases[page], *NAMES], key=len, reverse=True):
        text = text.replace(squeezed(own), " ")
    names = r"\b(?:NCI1|docs/\S+)\b"
    assert re.findall(r".{0,30}\d[\d.,]*.{0,15}", re.sub(names, "", text)) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_short(page: str) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").split()) <= WORDS
