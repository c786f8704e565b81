"""The stacked contrastive losses against loops written from their formulas, values and gradients."""

from __future__ import annotations

import math

import pytest
import torch

from fglbench.methods.parts import contrast
from fglbench.methods.parts.contrast import class_contrast, model_contrast


def cosine(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a @ b) / (a.norm() * b.norm())


def slow(anchors: torch.Tensor, samples: torch.Tensor, label: list[int], tau: float, rivals: str) -> torch.Tensor:
    """One client's mean loss, sample by sample."""
    losses = []
    for i, own in enumerate(label):
        f = [torch.exp(cosine(anchors[i], samples[j]) / tau) for j in range(len(label))]
        positive = [p for p in range(len(label)) if label[p] == own]
        others = range(len(label)) if rivals == "all" else [q for q in range(len(label)) if label[q] != own]
        terms = []
        for p in positive:
            below = sum(f[q] for q in others) + (0 if rivals == "all" else f[p])
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
    found = class_contrast(a, b, label, sizes, 0.3, rivals)
    expected, start = [], 0
    for n in sizes:
        own = slice(start, start + n)
        expected.append(slow(a[own], b[own], label[own].tolist(), 0.3, rivals) if n else (a * 0).sum())
        start += n
    reference = torch.stack(expected)
    torch.testing.assert_close(found, reference)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), (a, b)), torch.autograd.grad((reference * weights).sum(), (a, b))
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
    found = class_contrast(a, b, label, [5], 0.5)
    losses = []
    for i in range(5):
        near = [j for j in range(5) if label[j] == label[i]]
        f = {j: torch.exp((0 * a[i, 0] if i == 1 or j == 3 else cosine(a[i], b[j])) / 0.5) for j in range(5)}
        far = sum(f[j] for j in range(5) if j not in near)
        losses.append(-sum(torch.log(f[p] / (f[p] + far)) for p in near) / len(near))
    torch.testing.assert_close(found, (sum(losses) / 5).reshape(1))
    grads = torch.autograd.grad(found.sum(), (a, b))
    torch.testing.assert_close(grads, torch.autograd.grad(sum(losses) / 5, (a, b)))
    assert grads[0][1].abs().max() == 0 and grads[1][3].abs().max() == 0


def test_model_contrast() -> None:
    generator = torch.Generator().manual_seed(1)
    r, near, far = (torch.randn(6, 4, dtype=torch.float64, generator=generator) for _ in range(3))
    r.requires_grad_(True)
    found = model_contrast(near, far, 0.5)(r)
    expected = []
    for i in range(6):
        up, down = torch.exp(cosine(r[i], near[i]) / 0.5), torch.exp(cosine(r[i], far[i]) / 0.5)
        expected.append(-torch.log(up / (up + down)))
    torch.testing.assert_close(found, torch.stack(expected))
    torch.testing.assert_close(torch.autograd.grad(found.sum(), r), torch.autograd.grad(sum(expected), r))
    torch.testing.assert_close(model_contrast(near, near, 0.5)(r), torch.full((6,), math.log(2), dtype=torch.float64))
    dead = torch.zeros(1, 4, requires_grad=True)  # a node whose units are all off
    loss = model_contrast(near[:1].float(), far[:1].float(), 0.5)(dead)
    assert loss.item() == pytest.approx(math.log(2)) and torch.autograd.grad(loss.sum(), dead)[0].abs().max() == 0
