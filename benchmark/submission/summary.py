"""Validate a results folder suite by suite. Results are cached: a suite with the same files is not read again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from ..store.judged import Verdicts
from ..store.row_file import SUBMISSIONS
from .listing import Findings, Folder, Verdict, check_environments, check_rows, inner, listed

OF_SUITE = ("rows", "curves", "columns", "embeddings")  # kinds of files in the folder of a suite


def summaries(root: Path, name: str) -> Iterator[Verdict]:
    """Check a results folder without a base, and the trials and submissions in it. `validate.validate_all` returns more
    details."""
    verdicts = Verdicts()
    yield _of_results(root, name, verdicts)
    for path in sorted(inner(root)):
        if (root / path).is_dir() and not (root / path).is_symlink():
            if PurePosixPath(path).parts[0] == SUBMISSIONS:
                yield _of_submission(root / path, f"{name}/{path}")
            else:
                yield _of_results(root / path, f"{name}/{path}", verdicts)


def _of_submission(root: Path, name: str) -> Verdict:
    from .validate import validate

    return validate(root, name, submission=True).summary


def _of_results(root: Path, name: str, verdicts: Verdicts) -> Verdict:
    findings, rows, machines = Findings(), Counter[str](), dict[str, str]()
    folder = listed(root, name, findings, submission=False)
    check_rows(folder, findings)
    for suite, part in _suites(folder).items():
        files = [root / file for kind in OF_SUITE[:3] for file in part.files.get(kind, ())]
        about = name, str(root), part.trials, part.files.get("embeddings", ())  # only the names of embeddings matter
        verdict = verdicts.of(files, about, partial(_validated, part))
        for finding in verdict["findings"]:
            findings.add(*finding[:3], warning=finding[3])
        rows[suite] += verdict["rows"]
        machines = verdict["environments"] | machines
    check_environments(folder, machines, findings)
    return Verdict(name, False, rows.total(), rows, findings)


def _validated(folder: Folder) -> dict[str, Any]:
    from .validate import of_suite

    return of_suite(folder)


def _suites(folder: Folder) -> dict[str, Folder]:
    files = dict[str, dict[str, list[str]]]()
    for kind in OF_SUITE:
        for file in folder.files.get(kind, ()):
            files.setdefault(PurePosixPath(file).parts[0], {}).setdefault(kind, []).append(file)
    return {
        suite: replace(folder, files={kind: tuple(paths) for kind, paths in files[suite].items()})
        for suite in sorted(files)
    }
