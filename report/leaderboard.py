"""LEADERBOARD.md, key findings, self-reported results, and the README's block."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..benchmark.store.folder import self_reported
from ..benchmark.suites.catalogue import is_board
from ..registry import UserError
from .board import FEDAVG, LOCAL
from .cells import Table
from .groups import display
from .ranking import Ranking
from .tables import ranking_columns, ranking_lines
from .templating import document
from .text import data_size, markdown_table, md, percent, plain, points, with_bounds

CHEAP = 0.1  # of FedAvg's traffic
FAR = " (by more than one point)"
MEANING = {"better": FAR, "equivalent": " (within one point)", "undecided": "", "worse": FAR}  # in this order


def key_findings(boards: Sequence[Ranking]) -> list[str]:
    """Sentences: the comparison with FedAvg, of FedAvg with `local`, and of traffic; each from the first board that has
    it."""
    compared = next((findings for each in boards if (findings := _by_baselines(each))), [])
    return compared + next((findings for each in boards if (findings := _by_traffic(each))), [])


def _by_baselines(ranking: Ranking) -> list[str]:
    inference = ranking.inference
    if not {FEDAVG, LOCAL} <= set(inference.baselines) or inference.unit == "none":
        return []
    others: dict[str, list[str]] = {}
    for name, posterior in inference.against[FEDAVG].items():
        others.setdefault(posterior.verdict, []).append(plain(display(name)))
    known = {verdict: meaning for verdict, meaning in MEANING.items() if verdict in others}
    text = "; ".join(f"{verdict}{meaning}: {', '.join(others[verdict])}" for verdict, meaning in known.items())
    measures = {ranking.board.metric: inference, "macro-F1": ranking.macro_f1}
    by_metric = {name: each.against[LOCAL][FEDAVG] for name, each in measures.items() if each and each.unit != "none"}
    gains = [f"{metric} {with_bounds(gain)}, {gain.verdict}" for metric, gain in by_metric.items()]
    return [
        f"Compared with FedAvg, with a probability of 95%: {text}.",
        f"FedAvg compared with local training, in points (95% interval): {'; '.join(gains)}.",
    ]


def _by_traffic(ranking: Ranking) -> list[str]:
    """Traffic of FedAvg, `local`, and the first method that sends at most CHEAP of FedAvg's bytes, but not nothing."""
    against = ranking.inference.against
    if FEDAVG not in against or ranking.inference.unit == "none":
        return []
    table = ranking.table
    traffic = {str(name): float(value) for name, value in table["traffic"].items()}
    usual = traffic[FEDAVG]
    cheap = table[(table["traffic"] > 0) & (table["traffic"] <= CHEAP * usual)]
    parts = [f"FedAvg sends {data_size(usual)}"]
    for name in [*cheap.index[:1], *[LOCAL] * (LOCAL in against[FEDAVG])]:
        posterior, sent = against[FEDAVG][name], traffic[name]
        share = data_size(sent) if sent else "nothing"
        gap = with_bounds(posterior, " points")
        parts.append(f"{plain(display(name))} sends {share} and differs from FedAvg by {gap}")
    return [f"Traffic: {'; '.join(parts)}."] if parts[1:] else []


README = ["Method", "Traffic", "Published"]  # columns, with means and the difference from FedAvg
TOP = 4


def leaderboard(boards: list[Ranking], heads: dict[str, str]) -> str:
    """LEADERBOARD.md: the rankings of the benchmark's boards (of all, if there are none), and links to the pages of
    the suites. heads: suite -> the text of its ranking."""
    shown = [each for each in boards if is_board(each.board.suite)] or boards
    others = [each for each in boards if each not in shown]
    return document("leaderboard.md", shown=shown, others=others, heads=heads, anchor=anchor)


def anchor(title: str) -> str:
    """GitHub's link target for the heading of a board."""
    return "".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_")


def readme_block(boards: list[Ranking], leaderboard_link: str) -> str:
    """The body of the README block: the first TOP methods and the baselines of the first board, and a link to the
    leaderboard. Boards of the benchmark are preferred, and `quick` is used if there is no other."""
    of_benchmark = [each for each in boards if is_board(each.board.suite)]
    boards = [each for each in boards if not each.board.is_sweep]
    shown = of_benchmark or [each for each in boards if each.board.suite != "quick"] or boards
    verified = any(each.board.verified for each in of_benchmark[:1])
    return document("readme.md", boards=shown, link=leaderboard_link, head=_head, verified=verified)


def _head(ranking: Ranking) -> Table:
    places = enumerate(ranking.table.index)
    names = [name for place, name in places if place < TOP or name in (FEDAVG, LOCAL)]
    means = ("Mean ", "Against FedAvg")
    columns = [c for c in ranking_columns(ranking) if c.title in README or c.title.startswith(means)]
    return ranking_lines(ranking, columns, names)


BEGIN = "<!-- leaderboard:begin -->"
END = "<!-- leaderboard:end -->"


def find_readme(results: Path) -> Path | None:
    """The README next to the results folder, if it has the markers."""
    path = results.resolve().parent / "README.md"
    return path if path.is_file() and BEGIN.encode() in path.read_bytes() else None


def with_block(path: Path, body: str, begin_mark: str = BEGIN, end_mark: str = END) -> str:
    """The text of the page at `path` with `body` between the markers.

    Raises UserError if the page cannot be read, or does not have exactly one pair of markers.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the page {str(path)!r}: {error}") from None
    before, begin, rest = text.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not (begin and end) or begin_mark in rest or end_mark in before + after:
        raise UserError(f"{str(path)!r} must have the lines {begin_mark!r} and {end_mark!r} once each, in this order")
    return f"{before}{begin_mark}\n\n{body}\n{end_mark}{after}"


REPORTED = ["suite", "dataset", "method", "submitter", "reported score", "our run", "reported - ours"]
ABOUT_REPORTED = """\
Results as their submitters report them. They have no rank: methods are ranked by runs of the maintainers
(`fglbench adopt`). If there is such a run, its score is in the column "our run" (percent; seeds in brackets).
"""


def reported_section(results: Path) -> str:
    """The section of the leaderboard file; empty without submissions."""
    rows = [[md(word) for word in line] for line in reported(results)]
    table = markdown_table(rows, REPORTED, "llllrrr")
    return f"\n## Self-reported results\n\n{ABOUT_REPORTED}\n{table}\n" if rows else ""


def reported(results: Path) -> list[list[str]]:
    """A line of plain words for each self-reported experiment, in the order of REPORTED."""
    lines = []
    for each in self_reported(results):
        row = each.row
        data = f"{row.dataset}, {row.partition} x{row.clients}, {row.backbone}"
        ours = f"{percent(each.ours)} ({each.our_seeds})" if each.our_seeds else "-"
        words = map(plain, (row.suite, data, row.method, row.submitter))
        lines.append([*words, f"{percent(each.theirs)} ({each.seeds})", ours, points(each.difference)])
    return lines
