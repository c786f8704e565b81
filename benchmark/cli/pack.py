"""`fglbench pack`: the curves of rows, from a file each into a few for each method and suite."""

from __future__ import annotations

from pathlib import Path

import typer

from .options import Json, Results, Suites, names
from .output import print_json


def pack(results: Results = Path("results"), suite: Suites = None, json: Json = False) -> None:
    """Put the curves of finished rows, a file each, into one compressed file a method and suite, or a few.

    For results kept in version control: they take a third of the space then. Nothing is lost, runs and reports
    go on as before, and later runs leave files of their own again, which the next `fglbench pack` takes in.
    """
    from ...registry import did_you_mean
    from ...report.text import count
    from ..store import Store
    from ..store.packing import pack as put_together
    from ..store.places import APART

    stores = [Store(results).existing(), *([Store(results / APART)] if (results / APART).is_dir() else [])]
    known = {name for store in stores for name in store.suites()}
    for name in names(suite):
        if name not in known:
            raise did_you_mean(name, known, f"suite with rows under {str(results)!r}:")
    packed = []
    for store in stores:
        done = [put_together(store, name) for name in store.suites() if name in (names(suite) or known)]
        moved, left = (sum(numbers) for numbers in zip(*done, strict=True)) if done else (0, 0)
        kept = f", {left} left in files of their own" if left else ""
        packed.append({"results": store.root, "rows": moved, "left": left})
        typer.echo(f"{store.root}: the curves of {count(moved, 'row')} put into columns{kept}", err=json)
    if json:
        print_json(packed)
