"""The places in a results folder: which files have the rows that count. Plans, reports and `validate` use it."""

from __future__ import annotations

import re
from pathlib import Path

from .schema import Row, Standing

WRITTEN = "runs"  # the default folder of new rows
SHIPPED = "results"  # the folder with the rows of the leaderboard in a clone
LOCKS, LOGS = ".locks", ".logs"
COLUMNS = "curves"  # the folder of a suite's files of columns
PART = "@"  # before the number of a method's second and later files of columns; no row file has it in its name
SUBMISSIONS = "submissions"  # in a results folder: one folder of self-reported rows per method; these are never ranked
NOT_SUITES = {"environments", SUBMISSIONS}
APART = "tuning"  # in a results folder: a results folder with the trials of studies
# names that a user's suite cannot have
RESERVED = NOT_SUITES | {"history", COLUMNS, "embeddings", "models", "tables", "figures", APART}
NAME = r"[A-Za-z0-9_+][\w.+-]*"  # of a suite (a folder) and of a method (a file)
SUFFIX = ".parquet"  # of a file of columns
COLUMN_FILE = rf"{NAME}({PART}([2-9]|[1-9][0-9]+))?\.parquet"
ROWS = rf"(?!({'|'.join(sorted(NOT_SUITES))})/){NAME}/{NAME}\.csv"


def reading(suite: str | None = None) -> Path:
    """Return the folder that is read by default: `runs` if it has rows (of `suite`, if given), else `results`."""
    written = Path(WRITTEN)
    paths = (
        path
        for path in written.glob(f"{safe_name(suite) if suite else '*'}/*.csv")
        if is_rows(f"{path.parent.name}/{path.name}")
    )
    return written if any(paths) else Path(SHIPPED)


def safe_name(name: str) -> str:
    """`name` as a file name: characters except letters, digits, '.', '_', '+' and '-' become '-'. A '-' or '.' at the
    start gets a '_' before it."""
    plain = re.sub(r"[^\w.+-]", "-", name)
    return plain if re.match(r"[A-Za-z0-9_+]", plain) else f"_{plain}"


def submission_folder(results: Path, method: str) -> Path:
    """The folder with the self-reported rows of a method; it is a results folder."""
    return results / SUBMISSIONS / safe_name(method)


def place(row: Row | Standing) -> str:
    """The path of a row's file in the results folder. The row does not count in another file."""
    return f"{row.suite}/{safe_name(row.method)}.csv"


def column_file(stem: str, part: int) -> str:
    """The name of a file of columns. stem: of the row file. part: from 1."""
    return f"{stem}{PART}{part}{SUFFIX}" if part > 1 else f"{stem}{SUFFIX}"


def rows_stem(name: str) -> str:
    """The stem of the row file of a file of columns. name: stem of the latter, of any part."""
    return name.partition(PART)[0]


def is_rows(path: str) -> bool:
    """Whether a path below the results folder is that of a row file."""
    return re.fullmatch(ROWS, path) is not None


FIGURES = (
    "cka",
    "convergence",
    "cost",
    "label_distribution",
    "per_client",
    "privacy",
    "rank_heatmap",
    "robustness",
    "sensitivity",
    "tiers",
    "tsne",
)
FORMER = ("critical_difference", "score_vs_bytes", "score_vs_seconds", "win_rate")  # figures of earlier reports
