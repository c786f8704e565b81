"""Who makes a row, with what: the columns that all rows of a worker have in common."""

from __future__ import annotations

from typing import Any

from ..store.provenance import code_version, environment, git_state


def stamped(threads: int, submitter: str, device: str = "cpu") -> tuple[dict[str, Any], dict[str, Any]]:
    """(columns, description): of rows that this process makes, and of the machine that `environment` is the hash of."""
    digest, about = environment(threads, device)
    sha, dirty = git_state()
    made = {"device": device, "environment": digest, "git_sha": sha, "git_dirty": dirty, "code": code_version()}
    return {**made, "submitter": submitter}, about
