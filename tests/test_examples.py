"""The examples run, in the order of their page, on small generated graphs, and open as notebooks."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import fglbench

FOLDER = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
pytestmark = pytest.mark.usefixtures("registries")


def test_the_page_names_every_example() -> None:
    assert set(re.findall(r"`(\w+\.py)` \|", (FOLDER / "README.md").read_text())) == {path.name for path in SCRIPTS}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_is_made_of_cells(path: Path) -> None:
    """As Jupytext's percent format has them: text in comments, no line of code before the first cell."""
    text = path.read_text(encoding="utf-8")
    cells = re.split(r"^# %%", text, flags=re.M)
    assert cells[0] == "" and len(cells) > 4
    assert cells[1].startswith(" [markdown]\n# # ")
    for cell in cells[1:]:
        if cell.startswith(" [markdown]"):
            assert all(line.startswith("#") for line in cell.strip().splitlines()[1:]), cell


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


def run(name: str, place: Path, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)  # one worker: most of it is its start
    for key, value in settings.items():
        monkeypatch.setenv(key, value)
    runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")


@pytest.mark.usefixtures("in_process")
def test_two_methods_and_their_rows(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    run("compare_two", place, monkeypatch, DATASET="csbm", ROUNDS="2")
    assert (place / "compare.png").stat().st_size > 5000
    rows = fglbench.load_results(place / "runs" / "compare", expand=True)
    assert set(rows["training.local_epochs"]) == {5} and len(rows) == 6
    run("read_rows", place, monkeypatch, RESULTS="runs/compare")
    assert (place / "traffic.png").stat().st_size > 5000
    told = capsys.readouterr().out
    assert "upload_bytes" in told  # of the curves
    own = rows[(rows["method"] == "fedavg") & (rows["clients"] == rows["clients"].iloc[0])]
    line = next(line.split() for line in told[told.index("0 gcn") :].splitlines() if line.startswith("fedavg"))
    assert float(line[-1]) == pytest.approx(own["score"].mean(), abs=6e-4)  # one kind: it is what the clients' mean is


def test_a_method(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("add_method", place, monkeypatch, DATASET="csbm", ROUNDS="2")
    rows = fglbench.load_results(place / "runs" / "damped").set_index("method")
    assert set(rows["status"]) == {"ok"} and set(rows.index) == {"damped", "fedavg"}
    assert '"distribution"' not in rows.loc["damped", "origin"].iloc[0] and rows.loc["damped", "origin"].iloc[0]


@pytest.mark.usefixtures("in_process")
def test_a_graph(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    run("own_graph", place, monkeypatch, ROUNDS="2")
    rows = fglbench.load_results(place / "runs" / "own")
    assert set(rows["dataset"]) == {"own:villages"} and set(rows["status"]) == {"ok"} and len(rows) == 6
    assert "Scores(score=0." in capsys.readouterr().out
