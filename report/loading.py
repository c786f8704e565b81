"""Load the rows of a results folder as boards."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ..benchmark.store import Store, verified
from ..benchmark.store.provenance import current_version
from ..benchmark.store.row_file import APART
from ..benchmark.store.schema import COLUMNS, Row
from ..benchmark.suites.catalogue import board_order, entry
from ..registry import UserError
from .board import Board

UNREADABLE = (OSError, EOFError, ValueError, KeyError, NotImplementedError, zlib.error, zipfile.BadZipFile)


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """Return rows as a data frame: the stored columns, `over_budget` and `rising` (the input of `Board.build`)."""
    records = [row.model_dump() | {"over_budget": row.over_budget, "rising": row.rising} for row in rows]
    return pd.DataFrame(records, columns=[*COLUMNS, "over_budget", "rising"])


def load_boards(results: Path) -> list[Board]:
    """Load the boards of a results folder in the order of their suites. UserError if there are no rows."""
    store, boards = Store(results), []
    verdicts = verified.read(store.root)
    for suite in sorted(store.suites(), key=board_order):
        rows = frame(store.rows(suite, latest_only=True))
        if len(rows):
            made_with = zip(rows["method"], rows["method_version"], rows["git_sha"], strict=True)
            rows["computed_with"] = [current_version(*each) for each in made_with]
            damaged = dict[str, str]()
            reads = store.history, store.embeddings
            histories, embeddings = (partial(_side_file, read, damaged, suite) for read in reads)
            read = {"histories": histories, "embeddings": embeddings, "damaged": damaged}
            more = {"verdicts": verdicts, "sites": store.sites(), "trials": _trials(results, suite)}
            boards.append(Board.build(suite, rows, **read, **more))
    if not boards:
        raise UserError(f"no result rows under {str(results)!r}; run `fglbench run` first or give --results DIR")
    return boards


def _trials(results: Path, suite: str) -> pd.DataFrame:
    """Return the trials that chose the settings of a tuned suite; those of `graph-tuned` are stored under `graph`."""
    store, searched = Store(results / APART), suite.removesuffix("-tuned")
    if not entry("suite", suite).get("tuned") or searched not in store.suites():
        return pd.DataFrame()
    return frame(store.rows(searched, latest_only=True))


def _side_file(read: Callable[[str, str], Any], damaged: dict[str, str], suite: str, key: str) -> dict[str, Any] | None:
    """Return the side file of a row; None if it is missing or unreadable (the row itself is still valid)."""
    try:
        content = read(suite, key)
    except UNREADABLE as error:
        damaged[key] = str(error)
        return None
    return content if isinstance(content, dict) else None


def environments(results: Path) -> dict[str, dict[str, Any]]:
    """Load the machine and package descriptions by hash."""
    store, paths = Store(results), sorted((results / "environments").glob("*.json"))
    described = {path.stem: store.environment(path.stem) for path in paths}
    return {digest: about for digest, about in described.items() if about is not None}
