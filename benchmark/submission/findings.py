"""What is wrong with a folder of results, one line each."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """One problem. place: a file, or file:line. A warning does not make the folder invalid."""

    place: str
    what: str
    fix: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{'warning: ' if self.warning else ''}{self.place}: {self.what}; {self.fix}"


@dataclass
class Findings:
    """Problems in the order in which they are found, each told once."""

    found: dict[Finding, None] = field(default_factory=dict)  # in order, each once

    def add(self, place: object, what: str, fix: str, *, warning: bool = False) -> None:
        self.found[Finding(str(place), what, fix, warning)] = None

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.found if not finding.warning]

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.found if finding.warning]
