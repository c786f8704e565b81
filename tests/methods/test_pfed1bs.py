"""pFed1BS: the sketch against a dense matrix, its packed bits, and two rounds in slow loops."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fglbench.methods.pfed1bs import Sketch, _flat, _plus, packed, signs

from .rounds import PLAIN, Make, close, descend, start

RATE = 0.05


def dense(sketch: Sketch) -> torch.Tensor:
    """Phi as a matrix (m, n): the sign of entry (i, j) is the parity of the common bits of i and j."""
    parity = [[(-1.0) ** (int(i) & j).bit_count() for j in range(sketch.width)] for i in sketch.rows.tolist()]
    return torch.tensor(parity) * sketch.flips / sketch.entries**0.5


@pytest.mark.parametrize("width", [1, 2, 16, 19, 300])
def test_sketch_equals_a_dense_product(width: int) -> None:
    sketch = Sketch(3, width, 0.4)
    phi = dense(sketch)
    assert phi.shape == (max(1, int(0.4 * width)), width)
    generator = torch.Generator().manual_seed(0)
    w, z = torch.randn(3, width, generator=generator), torch.randn(3, sketch.entries, generator=generator)
    torch.testing.assert_close(sketch.of(w), w @ phi.T, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sketch.transposed(z), z @ phi, rtol=1e-5, atol=1e-5)


def test_bits_are_packed_eight_to_a_byte() -> None:
    bits = torch.tensor([[True, False, True, False, False, False, False, True, True, False], [False] * 10])
    assert packed(bits).tolist() == [[1 + 4 + 128, 1], [0, 0]]
    torch.testing.assert_close(signs(packed(bits), 10), bits * 2.0 - 1)


def test_rounds_equal_slow_loops(federation: Make) -> None:
    """The loss with log cosh by autograd, the votes client by client; a wide rho, so that rounding decides no sign."""
    world, lam, mu, rho = federation((13, 7, 10)), 0.02, 0.1, 0.3
    run = start(world, "pfed1bs", {"lam": lam, "mu": mu, "rho": rho, "ratio": 0.4}, **PLAIN, lr=RATE)
    alone = start(world, "local", clients_per_batch=1, **PLAIN)
    first = {n: v.clone() for n, v in run.simulation.server.initial_model().items()}
    nodes = [client.graph.num_nodes() for client in world.clients]

    def flat(model: Any) -> torch.Tensor:
        return torch.cat([value.flatten() for value in model.values()])

    sketch = Sketch(5, len(flat(first)), 0.4)
    phi, models = dense(sketch), [first] * 3
    v = torch.where(phi @ flat(first) >= 0, 1.0, -1.0)

    def penalty(model: Any) -> torch.Tensor:
        w = flat(model)
        z = phi @ w
        return lam * (rho * (z / rho).cosh().log().sum() - v @ z) + mu / 2 * w.square().sum()

    for number in (1, 2):
        sent = run.round(number)["sketch"]
        votes = torch.zeros(sketch.entries)
        for k, clients in enumerate(alone.simulation.client_batches):
            models[k] = descend(clients, models[k], 2, RATE, penalty)
            z = phi @ flat(models[k])
            clear = z.abs() > 1e-5
            assert clear.sum() > 0.95 * len(z)
            mine = signs(sent[k : k + 1], sketch.entries)[0]
            torch.testing.assert_close(mine[clear], z.sign()[clear])
            votes += nodes[k] * mine
        v = torch.where(votes >= 0, 1.0, -1.0)
        message = run.simulation._message["sketch"]
        torch.testing.assert_close(signs(message.unsqueeze(0), sketch.entries)[0], v)
    (scored,) = run.simulation.personal_models()
    for k, model in enumerate(models):
        close({n: scored[n] for n in model}, model, k)


def test_statistics_are_not_sketched() -> None:
    params = {"0.weight": torch.ones(2, 3, 4), "0.running_mean": torch.zeros(2, 4), "0.bias": torch.zeros(2, 4)}
    assert _flat(params).shape == (2, 16)
    extra = torch.arange(32.0).view(2, 16)
    grads = _plus({"0.weight": torch.ones(2, 3, 4)}, params, extra)
    assert grads.keys() == {"0.weight", "0.bias"}
    torch.testing.assert_close(grads["0.weight"].flatten(1), extra[:, :12] + 1)
    torch.testing.assert_close(grads["0.bias"], extra[:, 12:])
