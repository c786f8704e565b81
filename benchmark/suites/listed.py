"""The cells of the package's suites as the catalogue lists them: enough to say what a run would do, without torch.

A dry run that only narrows suites of the package takes them from here. All else (`--set`, own data, suite files,
plug-ins, names or seeds that a suite lacks) asks the classes (`select`), and so does every run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from .catalogue import catalogue, entry, listed_cells, untuned_pairs
from .request import Request, suites_of, told_defaults, told_left, told_untuned


@dataclass(frozen=True)
class ListedCell:
    """A cell by its names. line: "cora louvain x10 gcn fedavg", its text without the seed. ends: `Cell.ends`."""

    line: str
    ends: dict[str, int | None]
    seed: int
    key: str

    @cached_property
    def names(self) -> dict[str, str]:
        """The name of each kind; of "clients" their number."""
        return dict(zip(("dataset", "partition", "clients", "backbone", "method"), self.line.split(), strict=True))

    def __str__(self) -> str:
        return f"{self.line} seed {self.seed}"


def select_listed(request: Request) -> tuple[list[tuple[str, ListedCell]], list[str]] | None:
    """What `select.parted` finds, from the catalogue; None where only the classes know. UserError as `suites_of`."""
    if request.settings or request.own or request.tuned or request.splits or request.backbones:
        return None
    suites = suites_of(request)
    if not all(name in catalogue()["suite"] for name in suites):
        return None
    found: list[tuple[str, ListedCell]] = []
    left: list[str] = []
    defaults: list[str] = []
    for suite in suites:
        cells = _narrowed([*_cells(suite)], request)
        if cells is None:
            return None
        found += [(suite, cell) for cell in cells]
        pairs = [(m, d) for m, d in untuned_pairs(suite) if _among(m, request.methods) and _among(d, request.datasets)]
        left += told_untuned(suite, pairs)
        here = {cell.names["method"] for cell in cells}
        defaults += told_defaults(suite, [name for name in entry("suite", suite)["defaults"] if name in here])
    return (found, told_left(left, defaults)) if found else None


def _cells(suite: str) -> Iterator[ListedCell]:
    for ends, lines in listed_cells()[suite].items():
        own = json.loads(ends)
        for line, seeds in lines.items():
            yield from (ListedCell(line, own, int(seed), key) for seed, keys in seeds.items() for key in keys.split())


def _among(name: str, wanted: tuple[str, ...]) -> bool:
    return not wanted or name in wanted


def _narrowed(cells: list[ListedCell], request: Request) -> list[ListedCell] | None:
    """Those with the wanted names and seeds; None where the suite lacks one of them."""
    axes = {"method": request.methods, "dataset": request.datasets, "partition": request.partitions}
    axes["clients"] = tuple(f"x{number}" for number in request.clients)
    for kind, wanted in axes.items():
        if not {*wanted} <= {cell.names[kind] for cell in cells}:
            return None
    found = [cell for cell in cells if all(_among(cell.names[kind], wanted) for kind, wanted in axes.items())]
    if not request.seeds:
        return found
    of_seed = {seed: Counter(cell.line for cell in found if cell.seed == seed) for seed in request.seeds}
    most = Counter[str]()
    for seed in {cell.seed for cell in found}:
        most |= Counter(cell.line for cell in found if cell.seed == seed)
    if any(lines != most for lines in of_seed.values()):
        return None  # a seed that the suite lacks somewhere
    return [cell for cell in found if cell.seed in of_seed]
