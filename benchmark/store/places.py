"""The places in a results folder: which files hold the rows that count. Plans, reports and `validate` ask here."""

from __future__ import annotations

import re
from pathlib import Path

from .schema import Row, Standing

WRITTEN = "runs"  # where new rows go by default
SHIPPED = "results"  # the rows of the leaderboard, in a clone
LOCKS, LOGS = ".locks", ".logs"
COLUMNS = "curves"  # of a suite: the folder of its files of columns
PART = "@"  # before the number of a method's second file of columns and of later ones; in the name of no method's file
SUBMISSIONS = "submissions"  # below a results folder: a folder per method with self-reported rows, which never rank
NOT_SUITES = {"environments", SUBMISSIONS}
APART = "tuning"  # below a results folder: one of its own, with the trials of studies
RESERVED = NOT_SUITES | {
    "history",
    COLUMNS,
    "embeddings",
    "models",
    "tables",
    "figures",
    APART,
}  # no suite of a user's is called so
NAME = r"[A-Za-z0-9_+][\w.+-]*"  # of a suite, which is a folder, and of a method, which is a file
SUFFIX = ".parquet"  # of a file of columns
COLUMN_FILE = rf"{NAME}({PART}([2-9]|[1-9][0-9]+))?\.parquet"
ROWS = rf"(?!({'|'.join(sorted(NOT_SUITES))})/){NAME}/{NAME}\.csv"


def reading(suite: str | None = None) -> Path:
    """Return the folder whose rows are read by default: `runs` if it has rows (of the suite, if one is given), else
    `results`."""
    written = Path(WRITTEN)
    paths = (
        path
        for path in written.glob(f"{safe_name(suite) if suite else '*'}/*.csv")
        if is_rows(f"{path.parent.name}/{path.name}")
    )
    return written if any(paths) else Path(SHIPPED)


def safe_name(name: str) -> str:
    """`name` as a file name: everything but letters, digits, '.', '_', '+' and '-' becomes '-', and none begins so."""
    plain = re.sub(r"[^\w.+-]", "-", name)
    return plain if re.match(r"[A-Za-z0-9_+]", plain) else f"_{plain}"


def submission_folder(results: Path, method: str) -> Path:
    """The folder with the self-reported rows of a method. It is a results folder of its own."""
    return results / SUBMISSIONS / safe_name(method)


def place(row: Row | Standing) -> str:
    """The file that a row belongs in, below the results folder. It counts nowhere else."""
    return f"{row.suite}/{safe_name(row.method)}.csv"


def column_file(stem: str, part: int) -> str:
    """The name of a method's file of columns, whose file of rows has this stem. part: from 1."""
    return f"{stem}{PART}{part}{SUFFIX}" if part > 1 else f"{stem}{SUFFIX}"


def rows_stem(name: str) -> str:
    """The stem of the file of rows whose curves are in a file of columns; name: the stem of that, of any part."""
    return name.partition(PART)[0]


def is_rows(path: str) -> bool:
    """Whether a path below the results folder is that of a file of rows."""
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
FORMER = ("critical_difference", "score_vs_bytes", "score_vs_seconds", "win_rate")  # until the report removes them
