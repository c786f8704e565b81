"""What lies where in a results folder: which files hold the rows that count. Plans, reports and `validate` ask here."""

from __future__ import annotations

import re

from .schema import Row

LOCKS, LOGS = ".locks", ".logs"
COLUMNS = "curves"  # of a suite: the folder of its files of columns
NOT_SUITES = {"environments", "submissions"}
APART = "tuning"  # below a results folder: one of its own, with the trials of studies
RESERVED = NOT_SUITES | {
    "history",
    COLUMNS,
    "embeddings",
    "tables",
    "figures",
    APART,
}  # no suite of a user's is called so
NAME = r"[A-Za-z0-9_+][\w.+-]*"  # of a suite, which is a folder, and of a method, which is a file
ROWS = rf"(?!({'|'.join(sorted(NOT_SUITES))})/){NAME}/{NAME}\.csv"


def safe_name(name: str) -> str:
    """`name` as a file name: everything but letters, digits, '.', '_', '+' and '-' becomes '-', and none begins so."""
    plain = re.sub(r"[^\w.+-]", "-", name)
    return plain if re.match(r"[A-Za-z0-9_+]", plain) else f"_{plain}"


def place(row: Row) -> str:
    """The file that a row belongs in, below the results folder. It counts nowhere else."""
    return f"{row.suite}/{safe_name(row.method)}.csv"


def is_rows(path: str) -> bool:
    """Whether a path below the results folder is that of a file of rows."""
    return re.fullmatch(ROWS, path) is not None
