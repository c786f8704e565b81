"""README and FINDINGS say what the stored runs say: each statement and number is recomputed from the rows.

`phrases` holds the statements as they must read, with the numbers computed here. Each must be on its page, and no
number may be on a page outside of them (`NAMES` aside), so that a new number needs a new line here.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from fglbench.benchmark.suites.catalogue import catalogue
from fglbench.report.loading import load_boards
from fglbench.report.papers import papers
from fglbench.report.ranking import Ranking
from fglbench.report.reproduction.match import SuiteRows
from fglbench.report.reproduction.page import readings
from fglbench.report.reproduction.view import VERDICTS, counts, views
from fglbench.report.statistics import paired_difference
from fglbench.report.text import data_size, points

from . import findings_pages
from .findings_pages import RESULTS, ROOT, effect, same_graphs, span, squeezed

WORDS = 900
NAMES = (  # numbers that are no results
    "IJCAI 2023", "(2021)", "BigData 2024", "ICPP-W 2024", "(2025)", "Python 3.10 to 3.12", "macro-F1",
    "95% interval", "95% intervals", "at least 95%", "of 95%", "(95%)", "about 30 s on two cores", "36 short runs",
    "as in 1;", "as in 1.", "beta = 1 ", "**1.", "**2.", "**3.", "**4.", "**5.",
)  # fmt: skip
PAPERS = {"fgssl": "FGSSL", "fedomd": "FedOMD", "fedgkc": "FedGKC"}  # methods of the papers on the tuned board


def lost(gains: pd.Series, dataset: str) -> str:
    """How far FedAvg is below local training on a dataset, in points."""
    return f"{-100 * gains[dataset]:.1f}"


@pytest.fixture(scope="module")
def boards() -> dict[str, Ranking]:
    return {board.suite: Ranking(board) for board in load_boards(RESULTS)}


def gap(boards: dict[str, Ranking], place: str, first: str = "fedavg", second: str = "local"):
    """Paired difference on a task of the board of clients and label skew."""
    seeds = boards["stress-cut-3"].board.seeds_of(place)
    return paired_difference(seeds[first], seeds[second])


def lost_to_skew(boards: dict[str, Ranking], dataset: str) -> str:
    return f"{-100 * gap(boards, f'{dataset} (label-dirichlet, alpha=0.1, 10 clients)').mean:.1f}"


def node_phrases(boards: dict[str, Ranking]) -> tuple[list[str], list[str]]:
    """What README and FINDINGS say of the tuned board of node classification."""
    ranking, earlier = boards["node-3"], boards["node"]
    against, alone = ranking.inference.against["fedavg"], ranking.inference.against["local"]
    gain, macro = alone["fedavg"], ranking.macro_f1.against["local"]["fedavg"]
    equivalent = ["scaffold", "feddc", "fedprox", "moon", "ditto", "fedadam", "fedexp", "s2fgl"]
    equivalent += ["fgssl", "fgssl-fnsc"]
    worse = ["local", "lg-fedavg", "fedproto", "fedtgp", "fedkd", "tinyproto", "fedppn", "pfed1bs", "ghost"]
    for verdict, names in (("better", []), ("equivalent", equivalent), ("worse", worse)):
        assert sorted(name for name, difference in against.items() if difference.verdict == verdict) == sorted(names)
    first = sorted(against, key=lambda name: -against[name].mean)[:3]
    assert first == ["fedsage+", "fedgcn-hops", "fedsage"]
    low_f1 = {name for name, difference in ranking.macro_f1.against["fedavg"].items() if difference.verdict == "worse"}
    assert low_f1 == {*worse, "apple", "fed-pub", "fedomd", "fedgkc", "fml"}
    assert gain.verdict == macro.verdict == "better"
    low, high = ranking.inference.new_dataset("fedavg", "local")
    higher, lower = ranking.inference.task_counts["local"]["fedavg"]
    tasks = {task: ranking.board.seeds_of(task) for task in ranking.board.tasks}
    by_task = {task: paired_difference(seeds["fedavg"], seeds["local"]) for task, seeds in tasks.items()}
    unclear = sorted(by_task, key=lambda task: by_task[task].p)[higher + lower :]
    assert {task: by_task[task].mean > 0 for task in unclear} == {
        "squirrel-filtered": True,
        "chameleon-filtered": False,
    }
    datasets = len(ranking.board.by_dataset)
    assert len(ranking.inference.scores) == len(ranking.board.tasks) == datasets
    scores = earlier.board.by_dataset
    heterophilous = ["chameleon-filtered", "tolokers", "actor", "squirrel-filtered"]
    above = scores.loc[heterophilous, "local"] > scores.loc[heterophilous, "fedavg"]
    assert above.tolist() == [True, True, False, False]
    tolokers = earlier.board.seeds_of("tolokers")
    assert paired_difference(tolokers["fedavg"], tolokers["local"]).high < 0
    traffic = ranking.table["traffic"]
    assert traffic["local"] == 0
    assert {len(seeds) for seeds in ranking.board.expected.values()} == {5}
    assert len(catalogue()["method"]) > 70 and len(catalogue()["dataset"]) > 60
    best, second, third, ranked = *(against[name] for name in first), len(ranking.board.ranked)
    papers = [f"{title} {effect(against[name])}" for name, title in PAPERS.items()]
    undecided = len(against) - len(equivalent) - len(worse)
    assert len(equivalent) == 10
    *losses, most = sorted(-100 * against[name].mean for name in worse)
    assert most == -100 * against["ghost"].mean
    gains = ranking.board.by_dataset["fedavg"] - ranking.board.by_dataset["local"]
    low_f1, high_f1 = ranking.macro_f1.new_dataset("fedavg", "local")
    assert lower == 0 and gains.drop("chameleon-filtered").idxmin() == "amazon-photo"
    assert (gains[["actor", "squirrel-filtered"]] > 0).all()
    assert ranking.table.index[:4].tolist() == ["fedgcn-hops", "feddc", "fedsage+", "s2fgl"]
    cheap = ["fedppn", "fedproto", "fedtgp", "lg-fedavg", "pfed1bs", "tinyproto"]
    assert sorted(traffic.index[traffic.between(1, 1e6)]) == cheap
    small = [100 * alone[name].mean for name in cheap]
    assert alone["o-pfgl"].verdict == "undecided"
    assert traffic[traffic > 1e6].idxmin() == "o-pfgl"
    readme = [
        "it tries 16 settings per dataset, and validation nodes select the best",
        f"The main leaderboard has {ranked} tuned methods on {datasets} graphs: "
        "Cora, CiteSeer, ACM, Wiki, Photo, Actor, Chameleon, Squirrel. "
        "None is shown to be better than FedAvg by more than one point of accuracy. "
        "Ten are *equivalent* (within one point), "
        f"among them SCAFFOLD, FedDC and {papers[0]}. "
        "FedSage+ has the highest mean, "
        f"{points(best.mean)} points against FedAvg (95% interval {span(best)[1:]}, with GraphSAGE. "
        f"FedGCN (Yao et al.), which also uses edges between clients, has {effect(second)}, FedSage {effect(third)}. "
        "All three are *undecided*: the runs do not show whether the difference is within one point. "
        f"So are {papers[1]}, {papers[2]} and {undecided - 5} more",
        f"are worse, by {losses[0]:.1f} to {losses[-1]:.1f} points, GHOST by {most:.1f}",
        f"by {points(gain.mean)[1:]} points of accuracy {span(gain)} and {points(macro.mean)[1:]} points of macro-F1 "
        f"{span(macro)}",
        f"For a new, similar graph the 95% prediction interval is {points(low)} to {points(high)} "
        f"points of accuracy (macro-F1: {points(low_f1)} to {points(high_f1)}): FedAvg may also lose",
        "Tolokers (heterophilous, another leaderboard): by "
        f"{lost(scores['fedavg'] - scores['local'], 'tolokers')} (ROC AUC, significant)",
        f"try O-pFGL: {data_size(traffic['o-pfgl'])} in one round (FedAvg: {data_size(traffic['fedavg'])}), "
        f"{points(alone['o-pfgl'].mean)} points over local training {span(alone['o-pfgl'])[:-1]}, undecided). "
        "FedProto, FedTGP, TinyProto, FedPPN, pFed1BS and LG-FedAvg send less than 1 MB, but gain "
        f"{min(small):.1f} to {max(small):.1f} points",
        f"Main leaderboard: {datasets} datasets, each in ten clients, 5 seeds",
        "Built on DGL, it has over 70 methods and variants, over 60 datasets",
    ]
    findings = [
        f"FedSage+ {effect(best)}, FedGCN (Yao et al.) {effect(second)} and FedSage {effect(third)} "
        "have the highest means.",
        f"{papers[0]}, FedDC, S2FGL, SCAFFOLD, FedProx, FedAdam, FedExP, MOON, Ditto and FGSSL's ablation FNSC are "
        f"equivalent to FedAvg. {papers[1]} and {papers[2]}: undecided. "
        "FedProto, FedTGP, FedKD, FedPPN, pFed1BS, TinyProto, LG-FedAvg, GHOST and "
        "local training are worse. In macro-F1 also APPLE, Fed-PUB, FedOMD, FedGKC and FML are worse.",
        f"over {datasets} datasets",
        f"ten Louvain clients, 5 seeds, {ranked} methods, each with 16 tuning trials per dataset",
        f"accuracy {effect(gain)}, better; macro-F1 {effect(macro)}, better.",
        f"ignificantly higher on {higher} of {datasets} datasets; not on Squirrel (higher) and Chameleon (lower).",
    ]
    return readme, findings


def cut_phrases(boards: dict[str, Ranking]) -> list[str]:
    """What FINDINGS says of the number of clients and of label skew."""
    board = boards["clients-quota-3"].board
    gains = {name: board.scores.loc[name, "fedavg"] - board.scores.loc[name, "local"] for name in board.scores.index}
    few, many = (gains[f"citeseer ({clients} clients)"] for clients in (5, 100))
    alpha = "{} (label-dirichlet, alpha={}, 10 clients)"
    skewed = {name: gap(boards, alpha.format(name, 0.1)) for name in ("cora", "citeseer", "amazon-photo")}
    mild = {name: gap(boards, alpha.format(name, 10.0)) for name in skewed}
    assert [name for name, difference in skewed.items() if difference.mean < 0] == ["cora", "citeseer"]
    assert [name for name, difference in skewed.items() if difference.high < 0] == ["citeseer"]
    assert all(difference.low > 0 for difference in mild.values())
    one, gains = skewed["citeseer"], [points(difference.mean) for difference in mild.values()]
    return [
        f"The gain grows with clients, also at equal training shares (CiteSeer: {points(few)} with 5 clients, "
        f"{points(many)} with 100).",
        "At Dirichlet alpha 0.1 local training is higher on Cora and CiteSeer, significantly only on CiteSeer, "
        f"by {points(-one.mean)[1:]} ({points(-one.high)} to {points(-one.low)}). At alpha 10 FedAvg leads "
        f"significantly: Cora {gains[0]}, CiteSeer {gains[1]}, Photo {gains[2]}.",
        "clients and skew: 3 graphs, 3 seeds.",
    ]


def default_phrases(boards: dict[str, Ranking]) -> list[str]:
    before, after, slow, fast = (
        same_graphs(boards, name, tuned=tuned)[0] for name in ("feddc", "scaffold") for tuned in (False, True)
    )
    assert (len(boards["leaderboard"].board.by_dataset), after.verdict) == (9, "equivalent")
    return [
        "Two other leaderboards share nine graphs. A: published defaults, 100 rounds; B: tuned by an "
        f"earlier protocol, up to 400 rounds. Against FedAvg: FedDC {effect(before)} on A, {effect(after)} on B; "
        f"SCAFFOLD {effect(slow)} on A, {effect(fast)} on B."
    ]


def privacy_phrases(boards: dict[str, Ranking]) -> list[str]:
    board = boards["privacy"].board
    rows = board.scored[(board.scored["clients"] == 10) & board.scored["method"].isin(["fedavg", "local"])]
    epsilon = rows["dp_epsilon"].astype(float).round()
    free = rows["entrant"].eq("fedavg") | rows["training"].map(lambda text: "dp_clip" not in text)
    avg = rows["method"].eq("fedavg")
    groups = [rows.loc[chosen, "score"] for chosen in (avg & free, epsilon.eq(355) & avg, epsilon.eq(12) & avg, ~avg)]
    assert [len(scores) for scores in groups] == [3, 3, 3, 3]
    without, weak, strong, alone = (f"{100 * scores.mean():.1f}" for scores in groups)
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
    assert list(boards["graph-tuned"].board.by_dataset.index) == ["mutag"]
    leads = {
        (task, name): paired_difference(seeds[name], seeds["count-classifier"])
        for task in graphs.tasks
        for seeds in [graphs.seeds_of(task)]
        for name in graphs.ranked
    }
    assert [pair for pair, gap in leads.items() if gap.low > 0] == [("nci1", "local")]
    alone = boards["graph"].inference.against["local"]["fedavg"]
    assert (boards["graph"].inference.unit, alone.verdict) == ("seed", "worse")
    rows = graphs.scored.pivot(index=["task_label", "seed"], columns="entrant", values="score")
    released = [name for name in rows if name.startswith("gcfl") and "0.03" in name]
    assert len(released) == 2
    same = int(rows[released].eq(rows["fedavg"], axis=0).all(axis=1).sum())
    again = pd.read_csv(RESULTS / "verified.csv")
    again = again[again["environment"].isin(again.loc[again["suite"] == "graph", "environment"])]
    again["change"] = 100 * (again["ours"] - again["score"]).abs()
    sets, nodes = (again.loc[again["suite"].isin(suites), "change"] for suites in (["graph"], ["node", "stress"]))
    return [
        f"on none of {len(above)} datasets does a method beat both",
        f"on none of {len(graphs.tasks)} datasets is a federated method significantly above logistic regression on "
        "these counts of node labels; local training is, on NCI1.",
        f"FedAvg is {100 * -alone.mean:.1f} ({100 * -alone.high:.1f} to {100 * -alone.low:.1f}) below local training",
        "3 seeds (NCI1 clustering: one), published defaults, 12 to 137 test graphs per client",
        f"We computed {len(sets)} scores of graph classification and {len(nodes)} of node classification again on "
        f"another brand of CPU. They changed by {sets.mean():.1f} points (at most {sets.max():.1f}) and "
        f"{nodes.mean():.2f} points (at most {nodes.max():.1f}) on average.",
        f"at the released thresholds GCFL and GCFL+ equal FedAvg in {same} of {len(rows)} runs: no cluster splits",
    ]


def claim_phrases(boards: dict[str, Ranking]) -> list[str]:
    """The lines of the scoreboard: verdicts on the claims that were run as stated, under both readings."""
    lines = []
    for paper in papers():
        sums = np.zeros((2, len(VERDICTS)), dtype=int)
        for suite in paper.tables:
            board = boards[suite].board
            pair = readings(paper, list(views(suite, SuiteRows(board.rows, board.history))))
            run = {claim.figures for claim in pair[0].claims if claim.verdict in VERDICTS}
            sums += [counts(claim for claim in view.claims if claim.figures in run) for view in pair]
        assert sums[0].sum() == sums[1].sum(), paper.name
        lines.append(f"| {paper.name} | {' | '.join(' / '.join(map(str, line)) for line in sums)} |")
    return lines


TOP = ("README.md", "results/FINDINGS.md")


@pytest.fixture(scope="module")
def phrases(boards: dict[str, Ranking]) -> dict[str, list[str]]:
    """Page -> what it must say."""
    readme, findings = node_phrases(boards)
    for part in (cut_phrases, default_phrases, privacy_phrases, graph_phrases):
        findings += part(boards)
    alone = boards["graph"].inference.against["local"]["fedavg"]
    cora, citeseer = (lost_to_skew(boards, name) for name in ("cora", "citeseer"))
    readme += [
        f"Strong label skew (Dirichlet alpha 0.1): Cora by {cora} points (not significant), CiteSeer by {citeseer} "
        "(significant)",
        f"Graph classification, untuned: by {100 * -alone.mean:.1f} points",
    ]
    return dict(zip(TOP, (readme, [*findings, *claim_phrases(boards)]), strict=True)) | findings_pages.phrases(boards)


def prose(page: str) -> str:
    """A page without the blocks that the report writes, code, and the targets of links."""
    if page not in TOP:
        return findings_pages.prose(findings_pages.PAGES[page])
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"<!-- leaderboard:begin -->.*<!-- leaderboard:end -->", "", text, flags=re.S)
    return squeezed(re.sub(r"\]\([^)]*\)", "]", re.sub(r"(?m)^ {4}.*$|`[^`]*`", "", text)))


@pytest.mark.parametrize("page", [*TOP, *findings_pages.PAGES])
def test_each_number_of_a_page_is_recomputed_or_a_setting(page: str, phrases: dict[str, list[str]]) -> None:
    text = prose(page)
    stated = [squeezed(phrase) for phrase in [*phrases.get(page, []), *findings_pages.SETTINGS.get(page, ())]]
    assert [phrase for phrase in stated if phrase not in text] == []
    for phrase in sorted([*stated, *(map(squeezed, NAMES) if page in TOP else ())], key=len, reverse=True):
        text = text.replace(phrase, " ")
    assert re.findall(r".{0,30}\d[\d.,]*.{0,15}", re.sub(findings_pages.LABELS, "", text)) == []


@pytest.mark.parametrize("page", TOP)
def test_a_page_is_short(page: str) -> None:
    assert len((ROOT / page).read_text(encoding="utf-8").split()) <= WORDS
