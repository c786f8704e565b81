"""`fglbench data` as a user types it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fglbench.benchmark.cli.data import _trust, app
from fglbench.datasets import DATASETS, content as contents
from fglbench.datasets.graph_files import SHA256, read_planetoid
from fglbench.datasets.sources import cache_file
from fglbench.registry import UserError

Put = Callable[[Path, dict[str, bytes]], dict[str, Path]]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return str(result.output)


@pytest.fixture
def toy_cora(papers, put: Put, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> str:  # type: ignore[no-untyped-def]
    """A mirror whose Cora is the toy one, registered; its fingerprint."""
    files = papers.planetoid()
    for name, data in files.items():
        monkeypatch.setitem(SHA256, name, hashlib.sha256(data).hexdigest())
    digest = contents.fingerprint(read_planetoid(put(mirror / "planetoid", files)))
    monkeypatch.setattr(DATASETS.cls("cora"), "fingerprint", digest)
    return digest


def test_list_names_every_dataset_and_what_is_cached(toy_cora: str) -> None:
    before = {line.split()[0]: line for line in run("list").splitlines() if line.strip()}
    assert set(DATASETS.names()) <= set(before)
    assert "yes" not in before["cora"].split()
    run("fetch", "cora")
    after = {line.split()[0]: line for line in run("list").splitlines() if line.strip()}
    assert "yes" in after["cora"].split()
    assert "generated" in after["csbm"].split()


def test_fetch_then_info_without_the_mirror(toy_cora: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cora: 1700 nodes" in run("fetch", "cora")
    assert cache_file("cora").is_file()
    monkeypatch.delenv("FGLBENCH_MIRROR")
    shown = run("info", "cora", "--set", "features=raw")
    for part in (toy_cora, "features=raw", "Sen et al.", "cache", "against the registered fingerprint"):
        assert part in shown


def test_fetch_goes_on_after_a_failure(toy_cora: str) -> None:
    with pytest.raises(UserError, match="1 of 2 datasets could not be had: wiki"):
        run("fetch", "wiki", "cora")
    assert cache_file("cora").is_file()
    with pytest.raises(UserError, match="did you mean 'cora'"):
        run("fetch", "coar")


def test_info_of_a_synthetic_dataset_says_so() -> None:
    shown = run("info", "csbm", "--set", "nodes=40", "--set", "degree=2")
    assert "not a real dataset" in shown
    assert "nothing to check" in shown
    assert "nodes=40" in shown


def test_sets_side_by_side_are_checked_each_by_itself() -> None:
    known = "against the registered fingerprint"
    assert _trust(DATASETS.build("domains:mutag+dhfr")) == f"mutag: {known}; dhfr: {known}"


def test_partition_prints_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run("partition", "csbm", "--partition", "louvain", "--clients", "4", "--set", "nodes=80", "--plot")
    rows = [line.split() for line in shown.splitlines() if line[:1].isdigit()]
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    assert sum(int(row[1]) for row in rows) == 80
    assert sum(int(pair.split(":")[1]) for row in rows for pair in row[4:]) == 80
    kept = sum(int(row[2]) for row in rows)
    assert f"lost edges {240 - kept} of 240" in shown
    assert (tmp_path / "csbm-louvain-4.png").is_file()
    run("partition", "csbm", "-k", "2", "--out", "x.svg")
    assert (tmp_path / "x.svg").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--partition", "louvan"], "did you mean 'louvain'"),
        (["--clients", "0"], "0 clients"),
        (["--set", "resolutoin=2"], "did you mean 'resolution'"),
        (["--set", "resolution=-1"], "resolution: input should be greater than 0"),
        (["--set", "resolution"], "key=value"),
        (["--set", "split.train=0.1"], "unknown section"),
        (["--partition", "fclg"], "cuts graph datasets"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        run("partition", "csbm", *arguments)
    assert "\n" not in str(error.value)
