"""FedStar against the paper's model graph by graph, and its codes against explicit walks."""

from __future__ import annotations

import dgl
import numpy as np
import torch
import torch.nn.functional as F

from fglbench.methods.fedstar import StructureCode

from .formulas import adjacency, looped
from .rounds import PLAIN, Make, close, start, stepped, tracked

H, L, WALKS, DEGREES = 4, 2, 3, 4
PARAMS = {"walks": WALKS, "degrees": DEGREES}
TRAINING = PLAIN | {"kinds": ["gin"], "backbone": {"hidden": H, "layers": L, "dropout": 0.0}}


def slow_code(graph: dgl.DGLGraph) -> torch.Tensor:
    """Return probabilities by walks, step by step, and the one-hot degree."""
    n = graph.num_nodes()
    near = [graph.successors(v).tolist() for v in range(n)]
    code = torch.zeros(n, WALKS + DEGREES)
    for v in range(n):
        at = {v: 1.0}
        for k in range(WALKS):
            then: dict[int, float] = {}
            for u, share in at.items():
                for w in near[u]:
                    then[w] = then.get(w, 0.0) + share / len(near[u])
            at = then
            code[v, k] = at.get(v, 0.0)
        code[v, WALKS + min(max(len(near[v]), 1), DEGREES) - 1] = 1
    return code


def slow_logits(p: dict[str, torch.Tensor], graph: dgl.DGLGraph) -> torch.Tensor:
    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ p[f"{name}.weight"] + p[f"{name}.bias"]

    a, spread = adjacency(graph), looped(graph)
    h, s = linear("input", graph.ndata["feat"]), linear("structure.input", slow_code(graph))
    for i in range(L):
        both = torch.cat([h, s], 1)
        h = torch.relu(linear(f"{i}.outer", torch.relu(linear(f"{i}.inner", both + a @ both))))
        s = torch.tanh(spread @ s @ p[f"structure.{i}.weight"] + p[f"structure.{i}.bias"])
    pooled = linear("mix", torch.cat([h, s], 1)).sum(0)
    return linear("head", torch.relu(linear("post", pooled)))


def lonely() -> dgl.DGLGraph:
    """A triangle with a tail, and a node without edges."""
    u, v = torch.tensor([(0, 1), (1, 2), (0, 2), (2, 3)]).T
    return dgl.graph((torch.cat([u, v]), torch.cat([v, u])), num_nodes=5)


def test_codes_equal_explicit_walks(labelled_sets: Make) -> None:
    graphs = [lonely(), *labelled_sets().whole.graphs]
    for graph in graphs:
        code = StructureCode(WALKS, DEGREES)(adjacency(graph).numpy(), np.array([0, graph.num_nodes()]))
        torch.testing.assert_close(code, slow_code(graph))
    by_hand = slow_code(lonely())[0, :WALKS]
    torch.testing.assert_close(by_hand, torch.tensor([0.0, 1 / 4 + 1 / 6, 1 / 12 + 1 / 12]))


def test_rounds_equal_slow_loops(labelled_sets: Make) -> None:
    """Two rounds of full batches: SGD by hand; the structure is averaged, the rest stays local."""
    world, rate = labelled_sets((9, 6, 8)), 0.02
    run = start(world, "fedstar", PARAMS, **TRAINING, lr=rate)
    model = run.simulation.server.initial_model()
    models: list[dict[str, torch.Tensor]] = [dict(model) for _ in range(3)]
    for number in (1, 2):
        run.round(number)
        for k, client in enumerate(world.clients):
            train = client.masks["train"].nonzero().squeeze(1).tolist()
            for _ in range(2):
                leaf = tracked(models[k])
                logits = torch.stack([slow_logits(leaf, client.graphs[i]) for i in train])
                models[k] = stepped(leaf, F.cross_entropy(logits, client.label[train]), rate)
        for name in model:
            if name.startswith("structure."):
                mean = sum(size / 23 * theta[name] for size, theta in zip((9, 6, 8), models, strict=True))
                for theta in models:
                    theta[name] = mean
    (personal,) = run.simulation.personal_models()
    for k in range(3):
        close(personal, models[k], k, rtol=1e-3)
    (clients,) = run.simulation.client_batches
    logits = clients.network.forward(personal, clients.data).logits
    place = 0
    for k, client in enumerate(world.clients):
        for graph in client.graphs:
            expected = slow_logits({n: v[k] for n, v in personal.items()}, graph)
            torch.testing.assert_close(logits[place], expected, rtol=1e-3, atol=1e-4)
            place += 1
