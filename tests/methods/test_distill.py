"""Distillation terms against loops written from their formulas, values and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from fglbench.benchmark.engine.batch import Batch, collate
from fglbench.datasets.federation import Federation
from fglbench.methods.parts.dual import kl, neighbour_kl

Make = Callable[..., Federation]


def softmax(row: torch.Tensor) -> list[torch.Tensor]:
    total = sum(torch.exp(x) for x in row)
    return [torch.exp(x) / total for x in row]


def divergence(teacher: torch.Tensor, student: torch.Tensor) -> torch.Tensor:
    """KL(softmax(teacher) || softmax(student)) of two rows, term by term."""
    return sum(
        (p * (torch.log(p) - torch.log(q)) for p, q in zip(softmax(teacher), softmax(student), strict=True)),
        torch.zeros(()),
    )


def drawn(rows: int, width: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(3)
    teacher, student = (torch.randn(rows, width, generator=source) for _ in range(2))
    return teacher.requires_grad_(True), student.requires_grad_(True)


def neighbourhoods(batch: Batch) -> list[list[int]]:
    """Each node's neighbours and itself, read off the edge list."""
    near = [[i] for i in range(batch.graph.num_nodes())]
    for source, target in zip(*(ends.tolist() for ends in batch.graph.edges()), strict=True):
        near[target].append(source)
    return near


def test_kl_of_a_coin() -> None:
    fair, bent = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    torch.testing.assert_close(kl(fair, bent), torch.tensor([expected]))
    assert kl(fair, fair).item() == 0


def test_kl_equals_the_sum_and_moves_the_student_only() -> None:
    teacher, student = drawn(7)
    mine = kl(teacher.log_softmax(1), student.log_softmax(1))
    slow = torch.stack([divergence(t.detach(), s) for t, s in zip(teacher, student, strict=True)])
    torch.testing.assert_close(mine, slow)
    ours = torch.autograd.grad(mine.sum(), [teacher, student], allow_unused=True)
    assert ours[0] is None
    torch.testing.assert_close(ours[1], torch.autograd.grad(slow.sum(), student)[0])


@pytest.mark.parametrize("mean", [False, True])
def test_neighbour_kl_equals_the_double_sum(mean: bool, federation: Make) -> None:
    batch = collate(federation().clients)
    near = neighbourhoods(batch)
    assert any(len(own) == 1 for own in near) and any(len(own) > 3 for own in near)
    teacher, student = drawn(len(near))
    mine = neighbour_kl(teacher.log_softmax(1), student.log_softmax(1), batch, mean=mean)
    slow = torch.stack(
        [
            sum((divergence(teacher[j].detach(), student[i]) for j in own), torch.zeros(())) / (len(own) if mean else 1)
            for i, own in enumerate(near)
        ]
    )
    torch.testing.assert_close(mine, slow)
    ours = torch.autograd.grad(mine.sum(), [teacher, student], allow_unused=True)
    assert ours[0] is None
    torch.testing.assert_close(ours[1], torch.autograd.grad(slow.sum(), student)[0])
