"""FedProto: the server's mean in both weightings, and inference."""

from __future__ import annotations

import pytest
import torch

from .rounds import Make, start

SIZES = (13, 7, 10, 9, 8)


@pytest.mark.parametrize("weights", ["clients", "samples"])
def test_server_rule(weights: str, federation: Make) -> None:
    run = start(federation(SIZES), "fedproto", {"server_weights": weights})
    upload = run.round(1)
    clients = run.simulation.client_batches[0]
    r, batch = clients.forward(training=False).embedding, clients.batch
    expected = torch.zeros(3, 8)
    for j in range(3):
        total, mass = torch.zeros(8), 0.0
        for k in range(5):
            first, last = batch.offsets[k], batch.offsets[k + 1]
            rows = [i for i in range(first, last) if batch.masks["train"][i] and batch.label[i] == j]
            assert (j in upload["classes"][k].tolist()) == bool(rows)
            if rows:
                weight = len(rows) if weights == "samples" else 1
                total, mass = total + weight * r[rows].mean(0), mass + weight
        expected[j] = total / mass
    torch.testing.assert_close(run.simulation.server.state["prototypes"], expected)


def test_a_class_that_no_client_sends_keeps_its_prototype(federation: Make) -> None:
    run = start(federation(SIZES), "fedproto")
    server = run.simulation.server

    def send(*pairs: tuple[int, float]) -> torch.Tensor:
        prototypes = [torch.full((1, 2), value) for _, value in pairs]
        upload = {"prototypes": prototypes, "classes": [torch.tensor([j]) for j, _ in pairs]}
        table: torch.Tensor = run.method.server(server, upload)["prototypes"]
        return table[:, 0]

    torch.testing.assert_close(send((0, 1.0), (0, 3.0)), torch.tensor([2.0, torch.nan, torch.nan]), equal_nan=True)
    torch.testing.assert_close(send((2, 5.0)), torch.tensor([2.0, torch.nan, 5.0]), equal_nan=True)
    torch.testing.assert_close(send((0, 4.0), (1, 1.0)), torch.tensor([4.0, 1.0, 5.0]))


def test_prototype_inference(federation: Make) -> None:
    run = start(federation(SIZES), "fedproto", {"inference": "prototype"})
    clients = run.simulation.client_batches[0]
    before = run.method.predict(run.method.personal_model(clients), clients.network, clients.data)
    torch.testing.assert_close(before, clients.forward(training=False).logits)  # nothing received yet
    run.round(1)
    model = run.simulation.models().personal[0]
    scores = run.method.predict(model, clients.network, clients.data)
    r, table = clients.forward(training=False).embedding, run.simulation.server.state["prototypes"]
    for i in range(0, sum(SIZES), 5):
        distances = [float((r[i] - c).square().sum().sqrt()) for c in table]
        torch.testing.assert_close(scores[i], -torch.tensor(distances))
