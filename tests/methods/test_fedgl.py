"""FedGL on overlapping clients against its formulas, with loops and dense matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import dgl
import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine import Facts
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.payload import leaves
from fglbench.datasets.federation import Federation, NodeClient
from fglbench.methods import METHODS, fedgl

from .formulas import gcn
from .rounds import Make, close, start, stepped, tracked

GCN: dict[str, Any] = {"kinds": ["gcn"]}


@pytest.fixture(scope="module")
def overlapping(federation: Make) -> Callable[..., Federation]:
    """Clients with random nodes of one graph of 40 nodes."""

    def cut(sizes: tuple[int, ...] = (15, 20, 25), seed: int = 0) -> Federation:
        world = federation((40,))
        source = torch.Generator().manual_seed(seed)
        clients = []
        for size in sizes:
            ids = torch.randperm(40, generator=source)[:size].sort().values
            graph = dgl.node_subgraph(world.clients[0].graph, ids, store_ids=False)
            graph.ndata["global_id"] = ids
            clients.append(NodeClient(graph, world.clients[0].feat.to_dense()[ids].to_sparse_csr()))
        return replace(world, clients=clients)

    return cut


def ids_of(world: Federation) -> list[list[int]]:
    return [client.graph.ndata["global_id"].tolist() for client in world.clients]


def slow_fuse(world: Federation, values: dict[int, torch.Tensor], literal: bool) -> dict[int, torch.Tensor]:
    """Eq. 11 and 13 for reported nodes. values: the report of each participant."""
    ids, total = ids_of(world), sum(len(ids_of(world)[k]) for k in values)
    fused: dict[int, torch.Tensor] = {}
    for node in range(40):
        holders = [k for k in values if node in ids[k]]
        if holders:
            rows = sum(len(ids[k]) / total * values[k][ids[k].index(node)] for k in holders)
            fused[node] = rows if literal else rows / sum(len(ids[k]) / total for k in holders)
    return fused


def slow_labels(fused: dict[int, torch.Tensor], threshold: float) -> dict[int, int]:
    return {node: int(p.argmax()) for node, p in fused.items() if float(p.max()) > threshold}


def slow_graph(fused: dict[int, torch.Tensor], neighbours: int) -> dict[tuple[int, int], float]:
    """The pseudo-graph's entries by node ids."""
    entries = {}
    for i, h in fused.items():
        similar = sorted(((max(float(h @ other), 0.0), j) for j, other in fused.items()), reverse=True)[:neighbours]
        total = sum(value for value, _ in similar)
        entries |= {(i, j): value / total for value, j in similar if value > 0}
    return entries


def slow_normalised(entries: dict[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    """a_ij / sqrt(d_i d_j), where d are row sums; without columns of nodes without a row."""
    degree: dict[int, float] = {}
    for (i, _), value in entries.items():
        degree[i] = degree.get(i, 0.0) + value
    return {(i, j): v / (degree[i] * degree[j]) ** 0.5 for (i, j), v in entries.items() if j in degree}


def slow_part(entries: dict[tuple[int, int], float], ids: list[int], form: str) -> dict[tuple[int, int], float]:
    """The pseudo-graph's part of A_hat for a client with these nodes. entries: of all nodes."""
    if form == "openfgl":
        every = {i for pair in entries for i in pair}
        whole = slow_normalised({**entries, **{(i, i): 1.0 for i in every}})
        return {(j, i): value for (i, j), value in whole.items() if i in ids and j in ids}
    client_entries = {pair: value for pair, value in entries.items() if set(pair) <= set(ids)}
    if form == "symmetric":
        both = {*client_entries, *((j, i) for i, j in client_entries)}
        client_entries = {
            (i, j): (client_entries.get((i, j), 0.0) + client_entries.get((j, i), 0.0)) / 2 for i, j in both
        }
    return slow_normalised(client_entries)


def slow_propagation(
    client: NodeClient, entries: dict[tuple[int, int], float], beta: float, form: str = "symmetric"
) -> torch.Tensor:
    """A_hat + beta times the pseudo-graph, dense."""
    ids, n = client.graph.ndata["global_id"].tolist(), client.graph.num_nodes()
    a = torch.eye(n)
    for u, v in zip(*(ends.tolist() for ends in client.graph.edges()), strict=True):
        a[v, u] += 1
    out = a / a.sum(1).outer(a.sum(1)).sqrt()
    for (i, j), value in slow_part(entries, ids, form).items():
        out[ids.index(i), ids.index(j)] += beta * value
    return out


def found_labels(world: Federation, message: Any) -> dict[int, int]:
    """The pseudo-labels in a download by node id, equal at all clients with that node."""
    labels: dict[int, int] = {}
    for ids, client_labels in zip(ids_of(world), message.tree["label"], strict=True):
        for node, label in zip(ids, client_labels.tolist(), strict=True):
            assert labels.setdefault(node, label) == label
    return {node: label for node, label in labels.items() if label >= 0}


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"literal": True, "threshold": 0.15},
        {"reduction": "sum", "alpha": 0.05},
        {"report_on": "augmented"},
        {"pseudo_graph": "printed"},
        {"pseudo_graph": "openfgl"},
        {"report_when": "before", "threshold": 0.35},
        {
            "pseudo_graph": "printed",
            "report_when": "before",
            "report_on": "augmented",
            "threshold": 0.35,
        },  # Algorithm 1 to the letter
        {"start": 3},
    ],
    ids=lambda params: ",".join(f"{name}={value}" for name, value in params.items()) or "default",
)
def test_rounds_equal_slow_loops(params: dict[str, Any], overlapping: Make) -> None:
    """Four rounds by autograd on dense matrices, SGD by hand, and loops for fusion, pseudo-labels and pseudo-graph."""
    world, lr = overlapping(), 0.2
    settings = {"alpha": 0.7, "beta": 0.6, "threshold": 0.4, "neighbours": 7, **params}
    run = start(world, "fedgl", settings, optimiser="sgd", lr=lr, weight_decay=0.0, backbone={"dropout": 0.0}, **GCN)
    theta = dict(run.simulation.server.initial_model())
    labels: dict[int, int] = {}
    entries: dict[tuple[int, int], float] = {}
    form, before = settings.get("pseudo_graph", "symmetric"), settings.get("report_when") == "before"
    first, rounds, seen = settings.get("start", 2), [1, 2, 3, 4], 0
    for number in rounds:
        upload = run.round(number)
        models, predictions, outputs = [], {}, {}
        for k, client in enumerate(world.clients):
            ids, mask, label = (client.graph.ndata[key] for key in ("global_id", "train_mask", "label"))
            a, x = slow_propagation(client, entries, settings["beta"], form), client.feat.to_dense()
            guessed = [i for i, node in enumerate(ids.tolist()) if node in labels and not mask[i]]
            seen += len(guessed)
            w = theta
            for _ in range(2):
                w = tracked(w)
                z = gcn(w, x, a)[1]
                known = F.cross_entropy(z[mask], label[mask], reduction="sum")
                pseudo = sum(-z[i].log_softmax(0)[labels[int(ids[i])]] for i in guessed)
                if settings.get("reduction") != "sum":
                    known, pseudo = known / mask.sum(), pseudo / max(len(guessed), 1)
                w = stepped(w, known + settings["alpha"] * pseudo, lr)
            models.append(w)
            reported = a if settings.get("report_on") == "augmented" else slow_propagation(client, {}, 0)
            outputs[k] = gcn(theta if before else w, x, reported)[1]
            predictions[k] = outputs[k].softmax(1)
            close(upload["model"], w, k, atol=1e-6)
            if number < first - 1:
                assert set(upload) == {"model"}
                continue
            torch.testing.assert_close(upload["output"][k], outputs[k], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(upload["prediction"][k], predictions[k], rtol=1e-5, atol=1e-6)
        theta = {n: sum(s / 60 * m[n] for s, m in zip((15, 20, 25), models, strict=True)) for n in theta}
        close(run.simulation.server.state["model"], theta, atol=1e-6)
        if number < first - 1:
            assert set(run.simulation._message) == {"model"}
            continue
        literal = bool(settings.get("literal"))
        labels = slow_labels(slow_fuse(world, predictions, literal), settings["threshold"])
        entries = slow_graph(slow_fuse(world, outputs, literal), settings["neighbours"])
        assert found_labels(world, run.simulation._message) == labels
        assert 0 < len(entries) <= 40 * settings["neighbours"]
    assert seen > 20  # pseudo-labels were at work


@pytest.mark.parametrize("literal", [False, True])
def test_fusion_of_the_clients_that_took_part(literal: bool, overlapping: Make) -> None:
    world = overlapping((15, 20, 25, 10), seed=3)
    run = start(world, "fedgl", {"literal": literal}, participation=0.5, **GCN)
    server, method = run.simulation.server, run.method
    held = sorted({node for ids in ids_of(world) for node in ids})
    for number in (1, 2, 3):
        upload = run.round(number)
        outputs = dict(zip(server.participants, upload["output"], strict=True))
        expected = slow_fuse(world, outputs, literal)
        fused = method.fuse(server, upload["output"])
        assert len(fused) == len(held)
        for row, node in zip(fused, held, strict=True):
            torch.testing.assert_close(row, expected.get(node, torch.zeros(3)), rtol=1e-5, atol=1e-6)
        labels = found_labels(world, run.simulation._message)
        predictions = dict(zip(server.participants, upload["prediction"], strict=True))
        assert labels == slow_labels(slow_fuse(world, predictions, literal), 0.5)
        assert set(labels) <= set(expected)
        tree = run.simulation._message.tree  # and nodes that no client reported have no pseudo-edge
        for ids, index in zip(ids_of(world), tree["index"], strict=True):
            ends = {ids[i] for e in index.tolist() for i in divmod(e, len(ids))}
            assert ends <= set(expected)
    assert len(server.participants) == 2 and len(expected) < len(held)


def test_threshold_on_each_client_keeps_labels_certain_at_any_client(overlapping: Make) -> None:
    place = (torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3]))
    server = SimpleNamespace(state={"place": place, "nodes": 4}, participants=[0, 1], weights=torch.tensor([0.5, 0.5]))
    predictions = [
        torch.tensor([[0.55, 0.45], [0.6, 0.4], [0.5, 0.5]]),
        torch.tensor([[0.1, 0.9], [0.52, 0.48], [0.5, 0.5]]),
    ]
    each = METHODS.build("fedgl", {"threshold_on": "each", "threshold": 0.51})
    assert each.pseudo_labels(server, predictions).tolist() == [0, 1, 0, -1]
    fused = METHODS.build("fedgl", {"threshold": 0.56})
    assert fused.pseudo_labels(server, predictions).tolist() == [-1, 1, -1, -1]


def test_similarity_graph_in_chunks_equals_one_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    h = torch.randn(23, 3, generator=torch.Generator().manual_seed(2))
    h[5] = 0
    product = (h @ h.T).clamp(min=0)
    dense = torch.zeros(23, 23)
    for i in range(23):
        largest = product[i].argsort(descending=True)[:6]
        if product[i].sum() > 0:
            dense[i, largest] = product[i, largest] / product[i, largest].sum()
    for chunk in (2**20, 50, 1):
        monkeypatch.setattr(fedgl, "CHUNK", chunk)
        graph = fedgl.similarity_graph(h, 6)
        assert graph.nnz == int((dense > 0).sum()) and graph[5].nnz == 0
        torch.testing.assert_close(torch.from_numpy(graph.toarray()), dense)
    assert fedgl.similarity_graph(h, 100).shape == (23, 23)  # more neighbours than nodes


def test_without_both_it_is_fedavg(overlapping: Make) -> None:
    world = overlapping()
    mine, plain = start(world, "fedgl", {"alpha": 0, "beta": 0}, **GCN), start(world, "fedavg", **GCN)
    for number in (1, 2, 3):
        one, two = mine.round(number), plain.round(number)
        assert set(one) == {"model"} and all(torch.equal(v, two["model"][n]) for n, v in one["model"].items())
    assert mine.simulation.upload_bytes == plain.simulation.upload_bytes
    assert mine.simulation.download_bytes == plain.simulation.download_bytes


@pytest.mark.parametrize(("ablation", "params"), [("fedgl-no-gpg", {"beta": 0}), ("fedgl-no-gpl", {"alpha": 0})])
def test_ablations_leave_their_part_out(ablation: str, params: dict[str, Any], overlapping: Make) -> None:
    world, both = overlapping(), {"threshold": 0.4, "neighbours": 7}
    short, long = start(world, ablation, both, **GCN), start(world, "fedgl", {**both, **params}, **GCN)
    whole, plain = start(world, "fedgl", both, **GCN), start(world, "fedavg", **GCN)
    for number in (1, 2):
        one, two, full, bare = (list(leaves(run.round(number)["model"])) for run in (short, long, whole, plain))
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
        equal = [torch.equal(a, b) for a, b in zip(one, full, strict=True)]
        unchanged = [torch.equal(a, b) for a, b in zip(one, bare, strict=True)]
        assert (all(equal), all(unchanged)) == (number == 1, number == 1)


def test_skip_names_backbone_and_size(overlapping: Make) -> None:
    world = overlapping()
    gat, plain = [BACKBONES.build("gat")], [BACKBONES.build("gcn")]
    assert "gat has none" in METHODS.build("fedgl").skip(Facts.of(world), gat)
    assert METHODS.build("fedgl-no-gpg").skip(Facts.of(world), gat) is None
    assert METHODS.build("fedgl").skip(Facts.of(world), plain) is None
    large = replace(world, whole=replace(world.whole, label=torch.zeros(169_343, dtype=torch.int64)))
    assert "169343 nodes" in METHODS.build("fedgl-no-gpl").skip(Facts.of(large), plain)
    for nodes, fits in ((44_721, True), (44_722, False)):  # 2e9 pairs are between
        whole = replace(world.whole, label=torch.zeros(nodes, dtype=torch.int64))
        assert (METHODS.build("fedgl").skip(Facts.of(replace(world, whole=whole)), plain) is None) == fits
