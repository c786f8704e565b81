"""Names that the shell completes: methods, datasets, suites and so on, from what is registered and installed.

A shell asks at every press of a key, so nothing that computes is imported (they come from the catalogue).
"""

from __future__ import annotations

from collections.abc import Callable

Completion = Callable[[str], list[tuple[str, str]]]


def completes(*kinds: str) -> Completion:
    """For a typer option or argument: names of these kinds that begin with what was typed, with what they are.

    kinds: method, dataset, partition, split, backbone, suite, table. Of a comma list its last name is completed.
    """

    def complete(incomplete: str) -> list[tuple[str, str]]:
        from .. import api

        before, comma, last = incomplete.rpartition(",")
        known = {name: what for kind in reversed(kinds) for name, what in api.completions(kind).items()}
        return [(before + comma + name, what) for name, what in sorted(known.items()) if name.startswith(last)]

    return complete
