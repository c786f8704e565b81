"""The notebooks of examples/ run from the first cell to the last, and are stored as they ran."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
preprocessors = pytest.importorskip("nbconvert.preprocessors")
pytest.importorskip("ipykernel")

FOLDER = Path(__file__).resolve().parents[1] / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))


def texts(cell: Any) -> str:
    return "".join(str(out.get("text", "")) + str(out.get("data", {}).get("text/plain", "")) for out in cell.outputs)


def test_there_are_notebooks_and_the_page_names_them() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert len(NAMES) >= 2 and all(f"`{name}.ipynb`" in page for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_with_what_it_printed(name: str) -> None:
    book = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any("image/png" in out.get("data", {}) for cell in code for out in cell.outputs)
    wrong = [out for cell in code for out in cell.outputs if "error" in (out.output_type, out.get("name", "")[3:])]
    assert wrong == []
    assert str(Path.home()) not in "".join(map(texts, code))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"DATASET": "csbm", "ROUNDS": "2", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    book = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    runner = preprocessors.ExecutePreprocessor(timeout=300, kernel_name="python3")
    runner.preprocess(book, {"metadata": {"path": str(tmp_path)}})  # raises CellExecutionError, with the cell
    told = [texts(cell) for cell in book.cells if cell.cell_type == "code"]
    assert any("image/png" in out.get("data", {}) for cell in book.cells for out in cell.get("outputs", ()))
    if name == "own_method":
        table = next(text for text in told if "best_round" in text)
        assert table.count(" ok ") == 3 and "notebook-prox" in table
    else:
        assert any("clinic-7" in text and "gain" in text for text in told)
        assert any("Your data: 640 nodes" in text for text in told)
