"""A small table of the maintainers, read whole."""

from __future__ import annotations

import csv
from pathlib import Path

from ...registry import UserError


def read(path: Path) -> list[list[str]]:
    """The lines of a CSV file; none where there is no file. UserError (one line) for what is no such file."""
    if not path.is_file():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            return list(csv.reader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot be read: {reason}; take the file from version control") from None
