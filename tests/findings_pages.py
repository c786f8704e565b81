"""docs/findings says what the stored runs say: each number of its prose and tables is recomputed, or is a setting.

The claim tables between the marks are written by the report. `SETTINGS` has the numbers that are no results.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
from scipy import stats

from fglbench.benchmark.suites.catalogue import TASK, read_properties
from fglbench.report.board import Board
from fglbench.report.characteristics import LABELS as LABELS_PER_CLASS
from fglbench.report.ranking import Ranking
from fglbench.report.statistics import paired_difference, signed_rank_posterior
from fglbench.report.text import ABSENT, points, with_bounds as effect

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
PAGES = {page.stem: page for page in sorted((ROOT / "docs" / "findings").glob("*.md"))}
SETTINGS = {  # numbers of papers, tables, experiments and hyperparameters
    "README": ("(95%)",),
    "conditions": (
        "The clip of 1 ", "3 seeds", "at most 100 rounds",
        "(none to 30%)", "(`clients-quota-3`)",
    ),
    "node-boards": ("at rate 0.1 it does", "`node-3`", "`node-3-random`", "with 24 trials"),
    "graph-boards": ("(Dirichlet, alpha 1)", "3 seeds", "12 (MUTAG) to 137 (NCI1) test graphs per client"),
    "natural": (
        "over 5 seeds", "95% t interval", "FedIGL (NeurIPS 2025, Table 1)",
        "FedAvg 74.12, FedProx 69.35, GCFL 77.71, FedStar 78.63",
    ),
    "regression": ("3 seeds", "5 seeds", "and 1 is the error of a constant"),
    "links": ("5 seeds", "at most 100 rounds", "diverges in round 2", "so round 1 is scored"),
    "fgssl": (
        "(IJCAI 2023)", "width 128, 200 rounds of 4 SGD steps", "60/20/20 of each class", "(Algorithm 1)", "weight 3 ",
        "Cora with 5 clients (five)",
    ),
    "fedgl": (
        "(2021)", "width 16, at most 300 rounds of 10 epochs", "beta = 1", "(0.1 in", "1 (paper)",
        "0.1, 0.25 and 1 in Table 2, 0.1 and 1 elsewhere", "Eq. 9", "Algorithm 1", "round 11", "beta = 0.5",
        "from 0.5 to 0.9", "Table 6 at 10%", "5 seeds", "(`overlap-3`)", "| Macro-F1 |",
    ),
    "fclg": ("(BigData 2024)", "50 rounds of 5 epochs", "| 50, 10 | 10:"),
    "fedomd": (
        "(ICPP-W 2024)", "in 3 to 9 Louvain clients", "in 20 and 50, 1% training nodes, at most 1000 rounds", "Eq. 11",
        "beta = 10)", "beta = 0.001", "at most 16 nodes", "after 100 of 1000 rounds",
    ),
    "fedgkc": (
        "(2025)", "in 5, 10 and 20 clients", "up to 400 rounds", "(`heterogeneous-3`)", "(`heterogeneous-depth-3`)",
    ),
}  # fmt: skip
SAME_SPLITS = ["cora", "citeseer", "acm", "wiki", "amazon-photo"]  # on both tuned boards
ATTACKS = ["label flip", "sign flip", "gaussian", "small deviation"]
LABELS = r"\b(?:NCI1|pFed1BS|docs/\S+)\b|\bTables? \d(?:(?:,| and| to| or) \d)*|\[(?:Table )?\d\]"


def squeezed(text: str) -> str:
    return " ".join(text.split())


def span(difference: object) -> str:
    return f"({points(difference.low)} to {points(difference.high)})"


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
        ranking.characteristics.properties.loc[datasets, LABELS_PER_CLASS], scores["fedavg"] - scores["local"]
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


def verdicts(ranking: Ranking) -> dict[tuple[str, str], str]:
    """(baseline, method) -> verdict."""
    pairs = {(base, name): pair for base, of in ranking.inference.against.items() for name, pair in of.items()}
    return {names: pair.verdict for names, pair in pairs.items()}


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def line(title: str, values: list[float]) -> str:
    return f"| {title} | {' | '.join(map(percent, values))} |"


def stress(ranking: Ranking) -> list[str]:
    against, table = ranking.inference.against["fedavg"], ranking.robustness.table
    assert [name for name, pair in against.items() if pair.verdict == "worse"] == ["local", "fedproto"]
    equivalent = {"feddc", "scaffold", "fedadam", "fedprox"}
    assert {name for name, pair in against.items() if pair.verdict == "equivalent"} == equivalent
    assert "better" not in [pair.verdict for pair in against.values()]
    edges, labels = 100 * table["edge_noise loss"], 100 * table["label_noise loss"]
    gain = ranking.inference.against["local"]["fedavg"]
    assert abs(edges["fedmlp"]) < 0.05 and gain.verdict == "better"
    graphs = len(ranking.board.by_dataset)
    assert graphs == 6 and len(ranking.board.tasks) == 19 * graphs
    with_edges = edges.drop("fedmlp")
    return [
        "six graphs and 19 conditions",
        f"FedAvg is above local training by {points(gain.mean)[1:]} points {span(gain)}, better",
        f"Wrong labels cost local training {labels['local']:.1f} points on average, FedAvg {labels['fedavg']:.1f}.",
        f"Random edges cost methods that use edges {with_edges.min():.1f} to {with_edges.max():.1f} points",
    ]


def conditions(boards: dict[str, Ranking]) -> list[str]:
    scores, homophily = boards["stress-cut-3"].board.scores, boards["stress-homophily-3"].board.scores
    both = ["fedavg", "local"]
    tasks = {
        "5 clients": "louvain, 5 clients", "100 clients": "louvain, 100 clients",
        "label skew alpha 0.1": "label-dirichlet, alpha=0.1, 10 clients",
        "label skew alpha 10": "label-dirichlet, alpha=10.0, 10 clients",
    }  # fmt: skip
    generated = homophily.loc[[name for name in homophily.index if name.startswith("csbm")]]
    assert len(generated) == 5
    real = homophily.idxmax(axis=1)
    highest = {"actor": "fedmlp", "squirrel-filtered": "fedmlp", "chameleon-filtered": "fedprox"}
    assert real[list(highest)].to_dict() == highest
    few, many = (f"cora (louvain, {clients} clients)" for clients in (10, 100))
    equal = boards["clients-quota-3"].board.scores
    low, high = (points(equal.loc[f"cora ({n} clients)", "fedavg"] - equal.loc[f"cora ({n} clients)", "local"])
                 for n in (5, 100))  # fmt: skip
    return [
        *stress(boards["stress-3"]),
        *(line(f"Cora, {title}", list(scores.loc[f"cora ({place})", both])) for title, place in tasks.items()),
        line("generated graph, mean over homophily 0.1 to 0.9", list(generated[both].mean())),
        f"FedAvg's gain on Cora grows from {low} (5 clients) to {high} (100).",
        f"do not carry over to 100: SCAFFOLD falls from {percent(scores.loc[few, 'scaffold'])} to "
        f"{percent(scores.loc[many, 'scaffold'])} on Cora",
    ]


def hostile(boards: dict[str, Ranking]) -> list[str]:
    board = boards["robust"].board
    scores = board.scores.groupby(lambda task: task.split(" (")[1].rstrip(")")).mean()
    assert len(board.by_dataset) * len(scores) == len(board.scores)
    rules = [ABSENT, "median", "trimmed-mean", "multi-krum", "norm-clip", "krum"]  # its own average first
    names = [*(f"fedavg (aggregator={rule})" for rule in rules), "local"]
    shown = {"no attack": "plain", **{f"{name}, 30%": f"{name} 0.3" for name in ATTACKS}}
    mean, by_dataset = board.by_dataset.mean(), board.by_dataset
    average, *robust, krum, _ = names
    norm_clip = robust[3]
    against = boards["robust"].inference.against["local"]
    decided = {name: against[name].verdict for name in names[:-1] if against[name].verdict != "undecided"}
    assert decided == {average: "worse", krum: "worse"}
    above_local = by_dataset[robust].sub(by_dataset["local"], axis=0) > 0
    assert above_local.all(axis=1).to_dict() == {"amazon-photo": False, "citeseer": True, "cora": False}
    assert not above_local.loc[["amazon-photo", "cora"]].any(axis=None)
    fall = scores.loc["plain", names[:-1]] - scores.loc[[f"{name} 0.3" for name in ATTACKS], names[:-1]]
    assert (fall[average] > 0.4).tolist() == [False, True, True, False]
    assert (fall.loc["label flip 0.3"].drop(krum) > 0.07).all() and abs(fall.loc["label flip 0.3", krum]) < 0.01
    assert (fall.loc["small deviation 0.3", [average, norm_clip]] < 0.07).all()
    assert (fall.loc["small deviation 0.3"].drop([average, norm_clip]) > 0.08).all()
    lost = scores.loc["plain", average] - scores.loc["plain", names[1:-1]]
    assert lost.drop([norm_clip, krum]).between(0.04, 0.07).all()
    return [
        *(line(title, list(scores.loc[place, names])) for title, place in shown.items()),
        line("mean over all attacks and shares", list(mean[names])),
        f"norm clipping costs {percent(lost[norm_clip])} points, Krum {percent(lost[krum])}, the others "
        f"{percent(lost.drop([norm_clip, krum]).min())} to {percent(lost.drop([norm_clip, krum]).max())}",
    ]


def links(boards: dict[str, Ranking]) -> list[str]:
    board, against = boards["links"].board, boards["links"].inference.against
    names = ["fedavg", "local", "ditto", "feddc", "fedprox"]
    titles = {"cora": "Cora", "citeseer": "CiteSeer", "acm": "ACM", "wiki": "Wiki", "amazon-photo": "Photo"}
    decoders = {"dot": "inner product", "mlp": "MLP"}
    scores = board.scores
    assert board.by_dataset[board.ranked].mean().idxmax() == "ditto"
    assert against["fedavg"]["ditto"].verdict == "equivalent"
    assert "better" not in verdicts(boards["links"]).values()
    gain = 100 * (scores["fedavg"] - scores["local"])
    by_dataset = {name: gain[[f"{name} ({decoder})" for decoder in decoders]].tolist() for name in titles}
    assert all(min(by_dataset[name]) > 0 for name in ("cora", "citeseer"))
    assert all(max(by_dataset[name]) < 0 for name in ("acm", "wiki"))
    assert by_dataset["amazon-photo"][0] > 0 > by_dataset["amazon-photo"][1]
    even = against["local"]["fedavg"]
    assert even.verdict == "equivalent"
    photo = scores.loc[["amazon-photo (dot)", "amazon-photo (mlp)"], ["fedavg", "local"]]
    stopped = board.rows[(board.rows["method"] == "scaffold") & (board.rows["dataset"] == "amazon-photo")]
    assert (stopped["rounds"] == 1).all()
    return [
        *(
            line(f"{title}, {decoders[decoder]}", list(scores.loc[f"{name} ({decoder})", names]))
            for name, title in titles.items()
            for decoder in decoders
        ),
        f"the difference is {points(even.mean)} points {span(even)}",
        f"on ACM by {-max(by_dataset['acm']):.1f} and {-min(by_dataset['acm']):.1f} points",
        f"from {percent(photo.iloc[0, 0])} to {percent(photo.iloc[1, 0])} for FedAvg and from "
        f"{percent(photo.iloc[0, 1])} to {percent(photo.iloc[1, 1])} for local training",
        f"its {len(stopped)} runs on Photo",
    ]


def regression(ranking: Ranking) -> list[str]:
    board, against = ranking.board, ranking.inference.against
    names = ["fedavg", "local", "fedprox", "feddc", "ditto"]
    sets = {"esol": "ESOL", "freesolv": "FreeSolv", "lipophilicity": "Lipophilicity"}
    clients = {"by scaffold": "scaffold, ratio", "random": "uniform, scaffold"}
    rows = {f"{title}, {how}": f"{name} ({split})" for name, title in sets.items() for how, split in clients.items()}
    rows["Views on Twitch, by country"] = "twitch-views"
    errors = -board.scores[names].loc[[*rows.values()]]
    gain = errors["local"] - errors["fedavg"]
    assert (gain.drop("twitch-views") > 0).all() and gain["twitch-views"] < 0
    scaffold, random = (gain[[f"{name} ({split})" for name in sets]].to_numpy() for split in clients.values())
    assert (random > scaffold).all()  # so the smallest gain is larger, too
    assert (board.scores[board.ranked].idxmax(axis=1)[errors.index] == "feddc").sum() == 5
    assert {name for name, pair in against["fedavg"].items() if pair.mean > 0} == {"feddc", "fedprox"}
    feddc, fedprox, federated = against["fedavg"]["feddc"], against["fedavg"]["fedprox"], against["local"]["fedavg"]
    assert [pair.verdict for pair in (feddc, fedprox, federated)] == ["undecided", "undecided", "better"]
    twitch = board.seeds_of("twitch-views")
    views = paired_difference(twitch["local"], twitch["fedavg"])
    assert views.low > 0

    def units(pair: object) -> str:
        return f"{pair.mean:.2f} ({pair.low:.2f} to {pair.high:.2f})"

    return [
        *(f"| {title} | {' | '.join(f'{error:.2f}' for error in errors.loc[task])} |" for title, task in rows.items()),
        f"by {units(federated)}",
        f"by {random.min():.2f} to {random.max():.2f}",
        f"by {scaffold.min():.2f} to {scaffold.max():.2f}",
        f"by {units(views)}",
        f"FedDC is lower by {units(feddc)}, FedProx by {units(fedprox)}",
    ]


def second_tuning(boards: dict[str, Ranking]) -> list[str]:
    """Random search against the table of settings, on the same three graphs."""
    board, again = boards["node-3"].board, boards["node-3-random"]
    methods, datasets = again.board.ranked, list(again.board.by_dataset.index)
    assert (len(methods), sorted(datasets)) == (8, ["amazon-photo", "citeseer", "cora"])
    first, second = (source.by_dataset.loc[datasets, methods] for source in (board, again.board))
    changes, sizes = 100 * (second - first), 100 * (second - first).abs()
    assert changes.mean().abs().max() < 0.6 and stats.kendalltau(first.mean(), second.mean())[0] > 0.8
    rows = board.rows[board.rows["dataset"].isin(datasets) & board.rows["method"].isin(methods)]
    known = verdicts(again)
    assert known == verdicts(Ranking(Board.build("node-3", rows))) and again.inference.unit == "seed"
    return [
        f"changes by {sizes.stack().mean():.1f} points on average and {sizes.stack().max():.1f} at most",
        f"All {len(known)} verdicts",
    ]


def node_boards(boards: dict[str, Ranking]) -> list[str]:
    board = boards["leaderboard"].board
    methods = ["feddc", "fedprox", "fedavg", "moon", "scaffold", "fedgta", "local", "fedproto"]
    lines = []
    for title, tuned in (("published defaults, nine graphs", False), ("tuned (suite `node`), the same nine", True)):
        average = same_graphs(boards, "fedavg", tuned)[1]
        lines.append(line(title, [average + same_graphs(boards, name, tuned)[0].mean for name in methods]))
    differs = 100 * (board.by_dataset["fedsage+"] - board.by_dataset["fedavg"])
    assert (differs.idxmin(), differs.idxmax()) == ("amazon-computers", "wiki")
    scores, earlier = boards["node-3"].board.by_dataset, boards["node"].board
    places = earlier.rows[earlier.rows["dataset"].isin(SAME_SPLITS) & earlier.rows["partition"].eq("louvain")]
    places = places[places["clients"].eq(10)].drop_duplicates("dataset").set_index("dataset")["task_label"]
    before = earlier.scores.loc[places[SAME_SPLITS]].set_axis(SAME_SPLITS)
    changes = 100 * (scores.loc[SAME_SPLITS, earlier.ranked] - before[earlier.ranked])
    means = changes.mean()
    assert len(earlier.ranked) == len(homophilous(boards)) == 9
    accuracy = list(boards["node"].inference.scores.index)
    return [
        *second_tuning(boards),
        *lines,
        f"by {differs.min():.1f} points on Computers to {differs.max():+.1f} on Wiki",
        f"the means of nine methods change by {points(means.min() / 100)} to {points(means.max() / 100)} points",
        f"Spearman's rho is {correlation(boards, homophilous(boards))} on nine homophilous graphs, but "
        f"{correlation(boards, accuracy)} on all {len(accuracy)} with accuracy",
    ]


GRAPH_SETS = {  # dataset of the suite natural-graphs -> its name on the page
    "domains:mutag+bzr+cox2+dhfr+ptc_mr+aids+nci1": "Seven sets of small molecules",
    "domains:enzymes+proteins+imdb-binary+imdb-multi+letter-low+letter-med+letter-high":
        "Seven sets of proteins, social networks and letters",
    "domains:mutag+bzr+cox2+dhfr+ptc_mr+aids+nci1+enzymes+proteins": "The molecules and two sets of proteins",
    "domains:mutag+bzr+cox2+dhfr+ptc_mr+aids+nci1+enzymes+proteins+imdb-binary+imdb-multi":
        "The molecules, two sets of proteins and two social networks",
}  # fmt: skip


def natural_graphs(ranking: Ranking) -> list[str]:
    board = ranking.board
    seeds = {board.dataset_of[task]: board.seeds_of(task) for task in board.tasks}
    assert set(seeds) == set(GRAPH_SETS) and {len(scores) for scores in seeds.values()} == {5}
    first = seeds[next(iter(GRAPH_SETS))].mean()
    assert first.idxmax() == "fedstar"
    runs = board.rows.set_index("dataset")
    for dataset in GRAPH_SETS:
        states = set(runs.loc[dataset][runs.loc[dataset, "method"] == "apple"]["status"])
        assert states == {"failed" if "proteins" in dataset else "ok"}
    ours = ", ".join(f"{board_name} {percent(first[name])}" for name, board_name in
                     {"fedavg": "FedAvg", "fedprox": "FedProx", "fedstar": "FedStar"}.items())  # fmt: skip
    gcfl = next(name for name in first.index if board.method_of[name] == "gcfl")
    return [
        *(
            f"{GRAPH_SETS[name]}, accuracy: {effect(paired_difference(scores['fedavg'], scores['local']))}"
            for name, scores in seeds.items()
        ),
        f"Ours are {ours}, GCFL {percent(first[gcfl])}",
    ]


def natural(ranking: Ranking) -> list[str]:
    board = ranking.board
    titles = {"twitch": "Twitch's seven countries, ROC AUC", "citation-sources": "Three sources of papers, accuracy"}
    tasks = board.rows.drop_duplicates("dataset").set_index("dataset")
    assert (tasks.loc["twitch", "clients"], tasks.loc["citation-sources", "clients"]) == (7, 3)
    twitch, papers = ranking.second, ranking.inference
    assert twitch is not None and twitch.tested == ["twitch"] and papers.tested == ["citation-sources"]
    assert not [gap for of in twitch.against.values() for gap in of.values() if gap.verdict == "better"]
    better = [pair for pair, verdict in verdicts(ranking).items() if verdict == "better"]
    assert better == [("local", name) for name in ("fedprox", "feddc", "scaffold")]
    seeds = {name: board.seeds_of(tasks.loc[name, "task_label"]) for name in titles}
    assert {len(scores) for scores in seeds.values()} == {5}
    return [
        f"{title}: {effect(paired_difference(seeds[name]['fedavg'], seeds[name]['local']))}"
        for name, title in titles.items()
    ]


def graph_boards(boards: dict[str, Ranking]) -> list[str]:
    board, single = boards["graph"].board, boards["gcfl-one-dataset"].board.scores.loc["proteins"]
    scores = board.scores.loc[["mutag", "enzymes", "proteins", "dhfr", "nci1"]]
    best = scores[board.ranked].max(axis=1)
    above = best - scores[["count-classifier", "majority"]].max(axis=1)
    assert sorted(above[above > 0].index) == ["enzymes", "nci1", "proteins"]
    assert percent(above["enzymes"]) == percent(above["proteins"])
    spread = board.scored.groupby(["task_label", "entrant"])["score"].agg(lambda scores: scores.max() - scores.min())
    means = board.scores.mean()
    relative = sorted((name for name in means.index if name.startswith("gcfl") and "largest" in name), key=len)
    gains = means[relative] - means["fedavg"]
    assert means["fedavg"] < means[relative].min() and means[relative].max() < means["local"]
    names = {
        "logistic regression on label counts (`count-classifier`)": scores["count-classifier"],
        "majority class of each client": scores["majority"], "best method": best, "local training": scores["local"],
        "FedAvg": scores["fedavg"],
    }  # fmt: skip
    return [
        *(line(title, list(scores_of_name)) for title, scores_of_name in names.items()),
        f"on NCI1, and on ENZYMES and PROTEINS by only {percent(above['enzymes'])} points",
        f"{percent(gains.iloc[0])} and {percent(gains.iloc[1])} points above FedAvg, still below local training",
        f"FedAvg {percent(single['fedavg'])}, GCFL {percent(single['gcfl'])}, GCFL+ {percent(single['gcfl+'])}, "
        f"local training {percent(single['local'])}",
        f"by up to {percent(spread.loc['mutag'].max())} points between seeds on MUTAG",
    ]


def mixed(architectures: Ranking, depths: Ranking) -> list[str]:
    """What the page of FedGKC says of tuned methods with mixed architectures and depths."""
    both = (architectures, depths)
    scores = [ranking.board.by_dataset for ranking in both]
    for ranking, table in zip(both, scores, strict=True):
        assert ranking.order[0] == "fedgkc" and ranking.inference.unit == "dataset" and len(table) == 6
    best = [set(table.index[table["fedgkc"] > table.drop(columns="fedgkc").max(axis=1)]) for table in scores]
    assert best[0] == {"cora", "citeseer", "pubmed", "acm"} and best[1] == best[0] | {"wiki"}
    names = {"fedgkc": "FedGKC", "fedkd": "FedKD", "fml": "FML", "fedtgp": "FedTGP", "fedproto": "FedProto",
             "lg-fedavg": "LG-FedAvg"}  # fmt: skip
    gaps = {name: [each.inference.against["local"][method] for each in both] for method, name in names.items()}
    gaps["FedGKC, macro-F1"] = [each.macro_f1.against["local"]["fedgkc"] for each in both]
    below = 100 * (scores[0]["local"] - scores[0]["fedgkc"])["amazon-photo"]
    from_best = 100 * (scores[1].max(axis=1) - scores[1]["fedgkc"])["amazon-photo"]
    return [
        *(
            f"| {name} | {' | '.join(f'{points(gap.mean)} {span(gap)}, {gap.verdict}' for gap in of_both)} |"
            for name, of_both in gaps.items()
        ),
        f"On Photo it is {below:.1f} points below local training with mixed architectures, and {from_best:.1f} points "
        "below the best method with mixed depths.",
    ]


def overlapping(ranking: Ranking) -> list[str]:
    """What the page of FedGL says of tuned methods with overlapping clients."""
    assert ranking.order[0] == "fedgl"
    table = ranking.board.by_dataset
    (exception,) = table.index[table["fedgl"] <= table.drop(columns="fedgl").max(axis=1)]
    names = {"fedgl": "FedGL", "feddc": "FedDC", "fedprox": "FedProx", "moon": "MOON", "fedadam": "FedAdam",
             "scaffold": "SCAFFOLD"}  # fmt: skip
    assert set(names) | {"fedavg"} == set(table.columns)
    lines = []
    for name, title in names.items():
        both = ranking.inference.against["fedavg"][name], ranking.macro_f1.against["fedavg"][name]
        lines.append(f"| {title} | {' | '.join(f'{points(gap.mean)} {span(gap)}, {gap.verdict}' for gap in both)} |")
    assert exception == "amazon-photo"
    return [*lines, "FedGL has the highest mean, except on Photo", "tuning compares trials after 33 rounds"]


def verified() -> list[str]:
    verdicts = pd.read_csv(ROOT / "results" / "verified.csv")
    sets = verdicts[verdicts["suite"] == "graph"]
    nodes = verdicts.drop(sets.index)
    assert set(nodes["verdict"]) == {"passed"} and (nodes["score"] - nodes["ours"]).abs().max() < 0.0105
    passed = int((sets["verdict"] == "passed").sum())
    rows = pd.concat(map(pd.read_csv, (ROOT / "results" / "graph").glob("*.csv"))).sort_values("started")
    now = rows.groupby("key")["score"].last()
    old = sum(abs(now[key] - score) > 1e-6 for key, score in zip(sets["key"], sets["score"], strict=True))
    of_all = f"of {len(sets)} rows passed; {old} of the {len(sets)} were replaced since."
    board = f"passed ({(nodes['suite'] == 'node-3').sum()} of `node-3`, on the type of machine that made them)"
    return [board, "no score differs by more than 1.0 point", f"For graph classification {passed} {of_all}"]


def phrases(boards: dict[str, Ranking]) -> dict[str, list[str]]:
    result = {"conditions": [*conditions(boards), *hostile(boards)], "node-boards": node_boards(boards)}
    return result | {"graph-boards": graph_boards(boards), "links": links(boards), "rows": verified(),
                     "natural": [*natural(boards["natural"]), *natural_graphs(boards["natural-graphs"])],
                     "regression": regression(boards["regression"]),
                     "fedgl": overlapping(boards["overlap-3"]),
                     "fedgkc": mixed(boards["heterogeneous-3"], boards["heterogeneous-depth-3"])}  # fmt: skip


def prose(page: Path) -> str:
    """A page without the block of the report, commands, and targets of links."""
    text = re.sub(r"<!-- claims:begin -->.*<!-- claims:end -->", "", page.read_text(encoding="utf-8"), flags=re.S)
    return squeezed(re.sub(r"\]\([^)]*\)", "]", re.sub(r"(?m)^ {4,}fglbench .*(?:\n {8,}--.*)*$", "", text)))
