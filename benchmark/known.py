"""What there is and what each thing is: methods, datasets, partitions, splits, backbones and suites.

The catalogue has the parts of the package itself; torch and DGL are imported only for what comes from outside.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from itertools import chain
from typing import TYPE_CHECKING, Any

from ..registry import Parameter, UserError, did_you_mean
from .suites.catalogue import FAMILIES, KINDS, OTHER, Entry, catalogue

if TYPE_CHECKING:
    from ..registry import Registry

PLUGINS = f"{__package__}.suites.plugins"  # imported as soon as something comes from outside


@dataclass(frozen=True)
class Known:
    """What is known of a name. kind: method, dataset, ...; text: what its source says of it; facts: short, by heading;
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
        """Of an entry of the catalogue."""
        facts = {**entry["facts"], **({"uploads": entry["uploads"]} if kind == "method" else {})}
        return cls(kind, name, entry["text"], facts, [Parameter(*fields) for fields in entry["parameters"]])


def look_up(name: str) -> Known:
    """Return the kind and facts of a name. A suite comes last, where several kinds of things have the name.

    Raises UserError where nothing has the name.
    """
    for kind in KINDS:
        if name in catalogue()[kind]:
            return Known.of(kind, name, catalogue()[kind][name])
    names = {name for kind in KINDS for name in catalogue()[kind]}
    if ":" in name or name.endswith((".yaml", ".yml")) or _others():
        from .describe import described, described_suite
        from .suites.plugins import REGISTRIES, installed
        from .suites.suitefile import load_suite

        if name.endswith((".yaml", ".yml")):
            suite = load_suite(name)
            return Known.of("suite", suite.name, described_suite(suite))
        known = {name: kind for kind, one in reversed(REGISTRIES.items()) for name in (*one.names(), *installed(one))}
        names |= known.keys()
        if kind := known.get(name, "dataset" if ":" in name else ""):  # datasets made on demand, as tu:NAME
            return Known.of(kind, name, described(kind, REGISTRIES[kind].cls(name)))
    raise did_you_mean(name, names, "method, dataset, partition, split, backbone or suite")


def check_names(wanted: Mapping[str, Iterable[str]]) -> None:
    """UserError for a name of a kind (method, dataset, partition, ...) that the package does not have.

    Imports nothing. Where something may come from outside, nothing is checked.
    """
    if _others():
        return
    for kind, given in wanted.items():
        mixed = [one.split("+") if kind == "backbone" else [one] for one in given]
        for name in chain.from_iterable(mixed):
            if name not in catalogue()[kind] and ":" not in name:
                raise did_you_mean(name, catalogue()[kind], kind)


def _others() -> bool:
    """Return whether there may be things that the package does not have itself."""
    return PLUGINS in sys.modules or any(entry_points(group=f"fglbench.{kind}s") for kind in KINDS)


def listed(kind: str) -> tuple[list[Entry], list[str]]:
    """Return name, summary and, of methods, the family of all of a kind, and what is wrong with plug-ins.

    Methods stand by family, those of plug-ins at the end.
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
    """Entries of plug-ins; one that cannot be imported is among the troubles."""
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
    """Return the names of a kind with a few words on each; nothing is imported for those of plug-ins.

    kind: as in the catalogue, or "table", those of papers.
    """
    if kind == "table":
        from ..report.papers import tables

        return {suite: paper.name for suite, (paper, _) in tables().items()}
    names = {name: entry["summary"] if kind == "method" else "" for name, entry in catalogue()[kind].items()}
    return names | {point.name: "" for point in entry_points(group=f"fglbench.{kind}s") if point.name not in names}
