"""Loss terms of several methods against loops from their formulas: values and gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine.batch import collate
from fglbench.methods.parts import contrast
from fglbench.methods.parts.contrast import class_contrast, model_contrast
from fglbench.methods.parts.dual import kl, neighbour_kl
from fglbench.methods.parts.prototypes import FAR, class_means, nearest

from .formulas import divergence, near_of
from .rounds import Make, start


def drawn(rows: int, width: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(3)
    teacher, student = (torch.randn(rows, width, generator=source) for _ in range(2))
    return teacher.requires_grad_(True), student.requires_grad_(True)


def test_kl_equals_the_sum_and_moves_the_student_only() -> None:
    teacher, student = drawn(7)
    mine = kl(teacher.log_softmax(1), student.log_softmax(1))
    slow = torch.stack([divergence(t, s) for t, s in zip(teacher, student, strict=True)])
    torch.testing.assert_close(mine, slow)
    ours = torch.autograd.grad(mine.sum(), [teacher, student], allow_unused=True)
    assert ours[0] is None
    torch.testing.assert_close(ours[1], torch.autograd.grad(slow.sum(), student)[0])


@pytest.mark.parametrize("mean", [False, True])
def test_neighbour_kl_equals_the_double_sum(mean: bool, federation: Make) -> None:
    batch = collate(federation().clients)
    near = [[i, *nodes] for i, nodes in enumerate(near_of(batch))]
    assert any(len(nodes) == 1 for nodes in near) and any(len(nodes) > 3 for nodes in near)
    teacher, student = drawn(len(near))
    mine = neighbour_kl(teacher.log_softmax(1), student.log_softmax(1), batch, mean=mean)
    slow = torch.stack(
        [
            sum((divergence(teacher[j], student[i]) for j in nodes), torch.zeros(())) / (len(nodes) if mean else 1)
            for i, nodes in enumerate(near)
        ]
    )
    torch.testing.assert_close(mine, slow)
    ours = torch.autograd.grad(mine.sum(), [teacher, student], allow_unused=True)
    assert ours[0] is None
    torch.testing.assert_close(ours[1], torch.autograd.grad(slow.sum(), student)[0])


def cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a @ b) / (a.norm() * b.norm())


def slow(anchors: torch.Tensor, samples: torch.Tensor, label: list[int], tau: float, rivals: str) -> torch.Tensor:
    """One client's mean loss, sample by sample."""
    losses = []
    for i, y in enumerate(label):
        f = [torch.exp(cosine(anchors[i], samples[j]) / tau) for j in range(len(label))]
        positive = [p for p in range(len(label)) if label[p] == y]
        candidates = range(len(label)) if rivals == "all" else [q for q in range(len(label)) if label[q] != y]
        terms = []
        for p in positive:
            below = sum(f[q] for q in candidates) + (0 if rivals == "all" else f[p])
            terms.append(-torch.log(f[p] / below))
        losses.append(sum(terms) / len(positive))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("chunk", [1, 9, 1 << 22])
@pytest.mark.parametrize("rivals", ["negatives", "all"])
def test_class_contrast(rivals: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contrast, "CHUNK", chunk)
    generator = torch.Generator().manual_seed(0)
    sizes = [5, 0, 4, 1]  # a client without labels, one with a single class, one with a single node
    label = torch.tensor([0, 1, 0, 2, 1, 2, 2, 2, 2, 1])
    a, b = (torch.randn(10, 3, dtype=torch.float64, generator=generator).requires_grad_(True) for _ in range(2))
    weights = torch.tensor([1.0, 7.0, -2.0, 3.0], dtype=torch.float64)
    loss = class_contrast(a, b, label, sizes, 0.3, rivals)
    expected, start = [], 0
    for n in sizes:
        rows = slice(start, start + n)
        expected.append(slow(a[rows], b[rows], label[rows].tolist(), 0.3, rivals) if n else (a * 0).sum())
        start += n
    reference = torch.stack(expected)
    torch.testing.assert_close(loss, reference)
    torch.testing.assert_close(
        torch.autograd.grad((loss * weights).sum(), (a, b)), torch.autograd.grad((reference * weights).sum(), (a, b))
    )


def test_a_fixed_side_gets_no_gradient_and_a_lone_class_no_loss() -> None:
    a, b = torch.eye(3).requires_grad_(True), torch.eye(3)
    loss = class_contrast(a, b, torch.tensor([1, 1, 1]), [3], 0.1)
    assert loss.tolist() == [0.0] and torch.autograd.grad(loss.sum(), a)[0].abs().max() == 0


def test_an_embedding_of_zeros_has_cosine_0_and_passes_no_gradient() -> None:
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randn(5, 3, dtype=torch.float64, generator=generator) for _ in range(2))
    a[1], b[3] = 0, 0
    label = torch.tensor([0, 0, 1, 1, 0])
    a.requires_grad_(True), b.requires_grad_(True)
    loss = class_contrast(a, b, label, [5], 0.5)
    losses = []
    for i in range(5):
        near = [j for j in range(5) if label[j] == label[i]]
        f = {j: torch.exp((0 * a[i, 0] if i == 1 or j == 3 else cosine(a[i], b[j])) / 0.5) for j in range(5)}
        far = sum(f[j] for j in range(5) if j not in near)
        losses.append(-sum(torch.log(f[p] / (f[p] + far)) for p in near) / len(near))
    torch.testing.assert_close(loss, (sum(losses) / 5).reshape(1))
    grads = torch.autograd.grad(loss.sum(), (a, b))
    torch.testing.assert_close(grads, torch.autograd.grad(sum(losses) / 5, (a, b)))
    assert grads[0][1].abs().max() == 0 and grads[1][3].abs().max() == 0


def test_model_contrast() -> None:
    generator = torch.Generator().manual_seed(1)
    r, near, far = (torch.randn(6, 4, dtype=torch.float64, generator=generator) for _ in range(3))
    r.requires_grad_(True)
    losses = model_contrast(near, far, 0.5)(r)
    expected = []
    for i in range(6):
        up, down = torch.exp(cosine(r[i], near[i]) / 0.5), torch.exp(cosine(r[i], far[i]) / 0.5)
        expected.append(-torch.log(up / (up + down)))
    torch.testing.assert_close(losses, torch.stack(expected))
    torch.testing.assert_close(torch.autograd.grad(losses.sum(), r), torch.autograd.grad(sum(expected), r))
    torch.testing.assert_close(model_contrast(near, near, 0.5)(r), torch.full((6,), math.log(2), dtype=torch.float64))
    dead = torch.zeros(1, 4, requires_grad=True)  # a node whose units are all zero
    loss = model_contrast(near[:1].float(), far[:1].float(), 0.5)(dead)
    assert loss.item() == pytest.approx(math.log(2)) and torch.autograd.grad(loss.sum(), dead)[0].abs().max() == 0


def members(batch: Any, client: int, label: int) -> list[int]:
    """Training rows of a class at a client, one by one."""
    first, last = batch.offsets[client], batch.offsets[client + 1]
    return [i for i in range(first, last) if batch.masks["train"][i] and batch.label[i] == label]


def test_class_means(federation: Make) -> None:
    batch = collate(federation().clients)
    r = torch.randn(sum(batch.sizes), 4, generator=torch.Generator().manual_seed(0))
    means, counts = class_means(r, batch, 3)
    for k in range(3):
        for j in range(3):
            rows = members(batch, k, j)
            assert counts[k, j] == len(rows)
            expected = sum(r[i] for i in rows) / len(rows) if rows else torch.zeros(4)
            torch.testing.assert_close(means[k, j], expected)
    assert (counts == 0).any() and (counts > 1).any()


@pytest.mark.parametrize("squared", ["mean", "sum"])
def test_loss_and_gradient(squared: str, federation: Make) -> None:
    """CE + lambda mean_i |r_i - c^(y_i)|^2, without the second term for a class without a prototype."""
    world = federation((13, 7, 10, 9, 8))
    run = start(world, "fedproto", {"lam": 0.7, "squared": squared}, backbone={"dropout": 0})
    clients = run.simulation.client_batches[0]
    table = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
    table[1] = torch.nan
    clients.received = {"prototypes": table.expand(5, 3, 8)}
    for value in clients.params.values():
        value.requires_grad_(True)
    out, batch = clients.forward(), clients.batch
    slow = []
    for k in range(5):
        rows = [i for j in range(3) for i in members(batch, k, j)]
        ce = sum(-F.log_softmax(out.logits[i], 0)[batch.label[i]] for i in rows) / len(rows)
        pulls = torch.zeros(())
        for i in rows:
            if batch.label[i] != 1:
                apart = sum((out.embedding[i, a] - table[batch.label[i], a]) ** 2 for a in range(8))
                pulls = pulls + apart / (8 if squared == "mean" else 1)
        slow.append(ce + 0.7 * pulls / len(rows))
    mine = run.method.local_loss(clients)
    torch.testing.assert_close(mine, torch.stack(slow))
    names = sorted(clients.params)
    grads = torch.autograd.grad(mine.sum(), [clients.params[n] for n in names], retain_graph=True)
    expected = torch.autograd.grad(torch.stack(slow).sum(), [clients.params[n] for n in names])
    torch.testing.assert_close(grads, expected)


def test_nearest_prototype() -> None:
    r = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]])
    tables = torch.tensor([[[0.0, 1.0], [torch.nan, torch.nan]], [[1.0, 1.0], [4.0, 5.0]]])
    scores = nearest(r, [2, 1], tables)
    torch.testing.assert_close(scores, torch.tensor([[-1.0, -FAR], [-(18**0.5), -FAR], [0.0, -5.0]]))
    assert torch.isfinite(scores.sum())


@pytest.mark.parametrize("name", ["fml", "fedkd", "fedgkc"])
def test_a_training_pass_drops_units_of_both_models(name: str, federation: Make) -> None:
    run = start(federation(), name, backbone={"dropout": 0.5})
    run.round(1)
    clients, method = run.simulation.client_batches[0], run.method
    one, other = method.pair(clients), method.pair(clients)
    assert not torch.equal(one[0].logits, other[0].logits)
    assert not torch.equal(one[1].logits, other[1].logits)
    asked = [method.shared_forward(clients, training=False).logits for _ in range(2)]
    torch.testing.assert_close(*asked)


def test_without_dropout_a_training_pass_equals_an_evaluation_pass(federation: Make) -> None:
    run = start(federation(), "fml", backbone={"dropout": 0})
    run.round(1)
    clients = run.simulation.client_batches[0]
    asked = run.method.shared_forward(clients, training=False)
    torch.testing.assert_close(run.method.pair(clients)[1].logits, asked.logits)
