"""What the report has made, as it lies in a results folder: pictures, tables of what has rows, and text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from ..store.jsoncolumn import loaded
from ..store.made import FIGURES, FORMER
from .inbox import Findings, Folder, Line

WHOLE = ("reproduction", "robustness")  # tables of a suite: those of a paper's, the curves under stress
PNG = b"\x89PNG\r\n\x1a\n"
ENDING = b"IEND\xaeB`\x82"
# A spreadsheet would run it; a number may be below nothing.
FORMULA = re.compile(r'(^|,)"?\s*([=@]|[+-](?!\s*[0-9.]+\s*(±[0-9. ]+)?("|,|$)))', re.MULTILINE)
ACTING = re.compile(
    r"<\s*(script|i?frame|img|svg|math|object|embed|applet|link|style|form|input|button|base|meta|video|audio|template)\b"
    r"|(java|vb)script:|data:\w+/|!\[[^]]*\]\(\s*<?\w*:?//|\son\w+\s*=",
    re.IGNORECASE,
)
FIX = "run `fglbench report`, which makes it"


def check(folder: Folder, lines: Sequence[Line], findings: Findings) -> None:
    datasets = defaultdict[str, set[str]](set)
    for line in lines:
        datasets[line.row.suite].add(re.sub(r"[^a-z0-9._-]+", "-", line.row.dataset.lower()))
    for kind in ("report", "figure", "manifest"):
        for file in folder.files.get(kind, ()):
            for what in _wrong(kind, folder.root / file, PurePosixPath(file), datasets):
                findings.add(folder.place(file), what, FIX)


def _wrong(kind: str, path: Path, name: PurePosixPath, datasets: dict[str, set[str]]) -> Iterator[str]:
    suite = name.parts[0]
    if len(name.parts) > 1 and suite not in datasets:
        yield f"there are no rows of suite {suite!r:.40}"
    elif kind == "figure":
        content = path.read_bytes()
        if not content.startswith(PNG) or not content.endswith(ENDING):
            yield "no picture"
    elif kind == "manifest":
        yield from _manifest(path)
    else:
        if "tables" in name.parts and not name.stem.startswith((*WHOLE, *datasets[suite])):
            yield "a table of a dataset without rows"
        text = path.read_text(encoding="utf-8", errors="replace")
        if (FORMULA if name.suffix == ".csv" else ACTING).search(text):
            yield "holds what would act where it is shown"


def _manifest(path: Path) -> Iterator[str]:
    found = loaded(path.read_bytes())
    names = {f"{figure}.png" for figure in FIGURES + FORMER}
    sound = isinstance(found, dict) and set(found) <= names
    if not sound or not all(isinstance(each, str) and re.fullmatch("[0-9a-f]{16}", each) for each in found.values()):
        yield "not the digests of figures"
