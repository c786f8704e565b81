"""List and describe methods, datasets, partitions, splits, backbones and suites.

The catalogue has the names of the package; torch and DGL are imported only for plug-ins and suite files.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..registry import Parameter, UserError, did_you_mean
from .store import Store
from .store.provenance import outdated
from .store.schema import Standing
from .suites.catalogue import FAMILIES, KINDS, OTHER, Entry, catalogue, cell_keys, pairs_of, untuned_pairs
from .suites.request import told_untuned

if TYPE_CHECKING:
    from ..registry import Registry

PLUGINS = f"{__package__}.suites.plugins"  # this module is imported if there are plug-ins


@dataclass(frozen=True)
class Known:
    """The description of a name. kind: method, dataset, ... text: its docstring. facts: heading -> short text.
    parameters: with types and defaults."""

    kind: str
    name: str
    text: str
    facts: dict[str, str] = field(default_factory=dict)
    parameters: list[Parameter] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.kind} {self.name}", "", self.text, ""]
        lines += [f"{fact}: {value}" for fact, value in self.facts.items()]
        lines += [
            f"{parameter.name} = {parameter.default} ({parameter.type}) {parameter.meaning}".rstrip()
            for parameter in self.parameters
        ]
        return "\n".join(lines)

    @classmethod
    def of(cls, kind: str, name: str, entry: Entry) -> Known:
        """The description of an entry of the catalogue."""
        facts = {**entry["facts"], **({"uploads": entry["uploads"]} if kind == "method" else {})}
        if kind == "suite" and (told := told_untuned(name, pairs_of(entry["untuned"]))):
            facts["not tuned"] = "; ".join(told)
        return cls(kind, name, entry["text"], facts, [Parameter(*fields) for fields in entry["parameters"]])


def look_up(name: str, kind: str | None = None) -> Known:
    """Describe a name. If several kinds have it, the first in the order of KINDS counts, unless `kind` names one.

    Raises UserError for an unknown name or kind.
    """
    if kind is not None and kind not in KINDS:
        raise did_you_mean(kind, KINDS, "kind")
    wanted = KINDS if kind is None else (kind,)
    for one in wanted:
        if name in catalogue()[one]:
            return Known.of(one, name, catalogue()[one][name])
    names = {name for one in wanted for name in catalogue()[one]}
    if ":" in name or name.endswith((".yaml", ".yml")) or _others() or _in_new_file(name):
        from .describe import described, described_suite
        from .suites.plugins import REGISTRIES, kinds
        from .suites.suite import load_suite

        if name.endswith((".yaml", ".yml")):
            suite = load_suite(name)
            return Known.of("suite", suite.name, described_suite(suite, suite.cells()))
        known = {name: one for name, one in kinds().items() if one in wanted}
        names |= known.keys()
        one = known.get(name, "dataset" if ":" in name else "")  # a dataset such as tu:NAME is not listed
        if one in wanted:
            return Known.of(one, name, described(one, REGISTRIES[one].cls(name)))
    raise did_you_mean(name, names, kind or "method, dataset, partition, split, backbone or suite")


def check_names(wanted: Mapping[str, Iterable[str]]) -> None:
    """Raise UserError for an unknown name. wanted: kind (method, dataset, partition, ...) -> names.

    Imports nothing. If there may be plug-ins, nothing is checked.
    """
    if _others():
        return
    for kind, given in wanted.items():
        mixed = [one.split("+") if kind == "backbone" else [one] for one in given]
        for name in chain.from_iterable(mixed):
            if name not in catalogue()[kind] and ":" not in name and not _in_new_file(name):
                raise did_you_mean(name, catalogue()[kind], kind)


def _in_new_file(name: str) -> bool:
    """Whether a file in methods/ or datasets/ may register this name, which the catalogue lacks."""
    folders = (Path(__file__).parents[1] / folder for folder in ("methods", "datasets"))
    return any(f'"{name}"' in path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py"))


def _others() -> bool:
    return PLUGINS in sys.modules or any(entry_points(group=f"fglbench.{kind}s") for kind in KINDS)


def listed(kind: str) -> tuple[list[Entry], list[str]]:
    """Return (entries, errors of plug-ins). An entry has the name, the summary and, for a method, the family.

    Methods are sorted by family, those of plug-ins last.
    """
    entries = [{"name": name, **entry} for name, entry in catalogue()[kind].items()]
    troubles: list[str] = []
    if kind != "suite" and _others():
        from .suites.plugins import REGISTRIES

        entries += _from_outside(REGISTRIES[kind], troubles)
        entries.sort(key=lambda entry: entry["name"])
    if kind != "method":
        return [{"name": entry["name"], "what": entry["summary"]} for entry in entries], troubles
    order = [*FAMILIES, OTHER]
    entries.sort(
        key=lambda entry: (order.index(entry["family"]) if entry["family"] in order else len(order), entry["name"])
    )
    return [{"name": entry["name"], "family": entry["family"], "what": entry["summary"]} for entry in entries], troubles


def _from_outside(registry: Registry[Any], troubles: list[str]) -> Iterator[Entry]:
    """Entries of plug-ins; the errors of those that cannot be imported are added to troubles."""
    from .suites.plugins import installed, refused

    names = registry.names()
    for name in names:
        if name not in catalogue()[registry.kind]:
            yield {"name": name, **_short(registry.cls(name), "")}
    troubles += refused(registry)
    for name, point in installed(registry).items():
        if name in names:
            continue  # loaded already
        try:
            yield {"name": name, **_short(registry.cls(name), f" (plug-in: {point.dist.name if point.dist else '?'})")}
        except UserError as error:
            troubles.append(str(error))


def _short(cls: type[Any], source: str) -> Entry:
    summary = " ".join((cls.__doc__ or "").split("\n\n", 1)[0].split())
    return {"summary": vars(cls).get("summary", summary) + source, "family": vars(cls).get("family", OTHER)}


def completions(kind: str) -> dict[str, str]:
    """Return name -> short description of a kind; plug-ins are not imported.

    kind: as in the catalogue, or "table" for tables of papers.
    """
    if kind == "table":
        from ..report.papers import tables

        return {suite: paper.name for suite, (paper, _) in tables().items()}
    names = {name: entry["summary"] if kind == "method" else "" for name, entry in catalogue()[kind].items()}
    return names | {point.name: "" for point in entry_points(group=f"fglbench.{kind}s") if point.name not in names}


DONE, SKIPPED, FAILED = "done", "skipped", "failed"
STATES = {"ok": DONE, "skipped": SKIPPED}  # status -> state; any other status: FAILED


@dataclass(frozen=True)
class Progress:
    """The progress of a suite. cells: number of its cells. rows: current rows of its cells. others: rows of methods,
    datasets or settings that the suite does not have. stale: number of rows of an earlier revision. left_out: messages
    about cells that are left out."""

    suite: str
    cells: int = 0
    rows: list[Standing] = field(default_factory=list)
    others: list[Standing] = field(default_factory=list)
    stale: int = 0
    left_out: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Return state -> number of cells; `stale` cells are also counted as done."""
        number = Counter(STATES.get(row.status, FAILED) for row in self.rows)
        states = {state: number[state] for state in (DONE, FAILED, SKIPPED)}
        todo = {"todo": self.cells - len(self.rows), "stale": self.stale, "others": len(self.others)}
        return {"cells": self.cells, **states, **todo}

    def bad(self) -> list[Standing]:
        """Return failed rows, then skipped rows, then failed and skipped rows of others."""
        failed = [row for row in self.rows if row.status not in STATES]
        skipped = [row for row in self.rows if row.status == SKIPPED]
        return [*failed, *skipped, *(row for row in self.others if row.status != "ok")]

    def rising(self) -> Counter[str]:
        """Return method -> number of rows that did not converge (see `schema.cut_off`)."""
        return Counter(row.method for row in self.rows if row.status == "ok" and row.rising)


def overview(results: Path, suites: Collection[str] = ()) -> list[Progress]:
    """Return the progress of suites, by name or YAML file.

    Without names: of the suites that have rows, or of all if there are none, and of folders of other rows (`custom`).
    """
    store = Store(results)
    known, with_rows = catalogue()["suite"], set(store.suites())
    shown = list(suites) or [name for name in known if name in with_rows] or ([] if with_rows else list(known))
    progress = [_progress(store, name) for name in shown]
    if not suites:
        others = sorted(with_rows - known.keys())
        progress += [Progress(name, others=store.standing(name)) for name in others]
    return progress


def _progress(store: Store, suite: str) -> Progress:
    if suite in catalogue()["suite"]:
        name, keys, left_out = suite, cell_keys(suite), told_untuned(suite, untuned_pairs(suite))
    else:
        from .suites.select import Request, parted
        from .suites.suite import load_suite

        name, (cells, left_out) = load_suite(suite).name, parted(Request(suites=(suite,)))
        keys = [cell.key for _, cell in cells]
    order = {key: place for place, key in enumerate(keys)}
    rows = store.standing(name)
    mine = sorted((row for row in rows if row.key in order), key=lambda row: order[row.key])
    others = [row for row in rows if row.key not in order]
    stale = sum(row.status == "ok" and outdated(row, _version(row.method)) for row in mine)
    return Progress(name, len(keys), mine, others, stale, left_out)


def _version(method: str) -> str:
    if method in catalogue()["method"]:
        return str(catalogue()["method"][method]["revision"])
    from ..methods import METHODS
    from .store.provenance import method_version

    return method_version(METHODS.cls(method))
