"""From a dataset, a partition and a split to a `Federation`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import dgl
import numpy as np
import torch

from ..registry import UserError
from .features import Rows
from .federation import Data, Federation, GraphClient, GraphSetData, NodeClient, NodeData, RowsClient
from .partitioning import PartitionSpec
from .soundness import cover_problem, ids_problem, roles_problem
from .splits import SplitResult, SplitSpec


def derive(seed: int, purpose: str) -> int:
    """A 32-bit seed for one purpose ("partition", "split", …) of a cell with seed `seed` >= 0.

    numpy.random.SeedSequence([seed, first 4 bytes of sha256(purpose)]): streams of different purposes are independent,
    and neither the method nor the order of calls enters. Raises UserError for a negative seed.
    """
    if seed < 0:
        raise UserError(f"a seed is a whole number of at least 0, got {seed}")
    tag = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:4], "little")
    return int(np.random.SeedSequence([seed, tag]).generate_state(1)[0])


def build_federation(data: Data, partition: PartitionSpec, split: SplitSpec, clients: int, seed: int) -> Federation:
    """Cut `data` into `clients` clients.

    Partition and split get `derive(seed, "partition")` and `derive(seed, "split")`, so every method of a cell with this
    seed meets the same clients and masks. A client without training (or validation, or test) nodes is kept, with an
    empty mask, and the federation's notes name it. Raises UserError as partition and split do, and if their parts and
    roles are not sound.
    """
    data = split.choose(data, seed)
    parts = partition(data, clients, derive(seed, "partition"))
    problem = ids_problem(parts, clients, data) or cover_problem(parts, data, partition.overlapping)
    if problem:
        raise UserError(f"partition {partition.name!r} on {data.name!r}: {problem}")
    roles = split(data, parts, derive(seed, "split"))
    if problem := roles_problem(roles, parts, data):
        raise UserError(f"split {split.name!r} on {data.name!r}: {problem}")
    held: Sequence[NodeClient] | Sequence[GraphClient]
    masks = roles.clients
    if (rows_of_clients := split.clients(data, parts, derive(seed, "split"))) is not None:
        held, masks = rows_of_clients, [client.masks for client in rows_of_clients]
    elif isinstance(data, NodeData):
        cut = replace(data, graph=data.graph.formats(["coo", "csr", "csc"]))  # of which what a cut makes ends with it
        feats = Rows(data.feat).each(parts)
        held = [node_client(cut, *client) for client in zip(feats, parts, roles.clients, strict=True)]
    else:
        held = [
            GraphClient(
                [data.graphs[i] for i in ids], data.truth[ids], torch.from_numpy(ids), masks, _classes(data, ids)
            )
            for ids, masks in zip(parts, roles.clients, strict=True)
        ]
    return Federation(
        whole=data,
        clients=held,
        masks=roles.whole,
        partition_hash=_hash(parts, roles, held),
        seed=seed,
        notes=_notes(masks, split.unit or data.task),
        goal=split.goal,
        outputs=split.outputs,
    )


def _classes(data: GraphSetData, ids: np.ndarray) -> int:
    """How many classes a client's labels have where the sets have spaces of their own. UserError where it has two."""
    if data.owner is None or not data.spaces:
        return 0
    owners = np.unique(data.owner.numpy()[ids])
    if len(owners) > 1:
        raise UserError(f"{data.name!r} has sets with classes of their own, which no client can mix; use partition own")
    _, classes = data.spaces[int(owners[0])]
    return classes


def node_client(data: NodeData, feat: torch.Tensor, ids: np.ndarray, masks: dict[str, torch.Tensor]) -> NodeClient:
    """What the client of some nodes holds. feat: their rows (n, d); ids: int64 (n,); masks: bool (n,) by part."""
    nodes = torch.from_numpy(ids)
    graph = dgl.node_subgraph(data.graph, nodes, store_ids=False)
    graph.ndata["label"] = data.truth[nodes]
    graph.ndata["global_id"] = nodes
    for part, mask in masks.items():
        graph.ndata[f"{part}_mask"] = mask
    return NodeClient(graph, feat)


def _hash(parts: Sequence[np.ndarray], roles: SplitResult, held: Sequence[NodeClient] | Sequence[GraphClient]) -> str:
    digest = hashlib.sha256()
    for ids in parts:
        digest.update(f"{len(ids)};".encode())
        digest.update(ids.astype("<i8").tobytes())
    digest.update(roles.role.tobytes())
    for client in held:
        if isinstance(client, RowsClient):
            for values in client.said():
                digest.update(values.numpy().astype("<i8").tobytes())
    return digest.hexdigest()


def _notes(clients: Sequence[dict[str, torch.Tensor]], unit: str) -> tuple[str, ...]:
    """clients: the masks of each. unit: what is split, node, graph or edge."""
    notes = []
    for part, what in (("train", "training"), ("val", "validation"), ("test", "test")):
        without = [str(client) for client, masks in enumerate(clients) if masks and not masks[part].any()]
        if without:
            subject = f"client {without[0]} has" if len(without) == 1 else f"clients {', '.join(without)} have"
            notes.append(f"{subject} no {what} {unit}")
    return tuple(notes)
