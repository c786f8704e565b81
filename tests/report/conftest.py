"""A results folder for the tests of the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from .samples import demo, write


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results folder with the demo rows."""
    return write(tmp_path / "results", demo())
