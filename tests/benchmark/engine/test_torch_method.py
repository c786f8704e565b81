"""Methods in ordinary PyTorch: the numbers of the stacked ones, the contract, bytes, steps, and refusals."""

from __future__ import annotations

import re
from typing import Any

import dgl
import pytest
import torch
import torch.nn.functional as F
from dgl.nn import GraphConv
from torch import nn

from fglbench.benchmark.contract import method_checks, part_checks
from fglbench.benchmark.contract.recording import record
from fglbench.benchmark.contract.trial import labelled_graphs, trials
from fglbench.benchmark.engine import (
    BACKBONES,
    METHODS,
    Client,
    GraphConvolution,
    ModuleBackbone,
    TorchMethod,
    TrainConfig,
)
from fglbench.benchmark.engine.backbone import initial
from fglbench.benchmark.engine.outcome import Outcome
from fglbench.benchmark.engine.train import train
from fglbench.benchmark.runner.execute import explain
from fglbench.datasets.federation import Federation
from fglbench.registry import UserError

CONFIG = TrainConfig(rounds=4, local_epochs=3, optimiser="sgd", lr=0.05)
STACKED = (BACKBONES.build("gcn", {"hidden": 8, "dropout": 0.0}),)


class Net(nn.Module):
    """The GCN of the benchmark, with layers of DGL."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = GraphConv(features, 8), GraphConv(8, classes)

    def embed(self, graph: dgl.DGLGraph, feat: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = F.relu(self.first(dgl.add_self_loop(graph), feat))
        return hidden

    def forward(self, graph: dgl.DGLGraph, feat: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.second(dgl.add_self_loop(graph), self.embed(graph, feat))
        return logits


@pytest.mark.parametrize("sparse", [False, True])
def test_a_graph_convolution_equals_dgl(sparse: bool) -> None:
    """Numbers, gradients and initial draws, on graphs with nodes of degree 0, repeated and one-way edges."""
    for number in range(4):
        source = torch.Generator().manual_seed(number)
        ends = torch.randint(9, (2, 14), generator=source)
        graph = dgl.graph(
            (ends[0], ends[1] * (ends[0] != ends[1]) + (ends[0] + 1) % 9 * (ends[0] == ends[1])), num_nodes=10
        )
        dense = torch.rand(10, 6, generator=source).round()
        layers = []
        for make in (GraphConv, GraphConvolution):
            torch.manual_seed(number)
            layers.append(make(6, 3))
        theirs, ours = layers
        assert {n: v.tolist() for n, v in theirs.state_dict().items()} == {
            n: v.tolist() for n, v in ours.state_dict().items()
        }
        feat = dense.to_sparse_csr() if sparse else dense.clone().requires_grad_()
        outs = theirs(dgl.add_self_loop(graph), dense), ours(graph, feat)
        torch.testing.assert_close(outs[1], outs[0])
        for out in outs:
            (out * torch.arange(30.0).view(10, 3)).sum().backward()
        for parameter, ours_parameter in zip(theirs.parameters(), ours.parameters(), strict=True):
            torch.testing.assert_close(ours_parameter.grad, parameter.grad)
        if not sparse:
            again = dense.clone().requires_grad_()
            (theirs(dgl.add_self_loop(graph), again) * torch.arange(30.0).view(10, 3)).sum().backward()
            torch.testing.assert_close(feat.grad, again.grad)
        graph.add_edges(0, 9)  # a changed graph is detected
        torch.testing.assert_close(ours(graph, feat), theirs(dgl.add_self_loop(graph), dense))


class Paper(TorchMethod):
    """FedAvg of a GCN, from the same initial weights as the stacked one. Messages: the model up and down."""

    name = "torch-fedavg"

    def build(self, features: int, classes: int) -> nn.Module:
        net, start = Net(features, classes), initial(STACKED[0], 0, features, classes)
        with torch.no_grad():
            for layer, key in ((net.first, "0"), (net.second, "1")):
                layer.weight.copy_(start[f"{key}.weight"])
                layer.bias.copy_(start[f"{key}.bias"])
        return net

    def penalty(self, model: Any, client: Client) -> torch.Tensor | float:
        return 0.0

    def train(self, model: Any, client: Client) -> dict[str, Any] | None:
        config, mask = client.config, client.train_mask
        optimiser = torch.optim.SGD(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
        for _ in range(config.local_epochs if mask.any() else 0):
            loss = F.cross_entropy(model(client.graph, client.feat)[mask], client.label[mask])
            optimiser.zero_grad()
            (loss + self.penalty(model, client)).backward()
            optimiser.step()
        return None


def test_layers_that_take_no_sparse_features_are_named() -> None:
    class Sparse(Paper):
        features = "sparse"

    with pytest.raises(UserError, match="leave out features = 'sparse'"):
        train(trials()[0].federation, Sparse(), STACKED, CONFIG, 0)


class Prox(Paper):
    """FedProx."""

    name = "torch-fedprox"

    def penalty(self, model: Any, client: Client) -> torch.Tensor | float:
        received = client.received["model"]
        return 0.5 * sum((value - received[n]).square().sum() for n, value in model.named_parameters())


def test_a_method_without_a_training_loop_is_refused() -> None:
    class Untrained(TorchMethod):
        build = Paper.build

    with pytest.raises(UserError, match=r"Untrained has no `train\(model, client\)`: define it"):
        Untrained()


class Graphs(TorchMethod):
    """FedAvg on sets of graphs. Messages: the model up and down."""

    name = "torch-graphs"
    tasks = ("graph-classification",)

    def build(self, features: int, classes: int) -> nn.Module:
        return nn.ModuleDict({"layer": GraphConv(features, 8), "head": nn.Linear(8, classes)})

    def logits(self, model: Any, graph: dgl.DGLGraph, feat: torch.Tensor) -> torch.Tensor:
        with graph.local_scope():
            graph.ndata["h"] = F.relu(model["layer"](dgl.add_self_loop(graph), feat))
            rows: torch.Tensor = model["head"](dgl.mean_nodes(graph, "h"))
            return rows

    def scores(self, model: Any, graph: dgl.DGLGraph, feat: torch.Tensor) -> torch.Tensor:
        return self.logits(model, graph, feat)

    def train(self, model: nn.Module, client: Client) -> None:
        optimiser = torch.optim.Adam(model.parameters(), lr=client.config.lr)
        for _ in range(client.config.local_epochs):
            for graph, feat, label in client.batches():
                optimiser.zero_grad()
                F.cross_entropy(self.logits(model, graph, feat), label).backward()
                optimiser.step()


class Module(ModuleBackbone):
    """The same GCN as an architecture: D^-1/2 (A + I) D^-1/2 X W + b, twice."""

    name = "module"

    def build(self, features: int, classes: int) -> nn.Module:
        return Net(features, classes)


def run(method: Any, federation: Federation, **options: Any) -> Outcome:
    return train(federation, method, STACKED, CONFIG.model_copy(update=options), 0)


@pytest.fixture(scope="module")
def federation() -> Federation:
    return trials()[0].federation


def close(first: Outcome, second: Outcome) -> None:
    assert first.history["score"] == pytest.approx(second.history["score"], abs=1e-5)
    assert first.history["val"] == pytest.approx(second.history["val"], abs=1e-5)


@pytest.mark.parametrize("name", ["fedavg", "fedprox"])
@pytest.mark.parametrize("place", [0, 2], ids=["dense", "sparse and overlapping"])
def test_models_equal_the_stacked_method(name: str, place: int) -> None:
    """All uploads of two rounds to 1e-5, and the scores of four."""
    federation, params = trials()[place].federation, {"mu": 1.0} if name == "fedprox" else {}
    method: Any = Paper() if name == "fedavg" else Prox()
    modules, stacked = uploads(method, federation), uploads(METHODS.build(name, params), federation)
    assert len(modules) == len(stacked) == 2
    # without a training node a client has no weight; the stacked method decays its parameters, the loop does not
    trains = [k for k, client in enumerate(federation.clients) if client.graph.ndata["train_mask"].any()]
    assert len(trains) >= 3
    for mine, theirs in zip(modules, stacked, strict=True):
        for ours, key in (("first", "0"), ("second", "1")):
            for part in ("weight", "bias"):
                pair = mine["model"][f"{ours}.{part}"][trains], theirs["model"][f"{key}.{part}"][trains]
                torch.testing.assert_close(*pair, atol=1e-5, rtol=1e-5)
    close(run(method, federation), run(METHODS.build(name, params), federation))


def uploads(method: Any, federation: Federation) -> list[Any]:
    """The input of the server half in each round."""
    from fglbench.benchmark.engine.method import Phase, Step
    from fglbench.benchmark.engine.train import set_up

    simulation, _ = set_up(federation, method, STACKED, CONFIG, 0)
    received: list[Any] = []
    (phase,) = method.phases(CONFIG)
    (step,) = phase.steps

    def spy(server: Any, given: Any) -> Any:
        received.append({name: {key: v.clone() for key, v in tree.items()} for name, tree in given.items()})
        return step.server(server, given)

    for number in (1, 2):
        simulation.round(Phase((Step(step.client, spy),), 1), number)
    return received


def test_the_contract_holds_on_sets_of_graphs() -> None:
    """On nodes: test_new_and_check.py and test_paper_examples.py."""
    failed = [(check, reason) for check, verdict, reason in method_checks.results(Graphs()) if verdict == "failed"]
    assert failed == []


def test_an_architecture_from_a_module_passes_the_contract_and_trains(federation: Federation) -> None:
    backbone = Module(hidden=8)
    assert [result for result in part_checks.results("backbone", backbone) if result[1] == "failed"] == []
    for name in ("fedavg", "scaffold", "fedproto"):
        outcome = train(federation, METHODS.build(name), (Module(hidden=8),), CONFIG, 0)
        assert outcome.score is not None and outcome.score > 1 / 3
    graphs = train(labelled_graphs(), METHODS.build("fedavg"), (Module(hidden=8),), CONFIG, 0)
    assert graphs.score is not None


def test_bytes_and_steps_equal_the_stacked_method(federation: Federation) -> None:
    stacked, outcome = run(METHODS.build("fedavg"), federation), run(Paper(), federation)
    for name in ("upload_bytes", "download_bytes", "optimiser_steps", "model_steps", "budget_steps"):
        assert getattr(outcome, name) == getattr(stacked, name)


def test_conditions_of_a_run_reach_the_loop(federation: Federation) -> None:
    """Stragglers train fewer epochs, only participants train, privacy and robust rules change the model."""
    seen: list[tuple[int, int]] = []

    class Watched(Paper):
        """FedAvg that notes who trains for how long."""

        name = "watched"

        def train(self, model: Any, client: Client) -> dict[str, Any] | None:
            seen.append((client.id, client.config.local_epochs))
            client.state["rounds"] = client.state.get("rounds", 0) + 1
            assert client.round >= client.state["rounds"]
            return super().train(model, client)

    run(Watched(), federation, straggle=0.5)
    assert {epochs for _, epochs in seen} == {1, 2, 3}
    seen.clear()
    run(Watched(), federation, participation=0.5)
    assert len(seen) == 4 * 2
    for options in ({"dp_clip": 0.01}, {"aggregator": "median"}, {"sign_flip": 0.5}):
        plain, changed = (run(Paper(), federation, **extra).history["val"] for extra in ({}, options))
        assert plain != changed


class Wrong(Paper):
    """A hook with a mistake."""

    name = "wrong"
    hook: str = ""

    def build(self, features: int, classes: int) -> Any:
        return None if self.hook == "build" else super().build(features, classes)

    def train(self, model: Any, client: Client) -> Any:
        wrong = {
            "a module": model,
            "a word": {"model": model, "note": "a word"},
            "no model": {"count": torch.ones(1)},
            "uneven": {"model": model, **({"more": torch.ones(1)} if client.id else {})},
        }
        return wrong[self.hook] if self.hook in wrong else super().train(model, client)

    def aggregate(self, server: Any, uploads: Any) -> Any:
        wrong = {"nothing": None, "no name": uploads.get("model")}
        return wrong[self.hook] if self.hook in wrong else super().aggregate(server, uploads)


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ("nothing", "wrong: the download is NoneType: `aggregate` returns a dict"),
        ("no name", "sends no 'model', which a global method is scored by: return {'model': ...}"),
        ("build", "wrong: `build` returns NoneType: return a module"),
        ("a module", "`train` returns Net: return a dict, or None to upload the model"),
        ("a word", "'note' of type str: return tensors"),
        ("no model", "uploads no 'model': define `aggregate`"),
        ("uneven", "clients upload different things"),
    ],
)
def test_a_mistake_is_one_line(hook: str, message: str, federation: Federation) -> None:
    with pytest.raises(UserError, match=message):
        run(Wrong(hook=hook), federation)


def test_an_error_of_a_library_is_placed_in_the_code_that_called_it() -> None:
    with pytest.raises(IndexError) as raised:
        F.cross_entropy(torch.zeros(1, 2), torch.tensor([5]))
    assert re.fullmatch(r"IndexError: Target 5 is out of bounds. \(test_torch_method.py:\d+\)", explain(raised.value))


def test_sparse_features_are_given_on_request() -> None:
    class Sparse(Paper):
        """A linear model on sparse features."""

        name = "sparse"
        features = "sparse"

        def build(self, features: int, classes: int) -> nn.Module:
            return nn.Linear(features, classes)

        def scores(self, model: Any, graph: dgl.DGLGraph, feat: torch.Tensor) -> torch.Tensor:
            assert feat.layout == torch.sparse_csr
            return feat @ model.weight.T + model.bias

        def train(self, model: Any, client: Client) -> dict[str, Any] | None:
            assert client.feat.layout == torch.sparse_csr
            return None

    for place in (0, 2):
        assert record(Sparse(), trials()[place]).values
        assert run(Sparse(), trials()[place].federation, score_on="global").score is not None
