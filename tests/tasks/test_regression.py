"""Regression and several labels: losses and scores against scikit-learn, PyTorch and OGB; molecules against OGB."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from ogb.graphproppred import Evaluator as OgbEvaluator
from sklearn.metrics import mean_absolute_error, mean_squared_error
from sklearn.preprocessing import StandardScaler

from fglbench.benchmark.contract.trial import rings_and_trees
from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.train import set_up, train
from fglbench.datasets import DATASETS, PARTITIONS, SPLITS, build_federation
from fglbench.datasets.build import check_data
from fglbench.methods import METHODS
from fglbench.registry import UserError

CONFIG = TrainConfig(rounds=2, local_epochs=1)


def nodes(score: str = "rmse"):
    """Targets of nodes of a block model: a function of their features; a tenth is not known."""
    data = DATASETS.build("csbm", {"nodes": 120, "classes": 3, "features": 8, "homophily": 0.9}).load()
    target = 3 * data.feat[:, :1] - 2
    target[::10] = torch.nan
    label = -target.isnan().all(1).long()
    return replace(data, label=label, num_classes=1, target=target, goal="node-regression", scored_by=score)


def graphs(goal: str, score: str):
    """Sizes of graphs, or whether they are rings, large, and both or not known."""
    data = rings_and_trees(90)
    size = torch.tensor([float(graph.num_nodes()) for graph in data.graphs])
    ring, large = data.label.float(), (size > 15).float()
    both = torch.where(torch.arange(90) % 4 == 0, torch.nan, ring * large)
    target = size.unsqueeze(1) / 10 if goal == "graph-regression" else torch.stack([ring, large, both], 1)
    return replace(
        data, label=torch.zeros(90, dtype=torch.long), num_classes=1, target=target, goal=goal, scored_by=score
    )


def federation_of(data):
    return build_federation(check_data(data), PARTITIONS.build("uniform"), SPLITS.build("ratio"), 3, 0)


def run(data, method: str = "fedavg"):
    """A federation, the logits and loss at first, the predictions after a round on each client, and their scores."""
    federation = federation_of(data)
    backbone = BACKBONES.build("gin", {"hidden": 8}) if data.task == "graph" else BACKBONES.build("gcn", {"hidden": 8})
    simulation, evaluator = set_up(federation, METHODS.build(method), [backbone], CONFIG, 1)
    clients = simulation.client_batches[0]
    with torch.no_grad():
        logits = clients.forward(training=False).logits
        loss = clients.loss(logits)
    simulation.round(simulation.method.phases(CONFIG)[0], 1)
    models = simulation.models()
    with torch.no_grad():
        predicted = clients.forward(models.expanded(3), training=False).logits.split(clients.batch.sizes)
    return federation, logits.split(clients.batch.sizes), loss, predicted, evaluator.score(models, "global", "local")


def rows(client, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The targets of a client and which of them are of a part."""
    if hasattr(client, "graphs"):
        return client.label, client.masks[part]
    return client.graph.ndata["label"], client.graph.ndata[f"{part}_mask"]


@pytest.mark.parametrize("score", ["rmse", "mae"])
@pytest.mark.parametrize("task", ["node", "graph"])
def test_loss_and_errors_equal_torch_and_scikit_learn(task: str, score: str) -> None:
    data = nodes(score) if task == "node" else graphs("graph-regression", score)
    federation, logits, loss, predicted, scored = run(data)
    assert federation.task == f"{task}-regression" and federation.num_classes == 1
    for k, client in enumerate(federation.clients):
        target, trained = rows(client, "train")
        assert float(loss[k]) == pytest.approx(float(F.mse_loss(logits[k][trained], target[trained])), abs=1e-5)
        for part, errors in (("val", scored.val), ("test", scored.test)):
            _, mine = rows(client, part)
            truth, guess = target[mine].numpy(), predicted[k][mine].numpy()
            expected = mean_absolute_error(truth, guess) if score == "mae" else mean_squared_error(truth, guess) ** 0.5
            assert float(errors[k]) == pytest.approx(expected, abs=1e-5)


def test_scaled_targets_have_mean_0_and_deviation_1_and_the_published_ones_can_be_had() -> None:
    content = {"target": np.array([[1.0, 5.0], [np.nan, 7.0], [4.0, 12.0]], dtype=np.float32)}
    assert np.array_equal(DATASETS.build("esol", {"scaled": False}).targets(content), content["target"], equal_nan=True)
    mine, scaler = DATASETS.build("esol").targets(content), StandardScaler()
    np.testing.assert_allclose(mine, scaler.fit_transform(content["target"]), atol=1e-6)
    np.testing.assert_allclose(scaler.inverse_transform(mine), content["target"], atol=1e-5)


def test_nodes_without_a_target_have_no_part_and_the_best_round_has_the_lowest_error() -> None:
    data = nodes()
    federation = federation_of(data)
    for client in federation.clients:
        target, _ = rows(client, "train")
        some = torch.stack([rows(client, part)[1] for part in ("train", "val", "test")]).any(0)
        assert target.isnan().any() and not (some & target.isnan().any(1)).any()
    config = TrainConfig(rounds=6, local_epochs=1)
    outcome = train(federation, METHODS.build("fedavg"), [BACKBONES.build("gcn", {"hidden": 8})], config, 0)
    assert outcome.score_metric == "RMSE (lower is better), global model, local test, mean over clients"
    assert outcome.val == min(outcome.history["val"]) and outcome.score > 1 and outcome.macro_f1 is None


def test_learning_lowers_the_error_of_every_method_that_applies() -> None:
    federation, config = federation_of(nodes()), TrainConfig(rounds=40, local_epochs=3, lr=0.03)
    spread = float(torch.cat([rows(client, "test")[0] for client in federation.clients]).nan_to_num().std())
    for name in ("fedavg", "fedprox", "ditto", "fedper"):
        outcome = train(federation, METHODS.build(name), [BACKBONES.build("mlp", {"hidden": 16})], config, 0)
        assert outcome.score < 0.6 * spread, (name, outcome.score, spread)


def test_several_labels_equal_torch_and_ogb() -> None:
    federation, logits, loss, predicted, scored = run(graphs("graph-labels", "roc_auc"))
    assert federation.num_classes == 3
    evaluator = OgbEvaluator(name="ogbg-moltox21")
    evaluator.num_tasks = 3
    for k, client in enumerate(federation.clients):
        target, trained = rows(client, "train")
        known = ~target.isnan() & trained.unsqueeze(1)
        wanted = F.binary_cross_entropy_with_logits(logits[k][known], target[known])
        assert float(loss[k]) == pytest.approx(float(wanted), abs=1e-5)
        _, mine = rows(client, "test")
        expected = evaluator.eval({"y_true": target[mine].numpy(), "y_pred": predicted[k][mine].numpy()})
        assert float(scored.test[k]) == pytest.approx(expected["rocauc"], abs=1e-5)


def test_the_scaffold_split_equals_deepchem_and_clients_share_no_scaffold() -> None:
    data = replace(graphs("graph-regression", "rmse"), group=torch.from_numpy(np.arange(90) ** 2 % 17))
    federation = build_federation(data, PARTITIONS.build("scaffold"), SPLITS.build("scaffold"), 3, 0)
    seen: set[int] = set()
    for client in federation.clients:
        held: dict[int, list[int]] = {}
        for row, graph in enumerate(client.global_id.tolist()):
            held.setdefault(int(data.group[graph]), []).append(row)
        assert not seen & set(held)
        seen |= set(held)
        parts: dict[str, list[int]] = {"train": [], "val": [], "test": []}
        n = len(client.graphs)
        # scaffold_split of DeepChem
        for group in sorted(held.values(), key=lambda group: (len(group), group[0]), reverse=True):
            if len(parts["train"]) + len(group) > 0.8 * n:
                bad = len(parts["train"]) + len(parts["val"]) + len(group) > 0.9 * n
                parts["test" if bad else "val"] += group
            else:
                parts["train"] += group
        assert {name: sorted(group) for name, group in parts.items()} == {
            name: mask.nonzero().squeeze(1).tolist() for name, mask in client.masks.items()
        }
    assert len(seen) == len(set(data.group.tolist()))


def test_data_without_scaffolds_or_classes_are_one_line() -> None:
    data = graphs("graph-regression", "rmse")
    for partition, split in (("scaffold", "ratio"), ("uniform", "scaffold"), ("uniform", "none")):
        with pytest.raises(UserError, match=r"choose (uniform|ratio)") as caught:
            build_federation(data, PARTITIONS.build(partition), SPLITS.build(split), 3, 0)
        assert "\n" not in str(caught.value)


SMILES = ["CCO", "not a molecule", "c1ccccc1O", "c1ccccc1CC(=O)N", "[Na+].[Cl-]", "C1CC1C"]


def test_molecules_equal_ogb(tmp_path) -> None:
    pytest.importorskip("rdkit")
    from ogb.utils import smiles2graph
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    from fglbench.datasets.molecules import read_molecules

    path = tmp_path / "some.csv"
    path.write_text("smiles,a,b\n" + "".join(f"{text},{k},{k % 2 or ''}\n" for k, text in enumerate(SMILES)))
    content = read_molecules({"some.csv": path})
    kept = [text for text in SMILES if text != "not a molecule"]
    assert content["target"].shape == (5, 2) and content["target"][:, 0].tolist() == [0, 2, 3, 4, 5]
    assert np.isnan(content["target"][:, 1]).tolist() == [True, True, False, True, False]
    scaffolds = [MurckoScaffoldSmiles(text) for text in kept]
    same = content["scaffold"][:, None] == content["scaffold"][None, :]
    assert same.tolist() == [[one == other for other in scaffolds] for one in scaffolds]
    first = 0
    for k, text in enumerate(kept):
        graph, mine = smiles2graph(text), content["graph"] == k
        assert (content["node_label"][mine] == graph["node_feat"]).all()
        ends = content["edges"][mine[content["edges"][:, 0]]] - first
        assert {tuple(sorted(pair)) for pair in graph["edge_index"].T.tolist()} == {
            tuple(pair) for pair in ends.tolist()
        }
        first += graph["num_nodes"]


def test_missing_rdkit_is_one_line(tmp_path, monkeypatch) -> None:
    from fglbench.datasets.molecules import read_molecules

    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(UserError, match=r"pip install .fglbench\[molecules\]") as caught:
        read_molecules({"some.csv": tmp_path / "some.csv"})
    assert "\n" not in str(caught.value)
