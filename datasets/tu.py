"""Graph sets of the TU collection (Morris et al., TUDataset, 2020)."""

from __future__ import annotations

import functools
import io
import re
import zipfile
from typing import ClassVar

import numpy as np

from .base import DATASETS, About, DatasetSpec, GraphSetSpec
from .content import Content, undirected
from .sources import Download, Files, Mirror, Route, Wheel

_UPSTREAM = "https://www.chrsmrrs.com/graphkerneldatasets/"


def read_tu(files: Files) -> Content:
    """Content from the text files `NAME_{A,graph_indicator,graph_labels}.txt`, and node labels and attributes if any.

    files: the texts themselves, or one zip that holds them. Node and graph ids start at 1 in the files.
    """
    texts: dict[str, bytes] = {}
    for name, path in files.items():
        if name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                texts |= {member: archive.read(member) for member in archive.namelist() if member.endswith(".txt")}
        else:
            texts[name] = path.read_bytes()

    def table(suffix: str, dtype: type) -> np.ndarray | None:
        text = next((data for name, data in texts.items() if name.endswith(f"_{suffix}.txt")), None)
        return None if text is None else np.loadtxt(io.BytesIO(text), dtype=dtype, delimiter=",", ndmin=2)

    def required(suffix: str) -> np.ndarray:
        values = table(suffix, np.int64)
        if values is None:
            raise ValueError(f"no file …_{suffix}.txt")
        return values

    graph = required("graph_indicator")[:, 0] - 1
    content: Content = {"graph": graph, "label": required("graph_labels")[:, 0].copy()}
    content["edges"] = undirected(required("A") - 1, len(graph))
    if (np.diff(graph) < 0).any() or graph[0] != 0 or graph[-1] >= len(content["label"]):
        raise ValueError("the graph indicator does not match the labels")
    if (graph[content["edges"][:, 0]] != graph[content["edges"][:, 1]]).any():
        raise ValueError("an edge joins two graphs")
    labels, attributes = table("node_labels", np.int64), table("node_attributes", np.float32)
    if labels is not None:
        content["node_label"] = labels[:, 0].copy()
    if attributes is not None:
        content["node_attr"] = attributes
    if any(len(content[key]) != len(graph) for key in ("node_label", "node_attr") if key in content):
        raise ValueError("node labels or attributes do not match the graph indicator")
    return content


def _about(citation: str) -> About:
    return About(
        f"{citation}; collection: Morris et al., TUDataset, 2020 (arXiv 2007.08663)",
        "none stated; the collection asks for citation",
        "https://chrsmrrs.github.io/datasets/",
    )


def _routes(tu_name: str) -> tuple[Route, ...]:
    file = f"{tu_name}.zip"
    return Mirror({file: f"tu/{file}"}, read_tu), Download({file: _UPSTREAM + file}, read_tu)


@DATASETS.register("enzymes")
class Enzymes(GraphSetSpec):
    """600 enzymes as graphs of structure elements, 6 classes."""

    about: ClassVar[About] = _about("Borgwardt et al., Bioinformatics 2005")
    routes: ClassVar[tuple[Route, ...]] = _routes("ENZYMES")
    fingerprint: ClassVar[str | None] = "acc31aa767e4db07a549425c17bfe53c4dad95d6734ae82c7cadfeda473e5956"


@DATASETS.register("proteins")
class Proteins(GraphSetSpec):
    """1113 proteins as graphs of structure elements, enzyme or not."""

    about: ClassVar[About] = _about("Borgwardt et al., Bioinformatics 2005")
    routes: ClassVar[tuple[Route, ...]] = _routes("PROTEINS")
    fingerprint: ClassVar[str | None] = "9a4f3e82a6ad922b7646146248e971e3a10d3ef5e31851f216e399f81883d478"


@DATASETS.register("dhfr")
class DHFR(GraphSetSpec):
    """756 inhibitors of dihydrofolate reductase, active or not."""

    about: ClassVar[About] = _about("Sutherland et al., Journal of Chemical Information and Computer Sciences 2003")
    routes: ClassVar[tuple[Route, ...]] = _routes("DHFR")
    fingerprint: ClassVar[str | None] = "97401dcf1232be88011636d1d1d80abc76bb7f20e402f182ebac57ef0c0e224d"


@DATASETS.register("nci1")
class NCI1(GraphSetSpec):
    """4110 compounds, active or not against lung cancer cells."""

    about: ClassVar[About] = _about("Wale et al., Knowledge and Information Systems 2008")
    routes: ClassVar[tuple[Route, ...]] = _routes("NCI1")
    fingerprint: ClassVar[str | None] = "76ecd3437f8b1bd3e061fe39df37c965df1572364c31797949c6ba3ad41f8e63"


_MUTAG_FILES = [f"MUTAG_{part}.txt" for part in ("A", "graph_indicator", "graph_labels", "node_labels")]
_MUTAG_WHEEL = Wheel(
    package="grakel",
    version="0.1.11",
    python="3.11",
    platform="manylinux_2_28_x86_64",
    sha256="f05f03c1ca23919bbb1e9d9132de4e1791e004cdd284a7e98d2897ac8495f0a7",
    members={name: f"grakel/tests/data/MUTAG/{name}" for name in _MUTAG_FILES},
    read=read_tu,
)


@DATASETS.register("mutag")
class Mutag(GraphSetSpec):
    """188 nitroaromatic compounds, mutagenic or not."""

    about: ClassVar[About] = _about("Debnath et al., Journal of Medicinal Chemistry 1991")
    routes: ClassVar[tuple[Route, ...]] = (_routes("MUTAG")[0], _MUTAG_WHEEL, _routes("MUTAG")[1])
    fingerprint: ClassVar[str | None] = "35235919cefe2a4f23fd3e54d0c26bf477fe1c1fab9bf214425b09578b7cc1b7"


@DATASETS.resolver
@functools.cache
def tu_dataset(name: str) -> type[DatasetSpec] | None:
    """`tu:NAME` is any set of the collection by its own name; those registered above answer to it too."""
    if not re.fullmatch(r"tu:[A-Za-z0-9_.-]+", name):
        return None
    tu_name = name.removeprefix("tu:")
    if tu_name.lower() in DATASETS.names() and issubclass(DATASETS.cls(tu_name.lower()), GraphSetSpec):
        return DATASETS.cls(tu_name.lower())
    namespace = {
        "__module__": __name__,
        "__doc__": f"{tu_name} of the TU collection.",
        "name": name,
        "about": _about("see the collection's page"),
        "routes": _routes(tu_name),
        "__annotations__": {"name": ClassVar[str], "about": ClassVar[About], "routes": ClassVar[tuple[Route, ...]]},
    }
    return type(f"TU_{tu_name}", (GraphSetSpec,), namespace)
