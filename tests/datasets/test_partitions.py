"""Partitions against hand counts, slow references and their properties."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sknetwork.clustering import Louvain as SknetLouvain

from fglbench.datasets import PARTITIONS, SPLITS, PartitionSpec, build_federation, describe, load
from fglbench.datasets.content import undirected
from fglbench.datasets.federation import Data, GraphSetData, NodeData, to_tensor
from fglbench.datasets.partition_graph import deal_balanced, deal_whole, library_order
from fglbench.datasets.spec import bidirected
from fglbench.registry import UserError


def node_data(edges: np.ndarray, label: np.ndarray) -> NodeData:
    graph = bidirected(undirected(edges, len(label)), len(label))
    feat = to_tensor(np.eye(len(label), dtype=np.float32))
    return NodeData("toy", graph, feat, torch.from_numpy(label), int(label.max()) + 1, "toy", "generated")


def graph_set(counts: tuple[int, ...]) -> GraphSetData:
    """A set with `counts` graphs of each class, in shuffled order."""
    label = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    one = bidirected(np.array([[0, 1]]), 2)
    return GraphSetData("set", [one] * len(label), torch.from_numpy(label), len(counts), "toy", "generated")


@pytest.fixture(scope="module")
def csbm() -> NodeData:
    data = load("csbm", nodes=400, classes=4, degree=8.0, homophily=0.9)
    assert isinstance(data, NodeData)
    return data


def cliques(count: int, size: int) -> NodeData:
    """A ring of cliques, joined by one edge each."""
    edges = []
    for clique in range(count):
        members = range(clique * size, (clique + 1) * size)
        edges += list(itertools.combinations(members, 2))
        edges.append((clique * size, ((clique + 1) % count) * size + 1))
    return node_data(np.array(edges), np.repeat(np.arange(count), size) % 3)


CASES = [
    ("uniform", {}, 7),
    ("louvain", {}, 7),
    ("louvain", {"dealing": "whole"}, 3),
    ("louvain", {"resolution": 5.0, "delta": 0}, 40),
    ("metis", {}, 5),
    ("metis", {}, 1),
    ("metis-overlap", {}, 10),
    ("label-dirichlet", {"alpha": 0.3, "minimum": 3}, 6),
    ("random-overlap", {}, 6),
    ("random-overlap", {"overlap": 0.1}, 6),
]


def test_metis_does_not_depend_on_the_order_of_edges(csbm: NodeData) -> None:
    """Shuffled edges, as from DGL's threads, give the same parts."""
    spec, partitions = PARTITIONS.build("metis"), set()
    for seed in range(5):
        order = torch.from_numpy(np.random.default_rng(seed).permutation(csbm.graph.num_edges()))
        source, target = csbm.graph.edges(order="eid")
        other = replace(csbm, graph=dgl.graph((source[order], target[order]), num_nodes=csbm.graph.num_nodes()))
        partitions.add(b"|".join(part.tobytes() for part in spec(other, 5, 0)))
    assert len(partitions) == 1


@pytest.mark.parametrize("dealing", ["balanced", "whole"])
def test_louvain_by_size_does_not_depend_on_how_the_library_numbers_communities(
    dealing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six equal communities, numbered in many ways: only the order by size gives the same parts."""
    data, by_ordering = cliques(6, 5), {}
    true = np.repeat(np.arange(6), 5)
    for ordering in ("library", "size"):
        spec = PARTITIONS.build("louvain", {"ordering": ordering, "dealing": dealing, "delta": 0})
        seen = set()
        for numbers in itertools.islice(itertools.permutations(range(6)), 0, None, 37):
            monkeypatch.setattr(SknetLouvain, "fit_predict", lambda *_, numbers=numbers: np.array(numbers)[true])
            seen.add(tuple(part.tobytes() for part in spec(data, 3, 0)))
        by_ordering[ordering] = seen
    assert len(by_ordering["library"]) > 1
    (parts,) = by_ordering["size"]
    held = [np.frombuffer(part, dtype=np.int64) // 5 for part in parts]  # equal sizes: in the order of smallest nodes
    assert [sorted(set(communities.tolist())) for communities in held] == [[0, 3], [1, 4], [2, 5]]


def test_louvain_by_size_takes_the_smallest_node_of_equal_communities(monkeypatch: pytest.MonkeyPatch) -> None:
    number = np.array([0, 2, 2, 1, 1, 0, 1])  # {0, 5}, {3, 4, 6} and {1, 2}
    monkeypatch.setattr(SknetLouvain, "fit_predict", lambda *_: number)
    spec = PARTITIONS.build("louvain", {"ordering": "size"})
    communities = spec.communities(node_data(np.array([[0, 1]]), number), np.random.default_rng(0))
    assert [ids.tolist() for ids in communities] == [[3, 4, 6], [0, 5], [1, 2]]


@pytest.mark.parametrize(("name", "params", "clients"), CASES)
def test_parts_are_deterministic_sorted_and_not_empty(
    name: str, params: dict[str, object], clients: int, csbm: NodeData
) -> None:
    spec = PARTITIONS.build(name, params)
    parts = spec(csbm, clients, 11)
    assert len(parts) == clients
    for part in parts:
        assert part.dtype == np.int64
        assert len(part)
        assert (np.diff(part) > 0).all()
        assert 0 <= part[0] <= part[-1] < 400
    if not spec.overlapping:
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(400))
    np.random.default_rng().random()
    assert all(np.array_equal(one, other) for one, other in zip(parts, spec(csbm, clients, 11), strict=True))
    if clients > 1:
        other = spec(csbm, clients, 12)
        assert any(not np.array_equal(one, two) for one, two in zip(parts, other, strict=True))


@pytest.mark.parametrize("name", [name for name in PARTITIONS.names() if "node" in PARTITIONS.cls(name).tasks])
@pytest.mark.parametrize("clients", [0, -1, 401])
def test_too_few_or_too_many_clients(name: str, clients: int, csbm: NodeData) -> None:
    with pytest.raises(UserError, match=f"{clients} clients: 'csbm' can be cut into 1 to 400"):
        PARTITIONS.build(name)(csbm, clients, 0)


def test_a_partition_for_the_other_task(csbm: NodeData) -> None:
    with pytest.raises(
        UserError, match="cuts graph datasets and 'csbm' is a node dataset; choose one of label-dirichlet"
    ):
        PARTITIONS.build("fclg")(csbm, 6, 0)
    with pytest.raises(UserError, match="choose one of fclg, label-dirichlet, own, scaffold, uniform"):
        PARTITIONS.build("louvain")(graph_set((4, 4)), 2, 0)
    with pytest.raises(UserError, match="'label-dirichlet' divides classes, and 'csbm' has none; choose another"):
        PARTITIONS.build("label-dirichlet")(replace(csbm, goal="node-regression"), 2, 0)


def test_uniform_sizes(csbm: NodeData) -> None:
    assert sorted(map(len, PARTITIONS.build("uniform")(csbm, 7, 0))) == [57] * 6 + [58]
    assert sorted(map(len, PARTITIONS.build("uniform")(graph_set((5, 6)), 3, 0))) == [3, 4, 4]


# Louvain


def test_louvain_finds_planted_communities() -> None:
    parts = PARTITIONS.build("louvain", {"dealing": "whole"})(cliques(6, 8), 6, 0)
    assert sorted(part.tolist() for part in parts) == [list(range(8 * c, 8 * c + 8)) for c in range(6)]


def test_too_few_communities_to_deal_whole() -> None:
    with pytest.raises(UserError, match="6 communities of 'toy' cannot be assigned whole to 7 clients"):
        PARTITIONS.build("louvain", {"dealing": "whole"})(cliques(6, 8), 7, 0)


def deal_slowly(communities: list[list[int]], clients: int, delta: int) -> list[list[int]] | None:
    """The published rule: cut, sort, assign in turn. None if it would never end."""
    fair = sum(len(community) for community in communities) // clients
    pieces = []
    for community in communities:
        while len(community) > fair - delta:
            pieces.append(community[: fair - delta])
            community = community[fair - delta :]
        if community:
            pieces.append(community)
    pieces = sorted(pieces, key=lambda piece: -len(piece))
    parts: list[list[int]] = [[] for _ in range(clients)]
    client = 0
    for piece in pieces:
        tried = 0
        while len(parts[client]) + len(piece) > fair + delta:
            client = (client + 1) % clients
            tried += 1
            if tried > clients:
                return None
        parts[client] += piece
        client = (client + 1) % clients
    return parts


def communities_of(sizes: list[int]) -> list[list[int]]:
    cuts = np.cumsum([0, *sizes])
    return [list(range(first, last)) for first, last in itertools.pairwise(cuts)]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=25), st.integers(1, 8), st.integers(0, 12))
def test_balanced_dealing_is_the_published_rule_and_always_ends(sizes: list[int], clients: int, delta: int) -> None:
    communities = communities_of(sizes)
    total = sum(sizes)
    if total < clients:
        return
    parts = deal_balanced([np.array(community) for community in communities], clients, delta)
    assert sorted(np.concatenate(parts).tolist()) == list(range(total))
    assert all(len(part) for part in parts)
    if delta <= total // clients // 2:
        expected = deal_slowly(communities, clients, delta)
        if expected is not None:
            assert [part.tolist() for part in parts] == expected


def test_a_piece_that_fits_no_client_goes_to_the_smallest() -> None:
    sizes = [9, 9, 9, 1, 1, 1, 9]  # 3 clients, 13 each; delta 0: after three nines no client takes the fourth
    assert deal_slowly(communities_of(sizes), 3, 0) is None
    parts = deal_balanced([np.array(community) for community in communities_of(sizes)], 3, 0)
    assert sorted(map(len, parts)) == [10, 11, 18]


def test_whole_dealing_by_hand() -> None:
    parts = deal_whole([np.arange(3), np.arange(3, 10), np.arange(10, 12), np.arange(12, 16)], 2)
    assert [len(part) for part in parts] == [9, 7]  # 7 | 4, then 3 to the second, then 2 to the first of equals


# METIS


def test_metis_balances_and_cuts_less_than_chance(capfd: pytest.CaptureFixture[str]) -> None:
    data = cliques(20, 10)
    metis, uniform = (describe(data, PARTITIONS.build(name)(data, 4, 0)) for name in ("metis", "uniform"))
    assert metis.clients["nodes"].between(45, 55).all()
    assert metis.lost_edges is not None
    assert uniform.lost_edges is not None
    assert metis.lost_edges < uniform.lost_edges / 5
    assert capfd.readouterr() == ("", "")


# FED-PUB's overlapping clients


def fedpub_slowly(owner: list[int], communities: int, draw: Callable[[list[int], int], list[int]]) -> list[list[int]]:
    """The paper's rule node by node: five clients per community, each with half of it."""
    clients = []
    for community in range(communities):
        members = [node for node, number in enumerate(owner) if number == community]
        for _ in range(5):
            clients.append(sorted(draw(members, len(members) // 2)))
    return clients


@pytest.mark.parametrize("clients", [10, 30, 50])
def test_metis_overlap_is_fed_pubs_rule(clients: int, csbm: NodeData) -> None:
    rng, communities = np.random.default_rng(3), clients // 5
    owner = np.empty(400, dtype=int)
    for number, part in enumerate(PARTITIONS.build("metis").deal(csbm, communities, rng)):
        owner[part] = number
    expected = fedpub_slowly(
        owner.tolist(), communities, lambda members, count: rng.choice(members, count, replace=False).tolist()
    )
    actual = PARTITIONS.build("metis-overlap")(csbm, clients, 3)
    assert [part.tolist() for part in actual] == expected


def test_metis_overlap_needs_a_multiple(csbm: NodeData) -> None:
    with pytest.raises(UserError, match=r"12 is no multiple of partition\.sharing=5; give a multiple"):
        PARTITIONS.build("metis-overlap")(csbm, 12, 0)
    assert len(PARTITIONS.build("metis-overlap", {"sharing": 4, "share": 1.0})(csbm, 12, 0)) == 12


# FedGL's random overlap


def common(parts: list[np.ndarray]) -> set[int]:
    return set.intersection(*(set(part.tolist()) for part in parts))


def test_independent_samples_have_the_expected_overlap() -> None:
    data = load("csbm", nodes=20000, degree=0.0)
    parts = PARTITIONS.build("random-overlap")(data, 6, 0)
    assert [len(part) for part in parts] == [6000, 8000, 10000, 10000, 12000, 14000]
    assert abs(len(common(parts)) / 20000 - 0.3 * 0.4 * 0.5 * 0.5 * 0.6 * 0.7) < 0.003


@pytest.mark.parametrize("proportions", [(0.3, 0.4, 0.5, 0.5, 0.6, 0.7), (0.9, 0.95), (0.2, 0.4, 0.5, 0.7, 0.7, 0.9)])
@pytest.mark.parametrize("overlap", [0.0, 0.05, 0.15])
def test_the_overlap_is_exactly_what_was_asked_for(
    proportions: tuple[float, ...], overlap: float, csbm: NodeData
) -> None:
    spec = PARTITIONS.build("random-overlap", {"proportions": proportions, "overlap": overlap})
    if sum(proportions) - len(proportions) * overlap > (len(proportions) - 1) * (1 - overlap):
        with pytest.raises(UserError, match="choose another overlap"):
            spec(csbm, len(proportions), 0)
        return
    for seed in range(3):
        parts = spec(csbm, len(proportions), seed)
        assert [len(part) for part in parts] == [round(share * 400) for share in proportions]
        assert len(common(parts)) == round(overlap * 400)


@pytest.mark.parametrize(
    ("params", "clients", "message"),
    [
        ({}, 5, "6 proportions for 5 clients"),
        ({"overlap": 0.31}, 6, "choose another overlap"),
        ({"proportions": [0.5], "overlap": 0.1}, 1, "choose another overlap"),
        ({"proportions": [0.5, 1.5]}, 2, r"proportions\.1: .* got 1\.5"),
        ({"proportions": [0.0, 0.5]}, 2, r"proportions\.0: .* got 0\.0"),
        ({"overlap": -0.1}, 6, "overlap"),
    ],
)
def test_wrong_overlaps(params: dict[str, object], clients: int, message: str, csbm: NodeData) -> None:
    with pytest.raises(UserError, match=message):
        PARTITIONS.build("random-overlap", params)(csbm, clients, 0)


# Graph sets


@pytest.mark.parametrize(
    ("counts", "printed"),
    [((663, 450), 0.5774), ((100,) * 6, 1.2667), ((295, 461), 0.5694), ((2053, 2057), 0.5995)],
    ids=["PROTEINS", "ENZYMES", "DHFR", "NCI1"],
)
def test_fclg_has_the_printed_emd(counts: tuple[int, ...], printed: float) -> None:
    data = graph_set(counts)
    for seed in range(3):
        parts = PARTITIONS.build("fclg")(data, 6, seed)
        assert round(describe(data, parts).emd, 4) == printed
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(sum(counts)))


def test_fclg_needs_a_client_a_class() -> None:
    with pytest.raises(UserError, match="'set' has 3 classes, so it needs at least 3 clients, not 2"):
        PARTITIONS.build("fclg")(graph_set((4, 4, 4)), 2, 0)


def test_dirichlet_skew_falls_with_alpha() -> None:
    data: Data = graph_set((300, 300, 300))
    emd = [
        np.mean([describe(data, PARTITIONS.build("label-dirichlet", {"alpha": a})(data, 5, s)).emd for s in range(5)])
        for a in (0.1, 1.0, 100.0)
    ]
    assert emd[0] > 1.3 * emd[1]
    assert emd[1] > 4 * emd[2]


def test_dirichlet_gives_up_in_one_line() -> None:
    with pytest.raises(UserError, match="no draw in 1000 gave each of 3 clients 30 of 40"):
        PARTITIONS.build("label-dirichlet", {"minimum": 30})(graph_set((20, 20)), 3, 0)


@pytest.mark.parametrize(
    ("deal", "line"),
    [
        (lambda n, k: [np.arange(i, n, k + 2) for i in range(k + 2)], "5 parts for 3 clients"),
        (lambda n, k: [np.arange(i, n, k) for i in range(k - 1)], "2 parts for 3 clients"),
        (lambda n, k: [np.repeat(np.arange(i, n, k), 2) for i in range(k)], "part 0 has id 0 twice"),
        (lambda n, k: [np.arange(i, n // 2, k) for i in range(k)], "200 of 400 nodes are in no part, the first is 200"),
        (lambda n, k: [np.arange(i, n, k) + 0.5 for i in range(k)], r"part 0 is float64 \(134,\); give ids as int64"),
        (lambda n, k: [np.arange(i, n + k, k) for i in range(k)], "part 0 has id 402; ids go from 0 to 399"),
        (lambda n, k: [np.arange(n)] * k, "400 nodes are in several parts; say overlapping"),
    ],
)
def test_parts_that_are_not_as_asked_are_refused(
    deal: Callable[[int, int], list[np.ndarray]], line: str, csbm: NodeData
) -> None:
    class Odd(PartitionSpec):
        """An invalid partition."""

        name = "odd"

        def deal(self, data: Data, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
            return deal(len(data.label), clients)

    with pytest.raises(UserError, match=f"partition 'odd' on 'csbm': {line}"):
        build_federation(csbm, Odd(), SPLITS.build("ratio"), 3, 0)


def test_equally_large_communities_have_a_stable_order_unless_stored_rows_have_another() -> None:
    sizes = np.array([3, 40, 3, 40, 1, 3])
    assert library_order(sizes).tolist() == [1, 3, 0, 2, 5, 4]


@pytest.mark.parametrize("dealt", [None, np.zeros(6, dtype=int), {0: np.arange(6)}, 3])
def test_deal_must_return_a_list_of_ids(dealt: object, csbm: NodeData) -> None:
    class Odd(PartitionSpec):
        name = "odd"

        def deal(self, data: object, clients: int, rng: object) -> Any:
            return dealt

    with pytest.raises(UserError, match=f"deal gave {type(dealt).__name__}; give a list with the ids of each client"):
        Odd()(csbm, 3, 0)
