"""Large dense products against torch's own, with and without oneDNN."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from fglbench.methods.fedsage import products

close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-4)  # sums of 300 terms, in another order
SHAPES = [(40, 300, 70), (5, 1, 3), (1, 128, 1), (0, 7, 3), (4, 0, 3)]


@pytest.fixture(params=[True, False], ids=["onednn", "torch"], autouse=True)
def onednn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "ONEDNN", products.ONEDNN and request.param)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
def test_a_product_and_its_gradients_are_torchs(rows: int, inputs: int, outputs: int, with_bias: bool) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(inputs, rows).T.requires_grad_(), torch.randn(outputs, inputs).T.requires_grad_()
    operands = [a, b, *[torch.randn(outputs, requires_grad=True)] * with_bias]
    grad = torch.randn(outputs, rows).T
    ours, theirs = products.product(*operands), a @ b + sum(operands[2:])
    close(ours, theirs)
    found, wanted = (torch.autograd.grad(y, operands, grad) for y in (ours, theirs))
    close(found, wanted)


def test_what_needs_no_gradient_gets_none() -> None:
    a, b, bias = torch.randn(3, 4), torch.randn(4, 2, requires_grad=True), torch.randn(2)
    products.product(a, b, bias).sum().backward()
    assert a.grad is None and bias.grad is None
    close(b.grad, a.sum(0).unsqueeze(1).expand(4, 2))
