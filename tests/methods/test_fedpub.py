"""FED-PUB against loops from its formulas, and the error of the released code."""

from __future__ import annotations

import dgl
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fglbench.methods.fedpub import proxy_graph

from .formulas import gcn, looped
from .rounds import PLAIN, Make, close, start


def forward(a: torch.Tensor, x: torch.Tensor, w: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits, and the second layer before activation, of one client's GCN with a linear classifier."""
    h = gcn(w, x, a)[1]
    return torch.relu(h) @ w["head.weight"] + w["head.bias"], h


def effective(
    w: dict[str, torch.Tensor], masks: dict[str, torch.Tensor], prune: float = 0.0
) -> dict[str, torch.Tensor]:
    return {n: v * masks[n] * (masks[n].abs() >= prune) if n in masks else v for n, v in w.items()}


@pytest.mark.parametrize("as_released", [False, True])
def test_two_rounds_equal_a_slow_loop_over_clients(as_released: bool, federation: Make) -> None:
    """Penalties by autograd, SGD by hand, embeddings on dense matrices, mixture by loops."""
    world, lr, decay = federation((13, 7, 10)), 0.3, 1e-2
    params = {"l1": 0.02, "proximal": 0.05, "prune": 0.97, "scale": 7.0, "as_released": as_released}
    run = start(world, "fed-pub", params, **PLAIN | {"weight_decay": decay}, lr=lr, local_epochs=3)
    uploads = [run.round(1), run.round(2)]
    first = run.simulation.server.initial_model()
    proxy = run.simulation.client_batches[0].state["proxy"]
    x_proxy, a_proxy = proxy["feature"][0], looped(dgl.graph(tuple(proxy["edge"][0]), num_nodes=500))
    received = [first, first, first]
    masks = [{n: torch.ones_like(v) for n, v in first.items() if "weight" in n} for _ in range(3)]
    for number in (1, 2):
        trained, functions = [], []
        for k, client in enumerate(world.clients):
            graph, x, a = client.graph, client.feat.to_dense(), looped(client.graph)
            w, mask, train = dict(received[k]), masks[k], graph.ndata["train_mask"]
            for _ in range(3):
                w = {n: v.detach().requires_grad_(True) for n, v in w.items()}
                mask = {n: v.detach().requires_grad_(True) for n, v in mask.items()}
                loss = F.cross_entropy(forward(a, x, effective(w, mask))[0][train], graph.ndata["label"][train])
                if not as_released:
                    loss = loss + 0.02 * sum(m.abs().sum() for m in mask.values())
                    if number > 1:
                        loss = loss + 0.05 * sum((w[n] - received[k][n]).norm(2) for n in w)
                grads = torch.autograd.grad(loss, [*w.values(), *mask.values()])
                w = {n: v - lr * (g + decay * v) for (n, v), g in zip(w.items(), grads, strict=False)}
                own_decay = decay if as_released else 0.0
                mask = {
                    n: m - lr * (g + own_decay * m) for (n, m), g in zip(mask.items(), grads[len(w) :], strict=True)
                }
            masks[k] = {n: v.detach() for n, v in mask.items()}
            trained.append({n: v.detach() for n, v in w.items()})
            functions.append(forward(a_proxy, x_proxy, effective(trained[k], masks[k], 0.97))[1].mean(0))
        for k in range(3):
            close(uploads[number - 1]["model"], trained[k], k, atol=1e-6)
            torch.testing.assert_close(uploads[number - 1]["function"][k], functions[k], rtol=1e-5, atol=1e-6)
        received = []
        for i in range(3):
            near = [torch.exp(7.0 * torch.cosine_similarity(functions[i], f, dim=0)) for f in functions]
            received.append({n: sum(a * t[n] for a, t in zip(near, trained, strict=True)) / sum(near) for n in first})
    for k in range(3):
        close(run.simulation.server.state["personal"], received[k], k, atol=1e-6)
    delivered = run.method.personal_model(run.simulation.client_batches[0])
    kept: list[torch.Tensor] = []
    for k in range(3):
        close(delivered, effective(trained[k], masks[k], 0.97), k, atol=1e-6)
        kept += [(m.abs() >= 0.97).flatten() for m in masks[k].values()]
    assert 0 < torch.cat(kept).float().mean() < 1  # some were pruned


def test_proxy_graph_has_five_blocks_and_no_edges_between() -> None:
    graph = proxy_graph(np.random.default_rng(3), 40)
    edge, x = graph["edge"], graph["feature"]
    assert x.shape == (500, 40) and abs(float(x.mean())) < 4 / 20_000**0.5 and abs(float(x.var()) - 1) < 0.05
    assert torch.equal(edge[0] // 100, edge[1] // 100) and not (edge[0] == edge[1]).any()
    pairs = {(u, v) for u, v in edge.T.tolist()}
    assert len(pairs) == edge.shape[1] and all((v, u) in pairs for u, v in pairs)
    possible = 5 * 4950
    assert abs(len(pairs) / 2 - 0.1 * possible) < 4 * (0.09 * possible) ** 0.5
