"""Large dense products against torch's own, with and without oneDNN."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from fglbench.methods.parts import dense

close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-4)  # sums of 300 terms, in another order
SHAPES = [(40, 300, 70), (5, 1, 3), (1, 128, 1), (0, 7, 3), (4, 0, 3)]


@pytest.fixture(params=[True, False], ids=["onednn", "torch"], autouse=True)
def onednn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "ONEDNN", dense.ONEDNN and request.param)


@pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
def test_a_product_is_torchs(rows: int, inputs: int, outputs: int) -> None:
    torch.manual_seed(0)
    a, b, bias = torch.randn(inputs, rows).T, torch.randn(inputs, outputs), torch.randn(outputs)
    close(dense.product(a, b), a @ b)
    close(dense.product(a.contiguous(), b.T.contiguous().T, bias), a @ b + bias)


@pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
def test_a_linear_map_and_its_gradients_are_torchs(rows: int, inputs: int, outputs: int) -> None:
    torch.manual_seed(0)
    operands = [torch.randn(*shape, requires_grad=True) for shape in ((rows, inputs), (outputs, inputs), (outputs,))]
    grad = torch.randn(outputs, rows).T
    ours, theirs = dense.affine(*operands), F.linear(*operands)
    close(ours, theirs)
    found, wanted = (torch.autograd.grad(y, operands, grad) for y in (ours, theirs))
    close(found, wanted)


def test_what_needs_no_gradient_gets_none() -> None:
    x, weight, bias = torch.randn(3, 4), torch.randn(2, 4, requires_grad=True), torch.randn(2)
    dense.affine(x, weight, bias).sum().backward()
    assert x.grad is None and bias.grad is None
    close(weight.grad, x.sum(0).expand(2, 4))
