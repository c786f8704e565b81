"""FedKD: losses and separate gradients, rank choice, compressed messages, late clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fglbench.methods.fedkd import factor, product, rank

from .formulas import divergence
from .rounds import Make, start

SIZES = (13, 7, 10, 9, 8)


@pytest.mark.parametrize("nodes", ["train", "all"])
def test_losses_and_gradients(nodes: str, federation: Make) -> None:
    """L_t for the teacher, L_s for the student, and both for W_h."""
    run = start(federation(SIZES), "fedkd", {"nodes": nodes}, backbone={"dropout": 0})
    run.round(1)
    clients = run.simulation.client_batches[0]
    for value in clients.params.values():
        value.requires_grad_(True)
    (t, s), batch, match = run.method.pair(clients), clients.batch, clients.params["match.weight"]
    teacher, student = [], []
    for k in range(5):
        rows = range(batch.offsets[k], batch.offsets[k + 1])
        train = [i for i in rows if batch.masks["train"][i]]
        taught = train if nodes == "train" else list(rows)
        ce = [sum(-F.log_softmax(z[i], 0)[batch.label[i]] for i in train) / len(train) for z in (t.logits, s.logits)]
        scale = 1 / (ce[0] + ce[1]).item()
        apart = sum((t.embedding[i] - s.embedding[i] @ match[k]).square().sum() / 8 for i in taught) / len(taught)
        teacher.append(
            ce[0] + scale * (sum(divergence(s.logits[i], t.logits[i]) for i in taught) / len(taught) + apart)
        )
        student.append(
            ce[1] + scale * (sum(divergence(t.logits[i], s.logits[i]) for i in taught) / len(taught) + apart)
        )
    loss = run.method.local_loss(clients).sum()
    of_teacher = [v for n, v in sorted(clients.params.items()) if not n.startswith(("shared.", "match."))]
    of_student = [v for n, v in sorted(clients.params.items()) if n.startswith("shared.")]
    for params, slow in ((of_teacher, teacher), (of_student, student), ([match], teacher), ([match], student)):
        grads = torch.autograd.grad(loss, params, retain_graph=True)
        torch.testing.assert_close(grads, torch.autograd.grad(torch.stack(slow).sum(), params, retain_graph=True))
        assert any(grad.abs().max() > 0 for grad in grads)


@pytest.mark.parametrize(
    ("values", "energy", "expected"),
    [
        ([4.0, 3.0], 0.5, 1),  # 16 of 25
        ([2.0, 1.0, 1.0], 0.66, 1),  # 4 of 6
        ([2.0, 1.0, 1.0], 0.67, 2),
        ([1.0, 1.0], 0.95, 2),  # the last value has half of the energy: rank 0 in the released code
        ([1.0], 0.95, 1),
        ([2.0, 1.0], 1.0, 2),
        ([0.0, 0.0], 0.95, 1),
    ],
)
def test_rank_is_the_smallest_that_reaches_the_energy(values: list[float], energy: float, expected: int) -> None:
    assert rank(torch.tensor(values), energy) == expected


def test_factors_are_the_best_approximation_that_fits() -> None:
    matrix = torch.randn(20, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix *= 0.5 ** torch.arange(12)
    u, s, v = np.linalg.svd(matrix.numpy(), full_matrices=False)
    share = np.cumsum(s**2) / np.sum(s**2)
    for energy in (0.5, 0.9, 0.97):
        r = next(n for n in range(1, 13) if share[n - 1] >= energy)
        parts = factor(matrix, energy)
        assert sum(value.numel() for value in parts.values()) == r * (20 + 12 + 1) < matrix.numel()
        torch.testing.assert_close(product(parts), torch.from_numpy((u[:, :r] * s[:r]) @ v[:r]))
    whole = factor(matrix, 1.0)  # full rank: the factors would be larger than the matrix
    assert sum(value.numel() for value in whole.values()) == matrix.numel()
    assert torch.equal(product(whole), matrix)


def scalars(update: dict[str, np.ndarray], energy: float) -> int:
    """Scalars of an update: min(r (m + n + 1), m n) per matrix, by NumPy's singular values, and its vectors."""
    total = 0
    for value in update.values():
        if value.ndim == 1:
            total += value.size
            continue
        share = np.cumsum(np.linalg.svd(value.astype(np.float64), compute_uv=False) ** 2)
        r = next(n for n in range(1, len(share) + 1) if share[n - 1] >= energy * share[-1])
        total += min(r * (sum(value.shape) + 1), value.size)
    return total


def test_exchange_of_compressed_updates(federation: Make) -> None:
    """Three rounds by hand: clients truncate updates by energy, the server truncates their mean, all add it."""
    run = start(federation(SIZES), "fedkd", {"start": 0.6, "end": 0.9}, rounds=3)
    server, clients = run.simulation.server, run.simulation.client_batches[0]

    def cut(value: torch.Tensor, energy: float) -> torch.Tensor:
        if value.dim() == 1:
            return value
        u, s, v = np.linalg.svd(value.numpy(), full_matrices=False)
        share = np.cumsum(s**2) / np.sum(s**2)
        r = next(n for n in range(1, len(s) + 1) if share[n - 1] >= energy)
        full = r * (sum(value.shape) + 1) >= value.numel()
        return value if full else torch.from_numpy((u[:, :r] * s[:r]) @ v[:r])

    model = {name: value.clone() for name, value in server.state["model"].items()}
    down = sum(value.numel() for value in model.values())
    for number in (1, 2, 3):
        energy = 0.6 + 0.3 * number / 3
        before = list(run.simulation.upload_bytes), list(run.simulation.download_bytes)
        run.round(number)
        assert run.simulation.download_bytes == [b + 4 * down for b in before[1]]
        after = {n.removeprefix("shared."): v for n, v in clients.params.items() if n.startswith("shared.")}
        updates = [{name: after[name][k] - model[name] for name in model} for k in range(5)]
        sent = [scalars({n: v.numpy() for n, v in update.items()}, energy) for update in updates]
        assert run.simulation.upload_bytes == [b + 4 * n for b, n in zip(before[0], sent, strict=True)]
        mean = {n: sum(cut(update[n], energy) for update in updates) / 5 for n in model}
        down = scalars({n: v.numpy() for n, v in mean.items()}, energy)
        model = {n: model[n] + cut(mean[n], energy) for n in model}
        torch.testing.assert_close(server.state["model"], model)
    assert down < sum(value.numel() for value in model.values())


def test_late_clients_get_the_whole_student(federation: Make) -> None:
    """A participant starts from the server's model, also after missed rounds."""
    run = start(federation(SIZES), "fedkd", participation=0.5)
    begun: set[int] = set()
    for number in range(1, 9):
        model = {name: value.clone() for name, value in run.simulation.server.state["model"].items()}
        run.round(number)
        clients = run.simulation.client_batches[0]
        for k in run.simulation.server.participants:
            begun.add(k)
            torch.testing.assert_close({n: v[k] for n, v in clients.state["student"].items()}, model)
    assert begun == set(range(5))
