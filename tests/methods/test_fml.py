"""FML: both losses and their separate gradients, and the mean of the memes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from .formulas import divergence
from .rounds import Make, start

SIZES = (13, 7, 10, 9, 8)


@pytest.mark.parametrize("nodes", ["train", "all"])
def test_losses_and_gradients(nodes: str, federation: Make) -> None:
    run = start(federation(SIZES), "fml", {"alpha": 0.3, "beta": 0.8, "nodes": nodes}, backbone={"dropout": 0})
    run.round(1)
    clients = run.simulation.client_batches[0]
    for value in clients.params.values():
        value.requires_grad_(True)
    (private, meme), batch = run.method.pair(clients), clients.batch
    private_logits, meme_logits = private.logits, meme.logits
    private, meme = [], []
    for k in range(5):
        rows = range(batch.offsets[k], batch.offsets[k + 1])
        train = [i for i in rows if batch.masks["train"][i]]
        taught = train if nodes == "train" else list(rows)
        ce = [
            sum(-F.log_softmax(z[i], 0)[batch.label[i]] for i in train) / len(train)
            for z in (private_logits, meme_logits)
        ]
        private.append(
            0.3 * ce[0] + 0.7 * sum(divergence(meme_logits[i], private_logits[i]) for i in taught) / len(taught)
        )
        meme.append(
            0.8 * ce[1] + 0.2 * sum(divergence(private_logits[i], meme_logits[i]) for i in taught) / len(taught)
        )
    mine = run.method.local_loss(clients)
    torch.testing.assert_close(mine, torch.stack(private) + torch.stack(meme))
    for shared, loss in ((False, torch.stack(private)), (True, torch.stack(meme))):
        params = [value for name, value in sorted(clients.params.items()) if name.startswith("shared.") == shared]
        grads = torch.autograd.grad(mine.sum(), params, retain_graph=True)
        torch.testing.assert_close(grads, torch.autograd.grad(loss.sum(), params, retain_graph=True))
        assert any(grad.abs().max() > 0 for grad in grads)


@pytest.mark.parametrize("uniform", [True, False])
def test_server_averages_the_memes(uniform: bool, federation: Make) -> None:
    world = federation(SIZES)
    run = start(world, "fml", {"uniform": uniform})
    models = run.round(1)["model"]
    sizes = [1.0] * 5 if uniform else [client.graph.num_nodes() for client in world.clients]
    for name, value in run.simulation.server.state["model"].items():
        mean = sum(n / sum(sizes) * params for n, params in zip(sizes, models[name], strict=True))
        torch.testing.assert_close(value, mean)


def test_a_round_starts_from_the_received_meme(federation: Make) -> None:
    run = start(federation(SIZES), "fml", lr=1e-12, weight_decay=0.0)
    start_of_all = {name: value.clone() for name, value in run.simulation.server.state["model"].items()}
    models = run.round(1)["model"]
    for name, value in start_of_all.items():
        torch.testing.assert_close(models[name], value.expand_as(models[name]))
