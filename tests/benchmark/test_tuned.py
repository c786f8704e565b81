"""Files of tuned settings: what their figures may be, at and beyond each bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fglbench.benchmark.suites.tuned import read_tuned
from fglbench.registry import UserError

CHOSEN: dict[str, Any] = {
    "study": "tiny/fedprox/csbm/01234567", "trials": 12, "rounds": 464, "seeds": [100], "trial": 3, "val": 0.75,
    "default": 0.5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "last", "beyond"),
    [
        ("trials", 1, 0), ("rounds", 1, 0), ("trial", 0, -1), ("seeds", [7], []), ("val", 0, -0.01), ("val", 1, 1.01),
        ("default", 0, -0.01), ("default", 1, 1.01), ("default", None, "none"),
    ],
)  # fmt: skip
def test_figures_of_a_setting_within_their_bounds(field: str, last: Any, beyond: Any, tmp_path: Path) -> None:
    file = tmp_path / "tuned.yaml"
    file.write_text(yaml.safe_dump({"fedprox": {"csbm": {**CHOSEN, field: last}}}))
    assert getattr(read_tuned(file)["fedprox"]["csbm"], field) == last
    file.write_text(yaml.safe_dump({"fedprox": {"csbm": {**CHOSEN, field: beyond}}}))
    with pytest.raises(UserError, match=rf"cannot read tuned settings .*fedprox\.csbm\.{field}"):
        read_tuned(file)
