"""The block of a README that the report keeps up to date. Everything outside the two markers is the authors'."""

from __future__ import annotations

from pathlib import Path

from ..registry import UserError

BEGIN = "<!-- leaderboard:begin -->"
END = "<!-- leaderboard:end -->"


def find(results: Path) -> Path | None:
    """The README beside the results folder, if it has the markers."""
    path = results.resolve().parent / "README.md"
    return path if path.is_file() and BEGIN.encode() in path.read_bytes() else None


def with_block(path: Path, body: str) -> str:
    """The text of the README at `path` with the lines of `body` between the markers.

    Raises UserError for anything but one pair of them.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the README {str(path)!r}: {error}") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end) or BEGIN in rest or END in before + after:
        raise UserError(f"{str(path)!r} must hold the lines {BEGIN!r} and {END!r} once each, in this order")
    return f"{before}{BEGIN}\n\n{body}\n{END}{after}"
