"""The examples and notebooks run on small generated graphs, in the order of their pages."""

from __future__ import annotations

import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

import fglbench

FOLDER = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
pytestmark = pytest.mark.usefixtures("registries")


def test_the_page_names_every_example() -> None:
    assert set(re.findall(r"`(\w+\.py)` \|", (FOLDER / "README.md").read_text())) == {path.name for path in SCRIPTS}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_consists_of_cells(path: Path) -> None:
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
    monkeypatch.setattr(
        "os.sched_getaffinity", lambda _: {0}, raising=False
    )  # one worker: its start takes most of the time
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
    output = capsys.readouterr().out
    assert "upload_bytes" in output  # of the curves
    scored = rows[(rows["method"] == "fedavg") & (rows["clients"] == rows["clients"].iloc[0])]
    line = next(line.split() for line in output[output.index("0 gcn") :].splitlines() if line.startswith("fedavg"))
    assert float(line[-1]) == pytest.approx(scored["score"].mean(), abs=6e-4)


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


nbformat = pytest.importorskip("nbformat")
preprocessors = pytest.importorskip("nbconvert.preprocessors")
pytest.importorskip("ipykernel")

NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def texts(cell: Any) -> str:
    return "".join(str(out.get("text", "")) + str(out.get("data", {}).get("text/plain", "")) for out in cell.outputs)


def test_there_are_notebooks_and_the_page_names_them() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert len(NAMES) >= 2 and all(f"`{name}.ipynb`" in page for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_with_its_output(name: str) -> None:
    book = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any("image/png" in out.get("data", {}) for cell in code for out in cell.outputs)
    wrong = [out for cell in code for out in cell.outputs if "error" in (out.output_type, out.get("name", "")[3:])]
    assert wrong == []
    assert str(Path.home()) not in "".join(map(texts, code))


@pytest.mark.parametrize("name", [*NAMES[:1], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[1:])])
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"DATASET": "csbm", "ROUNDS": "2", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    book = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    runner = preprocessors.ExecutePreprocessor(timeout=300, kernel_name="python3")
    runner.preprocess(book, {"metadata": {"path": str(tmp_path)}})  # raises CellExecutionError, with the cell
    outputs = [texts(cell) for cell in book.cells if cell.cell_type == "code"]
    assert any("image/png" in out.get("data", {}) for cell in book.cells for out in cell.get("outputs", ()))
    if name == "own_method":
        table = next(text for text in outputs if "best_round" in text)
        assert table.count(" ok ") == 3 and "notebook-prox" in table
    else:
        assert any("clinic-7" in text and "gain" in text for text in outputs)
        assert any("Your data: 640 nodes" in text for text in outputs)
