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
from .listing import METADATA, Findings, Folder, Verdict, check_environments, check_rows, inner, listed

OF_SUITE = ("rows", "curves", "columns", "embeddings")  # kinds of files in the folder of a suite


def verdicts(root: Path, name: str, base: str | None = None, *, maintainer: bool = False) -> Iterator[Verdict]:
    """Check a folder, and the trials and submissions in it: one verdict for each. Arguments as for `validate.validate`.

    Results folders without a base are checked suite by suite, so that unchanged suites are read from the cache.
    """
    cache = Verdicts()

    def check(root: Path, name: str, base: str | None, submission: bool | None) -> Verdict:
        if base is None and not (submission or (root / METADATA).is_file()):
            return _of_results(root, name, cache)
        from .validate import validate

        return validate(root, name, base, maintainer=maintainer, submission=submission)

    outer = check(root, name, base, None)
    yield outer
    for path in () if outer.folder.submission else sorted(inner(root)):
        before = base
        if base is not None and Path(base).is_dir():
            before = str(Path(base, path)) if Path(base, path).is_dir() else None  # everything in it is new
        if (root / path).is_dir() and not (root / path).is_symlink():
            yield check(root / path, f"{name}/{path}", before, PurePosixPath(path).parts[0] == SUBMISSIONS)


def _of_results(root: Path, name: str, cache: Verdicts) -> Verdict:
    findings, rows, machines = Findings(), Counter[str](), dict[str, str]()
    folder = listed(root, name, findings, submission=False)
    check_rows(folder, findings)
    for suite, part in _suites(folder).items():
        files = [root / file for kind in OF_SUITE[:3] for file in part.files.get(kind, ())]
        about = name, str(root), part.trials, part.files.get("embeddings", ())  # only the names of embeddings matter
        verdict = cache.of(files, about, partial(_validated, part))
        for finding in verdict["findings"]:
            findings.add(*finding[:3], warning=finding[3])
        rows[suite] += verdict["rows"]
        machines = verdict["environments"] | machines
    check_environments(folder, machines, findings)
    return Verdict(folder, rows.total(), rows, findings)


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
