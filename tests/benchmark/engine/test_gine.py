"""GINE: edge features of molecules, the layer against PyG, a whole model against loops over atoms and bonds."""

from __future__ import annotations

from dataclasses import replace

import dgl
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.contract.trial import node_federation, rings_and_trees
from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.train import set_up, train
from fglbench.datasets import PARTITIONS, SPLITS, build_federation
from fglbench.datasets.build import check_data
from fglbench.datasets.content import fingerprint, undirected
from fglbench.datasets.molecules import MoleculeRegressionSpec
from fglbench.methods import METHODS
from fglbench.registry import UserError

H, BOND = 8, 13
CONFIG = TrainConfig(rounds=1, local_epochs=1, batch_size=16)


def bonded(count: int = 60):
    """Rings and trees with one-hot edge features as of bonds: one kind per graph (the target), the others at random."""
    data, rng = rings_and_trees(count), np.random.default_rng(1)
    target = []
    for graph in data.graphs:
        source, end = graph.edges()
        pairs, kind = {}, int(rng.integers(2))
        for u, v in zip(source.tolist(), end.tolist(), strict=True):
            pairs.setdefault((min(u, v), max(u, v)), (kind, int(rng.integers(6)), int(rng.integers(2))))
        codes = [pairs[min(u, v), max(u, v)] for u, v in zip(source.tolist(), end.tolist(), strict=True)]
        feat = torch.zeros(len(codes), BOND, dtype=torch.uint8)
        for row, (_, stereo, conjugated) in enumerate(codes):
            feat[row, [kind, 5 + stereo, 11 + conjugated]] = 1
        graph.edata["feat"] = feat
        target.append([float(kind)])
    return replace(
        data, label=torch.zeros(count, dtype=torch.long), num_classes=1, target=torch.tensor(target),
        goal="graph-regression", scored_by="rmse",
    )  # fmt: skip


def federation_of(data):
    return build_federation(check_data(data), PARTITIONS.build("uniform"), SPLITS.build("ratio"), 3, 0)


def cohort_of(data, **params):
    backbone = BACKBONES.build("gine", {"hidden": H, "dropout": 0.0, **params})
    simulation, _ = set_up(federation_of(data), METHODS.build("fedavg"), [backbone], CONFIG, 0)
    clients = simulation.client_batches[0]
    generator = torch.Generator().manual_seed(0)
    clients.params = {  # clients differ
        name: value + 0.1 * torch.randn(value.shape, generator=generator) for name, value in clients.params.items()
    }
    return clients


def by_loops(model: dict[str, torch.Tensor], graph: dgl.DGLGraph, layers: int, eps: float) -> torch.Tensor:
    """(1,) output of one client's model for one graph, edge by edge."""
    h = graph.ndata["feat"].float() @ model["input.weight"] + model["input.bias"]
    for i in range(layers):
        summed = [torch.zeros(H) for _ in range(graph.num_nodes())]
        for (u, v), bond in zip(torch.stack(graph.edges(), 1).tolist(), graph.edata["feat"].float(), strict=True):
            summed[v] = summed[v] + torch.relu(h[u] + bond @ model[f"{i}.edge.weight"] + model[f"{i}.edge.bias"])
        z = (1 + model.get(f"{i}.eps", torch.tensor(eps))) * h + torch.stack(summed)
        z = torch.relu(z @ model[f"{i}.inner.weight"] + model[f"{i}.inner.bias"])
        h = torch.relu(z @ model[f"{i}.outer.weight"] + model[f"{i}.outer.bias"])
    z = torch.relu(h.sum(0) @ model["post.weight"] + model["post.bias"])
    return z @ model["head.weight"] + model["head.bias"]


@pytest.mark.parametrize(("layers", "train_eps"), [(1, False), (3, True)])
def test_a_model_and_its_gradient_equal_loops(layers: int, train_eps: bool) -> None:
    data = bonded()
    clients = cohort_of(data, layers=layers, eps=0.3, train_eps=train_eps)
    for value in clients.params.values():
        value.requires_grad_(True)
    logits = clients.forward(training=False).logits
    clients.loss(logits).sum().backward()
    per_client = logits.split(clients.batch.sizes)
    for k, member in enumerate(clients.members):
        model = {name: value[k].detach().clone().requires_grad_(True) for name, value in clients.params.items()}
        wanted = torch.stack([by_loops(model, graph, layers, 0.3) for graph in member.graphs])
        assert torch.allclose(per_client[k], wanted, atol=1e-5, rtol=1e-5)
        rows = member.masks["train"]
        F.mse_loss(wanted[rows], member.label[rows]).backward()
        for name, value in model.items():
            assert torch.allclose(clients.params[name].grad[k], value.grad, atol=1e-4, rtol=1e-4), name


def test_a_layer_equals_pyg() -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    clients = cohort_of(bonded(), layers=2, eps=0.2)
    nodes = clients.batch.nodes
    h = torch.randn(len(nodes.label), H, generator=torch.Generator().manual_seed(1))
    backbone = clients.network.backbones[0].encoder
    with torch.no_grad():
        outputs = backbone.layer(clients.params, 1, h, nodes).split(nodes.sizes)
    for k, (member, rows) in enumerate(zip(clients.members, h.split(nodes.sizes), strict=True)):
        graph = dgl.batch(member.graphs)
        maps = torch.nn.Sequential(torch.nn.Linear(H, H), torch.nn.ReLU(), torch.nn.Linear(H, H))
        layer = pyg.GINEConv(maps, eps=0.2, edge_dim=BOND)
        with torch.no_grad():
            for linear, name in ((maps[0], "inner"), (maps[2], "outer"), (layer.lin, "edge")):
                linear.weight.copy_(clients.params[f"1.{name}.weight"][k].T)
                linear.bias.copy_(clients.params[f"1.{name}.bias"][k])
            wanted = layer(rows, torch.stack(graph.edges()), graph.edata["feat"].float())
        assert torch.allclose(outputs[k], wanted, atol=1e-5, rtol=1e-5)


def test_a_minibatch_has_the_edges_of_its_graphs() -> None:
    clients = cohort_of(bonded())
    with torch.no_grad():
        every = clients.forward(training=False).logits.split(clients.batch.sizes)
        for active in clients.steps():
            assert active is None or active
            rows = clients.at.split(clients.batch.sizes)
            held = np.cumsum([0, *map(len, every)])
            parts = clients.forward(training=False).logits.split(clients.batch.sizes)
            for k, part in enumerate(parts):
                assert torch.allclose(part, every[k][rows[k] - held[k]], atol=1e-5)


def test_data_without_edge_features_is_one_line() -> None:
    backbone = [BACKBONES.build("gine", {"hidden": H})]
    graphs = replace(bonded(), graphs=rings_and_trees(60).graphs)
    for federation in (node_federation(), federation_of(graphs)):
        with pytest.raises(UserError, match="choose gin") as caught:
            train(federation, METHODS.build("fedavg"), backbone, CONFIG.model_copy(update={"batch_size": None}), 0)
        assert "\n" not in str(caught.value)


def test_edges_get_their_own_features(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = undirected(np.array([[0, 1], [2, 1], [3, 2], [4, 5], [5, 6], [4, 6]]), 7)
    content = {
        "edges": edges,
        "edge_label": np.array([[k % 5, k, k % 2] for k in range(6)], np.uint8),
        "graph": np.array([0, 0, 0, 0, 1, 1, 1]),
        "node_label": np.zeros(7, np.int64),
        "label": np.zeros(2, np.int64),
        "target": np.ones((2, 1), np.float32),
    }
    assert fingerprint(content) == fingerprint({name: value for name, value in content.items() if name != "edge_label"})
    monkeypatch.setattr(MoleculeRegressionSpec, "content", lambda self: (content, "generated"))
    dataset = MoleculeRegressionSpec().load()
    of = {tuple(pair): k for k, pair in enumerate(edges.tolist())}
    first = 0
    for graph in dataset.graphs:
        for (u, v), bond in zip(torch.stack(graph.edges(), 1).tolist(), graph.edata["feat"], strict=True):
            k = of[min(u, v) + first, max(u, v) + first]
            assert bond.nonzero().flatten().tolist() == [k % 5, 5 + k, 11 + k % 2]
        first += graph.num_nodes()


def test_bonds_equal_ogb(tmp_path) -> None:
    pytest.importorskip("rdkit")
    from ogb.utils import smiles2graph
    from ogb.utils.features import get_bond_feature_dims

    from fglbench.datasets.molecules import read_molecules
    from fglbench.datasets.spec import BONDS

    assert list(BONDS) == get_bond_feature_dims()
    smiles = ["c1ccccc1CC(=O)N", "C/C=C/Cl", "CCO", "C#N", "OC(=O)C=C"]
    path = tmp_path / "some.csv"
    path.write_text("smiles,a\n" + "".join(f"{text},1\n" for text in smiles))
    content = read_molecules({"some.csv": path})
    bonds = {
        tuple(pair): bond.tolist() for pair, bond in zip(content["edges"].tolist(), content["edge_label"], strict=True)
    }
    first = 0
    for text in smiles:
        graph = smiles2graph(text)
        for (u, v), bond in zip(graph["edge_index"].T.tolist(), graph["edge_feat"].tolist(), strict=True):
            assert bonds[min(u, v) + first, max(u, v) + first] == bond
        first += graph["num_nodes"]
