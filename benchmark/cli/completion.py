"""Names that the shell completes: methods, datasets, suites and so on, from what is registered and installed.

A shell asks at every press of a key, so nothing that computes is imported (`_travel_light` sees to it).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

Completion = Callable[[str], list[tuple[str, str]]]

VARIABLE = "_FGLBENCH_COMPLETE"  # typer's: a shell asks for completions, and the process ends with the answer


def completes(*kinds: str) -> Completion:
    """For a typer option or argument: names of these kinds that begin with what was typed, with what they are.

    kinds: method, dataset, partition, split, backbone, suite, table. Of a comma list its last name is completed.
    """

    def complete(incomplete: str) -> list[tuple[str, str]]:
        before, comma, last = incomplete.rpartition(",")
        found = dict(pair for kind in kinds for pair in _known(kind) if pair[0].startswith(last))
        return [(before + comma + name, what) for name, what in sorted(found.items())]

    return complete


def _known(kind: str) -> Iterator[tuple[str, str]]:
    if kind == "suite":
        from ..suites.suitefile import suite_names

        yield from ((name, "") for name in suite_names())
    elif kind == "table":
        from ...report.papers import tables

        yield from ((suite, paper.name) for suite, (paper, _) in tables().items())
    else:
        from ...report.families import deed
        from ..suites.plugins import REGISTRIES, installed

        for name in (*REGISTRIES[kind].names(), *installed(REGISTRIES[kind])):
            yield name, deed(name) if kind == "method" else ""
