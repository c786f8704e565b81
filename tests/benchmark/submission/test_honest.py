"""Committed rows are handed in once more by the procedure of `honest.py`, and nothing is said that is not so."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fglbench.benchmark.store import Store, rowfile
from fglbench.benchmark.submission import claims
from fglbench.benchmark.suites import suitefile

_spec = importlib.util.spec_from_file_location("honest", Path(__file__).with_name("honest.py"))
assert _spec is not None and _spec.loader is not None
honest = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(honest)

SAMPLE = {"quick": ("fedprox", "local"), "sweep-fgssl": ("fgssl",)}
HERE = honest.RESULTS.is_dir()
pytestmark = pytest.mark.skipif(not HERE, reason="an installed package has no results")


@pytest.fixture(autouse=True)
def suites() -> Iterator[None]:
    """Those of the package, in the place of this folder's own; and all commits are known."""
    with pytest.MonkeyPatch.context() as patch, honest.all_commits_known():
        patch.setattr(suitefile, "FOLDER", Path(suitefile.__file__).parent)
        claims.expected.cache_clear()
        claims.by_method.cache_clear()
        yield
        claims.expected.cache_clear()
        claims.by_method.cache_clear()


def some(folder: Path, *suites: str) -> Path:
    """A results folder with the rows of some suites (none named: of all), and what belongs to them."""
    left_out = shutil.ignore_patterns(*honest.APART)
    for suite in suites:
        shutil.copytree(honest.RESULTS / suite, folder / suite, ignore=left_out)
    shutil.copytree(honest.RESULTS / "environments", folder / "environments")
    shutil.copy(honest.RESULTS / "versions.csv", folder)
    return folder


@pytest.mark.parametrize("suite", SAMPLE)
def test_rows_of_a_suite_come_in_without_an_alarm(suite: str, tmp_path: Path) -> None:
    results = some(tmp_path / "results", suite)
    usual = honest.usual(results)
    for method in SAMPLE[suite]:
        assert honest.alarms(results, method, usual) == []


def test_the_procedure_would_hear_an_alarm(tmp_path: Path) -> None:
    results = some(tmp_path / "results", "quick")
    path = Store(results).file("quick", "fedprox")
    first, *rest = (row for row in Store(results).rows("quick") if row.method == "fedprox")
    path.write_bytes(rowfile.header() + b"".join(map(rowfile.line, rest)))  # a seed before others that are there
    assert first.seed < max(row.seed for row in rest if row.dataset == first.dataset)
    found = honest.alarms(results, "fedprox", honest.usual(honest.RESULTS.parent / "no results"))
    assert found[0] == "submit: exit 1"
    assert any("has more seeds of fedprox" in line for line in found)


@pytest.mark.slow
def test_all_committed_rows_come_in_without_an_alarm(tmp_path: Path) -> None:
    results = some(tmp_path / "results", *Store(honest.RESULTS).suites())
    usual = honest.usual(results)
    assert {method: honest.alarms(results, method, usual) for method in honest.methods_of(results)} == {
        method: [] for method in honest.methods_of(results)
    }
