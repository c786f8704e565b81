"""FedPer against its algorithm by hand."""

from __future__ import annotations

from fglbench.methods.parts.personal import last_layers

from .rounds import PLAIN, Make, close, descend, start


def test_last_layers() -> None:
    names = ["0.weight", "0.bias", "1.weight", "head.weight", "head.bias"]
    assert last_layers(names, 0) == set()
    assert last_layers(names, 1) == {"head.weight", "head.bias"}
    assert last_layers(names, 2) == {"1.weight", "head.weight", "head.bias"}
    assert last_layers(names, 3) == last_layers(names, 9) == set(names)


def test_a_round_equals_slow_loops(federation: Make) -> None:
    """Two rounds, client by client, SGD by hand; then the scored models."""
    world, rate = federation((13, 7, 10)), 0.05
    run = start(world, "fedper", **PLAIN, lr=rate)
    alone = start(world, "local", clients_per_batch=1, **PLAIN)
    model = {n: v.clone() for n, v in run.simulation.server.initial_model().items()}
    nodes = [client.graph.num_nodes() for client in world.clients]
    personal = [{n: model[n] for n in ("1.weight", "1.bias")} for _ in nodes]
    base = {n: model[n] for n in ("0.weight", "0.bias")}
    for number in (1, 2):
        uploads = run.round(number)["model"]
        trained = []
        for k, clients in enumerate(alone.simulation.client_batches):
            theta = descend(clients, base | personal[k], 2, rate)
            trained.append(theta)
            personal[k] = {n: theta[n] for n in personal[k]}
            close(uploads, {n: theta[n] for n in base}, k, rtol=1e-4)
        base = {n: sum(w / sum(nodes) * one[n] for w, one in zip(nodes, trained, strict=True)) for n in base}
    (scored,) = run.simulation.personal_models()
    for k in range(3):
        close(scored, base | personal[k], k, rtol=1e-4)
