"""Link prediction: the split, hidden edges, and the numbers against plain loops and other libraries."""

from __future__ import annotations

from dataclasses import replace

import dgl
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from ogb.linkproppred import Evaluator as OgbEvaluator
from sklearn.metrics import roc_auc_score

from fglbench.benchmark.contract.trial import relabelled
from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.target import Target
from fglbench.benchmark.engine.train import set_up, train
from fglbench.benchmark.engine.views import hide_labels
from fglbench.datasets import DATASETS, PARTITIONS, SPLITS, build_federation
from fglbench.methods import METHODS
from fglbench.registry import UserError
from fglbench.tasks.links import LinkClient, LinkModel, LinkRows


def data(nodes: int = 120):
    return DATASETS.build(
        "csbm", {"nodes": nodes, "classes": 3, "features": 12, "homophily": 0.9, "degree": min(6, nodes // 10)}
    ).load()


def federation(clients: int = 3, **split):
    return build_federation(data(), PARTITIONS.build("uniform"), SPLITS.build("links", split), clients, 0)


def undirected(graph: dgl.DGLGraph, ids: torch.Tensor | None = None) -> set[tuple[int, int]]:
    ends = torch.stack(graph.edges(), 1)
    ends = ends if ids is None else ids[ends]
    return {(min(pair), max(pair)) for pair in ends.tolist()}


def part(client: LinkClient, name: str, label: int) -> list[tuple[int, int]]:
    return [tuple(pair) for pair in client.pairs[client.masks[name] & (client.label == label)].tolist()]


def test_edges_are_split_per_client_and_drawn_pairs_have_no_edge() -> None:
    whole = data()
    for client in federation(negatives=2).clients:
        ids = client.graph.ndata["global_id"]
        every = undirected(dgl.node_subgraph(whole.graph, ids))
        parts = {name: part(client, name, 1) for name in ("train", "val", "test")}
        counts = {name: len(edges) for name, edges in parts.items()}
        assert counts["val"] == round(0.1 * len(every)) and counts["test"] == round(0.2 * len(every))
        assert sorted(sum(parts.values(), [])) == sorted(every)  # noqa: RUF017
        drawn = [pair for name in counts for pair in part(client, name, 0)]
        assert len(set(drawn)) == len(drawn) == 2 * len(every) and not set(drawn) & every
        assert {name: len(part(client, name, 0)) for name in counts} == {name: 2 * n for name, n in counts.items()}
        assert all(first < second for first, second in drawn)
        assert undirected(client.graph) == set(parts["train"])  # messages pass over training edges only


def test_a_method_sees_no_edge_to_be_predicted() -> None:
    for clients, partition in ((3, "uniform"), (6, "random-overlap")):
        world = build_federation(data(), PARTITIONS.build(partition), SPLITS.build("links"), clients, 1)
        tested = {
            tuple(sorted(client.graph.ndata["global_id"][list(pair)].tolist()))
            for client in world.clients for name in ("val", "test") for pair in part(client, name, 1)
        }  # fmt: skip
        seen = hide_labels(world)
        assert seen.whole.graph.num_edges() == 0 and (seen.whole.label == -1).all()
        for client in seen.clients:  # also edges of two clients
            assert not undirected(client.graph, client.graph.ndata["global_id"]) & tested
            assert (client.label[~client.masks["train"]] == -1).all() and (client.graph.ndata["label"] == -1).all()
        assert tested


def test_a_dense_graph_gives_all_pairs_without_an_edge() -> None:
    source, target = torch.triu_indices(12, 12, 1)
    source, target = source[:-6], target[:-6]  # 60 edges, 6 pairs without
    whole = replace(data(12), graph=dgl.graph((torch.cat([source, target]), torch.cat([target, source]))))
    world = build_federation(whole, PARTITIONS.build("uniform"), SPLITS.build("links"), 1, 0)
    client = world.clients[0]
    assert int((client.label == 0).sum()) == 6 and int((client.label == 1).sum()) == 60


@pytest.mark.parametrize("values", [{"train": 0.5}, {"negatives": 0}, {"score": "hits"}])
def test_invalid_shares_are_one_line(values) -> None:
    with pytest.raises(UserError) as caught:
        SPLITS.build("links", values)
    assert "\n" not in str(caught.value)


def test_a_graph_without_edges_and_conditions_of_nodes_are_one_line() -> None:
    bare = replace(data(20), graph=dgl.graph(([], []), num_nodes=20))
    with pytest.raises(UserError, match="no client has an edge to train on"):
        build_federation(bare, PARTITIONS.build("uniform"), SPLITS.build("links"), 2, 0)
    with pytest.raises(UserError, match="leave out --metric"):
        SPLITS.build("links").choose(replace(data(20), scored_by="macro_f1"), 0)
    config = TrainConfig(rounds=1, label_noise=0.5)
    with pytest.raises(UserError, match="conditions are for node classification"):
        train(federation(), METHODS.build("fedavg"), [BACKBONES.build("gcn")], config, 0)


def reference(client, params: dict[str, torch.Tensor], decoder: str) -> torch.Tensor:
    """Logits of all pairs by dense matrices, a pair at a time."""
    n = client.graph.num_nodes()
    dense = torch.zeros(n, n)
    for u, v in torch.stack(client.graph.edges(), 1).tolist():
        dense[v, u] = 1.0
    dense += torch.eye(n)
    scale = dense.sum(1) ** -0.5
    dense = scale[:, None] * dense * scale[None, :]
    h = torch.relu(dense @ (client.feat @ params["0.weight"]) + params["0.bias"])
    z = dense @ (h @ params["1.weight"]) + params["1.bias"]
    rows = []
    for u, v in client.pairs.tolist():
        if decoder == "dot":
            rows.append(torch.stack([torch.zeros(()), (z[u] * z[v]).sum()]))
        else:
            hidden = torch.relu(params["post.weight"].T @ (z[u] * z[v]) + params["post.bias"])
            rows.append(params["head.weight"].T @ hidden + params["head.bias"])
    return torch.stack(rows)


@pytest.mark.parametrize("decoder", ["dot", "mlp"])
def test_fedavg_is_a_plain_loop_over_clients(decoder: str) -> None:
    world = federation()
    backbone = BACKBONES.build("gcn", {"hidden": 8, "dropout": 0.0, "decoder": decoder})
    config = TrainConfig(rounds=2, local_epochs=2, optimiser="sgd", lr=0.1, weight_decay=0.0)
    simulation, evaluator = set_up(world, METHODS.build("fedavg"), [backbone], config, 3)
    phase = simulation.method.phases(config)[0]
    model = {name: value.clone() for name, value in simulation.server.initial_model().items()}
    assert set(model) >= ({"post.weight", "head.bias"} if decoder == "mlp" else {"1.weight"})
    for number in (1, 2):
        simulation.round(phase, number)
        trained, sizes = [], [client.graph.num_nodes() for client in world.clients]
        for client in world.clients:
            local = {name: value.clone().requires_grad_() for name, value in model.items()}
            for _ in range(2):
                known, logits = client.masks["train"], reference(client, local, decoder)
                loss = F.binary_cross_entropy_with_logits(
                    (logits[:, 1] - logits[:, 0])[known], client.label[known].float()
                )
                for (name, value), grad in zip(
                    local.items(), torch.autograd.grad(loss, list(local.values())), strict=True
                ):
                    local[name] = (value - 0.1 * grad).detach().requires_grad_()
            trained.append(local)
        weights = [size / sum(sizes) for size in sizes]
        model = {
            name: sum(w * local[name].detach() for w, local in zip(weights, trained, strict=True)) for name in model
        }
    models = simulation.models()
    for name, value in model.items():
        assert torch.allclose(models.server[name], value, rtol=1e-4, atol=1e-5), name
    scored = evaluator.score(models, "global", "local")
    for k, client in enumerate(world.clients):
        with torch.no_grad():
            logits, tested = reference(client, model, decoder), client.masks["test"]
        area = roc_auc_score(client.label[tested], (logits[:, 1] - logits[:, 0])[tested])
        assert float(scored.test[k]) == pytest.approx(area, abs=1e-6)


def test_mean_reciprocal_rank_equals_ogb() -> None:
    rng = np.random.default_rng(0)
    margin, label = (
        torch.from_numpy(rng.integers(0, 9, 60).astype(np.float32)),
        torch.from_numpy(rng.integers(0, 2, 60)),
    )
    masks = {"val": torch.zeros(60, dtype=torch.bool), "test": torch.ones(60, dtype=torch.bool)}
    ranks = Target.of([label], [masks], [40, 20]).mrr(margin, "test")
    for k, rows in enumerate((slice(0, 40), slice(40, 60))):
        edges, negatives = margin[rows][label[rows] == 1], margin[rows][label[rows] == 0]
        expected = OgbEvaluator(name="ogbl-citation2").eval(
            {"y_pred_pos": edges, "y_pred_neg": negatives.expand(len(edges), len(negatives))}
        )
        assert float(ranks[k]) == pytest.approx(float(expected["mrr_list"].mean()), abs=1e-6)


def test_scores_follow_the_measure_and_hidden_labels_change_nothing() -> None:
    def run(world):
        return train(world, METHODS.build("fedavg"), [BACKBONES.build("gcn", {"hidden": 8})], TrainConfig(rounds=3), 0)

    area, rank = run(federation()), run(federation(score="mrr"))
    assert area.score_metric == "ROC AUC of links, global model, local test, mean over clients"
    assert rank.score_metric.startswith("mean reciprocal rank of links")
    assert 0 < rank.score < 1 and rank.score != area.score
    assert area.global_on_global is None and area.global_on_local == area.score
    other = run(relabelled(federation()))
    assert other.upload_bytes == area.upload_bytes and other.history["upload_bytes"] == area.history["upload_bytes"]


def test_the_model_adds_nothing_to_the_encoder_but_the_decoder() -> None:
    encoder = BACKBONES.build("gcn", {"hidden": 8})
    assert set(LinkModel.around(encoder).init(np.random.default_rng(0), 5, 2)) == {
        "0.weight",
        "0.bias",
        "1.weight",
        "1.bias",
    }
    rows = LinkRows.of(federation().clients)
    assert rows.pairs.max() < rows.nodes.graph.num_nodes() and len(rows.pairs) == sum(rows.sizes)
    owner = rows.nodes.owner[rows.pairs]
    assert torch.equal(owner[:, 0], rows.owner) and torch.equal(owner[:, 1], rows.owner)
