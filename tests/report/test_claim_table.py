"""The claim table of a paper's page: pooled gains compared with SciPy, the choice of readings, short pages."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fglbench.report import build
from fglbench.report.html.tables import claims_table
from fglbench.report.papers import papers, tables
from fglbench.report.reproduction.match import Ours
from fglbench.report.reproduction.page import BEGIN, END, claim_table, readings, stated_counts
from fglbench.report.reproduction.view import View, counts, judged

from . import samples

ROOT = Path(__file__).resolve().parents[2]
WORDS = 300


def made_view(shift: float) -> View:
    """FedGL's Table 5 with sample scores of three seeds: FedGL is `shift` above Federated on average."""
    paper, table = tables()["fedgl-table5"]
    figures, reading = paper.figures(table), paper.readings_of(table)[0]
    rng = np.random.default_rng(0)
    ours = {
        figure: Ours({seed: float(rng.normal(0.7 + shift * (figure.method == "FedGL"), 0.02)) for seed in range(3)})
        for figure in figures
    }
    return View(paper, table, reading, figures, ours, judged(paper, table, ours), frozenset(ours))


@pytest.mark.parametrize("shift", [0.1, 0.0, -0.1])
def test_the_gain_is_welch_s_test_over_the_columns(shift: float) -> None:
    view = made_view(shift)
    paper, _ = tables()["fedgl-table5"]
    claims = [one for one in view.claims if one.verdict != "not claimed"]
    gaps = np.array([
        [view.ours[one.figures[0]].seeds[s] - view.ours[one.figures[1]].seeds[s] for s in range(3)] for one in claims
    ])  # fmt: skip
    squares = gaps.var(axis=1, ddof=1) / 3 / len(gaps) ** 2  # of each column's share of the mean
    half = stats.t.ppf(0.975, squares.sum() ** 2 / np.sum(squares**2 / 2)) * np.sqrt(squares.sum())
    low, high = gaps.mean() - half, gaps.mean() + half
    verdict = "**supported**" if low > 0 else "**contradicted**" if high < 0 else "inconclusive"
    published = 100 * np.mean([one.figures[0].mean - one.figures[1].mean for one in claims])
    (line,) = [line for line in claim_table(paper, {"fedgl-table5": [view]}).splitlines() if " > " in line]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:2] == ["FedGL > Federated", f"{published:+.1f}"]
    assert cells[2] == f"{verdict}, {100 * gaps.mean():+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
    assert sum(map(int, cells[3].split(" / "))) == len(claims)


def test_the_best_other_reading_supports_most_claims_and_the_stated_is_the_paper_s() -> None:
    paper, _ = tables()["fedgl-table5"]
    base = made_view(0.0)
    alternatives = [
        replace(made_view(shift), reading=base.reading.model_copy(update={"id": name}))
        for name, shift in (("worse", -0.1), ("better", 0.1))
    ]
    stated, best = readings(paper, [base, *alternatives])
    assert stated is base and best is not None and best.reading.id == "better"
    again = paper.model_copy(update={"stated": "worse"})
    assert readings(again, [base, *alternatives])[0].reading.id == "worse"


def test_readings_are_ranked_over_the_claims_that_were_run_as_stated() -> None:
    paper, table = tables()["fedgl-table5"]

    def reading(name: str, shift: float, datasets: set[str]) -> View:
        view = made_view(shift)
        ours = {figure: ours if figure.dataset in datasets else Ours() for figure, ours in view.ours.items()}
        other = view.reading.model_copy(update={"id": name})
        return replace(view, reading=other, ours=ours, claims=judged(paper, table, ours))

    every = {figure.dataset for figure in paper.figures(table)}
    base, few, worse = made_view(0.0), reading("few", 0.0, {"Cora"}), reading("worse", -0.1, every)
    assert counts(few.claims)[:2] == (0, 0) and counts(worse.claims)[0] == 0 < counts(worse.claims)[1]
    best = readings(paper, [base, few, worse])[1]
    assert best is worse  # few contradicts less because of missing runs
    small, more = reading("small", 0.0, {"Cora"}), reading("more", 0.1, every - {"Cora"})
    assert counts(more.claims)[0] > 0
    stated = paper.model_copy(update={"stated": "small"})
    other = reading("other", -0.1, {"Cora"})
    assert readings(stated, [small, more, other])[1] is other  # more has no claim that was run as stated


def test_unchanged_claims_have_the_result_of_the_first_reading() -> None:
    paper, _ = tables()["fedgl-table5"]
    base = made_view(0.1)
    other = replace(
        base,
        reading=base.reading.model_copy(update={"id": "other", "methods": []}),
        affected=frozenset(figure for figure in base.figures if figure.dataset == "Cora"),
    )
    (line,) = [line for line in claim_table(paper, {"fedgl-table5": [base, other]}).splitlines() if " > " in line]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[2:4] == cells[4:6]
    shown = [[cell.text for cell in line.cells[2:5]] for line in claims_table([base, other]).lines]
    assert shown[0] == shown[1]
    again = paper.model_copy(update={"stated": "other"})
    assert stated_counts(again, {"fedgl-table5": [base, other]}) == counts(base.claims)


def test_every_stated_reading_is_one_of_the_paper_s() -> None:
    assert all(not paper.stated or paper.stated in {one.id for one in paper.readings} for paper in papers())


def test_the_report_writes_the_block_of_a_page(tmp_path: Path) -> None:
    place = {"suite": "fedgl-table2", "partition": "random-overlap", "clients": 6, "split": "fixed"}
    params = {"fedgl": {"method_params": '{"beta":1.0,"report_on":"own"}'}}
    rows = [
        samples.row("cora", method, seed, score + 0.01 * seed, **place, **params.get(method, {}))
        for method, score in (("fedavg", 0.8), ("fedgl", 0.9))
        for seed in range(3)
    ]
    rows += [samples.row("cora", "a", 0, 0.5, suite="quick")]
    folder = samples.write(tmp_path / "results", rows, curves=False)
    page = tmp_path / "docs" / "findings" / "fedgl.md"
    page.parent.mkdir(parents=True)
    page.write_text(f"# FedGL\n\n{BEGIN}\nold\n{END}\n\nThe end.\n")
    readme = tmp_path / "README.md"
    readme.write_text("<!-- leaderboard:begin --><!-- leaderboard:end -->")
    text = build.make(folder, readme, figures=False).texts[page]
    assert "old" not in text and text.endswith("The end.\n")
    assert "| FedGL > Federated " in text and "**supported**, +10.0 (+10.0 to +10.0)" in text


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "findings").glob("*.md")), ids=lambda page: page.stem)
def test_findings_pages_have_at_most_300_words_of_text(page: Path) -> None:
    text = re.sub(r"<!-- claims:begin -->.*<!-- claims:end -->", "", page.read_text(encoding="utf-8"), flags=re.S)
    text = re.sub(r"(?m)^\s*\|.*$|^ {4}.*$|`fglbench [^`]*`", "", text)
    assert len(re.sub(r"\]\([^)]*\)", "]", text).split()) <= WORDS
