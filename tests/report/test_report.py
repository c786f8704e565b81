"""The report on disk: its texts, bitwise repetition, and detection of stale files."""

from __future__ import annotations

import csv
import gzip
import inspect
import json
import random
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fglbench.benchmark.cli import main
from fglbench.benchmark.cli.report import compare, report
from fglbench.benchmark.store import Store
from fglbench.registry import UserError
from fglbench.report import build, leaderboard as readme
from fglbench.report.figures import ranks

from . import samples

app = typer.Typer()
app.command()(report)
app.command()(compare)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix == ".md" or (path.suffix in (".png", ".json", ".csv") and path.parent != folder / "demo")
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo rows with their report, written once."""
    folder = samples.write(tmp_path_factory.mktemp("written") / "results", samples.demo())
    build.write(build.make(folder, None))
    return folder


@pytest.fixture
def drawn(written: Path, tmp_path: Path) -> Path:
    """A copy of the written report."""
    return Path(shutil.copytree(written, tmp_path / "results"))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def test_leaderboard_shows_the_rows(written: Path) -> None:
    front, text = ((written / name).read_text() for name in ("LEADERBOARD.md", "demo/LEADERBOARD.md"))
    ranking = [cells(line) for line in text.splitlines() if " alpha " in line and "8.0 MB" in line]
    dash = "\N{EN DASH}"
    assert ranking == [[dash, "alpha", f"1.33 (1.0{dash}2.0)", "72.17", "2", "8.0 MB", "2.0", "500", dash, dash]]
    shared = text[text.index("\n- Suite demo.") : text.index("\n## ")]
    assert shared.strip() in front and "(demo/LEADERBOARD.md)" in front and "1/3" not in front
    assert "|     1/3 |    3/6 | cora: failed (seed 1): loss is nan \\| round 3<br>wiki: skipped: needs" in text
    for shown in (
        "Here both are too few (a task needs 3 seeds): nothing is compared.", "**80.50 ± 0.71**", "*skipped*", "(n=1)",
        "| *Centralised training*", "reference", "torch 2.5.0", "a \\| pipe", "`aaaaaaaaaaaa` (30 rows)",
        "Rows: 30 (1 failed, 27 ok, 2 skipped)",
    ):  # fmt: skip
        assert shown in text


@pytest.mark.parametrize(
    ("measured", "time"), [({}, "training time"), ({"cpu_seconds": 3.0}, "CPU time of the whole run")]
)
def test_captions_are_whole_and_name_the_time_that_is_drawn(measured, time, tmp_path: Path) -> None:
    rows = [row.model_copy(update=measured) for row in samples.demo()]
    folder = samples.write(tmp_path / "results", rows)
    made = build.make(folder, None)
    text = made.texts[folder / "demo" / "LEADERBOARD.md"]
    assert ranks.TIERS_CAPTION in text and f" and against {time}, both medians" in text
    _, data = made.figures[folder / "demo" / "figures" / "cost.png"]
    assert [axes.get_xlabel() for axes in ranks.draw_cost(data).axes] == ["traffic to the best round", f"{time}, s"]


def test_task_csv_has_the_means(written: Path) -> None:
    with (written / "demo" / "tables" / "cora.csv").open(newline="") as stream:
        lines = {line["method"]: line for line in csv.DictReader(stream)}
    assert list(lines) == ["alpha", "beta", "gamma", "delta", "global"]
    shown = [lines["alpha"][name] for name in ("score", "n", "standing", "score_std")]
    assert shown == ["0.805", "2", "best", f"{0.01 / 2**0.5:.6g}"]
    assert (lines["delta"]["n"], lines["delta"]["score_std"]) == ("1", "")


def test_same_rows_in_any_order_give_the_same_bytes(written: Path, tmp_path: Path) -> None:
    rows = samples.demo()
    random.Random(7).shuffle(rows)
    folder = samples.write(tmp_path / "results", rows)
    build.write(build.make(folder, None))
    assert snapshot(folder) == snapshot(written)
    assert {"demo/figures/convergence.png", "demo/figures/cost.png", "LEADERBOARD.md", "demo/LEADERBOARD.md"} <= set(
        snapshot(folder)
    )


def test_check_names_what_a_changed_score_makes_stale(drawn: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, asked = drawn, ["report", "--results", str(drawn)]
    before = snapshot(results)
    capsys.readouterr()
    assert main([*asked, "--check"]) == 0
    assert capsys.readouterr().out == "everything is up to date\n"
    path = results / "demo" / "gamma.csv"
    rows = [row for row in Store(results).rows("demo") if row.method == "gamma"]
    path.unlink()
    for row in rows:
        change = {"score": 0.99} if (row.dataset, row.seed) == ("wiki", 0) else {}
        Store(results).append_row(row.model_copy(update=change))
    assert main([*asked, "--check"]) == 1
    output = capsys.readouterr().out.splitlines()
    stale = {Path(line.removeprefix("stale: ")).name for line in output if line.startswith("stale")}
    assert {"LEADERBOARD.md", "wiki.md", "wiki.csv"} <= stale and not {"cora.md", "rank_heatmap.png"} & stale
    assert snapshot(results) == before  # a check writes nothing
    assert main(asked) == 0
    assert main([*asked, "--check"]) == 0


def test_a_changed_curve_makes_the_convergence_stale(drawn: Path) -> None:
    path = sorted((drawn / "demo" / "history").glob("*.gz"))[0]
    stored = json.loads(gzip.decompress(path.read_bytes()))
    stored["history"]["score"][3] += 0.01
    path.write_bytes(gzip.compress(json.dumps(stored).encode()))
    assert [p.name for p in build.stale(build.make(drawn, None))] == ["convergence.png", "manifest.json"]
    whole = path.read_bytes()
    odd = [gzip.compress(text.encode()) for text in ("[1]", '{"history":{"round":["x"],"score":[1]}}')]
    for content in (b"cut", whole[:20] + b"\xff\xff\xff" + whole[23:], *odd):
        path.write_bytes(content)  # an unreadable side file only removes its curve
        assert "convergence.png" in [p.name for p in build.stale(build.make(drawn, None))]


def test_lost_curves_are_named_and_their_figures_stay(drawn: Path) -> None:
    shutil.rmtree(drawn / "demo" / "history")
    folder = drawn / "demo" / "curves"
    with pytest.warns(UserWarning, match=r"demo: curves or embeddings of 27 runs cannot be read \(\w+: no curves\)"):
        build.make(drawn, None)
    folder.mkdir()
    (folder / "alpha.parquet").write_text("cut")
    with pytest.warns(
        UserWarning, match=r"27 runs cannot be read \(\w+: alpha.parquet: .*; restore the files from git"
    ):
        build.write(build.make(drawn, None))
    assert (drawn / "demo" / "figures" / "convergence.png").is_file()


def test_changed_drawing_code_makes_its_figure_stale_and_a_changed_style_all(
    drawn: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, figures = inspect.getsource, {path.name for path in (drawn / "demo" / "figures").glob("*.png")}

    def stale(edited: str) -> set[str]:
        monkeypatch.setattr(inspect, "getsource", lambda of: source(of) + "ADDED = 1" * (of.__name__.endswith(edited)))
        return {path.name for path in build.stale(build.make(drawn, None))} - {"manifest.json"}

    assert stale("figures.convergence") == {"convergence.png"}
    assert stale("figures.ranks") == {"tiers.png", "cost.png", "rank_heatmap.png"}
    assert stale("figures.style") == figures
    assert stale("no such module") == set()


def test_lost_and_left_over_files_are_stale(drawn: Path) -> None:
    (drawn / "demo" / "figures" / "tiers.png").unlink()
    (drawn / "demo" / "tables" / "gone.md").write_text("old")
    assert [p.name for p in build.write(build.make(drawn, None))] == ["tiers.png", "gone.md"]
    assert not (drawn / "demo" / "tables" / "gone.md").exists()
    assert build.stale(build.make(drawn, None)) == []


def test_without_figures_no_figure_is_touched_or_checked(results: Path) -> None:
    build.write(build.make(results, None, figures=False))
    assert not (results / "demo" / "figures").exists()
    assert "figures/" not in (results / "demo" / "LEADERBOARD.md").read_text()  # no link to a missing figure
    assert build.stale(build.make(results, None, figures=False)) == []


def test_readme_block(results: Path) -> None:
    page = results.parent / "README.md"
    page.write_text("before\n")
    assert readme.find_readme(results) is None
    with pytest.raises(UserError, match="once each"):
        build.make(results, page)
    page.write_text(f"before\n\n{readme.BEGIN}\nold\n{readme.END}\nafter\n")
    build.write(build.make(results, readme.find_readme(results), figures=False))
    text = page.read_text()
    assert text.startswith("before\n\n") and text.endswith(f"{readme.END}\nafter\n")
    assert "(results/LEADERBOARD.md)" in text and "alpha" in text
    assert "\nold\n" not in text and "delta" not in text
    page.write_text(text.replace("alpha", "omega"))
    assert build.stale(build.make(results, page, figures=False)) == [page]


def test_the_readme_shows_quick_only_when_there_is_nothing_else(tmp_path: Path) -> None:
    folder = samples.write(tmp_path / "results", [samples.row("cora", "a", 0, 0.5, suite="quick")], curves=False)
    page = tmp_path / "README.md"
    page.write_text(readme.BEGIN + readme.END)
    assert "**quick**" in build.make(folder, page, figures=False).texts[page]
    samples.write(folder, [samples.row("cora", "a", 0, 0.5, suite="own")], curves=False)
    text = build.make(folder, page, figures=False).texts[page]
    assert "**quick**" not in text and "**own**" in text


def test_text_from_rows_is_never_markup(tmp_path: Path) -> None:
    evil = "x|y <script>alert(1)</script> [a](http://b) **b** `c` $\\frac$ @me www.z.org \x1b[31m\u202e"
    rows = [
        samples.row("co|ra <b>$x$", "a=cmd()", 0, 0.5, score_metric=evil, submitter=evil, synthetic=True),
        samples.row("co|ra <b>$x$", "a/../../escape", 0, 0.4, git_sha="`x` <i>", method_version="<u>`"),
        samples.row("co|ra <b>$x$", "other", 0, error=evil),
    ]
    folder = samples.write(tmp_path / "results", rows)
    build.write(build.make(folder, None))
    for path in [*folder.rglob("LEADERBOARD.md"), *(folder / "demo" / "tables").iterdir()]:
        text = path.read_text()
        acting = ("<script", "<b>", "<i>", "<u>", "[a](", "http://b", "\x1b", "\u202e", "**b**", "@me", "www.z")
        assert not any(bad in text for bad in acting)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*.md")}
    assert len(names) == 3 and all(
        name.startswith(("LEADERBOARD.md", "demo/LEADERBOARD.md", "demo/tables/co-ra-b-x")) for name in names
    )
    tables = [line for line in (folder / "demo" / "LEADERBOARD.md").read_text().splitlines() if line.startswith("|")]
    assert tables and all(line.replace("\\|", "").count("|") in (3, 5, 8, 10, 11) for line in tables)


def test_a_board_of_failures_has_a_page(tmp_path: Path) -> None:
    rows = [samples.row("arxiv", "a", 0, error="features are unavailable")]
    text = samples.pages(tmp_path, rows)[1]["demo/LEADERBOARD.md"]
    assert "No method is complete" in text
    assert "- arxiv: failed (seed 0): features are unavailable" in text


def test_cautions_name_inconsistent_rows(tmp_path: Path) -> None:
    rows = [
        samples.row("cora", "a", 0, 0.5, git_dirty=True),
        samples.row("cora", "a", 1, 0.5, method_version="f" * 12),
        samples.row("cora", "b", 0, 0.5, partition_hash="other"),
        samples.row("cora", "b", 1, 0.5, dataset_fingerprint="other"),
    ]
    text = samples.pages(tmp_path, rows)[1]["demo/LEADERBOARD.md"]
    for words in ("scores of a come from 2 versions", "1 row from a checkout with uncommitted",
                  "seeds are not paired", "fingerprints differ"):  # fmt: skip
        assert words in text
    compared = CliRunner().invoke(app, ["compare", "a", "b", "--results", str(tmp_path / "results")]).output
    assert "Caution: rows of cora were made on different data (fingerprints differ)" in compared
    assert "Caution: on cora methods with the same seed had different partitions" in compared


def test_a_method_may_be_named_like_its_dataset(tmp_path: Path) -> None:
    rows = [samples.row("alpha", name, seed, 0.5 + seed / 10) for name in ("alpha", "beta") for seed in range(3)]
    assert "| alpha" in samples.pages(tmp_path, rows)[1]["LEADERBOARD.md"]


def test_no_rows_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no result rows"):
        build.make(tmp_path, None)


def test_compare_command(results: Path) -> None:
    run = CliRunner().invoke
    result = run(app, ["compare", "alpha", "beta", "--results", str(results)])
    assert result.exit_code == 0 and "demo: alpha - beta" in result.output and "+9.95" in result.output
    for asked, known in ((["betta"], "beta"), (["beta", "-s", "dmo"], "demo")):
        wrong = run(app, ["compare", "alpha", *asked, "--results", str(results)]).exception
        assert isinstance(wrong, UserError) and f"did you mean '{known}'" in str(wrong)
