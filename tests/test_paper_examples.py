"""The adapted papers of examples/papers: short files, the contract, and results equal to slow restatements."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fglbench.benchmark.contract import recording
from fglbench.benchmark.contract.method_checks import check
from fglbench.benchmark.contract.trial import trials
from fglbench.benchmark.engine import BACKBONES, METHODS, TrainConfig
from fglbench.benchmark.engine.method import Phase, Step
from fglbench.benchmark.engine.train import set_up, train
from fglbench.datasets.federation import Federation

from .methods.formulas import looped
from .sampled import sampled_trials

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "papers"
FILES = sorted(FOLDER.glob("*.py"))
ROUNDS, EPOCHS, RATE, DECAY = 3, 3, 0.05, 5e-4
CONFIG = TrainConfig(rounds=ROUNDS, local_epochs=EPOCHS, optimiser="sgd", lr=RATE, weight_decay=DECAY)
BACKBONE = (BACKBONES.build("gcn"),)  # not used: these methods build their models
Vector = torch.Tensor
pytestmark = pytest.mark.usefixtures("registries")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_paper_is_short_and_passes_the_contract(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 80
    runpy.run_path(str(path))
    method = METHODS.build(path.stem)
    drawn = sampled_trials(method)
    monkeypatch.setattr(recording, "trials", lambda: drawn)
    assert check(method) == {}


def built(name: str, **params: float) -> Any:
    runpy.run_path(str(FOLDER / f"{name}.py"))
    return METHODS.build(name, {"hidden": 6, "dropout": 0.0, **params})


def uploads(method: Any, federation: Federation) -> list[dict[str, torch.Tensor]]:
    """The models (K, ...) that the server gets in each round."""
    simulation, _ = set_up(federation, method, BACKBONE, CONFIG, 0)
    models: list[dict[str, torch.Tensor]] = []

    def spy(server: Any, tree: Any) -> Any:
        models.append({name: value.clone() for name, value in tree["model"].items()})
        return method.server(server, tree)

    for number in range(1, ROUNDS + 1):
        simulation.round(Phase((Step(method.client, spy),), 1), number)
    return models


class Flat:
    """A model as one vector of float64, and a client's mean cross-entropy as a function of it, with dense matrices."""

    def __init__(self, state: dict[str, torch.Tensor]) -> None:
        self.shapes = {name: value.shape for name, value in state.items()}

    def vector(self, state: dict[str, torch.Tensor]) -> Vector:
        return torch.cat([state[name].double().flatten() for name in self.shapes])

    def state(self, vector: Vector) -> dict[str, torch.Tensor]:
        parts = torch.split(vector, [shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def marks(self, prefix: str) -> Vector:
        """1 where an entry belongs to a parameter whose name begins so, else 0."""
        return torch.cat(
            [torch.full((shape.numel(),), float(name.startswith(prefix))) for name, shape in self.shapes.items()]
        ).double()

    def loss(self, client: Any, logits: Callable[..., torch.Tensor]) -> Callable[[Vector], torch.Tensor]:
        graph, adjacency = client.graph, looped(client.graph, torch.float64)
        feat = (client.feat if client.feat.layout == torch.strided else client.feat.to_dense()).double()
        rows = graph.ndata["train_mask"].bool().nonzero().squeeze(1)
        label = graph.ndata["label"]

        def of(vector: Vector) -> torch.Tensor:
            if not len(rows):
                return 0 * vector.sum()
            chance = logits(self.state(vector), adjacency, feat).log_softmax(1)
            return -sum(chance[row, label[row]] for row in rows.tolist()) / len(rows)

        return of


def descended(
    loss: Callable[[Vector], torch.Tensor], start: Vector, moved: Vector | None = None, epochs: int = EPOCHS
) -> Vector:
    """Steps of gradient descent with weight decay on the marked entries."""
    vector = start.clone()
    for _ in range(epochs):
        point = vector.clone().requires_grad_()
        (grad,) = torch.autograd.grad(loss(point), point)
        vector = vector - RATE * (grad + DECAY * vector) * (1 if moved is None else moved)
    return vector


def close(actual: list[dict[str, torch.Tensor]], wanted: list[list[dict[str, torch.Tensor]]]) -> None:
    assert len(actual) == len(wanted) == ROUNDS
    for mine, theirs in zip(actual, wanted, strict=True):
        for name, value in mine.items():
            stacked = torch.stack([model[name] for model in theirs]).float()
            torch.testing.assert_close(value, stacked, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("place", [0, 2], ids=["dense", "sparse and overlapping"])
def test_feddyn_equals_its_algorithm(place: int) -> None:
    """Algorithm 1 of the paper, client by client, in flat vectors."""
    federation, alpha = trials()[place].federation, 0.3
    method = built("feddyn", alpha=alpha)
    first = method._initial(0, federation.num_features, federation.num_classes)
    flat, clients = Flat(first), federation.clients

    def logits(params: dict[str, torch.Tensor], adjacency: torch.Tensor, feat: torch.Tensor) -> torch.Tensor:
        hidden = (adjacency @ feat @ params["first.weight"] + params["first.bias"]).relu()
        return adjacency @ hidden @ params["second.weight"] + params["second.bias"]

    losses = [flat.loss(client, logits) for client in clients]
    theta = flat.vector(first)
    h, gradient = torch.zeros_like(theta), [torch.zeros_like(theta) for _ in clients]
    wanted = []
    for _ in range(ROUNDS):
        sent = []
        for k, client in enumerate(clients):

            def objective(x: Vector, k: int = k, theta: Vector = theta) -> torch.Tensor:
                return losses[k](x) - gradient[k] @ x + alpha / 2 * (x - theta) @ (x - theta)

            trains = bool(client.graph.ndata["train_mask"].any())  # type: ignore[union-attr]
            local = descended(objective, theta) if trains else theta
            gradient[k] = gradient[k] - alpha * (local - theta)
            sent.append(local)
        h = h - alpha / len(clients) * sum(local - theta for local in sent)
        theta = sum(sent) / len(sent) - h / alpha
        wanted.append([flat.state(local) for local in sent])
    close(uploads(method, federation), wanted)


@pytest.mark.parametrize("place", [0, 2], ids=["dense", "sparse and overlapping"])
def test_fedrep_equals_its_algorithm(place: int) -> None:
    """Algorithm 1 of the paper with the local epochs divided, client by client; and its scores."""
    federation = trials()[place].federation
    method = built("fedrep", body_epochs=1)
    first = method._initial(0, federation.num_features, federation.num_classes)
    flat, clients = Flat(first), federation.clients
    body, head = flat.marks("body."), flat.marks("head.")
    assert torch.equal(body + head, torch.ones_like(body))

    def logits(params: dict[str, torch.Tensor], adjacency: torch.Tensor, feat: torch.Tensor) -> torch.Tensor:
        for layer in ("body.0", "body.1"):
            feat = (adjacency @ feat @ params[f"{layer}.weight"] + params[f"{layer}.bias"]).relu()
        return feat @ params["head.weight"].T + params["head.bias"]

    losses = [flat.loss(client, logits) for client in clients]
    trains = [bool(client.graph.ndata["train_mask"].any()) for client in clients]  # type: ignore[union-attr]
    sizes = torch.tensor([t * client.graph.num_nodes() for t, client in zip(trains, clients, strict=True)]).double()  # type: ignore[union-attr]
    phi, vectors = flat.vector(first), [flat.vector(first) for _ in clients]
    wanted = []
    for _ in range(ROUNDS):
        for k in range(len(clients)):
            vectors[k] = head * vectors[k] + body * phi
            if trains[k]:
                vectors[k] = descended(losses[k], vectors[k], head, EPOCHS - 1)
                vectors[k] = descended(losses[k], vectors[k], body, 1)
        wanted.append([{n: v for n, v in flat.state(vector).items() if n.startswith("body.")} for vector in vectors])
        phi = sum(size * vector for size, vector in zip(sizes / sizes.sum(), vectors, strict=True))
    close(uploads(method, federation), wanted)
    right = []
    for k, client in enumerate(clients):
        scored, graph = flat.state(head * vectors[k] + body * phi), client.graph  # type: ignore[union-attr]
        feat = (client.feat if client.feat.layout == torch.strided else client.feat.to_dense()).double()
        hit = logits(scored, looped(graph, torch.float64), feat).argmax(1) == graph.ndata["label"]
        right.append(float(hit[graph.ndata["test_mask"].bool()].double().mean()))
    outcome = train(federation, method, BACKBONE, CONFIG.model_copy(update={"select_by": "last"}), 0)
    assert outcome.history["score"][-1] == pytest.approx(sum(right) / len(right), abs=1e-6)


def test_a_step_moves_head_or_body_and_none_gets_more_steps_than_in_fedavg() -> None:
    federation = trials()[0].federation
    outcome = train(federation, built("fedrep"), BACKBONE, CONFIG, 0)
    assert outcome.model_steps == max(EPOCHS - 1, 1) * ROUNDS
    assert outcome.budget_steps == train(federation, METHODS.build("fedavg"), BACKBONE, CONFIG, 0).model_steps
    width, clients = federation.num_features * 6 + 6 + 6 * 6 + 6, len(federation.clients)
    assert outcome.upload_bytes == ROUNDS * clients * 4 * width
