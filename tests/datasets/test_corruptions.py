"""Stress conditions against counts by hand: what changes, how much, and what stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fglbench.benchmark.contract.trial import graph_federation, node_federation, overlapping_federation
from fglbench.datasets.corruptions import stressed
from fglbench.datasets.federation import Federation, Stress
from fglbench.registry import UserError

Cut = Callable[[], Federation]
CUTS = [node_federation, overlapping_federation]
NAMES = list(Stress.model_fields)


def hard(federation: Federation, **strengths: float) -> Federation:
    return stressed(federation, Stress(**strengths))


def pairs(graph: Any, name: torch.Tensor | None = None) -> set[tuple[int, int]]:
    """The undirected edges, by node names if given. Asserts both directions and no loop."""
    source, target = graph.edges()
    if name is not None:
        source, target = name[source], name[target]
    both = list(zip(source.tolist(), target.tolist(), strict=True))
    edges = {(min(pair), max(pair)) for pair in both}
    assert len(both) == len(set(both)) == 2 * len(edges)
    assert all(u != v for u, v in edges)
    return edges


def held(client: Any) -> torch.Tensor:
    return client.graph.ndata["global_id"]


def seen(federation: Federation) -> list[torch.Tensor]:
    """All data of clients and the whole graph as dense tensors."""
    whole = federation.whole
    tensors = [whole.feat.to_dense(), *whole.graph.edges(), whole.label, *federation.masks.values()]
    for client in federation.clients:
        tensors += [client.feat.to_dense(), *client.graph.edges()]
        tensors += [client.graph.ndata[name] for name in sorted(client.graph.ndata)]
    return tensors


def is_one(federation: Federation) -> None:
    """Assert that clients have the whole graph's features, labels, induced edges and masks."""
    whole = federation.whole
    every = pairs(whole.graph)
    for client in federation.clients:
        ids = held(client)
        nodes = set(ids.tolist())
        assert torch.equal(client.feat.to_dense(), whole.feat.to_dense()[ids])
        assert torch.equal(client.graph.ndata["label"], whole.label[ids])
        assert pairs(client.graph, ids) == {pair for pair in every if nodes.issuperset(pair)}
        for part, mask in federation.masks.items():
            assert torch.equal(client.graph.ndata[f"{part}_mask"], mask[ids])


def test_no_condition_is_the_federation_itself() -> None:
    assert hard(node_federation()) is node_federation()
    assert hard(node_federation(), **dict.fromkeys(NAMES, 0.0)) is node_federation()
    assert hard(graph_federation()) is graph_federation()


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", NAMES)
def test_test_and_validation_data_stay_and_clients_match_the_whole(cut: Cut, name: str) -> None:
    before, after = cut(), hard(cut(), **{name: 0.5})
    is_one(after)
    assert (after.partition_hash, after.seed) == (before.partition_hash, before.seed)
    kept = before.masks["val"] | before.masks["test"]
    assert torch.equal(after.whole.label[kept], before.whole.label[kept])
    for part in ("val", "test"):
        assert torch.equal(after.masks[part], before.masks[part])
    again = hard(cut(), **{name: 0.5})
    assert all(torch.equal(*each) for each in zip(seen(after), seen(again), strict=True))


def changed(before: Federation, after: Federation, what: str) -> list[tuple[int, int]]:
    """Counts of (items, changed items) per client: entries, edges, labels or training nodes."""
    counts = []
    for was, now in zip(before.clients, after.clients, strict=True):
        if what == "missing_features":
            filled = was.feat.to_dense() != 0
            counts.append((int(filled.sum()), int((now.feat.to_dense()[filled] == 0).sum())))
        elif what == "dropped_edges":
            counts.append((len(pairs(was.graph)), len(pairs(was.graph) - pairs(now.graph))))
        elif what == "edge_noise":
            counts.append((len(pairs(was.graph)), len(pairs(now.graph) - pairs(was.graph))))
        else:
            trains = was.graph.ndata["train_mask"]
            wrong = now.graph.ndata["label"] != was.graph.ndata["label"]
            gone = trains & ~now.graph.ndata["train_mask"]
            assert not (wrong & ~trains).any()
            counts.append((int(trains.sum()), int((wrong if what == "label_noise" else gone).sum())))
    return counts


@pytest.mark.parametrize("strength", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "feature_noise"])
def test_each_client_has_its_share(name: str, strength: float) -> None:
    strength = min(strength, 0.999) if name == "missing_labels" else strength  # one training node stays
    for items, hit in changed(node_federation(), hard(node_federation(), **{name: strength}), name):
        assert hit == min(round(strength * items), items - (name == "missing_labels"))
        assert hit


def test_conditions_change_only_their_items() -> None:
    before = node_federation()
    for name in NAMES:
        after = hard(before, **{name: 0.5})
        hit = {what for what in NAMES[1:] if any(count for _, count in changed(before, after, what))}
        assert hit == ({name} if name != "feature_noise" else set())
        same = torch.equal(after.whole.feat.to_dense(), before.whole.feat.to_dense())
        assert same == (name not in ("feature_noise", "missing_features"))


def test_edges_between_clients_are_dropped_but_not_added() -> None:
    before = node_federation()
    owner = torch.empty(before.whole.graph.num_nodes(), dtype=torch.int64)
    for number, client in enumerate(before.clients):
        owner[held(client)] = number

    def between(federation: Federation) -> set[tuple[int, int]]:
        return {(u, v) for u, v in pairs(federation.whole.graph) if owner[u] != owner[v]}

    assert len(between(before) - between(hard(before, dropped_edges=0.3))) == round(0.3 * len(between(before)))
    assert between(hard(before, edge_noise=1.0)) == between(before)


@pytest.mark.parametrize("name", NAMES[1:])
def test_stronger_conditions_include_weaker_ones(name: str) -> None:
    before, weak, strong = node_federation(), *(hard(node_federation(), **{name: s}) for s in (0.3, 0.6))
    if name in ("edge_noise", "dropped_edges"):
        was, less, more = (pairs(each.whole.graph) for each in (before, weak, strong))
        assert was ^ less < was ^ more
    elif name == "missing_features":
        assert ((strong.whole.feat != 0) <= (weak.whole.feat != 0)).all()
    elif name == "missing_labels":
        assert (strong.masks["train"] <= weak.masks["train"]).all()
    else:
        wrong = weak.whole.label != before.whole.label
        assert torch.equal(strong.whole.label[wrong], weak.whole.label[wrong])
        assert wrong.any()


@pytest.mark.parametrize("cut", CUTS)
def test_noise_has_the_given_norm_and_scales_with_strength(cut: Cut) -> None:
    before = cut().whole.feat.to_dense()
    half, twice = (hard(cut(), feature_noise=s).whole.feat.to_dense() - before for s in (0.5, 2.0))
    torch.testing.assert_close(twice, 4 * half, rtol=1e-4, atol=1e-5)
    nodes, features = before.shape
    spread = float(before.square().sum() / nodes / features) ** 0.5  # of one entry where the strength is 1
    assert float(twice.std()) == pytest.approx(2 * spread, rel=4 / (2 * nodes * features) ** 0.5)
    assert abs(float(twice.mean())) < 4 * 2 * spread / (nodes * features) ** 0.5


def test_wrong_labels_are_uniform_over_other_classes() -> None:
    before, after = node_federation(), hard(node_federation(), label_noise=1.0)
    trains = before.masks["train"]
    step = (after.whole.label - before.whole.label)[trains] % 3
    counts = np.bincount(step.numpy(), minlength=3)
    assert counts[0] == 0
    assert abs(counts[1] - counts[2]) < 4 * counts.sum() ** 0.5


def test_clients_draw_independent_noise() -> None:
    """No two rows of noise are equal."""
    before, after = node_federation().whole.feat, hard(node_federation(), feature_noise=1.0).whole.feat
    assert len(torch.unique(after - before, dim=0)) == len(before)


def test_random_edges_of_small_clients_are_limited() -> None:
    federation = node_federation()
    for was, now in zip(federation.clients, hard(federation, edge_noise=1000.0).clients, strict=True):
        nodes = was.graph.num_nodes()
        free = nodes * (nodes - 1) // 2 - len(pairs(was.graph))
        assert len(pairs(now.graph) - pairs(was.graph)) == free // 2


def test_sets_of_graphs_have_no_conditions() -> None:
    with pytest.raises(
        UserError, match=r"label_noise: these conditions are for node class.* the task of 'rings and trees'"
    ):
        hard(graph_federation(), label_noise=0.1)
