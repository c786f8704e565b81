"""Whose a method's rows are: those who submitted the rows that stand. Nobody else adds to them or supersedes them.

A row's column says who submitted it, and anybody can write anything there. So a name opens nothing: whoever supersedes
a row that stands, adds to another's method or writes as the maintainers needs the maintainers' consent, which is a flag
of the command (`--maintainer`), given by whoever runs it and by nothing that lies in the folder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...methods import METHODS
from .inbox import Findings, Line, standing
from .lookalikes import deceives, twin

MAINTAINERS = "fglbench"  # the submitter of their own rows
ASK = "ask the maintainers, who take it in with --maintainer"


def check(fresh: set[Line], known: Sequence[Line], findings: Findings, *, maintainer: bool) -> None:
    """Findings about new rows of what others have submitted. maintainer: they are told, and do not count."""
    owners, counting, there = defaultdict[str, set[str]](set), standing(known), {line.text for line in known}
    for line in known:
        owners[line.row.method].add(_owner(line))
    for line in sorted(fresh, key=lambda line: (line.file, line.number)):
        row, old = line.row, counting.get((line.row.suite, line.row.key))
        if line.text in there and old is not None and old.text == line.text:
            continue  # it stands already
        strangers = sorted(owners[row.method] - {row.submitter})
        if not row.submitter:
            findings.add(line.place, "submitted by nobody", "run with your own --submitter", warning=maintainer)
        elif _owner(line) == MAINTAINERS:
            what = f"submitted as {row.submitter!r}, who are the maintainers"
            findings.add(line.place, what, "run with your own --submitter", warning=maintainer)
        if old is not None:
            what = f"supersedes the row of {_owner(old)!r:.80} with key {row.key}"
            findings.add(line.place, what, ASK, warning=maintainer)
        elif strangers:
            what = f"rows of {row.method} are those of {strangers[0]!r:.80}, not of {row.submitter!r:.80}"
            findings.add(line.place, what, f"give your variant a name of its own, or {ASK}", warning=maintainer)


def names(fresh: set[Line], known: Sequence[Line], findings: Findings) -> None:
    """Submitters and methods of new rows look like no other."""
    submitters = {MAINTAINERS, *(line.row.submitter for line in known)}
    methods = {*METHODS.names(), *(line.row.method for line in known)}
    told = set[tuple[str, str]]()
    for line in sorted(fresh, key=lambda line: (line.file, line.number)):
        for column, others in (("submitter", submitters), ("method", methods)):
            name = getattr(line.row, column)
            if (column, name) in told:
                continue
            told.add((column, name))
            if deceives(name) or (column == "method" and not name.isascii()):
                what = f"{column} {name!r:.80} holds letters that look like others"
                findings.add(line.place, what, "write it in letters of one alphabet")
            elif other := twin(name, others):
                findings.add(line.place, f"{column} {name!r:.80} looks like {other!r:.80}", "take another name")


def _owner(line: Line) -> str:
    """The first rows of the maintainers do not name them."""
    return line.row.submitter or MAINTAINERS
