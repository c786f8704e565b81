"""The order of the boards: as their files number them, then those without a number by name, the smoke test last."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from fglbench.benchmark.suites import headers

FILES = Path(headers.__file__).parent.glob("*.yaml")


def test_boards_stand_as_their_files_number_them_and_quick_last() -> None:
    files = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in FILES}
    numbers = {name: own["order"] for name, own in files.items() if "order" in own}
    assert len(numbers) > 2 and len(set(numbers.values())) == len(numbers)
    boards = sorted(numbers, key=numbers.__getitem__)
    names = [
        name.swapcase().swapcase() for name in ["quick", "zebra", "aardvark", *reversed(boards)]
    ]  # equal, not same
    wanted = [*(name for name in boards if name != "quick"), "aardvark", "zebra", "quick"]
    assert sorted(names, key=headers.board_order) == wanted


@pytest.mark.parametrize("name", ["leaderboard", "nobody's"])
def test_a_board_is_called_by_its_title_and_others_by_their_name(name: str) -> None:
    path = Path(headers.__file__).with_name(f"{name}.yaml")
    own = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    assert headers.is_board(name) == ("order" in own)
    assert headers.board_title(name) == own.get("title", name)
