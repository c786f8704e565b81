"""Several sets of graphs as one dataset: each set is one client, with its own features and classes."""

from __future__ import annotations

import functools
import hashlib
from typing import ClassVar, cast

import torch
import torch.nn.functional as F

from ..registry import DOMAINS, UserError, option
from .federation import GraphSetData, Task
from .spec import DATASETS, About, DatasetSpec, GraphFeatures


class Domains(DatasetSpec):
    """Several sets of graphs, `domains:mutag+enzymes+...`, one client per set (partition `own`): cross-domain graph
    classification as in GCFL (Xie et al., NeurIPS 2021).

    Classes and features differ between sets: class 0 of one set is not class 0 of another. All feature rows have the
    width of the widest set; zeros fill up the others. Edge features are kept if all sets have equally many. The score
    is ROC AUC if all sets are scored by it, as the assays of Tox21, else accuracy.
    """

    about: ClassVar[About] = About("those of the sets", "those of the sets", "", "each set is one client")
    task: ClassVar[Task] = "graph"
    divisible: ClassVar[bool] = False
    sets: ClassVar[tuple[str, ...]] = ()
    features: GraphFeatures = option("labels", "node features of every set; see the sets")

    @property
    def parts(self) -> tuple[DatasetSpec, ...]:
        return tuple(DATASETS.build(name, {"features": self.features}) for name in self.sets)

    def load(self) -> GraphSetData:
        loaded = [cast(GraphSetData, part.load()) for part in self.parts]
        spaces = tuple((int(data.graphs[0].ndata["feat"].shape[1]), data.num_classes) for data in loaded)
        width, graphs = max(features for features, _ in spaces), []
        edges = [data.graphs[0].edata for data in loaded]
        edge_widths = {features["feat"].shape[1] if "feat" in features else 0 for features in edges}
        for data, (features, _) in zip(loaded, spaces, strict=True):
            for graph in data.graphs:
                if len(edge_widths) > 1:
                    graph.edata.clear()
                graph.ndata["feat"] = F.pad(graph.ndata["feat"].float(), (0, width - features))
                graphs.append(graph)
        sizes = torch.tensor([len(data.graphs) for data in loaded])
        digest = hashlib.sha256("\0".join(data.fingerprint for data in loaded).encode())
        return GraphSetData(
            name=self.name,
            graphs=graphs,
            label=torch.cat([data.label for data in loaded]),
            num_classes=max(classes for _, classes in spaces),
            fingerprint=digest.hexdigest(),
            source=", ".join(dict.fromkeys(data.source for data in loaded)),
            options=self.params(),
            owner=torch.repeat_interleave(torch.arange(len(loaded)), sizes),
            spaces=spaces,
            scored_by="roc_auc" if all(data.scored_by == "roc_auc" for data in loaded) else "accuracy",
        )


@DATASETS.resolver
@functools.cache
def domains(name: str) -> type[DatasetSpec] | None:
    """Return the class of `domains:A+B+...`. UserError for a part that is no set of graphs, and for fewer than two."""
    if not name.startswith(DOMAINS):
        return None
    sets = tuple(name.removeprefix(DOMAINS).split("+"))
    if len(sets) < 2 or len(set(sets)) < len(sets):
        raise UserError(f"dataset {name!r}: give at least two sets of graphs, each once: {DOMAINS}mutag+enzymes")
    try:
        nodes = [part for part in sets if DATASETS.cls(part).task != "graph"]
    except UserError as error:
        raise UserError(f"dataset {name!r}: {error}") from None
    if nodes:
        raise UserError(f"dataset {name!r}: {', '.join(nodes)} is no set of graphs, as enzymes and tu:NAME are")
    if others := [f"{part} is for {goal.replace('-', ' ')}" for part in sets if (goal := DATASETS.cls(part).goal)]:
        raise UserError(f"dataset {name!r}: {', '.join(others)}; give sets for graph classification only")
    namespace = {"__doc__": Domains.__doc__, "__module__": __name__, "sets": sets, "name": name, "sources": len(sets)}
    return type(name, (Domains,), {**namespace, "__annotations__": {"sets": ClassVar[tuple[str, ...]]}})


def __getattr__(name: str) -> type[DatasetSpec]:
    """Return the class of `domains:...` to pickle, which looks it up by its name in this module."""
    if not name.startswith(DOMAINS):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return DATASETS.cls(name)
