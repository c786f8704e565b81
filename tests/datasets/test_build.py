"""Federations: clients, seeds, notes, and statistics of partitions."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from fglbench.datasets import PARTITIONS, SPLITS, build_federation, describe, load, parts_of, statistics
from fglbench.datasets.build import derive
from fglbench.datasets.federation import Federation, GraphSetData, NodeData, to_tensor
from fglbench.datasets.spec import bidirected
from fglbench.registry import UserError


def cut(
    data: NodeData | GraphSetData, partition: str, split: str, clients: int, seed: int, **params: object
) -> Federation:
    return build_federation(data, PARTITIONS.build(partition, params), SPLITS.build(split), clients, seed)


def sparse_csbm() -> NodeData:
    data = load("csbm", nodes=200, degree=10.0)
    dense = np.where(np.random.default_rng(0).random((200, 40)) < 0.05, data.feat[:, :1].numpy(), 0).astype(np.float32)
    return NodeData(**{**data.__dict__, "feat": to_tensor(dense)})


@pytest.mark.parametrize("partition", ["louvain", "random-overlap"])
def test_clients_are_induced_subgraphs(partition: str) -> None:
    data = sparse_csbm()
    federation = cut(data, partition, "ratio", 6, 3)
    all_edges = set(zip(*(ends.tolist() for ends in data.graph.edges()), strict=True))
    for client in federation.clients:
        ids = client.graph.ndata["global_id"]
        held = set(ids.tolist())
        source, target = client.graph.edges()
        ours = set(zip(ids[source].tolist(), ids[target].tolist(), strict=True))
        assert ours == {(u, v) for u, v in all_edges if u in held and v in held}
        assert len(ours) == client.graph.num_edges()
        assert client.graph.idtype == torch.int64
        assert client.feat.layout == torch.sparse_csr
        assert torch.equal(client.feat.to_dense(), data.feat.to_dense()[ids])
        assert torch.equal(client.graph.ndata["label"], data.label[ids])
        for part, mask in federation.masks.items():
            assert torch.equal(client.graph.ndata[f"{part}_mask"], mask[ids])
        assert set(client.graph.ndata) == {"label", "global_id", "train_mask", "val_mask", "test_mask"}
        assert not client.graph.edata


def test_only_the_same_seed_gives_the_same_federation() -> None:
    data = load("csbm")
    base = cut(data, "louvain", "ratio", 5, 0)
    assert cut(data, "louvain", "ratio", 5, 0).partition_hash == base.partition_hash
    variants = [
        cut(data, "louvain", "ratio", 5, 1),
        cut(data, "louvain", "ratio", 6, 0),
        cut(data, "uniform", "ratio", 5, 0),
        cut(data, "louvain", "fs-per-class", 5, 0),
    ]
    assert len({base.partition_hash, *(other.partition_hash for other in variants)}) == 5
    kept = cut(data, "louvain", "fs-per-class", 5, 0)  # another split does not move a node to another client
    assert all(np.array_equal(a, b) for a, b in zip(parts_of(base), parts_of(kept), strict=True))
    with pytest.raises(UserError, match="seed"):
        cut(data, "louvain", "ratio", 5, -1)


def test_seeds_follow_the_documented_rule() -> None:
    data = load("csbm", nodes=90)
    federation = cut(data, "uniform", "ratio", 3, 7)
    parts = PARTITIONS.build("uniform")(data, 3, derive(7, "partition"))
    masks = SPLITS.build("ratio")(data, parts, derive(7, "split")).whole
    assert all(np.array_equal(one, other) for one, other in zip(parts_of(federation), parts, strict=True))
    assert all(torch.equal(federation.masks[part], mask) for part, mask in masks.items())

    tag = int.from_bytes(hashlib.sha256(b"partition").digest()[:4], "little")
    assert derive(7, "partition") == np.random.SeedSequence([7, tag]).generate_state(1)[0]
    assert len({derive(seed, purpose) for seed in range(20) for purpose in ("partition", "split")}) == 40


def test_a_client_without_training_nodes_is_kept_and_noted() -> None:
    data = load("csbm", nodes=60, classes=3, degree=4.0)
    federation = build_federation(
        data, PARTITIONS.build("uniform"), SPLITS.build("per-class", {"k": 1, "val": 5, "test": 20}), 12, 0
    )
    assert len(federation.clients) == 12
    for part, word in (("train", "training"), ("val", "validation"), ("test", "test")):
        empty = [k for k, c in enumerate(federation.clients) if not c.graph.ndata[f"{part}_mask"].any()]
        note = next((note for note in federation.notes if note.endswith(f"no {word} node")), "")
        assert (", ".join(map(str, empty)) in note) if empty else not note
    assert any("no training node" in note for note in federation.notes)


def test_graph_sets_are_partitioned_by_graph() -> None:
    graphs = [bidirected(np.array([[0, 1]]), size) for size in range(2, 11)]
    for graph in graphs:
        graph.ndata["feat"] = torch.ones(graph.num_nodes(), 1)
    data = GraphSetData("set", graphs, torch.arange(9) % 3, 3, "toy", "generated")
    federation = cut(data, "uniform", "none", 4, 0)
    assert federation.masks == {}
    assert federation.notes == ()
    seen = []
    for client in federation.clients:
        assert [graph.num_nodes() - 2 for graph in client.graphs] == client.global_id.tolist()
        assert torch.equal(client.label, data.label[client.global_id])
        seen += client.global_id.tolist()
    assert sorted(seen) == list(range(9))
    described = describe(data, parts_of(federation))
    assert described.lost_edges is None
    assert described.clients["graphs"].sum() == 9
    assert described.clients["nodes"].sum() == sum(range(2, 11))


def test_pairwise_overlap_is_the_mean_over_pairs(square: NodeData) -> None:
    assert describe(square, [np.arange(5)]).pairwise == 0
    assert describe(square, [np.array([0, 1]), np.array([1, 2])]).pairwise == pytest.approx(1 / 3)
    three = describe(square, [np.array([0, 1]), np.array([1, 2]), np.array([2, 3, 4])])
    assert three.pairwise == pytest.approx((1 / 3 + 0 + 1 / 4) / 3)


@pytest.fixture
def square() -> NodeData:
    """A square 0-1-2-3 with a diagonal 0-2 and an isolated node 4; classes 0, 0, 1, 1, 1."""
    edges = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [2, 3]])
    feat = torch.tensor([[1.0, 0], [0, 0], [0, 2], [1, 1], [0, 0]])
    return NodeData("square", bidirected(edges, 5), feat, torch.tensor([0, 0, 1, 1, 1]), 2, "toy", "generated")


def test_describe_by_hand(square: NodeData) -> None:
    described = describe(square, [np.array([0, 1, 2]), np.array([2, 3])])
    assert described.clients["nodes"].tolist() == [3, 2]
    assert described.clients["edges"].tolist() == [3, 1]
    assert described.labels.tolist() == [[2, 1], [0, 2]]
    # whole: (2/5, 3/5); first: (2/3, 1/3): 8/15; second: (0, 1): 4/5
    np.testing.assert_allclose(described.clients["emd"], [8 / 15, 4 / 5])
    assert described.emd == pytest.approx(3 / 5 * 8 / 15 + 2 / 5 * 4 / 5)
    assert (described.lost_edges, described.total_edges) == (1, 5)  # 0-3
    assert described.coverage == 4 / 5
    assert described.in_all == 1 / 5
    assert described.pairwise == 1 / 4


def test_statistics_by_hand(square: NodeData) -> None:
    figures = statistics(square)
    expected = {
        "nodes": 5,
        "undirected edges": 5,
        "features": 2,
        "share of non-zero features": 0.4,
        "classes": 2,
        "smallest class": 2,
        "largest class": 3,
        "nodes without label": 0,
        "mean degree": 2.0,
        "largest degree": 3,
        "isolated nodes": 1,
        "components": 2,
        "nodes of the largest component": 4,
        "edge homophily": 0.4,
    }
    assert figures == expected


def test_homophily_leaves_out_edges_with_an_unlabelled_end(square: NodeData) -> None:
    label = square.label.clone()
    label[0] = -1
    pairs = torch.stack(square.graph.edges(), 1).tolist()
    ends = [(int(label[u]), int(label[v])) for u, v in pairs]
    known = [one == other for one, other in ends if min(one, other) >= 0]
    assert 0 < len(known) < len(ends)
    assert statistics(replace(square, label=label))["edge homophily"] == sum(known) / len(known)


def test_partition_hash_covers_nodes_and_split() -> None:
    data = load("csbm")
    federation = cut(data, "louvain", "ratio", 5, 0)
    digest = hashlib.sha256()
    for ids in parts_of(federation):
        digest.update(b"%d;" % len(ids) + b"".join(int(node).to_bytes(8, "little") for node in ids))
    role = np.full(data.graph.num_nodes(), -1, dtype=np.int8)
    for number, part in enumerate(("train", "val", "test")):
        role[federation.masks[part].numpy()] = number
    digest.update(role.tobytes())
    assert federation.partition_hash == digest.hexdigest()
