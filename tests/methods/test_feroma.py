"""FEROMA: profiles node by node, the server's weights, and late clients."""

from __future__ import annotations

import torch

from fglbench.benchmark.engine.rng import Streams

from .rounds import PLAIN, Make, close, descend, start

RATE, SIZES = 0.05, (13, 7, 10)


def profile_by_hand(r: torch.Tensor, label: list[int], times: dict[int, int], classes: int) -> torch.Tensor:
    """Means and deviations (2 (C + 1), h) of the rows that `times` counts, all of them and class by class."""
    means, deviations = [], []
    for j in (None, *range(classes)):
        rows = [i for i, count in times.items() for _ in range(count) if j is None or label[i] == j]
        missing = torch.full((r.shape[1],), -1.0)
        means.append(r[rows].mean(0) if rows else missing)
        deviations.append(r[rows].std(0, unbiased=False) if rows else missing)
    return torch.stack([*means, *deviations])


def test_rounds_equal_slow_loops(federation: Make) -> None:
    """Two rounds of warm-up and three with profiles: profiles, weights and models by hand."""
    world = federation(SIZES)
    run = start(world, "feroma", {"warm_up": 2}, **PLAIN, lr=RATE)
    alone = start(world, "local", clients_per_batch=1, **PLAIN)
    streams, nodes = Streams(5, range(3), {}), [client.graph.num_nodes() for client in world.clients]
    received = [{n: v.clone() for n, v in run.simulation.server.initial_model().items()}] * 3
    extractor, earlier, scale = received[0], list[torch.Tensor](), list[tuple[float, float]]()
    for number in range(1, 6):
        sent = run.round(number)
        assert ("profile" in sent) == (number > 2)
        batches = alone.simulation.client_batches
        trained = [descend(clients, received[k], 2, RATE) for k, clients in enumerate(batches)]
        for k, model in enumerate(trained):
            close(sent["model"], model, k)
        near = [[1.0] * 3 for _ in range(3)]
        if number > 2:
            now = []
            counts = [clients.batch.counts["train"][0] for clients in batches]
            kept = streams.keep("profile", [3 * n for n in counts], 0.5).split([3 * n for n in counts])
            for k, clients in enumerate(batches):
                r = clients.forward({n: v.unsqueeze(0) for n, v in extractor.items()}, training=False).embedding
                rows, draws = clients.batch.rows["train"].tolist(), kept[k].view(3, -1)
                times = {i: int(draws[:, place].sum()) for place, i in enumerate(rows)}
                now.append(profile_by_hand(r, clients.batch.label.tolist(), times, 3))
                torch.testing.assert_close(sent["profile"][k], now[-1], rtol=1e-5, atol=1e-5)
            if not scale:
                scale = [(float(min(p[g].min() for p in now)), float(max(p[g].max() for p in now))) for g in range(8)]
            now = [
                torch.cat([(row - low) / (high - low) for row, (low, high) in zip(p, scale, strict=True)]) for p in now
            ]
            if earlier:
                near = [[1 / (float((p - q).norm()) + 1e-8) for q in earlier] for p in now]
            earlier = now
        received = []
        for k in range(3):
            share = [a * n for a, n in zip(near[k], nodes, strict=True)]
            received.append(
                {n: sum(a / sum(share) * one[n] for a, one in zip(share, trained, strict=True)) for n in extractor}
            )
        if number == 2:
            extractor = received[0]
        if number >= 2:
            for k, model in enumerate(received):
                close(run.simulation.server.state["personal"], model, k)


def test_a_late_client_gets_the_extractor_once(federation: Make) -> None:
    """Client 2 first takes part in round 4; the others have the extractor since round 2."""
    run = start(federation(SIZES), "feroma", {"warm_up": 1}, **PLAIN)
    simulation = run.simulation
    size = sum(v.numel() for v in simulation.server.initial_model().values()) * 4
    got = []
    for number, acting in enumerate(([0, 1], [0, 1], [0, 1], [0, 1, 2], [0, 1, 2]), 1):
        simulation._draw_participants = lambda acting=acting: acting
        before = list(simulation.download_bytes)
        run.round(number)
        got.append([(now - then) / size for now, then in zip(simulation.download_bytes, before, strict=True)])
    assert got == [[1, 1, 0], [2, 2, 0], [1, 1, 0], [1, 1, 2], [1, 1, 1]]
    (clients,) = simulation.client_batches
    for value in clients.state["extractor"].values():
        torch.testing.assert_close(value[2], value[0])
