"""Comparison with another benchmark: rounds of the same methods on the same clients, in alternation, in CPU seconds."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch

from ...datasets.federation import PARTS, Federation, NodeClient
from ...methods import METHODS
from ...registry import UserError, did_you_mean
from . import peer_process
from .speed import Line, RoundOf, alternate, conditions


class Rivals(NamedTuple):
    """A method that both benchmarks have. theirs: the peer's name. params: parameters of ours that make it the same."""

    method: str
    theirs: str
    params: Mapping[str, Any] = MappingProxyType({})

    @property
    def label(self) -> str:
        return " ".join([self.method, *(f"{name}={value}" for name, value in self.params.items())])


BOTH = [
    *(Rivals(name, name) for name in ("fedavg", "fedprox", "scaffold", "moon", "feddc", "fedproto", "fedgta", "fgssl")),
    Rivals("fedtgp", "fedtgp"),
    Rivals("fedtgp", "fedtgp", {"server_epochs": 10, "server_batch": 10_000}),
    Rivals("fed-pub", "fedpub"),
    Rivals("adafgl", "adafgl"),
    Rivals("fedsage+", "fedsage_plus"),
]
SAME = {  # by peer
    "openfgl": [
        *BOTH,
        Rivals("fedgl-no-gpg", "fedgl"),  # the peer's default is without the pseudo-graph
        Rivals("local", "isolate"),
    ],
    "fedgb": [
        *BOTH,
        *(Rivals(name, name) for name in ("fedala", "fedspray", "fggp", "fediih", "s2fgl", "fedlog", "fedstruct")),
        *(Rivals(name, name) for name in ("fedexp", "fedluar", "tinyproto", "fedppn", "pfed1bs", "feroma")),
        *(Rivals(name, name) for name in ("fedtad", "feddep")),
    ],
}
PEERS = {"openfgl": "OpenFGL", "fedgb": "FedGB"}  # by the name of the package
IN_A_ROW = 5  # rounds per turn, as in a run: in the first one the cache has the data of the other program
NOT_SCORED = ", not scored"
REASON = 300  # characters of a peer's error message


class Peer:
    """A peer's method in another process. A call runs one round and returns the CPU seconds of that process.

    versions: of the peer's packages. trained: the CPU seconds of each round without its evaluation, which `training`
    removes in order. Raises UserError if the process ends too early.
    """

    def __init__(self, python: Path, checkout: Path, folder: str, method: str, epochs: int, threads: int) -> None:
        command = [str(python), peer_process.__file__, str(checkout), folder, method, str(epochs), str(threads)]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - `close` does
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True
        )
        self.versions: dict[str, str] = self._answer()
        self.trained: list[float] = []

    def __call__(self) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        trained, total = self._answer()
        self.trained.append(trained)
        return float(total)

    def training(self) -> float:
        return self.trained.pop(0)

    def close(self) -> None:
        self.process.communicate()
        self.errors.close()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines() or ["no message"]
        raise UserError(f"the peer ended: {lines[-1]:.{REASON}}")


def write_clients(federation: Federation, folder: Path) -> None:
    """Write client_<k>.npz and whole.npz: x (n, d), edges (2, m), y (n,), nodes (n,) global ids, classes, masks."""
    for number, client in enumerate(federation.clients):
        assert isinstance(client, NodeClient)
        graph = client.graph
        masks = {part: graph.ndata[f"{part}_mask"].numpy() for part in PARTS}
        nodes, label = graph.ndata["global_id"], graph.ndata["label"]
        _write(folder / f"client_{number}.npz", graph, client.feat, label, nodes, federation.num_classes, **masks)
    whole: Any = federation.whole
    nodes = torch.arange(len(whole.label))
    _write(folder / "whole.npz", whole.graph, whole.feat, whole.label, nodes, federation.num_classes)


def _write(
    file: Path, graph: Any, feat: torch.Tensor, label: torch.Tensor, nodes: torch.Tensor, classes: int, **masks: Any
) -> None:
    dense = feat.to_dense() if feat.layout == torch.sparse_csr else feat
    edges = torch.stack(graph.edges()).numpy()
    np.savez(file, x=dense.numpy(), edges=edges, y=label.numpy(), nodes=nodes.numpy(), classes=classes, **masks)


def race(
    checkout: Path, python: Path | None, dataset: str, clients: int, rounds: int, threads: int, epochs: int,
    name: str, methods: Sequence[str] = (),
) -> tuple[dict[str, str], list[Line]]:  # fmt: skip
    """Time rounds of the last phase of each common method, with and without evaluation, on the same clients and splits,
    in alternation (`IN_A_ROW` per turn). Returns versions of the peer's packages, and one line per method.

    name: a key of `SAME`. methods: only these. UserError for a method that is not in `SAME`.
    """
    shared = {pair.method for pair in SAME[name]}
    for wanted in methods:
        if wanted not in shared:
            raise did_you_mean(wanted, shared, f"{PEERS[name]} method")
    given = conditions(dataset, clients, threads, epochs)
    versions, lines = dict[str, str](), list[Line]()
    for pair in SAME[name]:
        if methods and pair.method not in methods:
            continue
        line: Line = {"method": pair.label}
        with tempfile.TemporaryDirectory() as folder:
            write_clients(given.federation, Path(folder))
            try:
                peer = Peer(python or Path(sys.executable), checkout, folder, pair.theirs, epochs, threads)
            except UserError as error:
                lines.append({**line, "ratio": str(error)})
                continue
            versions |= peer.versions
            try:
                method = METHODS.build(pair.method, pair.params)
                cases: dict[str, Callable[[], object]] = {
                    "own": RoundOf(given, method),
                    f"own{NOT_SCORED}": RoundOf(given, method, evaluate=False),
                    "peer": peer,
                    f"peer{NOT_SCORED}": peer.training,
                }
                timings = alternate(cases, rounds, warmup=1, clock=time.process_time, in_a_row=IN_A_ROW)
                line |= {f"{PEERS[name]}, ms": timings["peer"], "fglbench, ms": timings["own"]}
                for heading, ending in (("ratio", ""), ("without evaluation", NOT_SCORED)):
                    line[heading] = f"{timings[f'peer{ending}'].median / timings[f'own{ending}'].median:.1f}x"
                lines.append(line)
            except UserError as error:
                lines.append({**line, "ratio": str(error)})
            finally:
                peer.close()
    return versions, lines
