"""Partition specs: seeded functions that assign the nodes or graphs of a dataset to clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ..registry import Registry, Spec, UserError, option
from .federation import Data, GraphSetData, NodeData, Task

if TYPE_CHECKING:
    from .spec import DatasetSpec


class BadResult(UserError):
    """A partition or split returned something that is none, instead of refusing the data."""


class CuttingSpec(Spec):
    """Base of partitions and splits. tasks: the kinds of dataset that it applies to."""

    tasks: ClassVar[tuple[Task, ...]]

    def check_task(self, data: Data | type[DatasetSpec], applies_to: str, registry: Registry[Any]) -> None:
        """Raise UserError if this does not apply to the dataset's kind. applies_to: the verb of the message."""
        if data.task not in self.tasks:
            fitting = [name for name in registry.names() if data.task in registry.cls(name).tasks]
            raise UserError(
                f"{registry.kind} {self.name!r} {applies_to} {self.tasks[0]} datasets and {data.name!r} is a "
                f"{data.task} dataset; choose one of {', '.join(fitting)}"
            )


class PartitionSpec(CuttingSpec):
    """A partition: assigns nodes, or the graphs of a set, to clients. Subclasses define `deal`."""

    tasks: ClassVar[tuple[Task, ...]] = ("node", "graph")
    overlapping: ClassVar[bool] = False

    def __call__(self, data: Data, clients: int, seed: int) -> list[np.ndarray]:
        """Return the sorted int64 ids of each client's nodes (or graphs); they depend on the arguments only.

        Raises UserError if the partition does not apply to the dataset, if `clients` is below 1 or above the number of
        nodes, and if a part would be empty. `build_federation` checks the ids (`ids_problem`).
        """
        total = len(data.label)
        self.check_task(data, "cuts", PARTITIONS)
        if not 1 <= clients <= total:
            raise UserError(f"{clients} clients: {data.name!r} can be cut into 1 to {total}")
        self.check_number(clients)
        dealt = self.deal(data, clients, np.random.default_rng(seed))
        try:
            parts = [np.sort(part) for part in dealt]
        except (TypeError, ValueError):
            problem = f"partition {self.name!r}: deal gave {type(dealt).__name__}"
            raise BadResult(f"{problem}; give a list with the ids of each client") from None
        parts = [part if len(part) and part.dtype.kind not in "iu" else part.astype(np.int64) for part in parts]
        empty = [str(client) for client, part in enumerate(parts) if not len(part)]
        if empty:
            raise BadResult(
                f"partition {self.name!r} leaves client {', '.join(empty)} of {clients} empty on {data.name!r}; "
                "choose fewer clients or other parameters"
            )
        return parts

    def check(self, dataset: DatasetSpec, clients: int) -> None:
        """Raise UserError if the partition does not apply to the dataset, as far as known before it is loaded."""
        self.check_task(type(dataset), "cuts", PARTITIONS)
        if not dataset.divisible:
            raise cannot_mix(dataset.name)
        self.check_number(clients)

    def check_number(self, clients: int) -> None:
        """Raise UserError if the parameters do not allow this number of clients."""

    def deal(self, data: Data, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Return the parts, unsorted; `__call__` checks the arguments before and the parts afterwards."""
        raise NotImplementedError


def cannot_mix(dataset: str) -> UserError:
    """Return the error of a partition in which a client would hold graphs of several sets."""
    return UserError(f"{dataset!r} has sets with classes of their own, which no client can mix; use partition own")


PARTITIONS: Registry[PartitionSpec] = Registry("partition")


def adjacency(data: NodeData) -> sp.csr_matrix:
    """Return the symmetric 0/1 adjacency matrix of a node dataset, (N, N) float32 CSR."""
    source, target = (ends.numpy() for ends in data.graph.edges())
    return sp.csr_matrix((np.ones(len(source), dtype=np.float32), (source, target)), shape=(len(data.label),) * 2)


@PARTITIONS.register("uniform")
class Uniform(PartitionSpec):
    """Nodes or graphs at random, in parts whose sizes differ by at most one."""

    def deal(self, data: Data, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        return np.array_split(rng.permutation(len(data.label)), clients)


@PARTITIONS.register("scaffold")
class ScaffoldClients(PartitionSpec):
    """All molecules of a scaffold are at one client: scaffolds, largest first, go to the client with the fewest."""

    tasks: ClassVar[tuple[Task, ...]] = ("graph",)

    def deal(self, data: Data, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        if not isinstance(data, GraphSetData) or data.group is None:
            raise UserError(f"partition 'scaffold' is for sets of molecules and {data.name!r} is none; choose uniform")
        order, parts = rng.permutation(len(data.label)), [list[int]() for _ in range(clients)]
        for group in by_size(data.group.numpy()[order]):
            min(parts, key=len).extend(order[group].tolist())
        return [np.array(part, dtype=np.int64) for part in parts]


def by_size(group: np.ndarray) -> list[np.ndarray]:
    """Return the indices of each group's members, the largest group first; equal groups by descending first index."""
    _, first, code = np.unique(group, return_index=True, return_inverse=True)
    members = np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])
    return [members[k] for k in np.lexsort((-first, -np.bincount(code)))]


@PARTITIONS.register("label-dirichlet")
class LabelDirichlet(PartitionSpec):
    """Divide each class among the clients in Dirichlet(alpha) shares (Hsu et al., 2019, arXiv 1909.06335, by class).

    Draws are repeated until every client holds at least `minimum`; UserError after 1000 draws.
    """

    alpha: float = option(0.5, "concentration: small = each client has few classes", gt=0)
    minimum: int = option(1, "least number of nodes or graphs of a client", ge=1)

    def check_task(self, data: Data | type[DatasetSpec], applies_to: str, registry: Registry[Any]) -> None:
        super().check_task(data, applies_to, registry)
        if data.goal:
            raise UserError(f"partition 'label-dirichlet' divides classes, and {data.name!r} has none; choose another")

    def deal(self, data: Data, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        label = data.label.numpy()
        members = [np.flatnonzero(label == c) for c in np.unique(label)]
        for _ in range(1000):
            shares = rng.dirichlet(np.full(clients, self.alpha), size=len(members))
            owner = np.empty(len(label), dtype=np.int64)
            for ids, share in zip(members, shares, strict=True):
                cuts = np.rint(np.cumsum(share)[:-1] * len(ids)).astype(np.int64)
                for client, piece in enumerate(np.split(rng.permutation(ids), cuts)):
                    owner[piece] = client
            if np.bincount(owner, minlength=clients).min() >= self.minimum:
                return [np.flatnonzero(owner == client) for client in range(clients)]
        raise UserError(
            f"partition 'label-dirichlet': no draw in 1000 gave each of {clients} clients {self.minimum} of "
            f"{len(label)}; raise alpha ({self.alpha:g}) or lower minimum"
        )


@PARTITIONS.register("fclg")
class FCLG(PartitionSpec):
    """The 80/20 rule that reproduces the EMD values printed by FCLG (IEEE BigData 2024).

    Each client belongs to one class. Of class c, floor(major * n_c) shuffled graphs go in equal shares to the clients
    of the class, and the rest in equal shares to all other clients.
    """

    tasks: ClassVar[tuple[Task, ...]] = ("graph",)
    major: float = option(0.8, "share of a class at the clients of this class", gt=0, le=1)

    def deal(self, data: Data, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        if clients < data.num_classes or data.num_classes < 2:
            raise UserError(
                f"partition 'fclg' gives each class clients of its own: {data.name!r} has {data.num_classes} classes, "
                f"so it needs at least {max(data.num_classes, 2)} clients, not {clients}"
            )
        label = data.label.numpy()
        parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
        for c, of_class in enumerate(np.array_split(np.arange(clients), data.num_classes)):
            members = rng.permutation(np.flatnonzero(label == c))
            cut = floor(self.major * len(members))
            others = np.setdiff1d(np.arange(clients), of_class)
            for group, ids in ((of_class, members[:cut]), (others, members[cut:])):
                for client, piece in zip(group, np.array_split(ids, len(group)), strict=True):
                    parts[client].append(piece)
        return [np.concatenate(pieces) for pieces in parts]


def floor(value: float) -> int:
    """Return floor(value + 1e-9), so that 0.6 * 5 gives 3 in spite of binary rounding."""
    return int(np.floor(value + 1e-9))
