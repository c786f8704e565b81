"""Partitions of one graph: by its communities, by METIS, and the overlapping samples of FedGL and FED-PUB."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import dgl
import numpy as np
import torch
from pydantic import Field

from ..registry import UserError, option
from .federation import Data, NodeData, Task
from .partitioning import PARTITIONS, PartitionSpec, adjacency, floor

ORDERS = Path(__file__).parent / "files" / "louvain_orders.npz"


@PARTITIONS.register("louvain")
class Louvain(PartitionSpec):
    """Louvain communities (Blondel et al., 2008) by Newman's modularity, assigned to the clients.

    dealing "balanced", as in FederatedScope, FedSage and OpenFGL: communities are cut in node order into pieces of at
    most N/K - delta nodes. The pieces, largest first, are assigned to the clients in turn, each to the next client that
    then has at most N/K + delta nodes; a piece that fits no client goes to the smallest one. "whole": communities are
    not cut; the largest first, each goes to the client with the fewest nodes.
    """

    tasks: ClassVar[tuple[Task, ...]] = ("node",)
    resolution: float = option(1.0, "larger = more and smaller communities", gt=0)
    dealing: Literal["balanced", "whole"] = option("balanced", "cut large communities, or keep them whole")
    delta: int = option(20, "tolerated deviation from N/K nodes (at most half of N/K)", ge=0)
    ordering: Literal["library", "size"] = option(
        "library",
        "order of equally large communities: scikit-network's numbers, as in stored rows, or by smallest node",
        later=True,
    )

    def deal(self, data: Data, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        assert isinstance(data, NodeData)
        communities = self.communities(data, rng)
        if self.dealing == "balanced":
            return deal_balanced(communities, clients, self.delta)
        if len(communities) < clients:
            raise UserError(
                f"partition 'louvain': {len(communities)} communities of {data.name!r} cannot be assigned whole to "
                f"{clients} clients; raise resolution or use dealing=balanced"
            )
        return deal_whole(communities, clients)

    def communities(self, data: NodeData, rng: np.random.Generator) -> list[np.ndarray]:
        """Node ids of each community, ascending; the communities in the order in which they are assigned."""
        from sknetwork.clustering import Louvain as SknetLouvain  # the import takes half a second

        if not data.graph.num_edges():
            raise UserError(f"partition 'louvain': {data.name!r} has no edges, so no communities; choose uniform")
        louvain = SknetLouvain(
            resolution=self.resolution,
            modularity="newman",
            shuffle_nodes=True,
            sort_clusters=False,
            return_probs=False,
            return_aggregate=False,
            random_state=int(rng.integers(2**31)),
        )
        community = louvain.fit_predict(adjacency(data))
        order = np.argsort(community, kind="stable")
        sizes = np.bincount(community)
        groups = np.split(order, np.cumsum(sizes)[:-1])
        if self.ordering == "size":
            return sorted(groups, key=lambda ids: (-len(ids), ids[0]))
        return [groups[number] for number in library_order(sizes)]


def library_order(sizes: np.ndarray) -> np.ndarray:
    """Return the numbers of communities, largest first. sizes: int64 (communities,), by scikit-network's numbers.

    The first rows were computed on processors on which NumPy sorts with AVX-512. Its `argsort` is not stable there, so
    equally large communities have another order than on other processors. ORDERS contains the orders of stored rows
    that differ from the stable one, by the sha256 of the sizes; all others are stable: the same on every processor.
    """
    key = hashlib.sha256(sizes.astype("<i8").tobytes()).hexdigest()[:16]
    with np.load(ORDERS, allow_pickle=False) as orders:
        return orders[key].astype(np.int64) if key in orders.files else np.argsort(-sizes, kind="stable")


def deal_balanced(communities: list[np.ndarray], clients: int, delta: int) -> list[np.ndarray]:
    """Return parts by `Louvain`'s dealing "balanced"; none is empty if there are at least as many nodes as clients."""
    fair = sum(map(len, communities)) // clients
    delta = min(delta, fair // 2)
    size = max(fair - delta, 1)
    turn = 0

    def next_that_fits(held: np.ndarray, piece: int) -> int:
        nonlocal turn
        fits = np.flatnonzero(held + piece <= fair + delta)
        client = int(fits[np.argmin((fits - turn) % clients)]) if len(fits) else int(held.argmin())
        turn = (client + 1) % clients
        return client

    return _deal([ids[i : i + size] for ids in communities for i in range(0, len(ids), size)], clients, next_that_fits)


def deal_whole(communities: list[np.ndarray], clients: int) -> list[np.ndarray]:
    """Return parts by `Louvain`'s dealing "whole"."""
    return _deal(communities, clients, lambda held, _: int(held.argmin()))


def _deal(pieces: list[np.ndarray], clients: int, choose: Callable[[np.ndarray, int], int]) -> list[np.ndarray]:
    """Assign the pieces, largest first, to clients. choose: (current sizes of clients, size of the piece) -> client."""
    parts = [[np.empty(0, dtype=np.int64)] for _ in range(clients)]
    held = np.zeros(clients, dtype=np.int64)
    for piece in sorted(pieces, key=len, reverse=True):
        client = choose(held, len(piece))
        parts[client].append(piece)
        held[client] += len(piece)
    return [np.concatenate(part) for part in parts]


Proportion = Annotated[float, Field(gt=0, le=1)]


@PARTITIONS.register("metis")
class Metis(PartitionSpec):
    """METIS k-way parts of near equal size with few cut edges (Karypis and Kumar, 1998), through DGL.

    METIS takes no seed, so the seed shuffles its input nodes.
    """

    tasks: ClassVar[tuple[Task, ...]] = ("node",)

    def deal(self, data: Data, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        assert isinstance(data, NodeData)
        if clients == 1:
            return [np.arange(len(data.label))]
        place = rng.permutation(len(data.label))  # node v is place[v] in the input of METIS
        source, target = (place[ends.numpy()] for ends in data.graph.edges())
        # METIS depends on the order of the edges; without sorting, DGL's threads would decide it.
        order = np.lexsort((target, source))
        ends = torch.from_numpy(source[order]), torch.from_numpy(target[order])
        shuffled = dgl.graph(ends, num_nodes=len(place), row_sorted=True, col_sorted=True)
        with _silent():
            owner = dgl.metis_partition_assignment(shuffled, clients).numpy()[place]
        return [np.flatnonzero(owner == client) for client in range(clients)]


@PARTITIONS.register("metis-overlap")
class MetisOverlap(Metis):
    """FED-PUB's overlapping clients (Baek et al., ICML 2023): `sharing` clients draw from each of K / sharing METIS
    parts.

    Each client independently draws floor(share n) of its part's n nodes without replacement; the clients of a part have
    consecutive numbers. Nodes that no client draws, 1 of 32 by default, are unused. The paper's 10, 30 and 50 clients
    use 2, 6 and 10 parts; its 5, 10 and 20 disjoint clients are `metis`. Its split is `ratio` with scope=global and
    strategy=random.
    """

    overlapping: ClassVar[bool] = True
    sharing: int = option(5, "clients that draw from the same part", ge=1)
    share: Proportion = option(0.5, "share of its part's nodes that each client holds")

    def check_number(self, clients: int) -> None:
        if clients % self.sharing:
            raise UserError(
                f"partition 'metis-overlap': {clients} is no multiple of partition.sharing={self.sharing}; give a "
                "multiple, or another sharing"
            )

    def deal(self, data: Data, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        parts = super().deal(data, clients // self.sharing, rng)
        return [
            rng.choice(part, size=floor(self.share * len(part)), replace=False)
            for part in parts
            for _ in range(self.sharing)
        ]


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Hide the output of METIS in DGL: Python's on stdout, and C++'s on stderr, which no option turns off."""
    stderr = os.dup(2)
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            os.dup2(nowhere.fileno(), 2)
            yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


@PARTITIONS.register("random-overlap")
class RandomOverlap(PartitionSpec):
    """FedGL's overlapping samples (Chen et al., 2021): client k holds a random share p_k of all nodes.

    overlap = |nodes held by every client| / N. None: clients draw independently; the expected overlap is then the
    product of the p_k (1.3% for FedGL's six clients). A number r: r N random nodes go to all clients, each client draws
    the others of its nodes, and draws that would put another node into every client are repeated.
    """

    tasks: ClassVar[tuple[Task, ...]] = ("node",)
    overlapping: ClassVar[bool] = True
    proportions: tuple[Proportion, ...] = option(
        (0.3, 0.4, 0.5, 0.5, 0.6, 0.7), "share of all nodes that each client holds"
    )
    overlap: float | None = option(None, "share of nodes that every client holds", ge=0, le=1)

    def check_number(self, clients: int) -> None:
        if clients != len(self.proportions):
            raise UserError(
                f"partition 'random-overlap': {len(self.proportions)} proportions for {clients} clients; give one "
                "each, as --set partition.proportions=[0.5,0.5]"
            )

    def deal(self, data: Data, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        total = len(data.label)
        sizes = [round(share * total) for share in self.proportions]
        if self.overlap is None:
            return [rng.choice(total, size=size, replace=False) for size in sizes]
        core_size = round(self.overlap * total)
        room, extra = total - core_size, sum(sizes) - clients * core_size
        if clients < 2 or core_size > min(sizes) or extra > (clients - 1) * room:
            raise UserError(
                f"partition 'random-overlap': no {clients} parts of proportions {list(self.proportions)} have exactly "
                f"{self.overlap:g} of the nodes in common; choose another overlap"
            )
        order = rng.permutation(total)
        core, rest = order[:core_size], order[core_size:]
        held = np.zeros((clients, room), dtype=bool)
        for row, size in zip(held, sizes, strict=True):
            row[rng.choice(room, size=size - core_size, replace=False)] = True
        _break_common(held, rng)
        return [np.concatenate([core, rest[row]]) for row in held]


def _break_common(held: np.ndarray, rng: np.random.Generator) -> None:
    """Change `held` (clients, nodes) in place until no node is held by all clients; row sums stay.

    A node held by all clients is replaced, at one client, by a node that at least two clients lack. This never makes a
    new common node, and such a node exists as long as the row sums allow, so the loop ends.
    """
    clients = len(held)
    for node in np.flatnonzero(held.all(axis=0)):
        spare = held.sum(axis=0) <= clients - 2
        client = next(int(k) for k in rng.permutation(clients) if (spare & ~held[k]).any())
        replacement = rng.choice(np.flatnonzero(spare & ~held[client]))
        held[client, node], held[client, replacement] = False, True
