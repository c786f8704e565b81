"""Build a `Federation` from a dataset, a partition and a split, and check all three."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import dgl
import numpy as np
import scipy.sparse as sp
import torch

from ..registry import UserError
from .federation import PARTS, Data, Federation, GraphClient, GraphSetData, NodeClient, NodeData, Rows, RowsClient
from .partitioning import PartitionSpec, cannot_mix
from .splits import SplitResult, SplitSpec


def derive(seed: int, purpose: str) -> int:
    """Return a 32-bit seed for one purpose ("partition", "split", …) of a run with this seed (>= 0).

    numpy.random.SeedSequence([seed, first 4 bytes of sha256(purpose)]): streams of different purposes are independent,
    and do not depend on the method or the order of calls. Raises UserError for a negative seed.
    """
    if seed < 0:
        raise UserError(f"a seed is a whole number of at least 0, got {seed}")
    tag = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:4], "little")
    return int(np.random.SeedSequence([seed, tag]).generate_state(1)[0])


def parts_for(data: Data, partition: PartitionSpec, clients: int, seed: int) -> list[np.ndarray]:
    """Return the ids of each client's nodes (graphs). UserError of the partition, and if the parts are not valid."""
    parts = partition(data, clients, derive(seed, "partition"))
    problem = ids_problem(parts, clients, data) or cover_problem(parts, data, partition.overlapping)
    if problem:
        raise UserError(f"partition {partition.name!r} on {data.name!r}: {problem}")
    return parts


def build_federation(data: Data, partition: PartitionSpec, split: SplitSpec, clients: int, seed: int) -> Federation:
    """Divide `data` among `clients` clients.

    Partition and split get `derive(seed, "partition")` and `derive(seed, "split")`, so all methods get the same clients
    and masks for the same seed. A client without training (or validation, or test) nodes is kept with an empty mask,
    and the federation's notes name it. Raises the UserErrors of partition and split, and UserError if their parts or
    roles are not valid.
    """
    data = split.choose(data, seed)
    parts = parts_for(data, partition, clients, seed)
    roles = split(data, parts, derive(seed, "split"))
    if problem := roles_problem(roles, parts, data):
        raise UserError(f"split {split.name!r} on {data.name!r}: {problem}")
    members: Sequence[NodeClient] | Sequence[GraphClient]
    masks = roles.clients
    if (rows_clients := split.clients(data, parts, derive(seed, "split"))) is not None:
        members, masks = rows_clients, [client.masks for client in rows_clients]
    elif isinstance(data, NodeData):
        copy = replace(data, graph=data.graph.formats(["coo", "csr", "csc"]))  # formats made for subgraphs end with it
        feats = Rows(data.feat).each(parts)
        members = [node_client(copy, *client) for client in zip(feats, parts, roles.clients, strict=True)]
    else:
        members = [
            GraphClient(
                [data.graphs[i] for i in ids], data.truth[ids], torch.from_numpy(ids), masks, _classes(data, ids)
            )
            for ids, masks in zip(parts, roles.clients, strict=True)
        ]
    return Federation(
        whole=data,
        clients=members,
        masks=roles.whole,
        partition_hash=_hash(parts, roles, members),
        seed=seed,
        notes=_notes(masks, split.unit or data.task),
        goal=split.goal,
        outputs=split.outputs,
    )


def _classes(data: GraphSetData, ids: np.ndarray) -> int:
    """Return the number of classes of a client of a `domains:` dataset, else 0. UserError if it mixes two sets."""
    if data.owner is None or not data.spaces:
        return 0
    owners = np.unique(data.owner.numpy()[ids])
    if len(owners) > 1:
        raise cannot_mix(data.name)
    _, classes = data.spaces[int(owners[0])]
    return classes


def node_client(data: NodeData, feat: torch.Tensor, ids: np.ndarray, masks: dict[str, torch.Tensor]) -> NodeClient:
    """Return the client of some nodes. feat: their rows (n, d); ids: int64 (n,); masks: bool (n,) by part."""
    nodes = torch.from_numpy(ids)
    graph = dgl.node_subgraph(data.graph, nodes, store_ids=False)
    graph.ndata["label"] = data.truth[nodes]
    graph.ndata["global_id"] = nodes
    for part, mask in masks.items():
        graph.ndata[f"{part}_mask"] = mask
    return NodeClient(graph, feat)


def _hash(parts: Sequence[np.ndarray], roles: SplitResult, clients: Sequence[NodeClient | GraphClient]) -> str:
    digest = hashlib.sha256()
    for ids in parts:
        digest.update(f"{len(ids)};".encode())
        digest.update(ids.astype("<i8").tobytes())
    digest.update(roles.role.tobytes())
    for client in clients:
        if isinstance(client, RowsClient):
            for values in client.said():
                digest.update(values.numpy().astype("<i8").tobytes())
    return digest.hexdigest()


def _notes(clients: Sequence[dict[str, torch.Tensor]], unit: str) -> tuple[str, ...]:
    """Return a note for each part that clients lack. clients: masks per client. unit: node, graph or edge."""
    notes = []
    for part, adjective in (("train", "training"), ("val", "validation"), ("test", "test")):
        without = [str(client) for client, masks in enumerate(clients) if masks and not masks[part].any()]
        if without:
            subject = f"client {without[0]} has" if len(without) == 1 else f"clients {', '.join(without)} have"
            notes.append(f"{subject} no {adjective} {unit}")
    return tuple(notes)


def check_data(data: Data) -> Data:
    """Return the data. Raises UserError (one line: the problem, the first place, the fix) if they are not valid.

    Graphs have both directions of every edge, no loop and no edge twice; features are finite float32, one row per node;
    labels are int64 and below the number of classes, -1 for a node without label.
    """
    if isinstance(data, NodeData):
        problem = _graph_problem(data.graph) or _features_problem(data.feat, data.graph.num_nodes())
    else:
        problem = _graphs_problem(data.graphs)
    count = data.graph.num_nodes() if isinstance(data, NodeData) else len(data.graphs)
    problem = problem or _labels_problem(
        data.label, count, data.num_classes, -1 if isinstance(data, NodeData) else 0, 2 if data.target is None else 1
    )
    if data.target is not None and (data.target.dtype != torch.float32 or data.target.shape[:-1] != (count,)):
        problem = problem or f"targets are {data.target.dtype} {tuple(data.target.shape)}; give float32 ({count}, T)"
    if problem:
        raise UserError(f"dataset {data.name!r}: {problem}")
    return data


def _graphs_problem(graphs: list[dgl.DGLGraph]) -> str:
    empty = [number for number, graph in enumerate(graphs) if not graph.num_nodes()]
    if not graphs or empty:
        return f"graph {empty[0]} has no node; leave it out" if empty else "has no graphs"
    widths = {tuple(graph.ndata["feat"].shape[1:]) for graph in graphs}
    if len(widths) > 1:
        return f"features of graphs have the shapes {sorted(widths)}; give all the same width"
    batch = dgl.batch(graphs)
    return _graph_problem(batch) or _features_problem(batch.ndata["feat"], batch.num_nodes())


def _graph_problem(graph: dgl.DGLGraph) -> str:
    source, target = graph.edges()
    if (source == target).any():
        return f"node {int(source[source == target][0])} has a self-loop; leave loops out, models add their own"
    shape = (graph.num_nodes(),) * 2
    links = sp.coo_matrix((np.ones(len(source), dtype=bool), (source.numpy(), target.numpy())), shape=shape).tocsr()
    if links.nnz < len(source):
        return "the graph has an edge twice; give each direction once"
    back = links.T.tocsr()
    same = np.array_equal(links.indptr, back.indptr) and np.array_equal(links.indices, back.indices)
    return "" if same else "an edge lacks its other direction; give both"


def _features_problem(feat: torch.Tensor, rows: int) -> str:
    sparse = feat.layout == torch.sparse_csr
    values = feat.values() if sparse else feat
    if feat.dim() != 2 or feat.shape[0] != rows or values.dtype != torch.float32:
        return f"features are {feat.dtype} {tuple(feat.shape)}; give float32 ({rows}, d)"
    wrong = ~torch.isfinite(values)
    if not wrong.any():
        return ""
    place = int(wrong.nonzero()[0, 0])
    node = int(torch.searchsorted(feat.crow_indices(), place, right=True)) - 1 if sparse else place
    return f"features of node {node} are not finite (nan or infinite), {int(wrong.sum())} values in all; mend the data"


def _labels_problem(label: torch.Tensor, count: int, classes: int, lowest: int, fewest: int) -> str:
    if label.dtype != torch.int64 or tuple(label.shape) != (count,):
        return f"labels are {label.dtype} {tuple(label.shape)}; give int64 ({count},)"
    least, most = (int(label.min()), int(label.max())) if count else (0, -1)
    if least < lowest or most >= classes or classes < fewest:
        return f"labels go from {least} to {most} for {classes} classes; number at least 2 classes from 0"
    return ""


# -- partitions and splits: each function returns one line about the first problem, or "" -----------------------------


def ids_problem(parts: Sequence[np.ndarray], clients: int, data: Data) -> str:
    """Check that each client has one part: sorted int64 ids of existing nodes (graphs), at least one, none twice."""
    total = len(data.label)
    if not isinstance(parts, Sequence):
        return f"the parts are {type(parts).__name__}; give a list with the ids of each client"
    if len(parts) != clients:
        return f"{len(parts)} parts for {clients} clients; make one part per client"
    for client, ids in enumerate(parts):
        if not isinstance(ids, np.ndarray) or ids.dtype != np.int64 or ids.ndim != 1:
            given = f"{ids.dtype} {ids.shape}" if isinstance(ids, np.ndarray) else type(ids).__name__
            return f"part {client} is {given}; give ids as int64 (n,)"
        if not len(ids):
            return f"part {client} is empty; choose fewer clients"
        if ids.min() < 0 or ids.max() >= total:
            wrong = ids.min() if ids.min() < 0 else ids.max()
            return f"part {client} has id {wrong}; ids go from 0 to {total - 1}"
        step = np.diff(ids)
        if (step == 0).any():
            return f"part {client} has id {ids[:-1][step == 0][0]} twice; give each {data.task} once"
        if (step < 0).any():
            return f"part {client} is not sorted; sort its ids"
    return ""


def cover_problem(parts: Sequence[np.ndarray], data: Data, overlapping: bool) -> str:
    """Check that each node (graph) is in exactly one part; overlapping parts may have any nodes."""
    total = len(data.label)
    times = np.bincount(np.concatenate(parts), minlength=total)
    lost, shared = np.flatnonzero(times == 0), np.flatnonzero(times > 1)
    if overlapping or not (len(lost) or len(shared)):
        return ""
    if len(lost):
        return f"{len(lost)} of {total} {data.task}s are in no part, the first is {lost[0]}; put each into one"
    return f"{len(shared)} {data.task}s are in several parts; say overlapping = True in the class"


def roles_problem(result: SplitResult, parts: Sequence[np.ndarray], data: Data) -> str:
    """Check that roles are int8 (N,), -1 to 2, -1 without a label, and agree with all masks."""
    role, total = result.role, len(data.label)
    if role.shape != (total,) or role.dtype != np.int8 or not np.isin(role, (-1, 0, 1, 2)).all():
        return f"roles are {role.dtype} {role.shape}; give -1 to 2 in int8 ({total},)"
    unlabelled = np.flatnonzero((role >= 0) & (data.label.numpy() < 0))
    if len(unlabelled):
        count = f"{len(unlabelled)} {data.task}s without a label have a role, the first is {unlabelled[0]}"
        return f"{count}; leave them out of the split, or label them"
    if len(result.clients) != len(parts):
        return f"masks of {len(result.clients)} clients for {len(parts)}; give one set of masks per client"
    for number, name in enumerate(PARTS):
        wanted = torch.from_numpy(role == number)
        given = result.whole.get(name, torch.zeros(total, dtype=torch.bool))  # no masks: no roles
        if not torch.equal(given, wanted):
            return f"the {name} mask is not that of the roles; make masks from roles"
        for client, (ids, masks) in enumerate(zip(parts, result.clients, strict=True)):
            if not torch.equal(masks.get(name, torch.zeros(len(ids), dtype=torch.bool)), wanted[ids]):
                return f"client {client} has another {name} mask than the roles of its ids; make masks from roles"
    return ""
