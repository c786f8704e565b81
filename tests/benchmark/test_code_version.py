"""The version of the code: every source of the package counts, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from fglbench.benchmark.store import provenance


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
    sources[0].write_bytes(b"a = 2\r\n")  # a checkout with other ends of lines
    (tmp_path / "notes.md").write_text("no source")
    assert version() == seen[-1]
