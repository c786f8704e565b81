"""Versions of methods and of the code: which rows are outdated."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fglbench.benchmark.engine import Method
from fglbench.benchmark.store import Store, provenance
from fglbench.benchmark.store.provenance import TABLE, current_version, git_output, method_version, origin, outdated
from fglbench.benchmark.store.schema import RULES, Row
from fglbench.benchmark.suites.select import Request, select
from fglbench.methods import METHODS

RESULTS = Path(__file__).resolve().parents[2] / "results"
MakeRow = Callable[..., Row]


@pytest.fixture
def make_row() -> MakeRow:
    """A row of FedAvg or another method name, with any version."""
    suite, cell = select(Request(methods=("fedavg",), datasets=("cora",), seeds=(0,)))[0]
    row = cell.row(suite, status="ok", started="2026-01-01T00:00:00Z", environment="e")
    return lambda version=None, method="fedavg", sha="": row.model_copy(
        update={"method": method, "method_version": version or row.method_version, "git_sha": sha}
    )


def test_a_new_row_has_the_revision_of_its_method(make_row: MakeRow, monkeypatch: pytest.MonkeyPatch) -> None:
    cls = METHODS.cls("fedavg")
    row = make_row()
    assert row.method_version == method_version(cls) == "1"
    assert not outdated(row, method_version(cls))
    monkeypatch.setattr(cls, "revision", 2)
    assert outdated(row, method_version(cls))
    assert not outdated(make_row("2"), method_version(cls))
    monkeypatch.setattr(cls, "revision", 1)
    assert not outdated(make_row("2"), method_version(cls))  # made by later code


def test_a_hash_counts_as_its_revision_in_the_table(make_row: MakeRow) -> None:
    """By hand, from the history of FedSage+: its first hash belonged to two codes; the commit says which."""
    assert not outdated(make_row("ae200f5b89f1"), method_version(METHODS.cls("fedavg")))
    assert outdated(make_row("0" * 12), method_version(METHODS.cls("fedavg")))
    assert outdated(make_row("older"), method_version(METHODS.cls("fedavg")))
    first, other = "c89e1fc99a6ee4ad44a1c32075531572d5ae1acd", "4c0b69f45e2ca93ea2fabb63201f4b6abc2a544f"
    versions = [current_version("fedsage+", "434a36b49efa", sha) for sha in (first, other)]
    assert versions == ["1", "2"]
    assert current_version("fedavg", "434a36b49efa", "") == "434a36b49efa"
    assert current_version("fedavg", "1+0a1b2c3d4e5f", "") == "1+0a1b2c3d4e5f"


def test_a_method_from_outside_also_has_the_hash_of_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_row: MakeRow
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    classes: list[type[Method]] = []
    for number, text in enumerate(("a", "b", "a")):
        (tmp_path / f"outside_{number}.py").write_text(
            f'from fglbench.methods.fedavg import FedAvg\n\n\nclass Mine(FedAvg):\n    """{text}"""\n    revision = 3\n'
        )
        classes.append(importlib.import_module(f"outside_{number}").Mine)
    versions = [method_version(cls) for cls in classes]
    assert versions[0] == versions[2] != versions[1]
    assert versions[0] == f"3+{json.loads(origin(classes[0]))['source']}"
    assert all(re.fullmatch(RULES["method_version"].pattern, version) for version in [*versions, "1", "ae200f5b89f1"])
    assert [outdated(make_row(versions[0]), method_version(cls)) for cls in classes] == [False, True, False]
    now = method_version(METHODS.cls("fedavg"))
    assert outdated(make_row("3"), method_version(classes[0])) and outdated(make_row(versions[0]), now)


def test_the_table_names_methods_and_revisions_that_exist() -> None:
    for line in TABLE.read_text().splitlines()[1:]:
        method, version, commit, revision = line.split(",")
        assert 1 <= int(revision) <= METHODS.cls(method).revision
        assert re.fullmatch("[0-9a-f]{12}", version) and re.fullmatch("([0-9a-f]{40})?", commit)


def test_stored_rows_are_current_except_for_known_ones() -> None:
    rows = Store(RESULTS).rows(latest_only=True)
    old = {
        (row.suite, row.method)
        for row in rows
        if row.status == "ok" and outdated(row, method_version(METHODS.cls(row.method)))
    }
    # FedSage+: older rows were summed in another order.
    assert old <= {(suite, "fedsage+") for suite in ("leaderboard", "fedomd-table4", "fgssl-table1")}


def test_the_version_of_the_code_follows_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    sources = [tmp_path / (top if top.endswith(".py") else f"{top}/deep/a.py") for top in provenance.CODE]
    for path in sources:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a = 1\n")
    version = provenance.code_version.__wrapped__
    seen = [version()]
    for path in sources:
        path.write_text("a = 2\n")
        seen.append(version())
    assert len(set(seen)) == len(sources) + 1
    sources[0].write_bytes(b"a = 2\r\n")  # other line endings
    (tmp_path / "notes.md").write_text("no source")
    assert version() == seen[-1]


def test_looking_at_a_checkout_writes_nothing_into_it(tmp_path: Path) -> None:
    """`git status` refreshes the index behind a lock, which a killed worker would leave."""
    file, git = tmp_path / "file", ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    file.write_text("content")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], check=True)
    os.utime(file, (1, 1))
    index = (tmp_path / ".git/index").stat().st_mtime_ns
    assert git_output("status", "--porcelain", folder=tmp_path) == b""
    assert (tmp_path / ".git/index").stat().st_mtime_ns == index
