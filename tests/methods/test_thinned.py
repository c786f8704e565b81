"""Products of thinned rows against torch's own, with many entries left and with few."""

from __future__ import annotations

from functools import partial

import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from fglbench.methods.fedsage import products
from fglbench.methods.fedsage.products import Thinned, thinned_product

close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)
LEFT = [0.0, 0.02, 0.5]  # share of entries


def layers(left: float, n: int = 30, k: int = 64, m: int = 20) -> tuple[torch.Tensor, ...]:
    """What comes before a ReLU, a dropout's factors that leave about this share, a matrix and a bias."""
    torch.manual_seed(0)
    before, keep = torch.randn(n, k), 2.0 * (torch.rand(n, k) < 2 * left)
    return before.requires_grad_(), keep, torch.randn(k, m, requires_grad=True), torch.randn(m, requires_grad=True)


@pytest.mark.parametrize("left", LEFT)
def test_product_and_gradients_behind_a_relu_and_a_dropout_are_torchs(left: float) -> None:
    before, keep, b, bias = layers(left)
    rows = torch.relu(before) * keep
    assert (Thinned(rows.detach()).entries is not None) == (left < 0.04)
    pull = torch.randn(30, 20)
    ours, theirs = thinned_product(rows, b, bias), torch.relu(before) * keep @ b + bias
    close(ours, theirs)
    found, wanted = (torch.autograd.grad((y * pull).sum(), [before, b, bias]) for y in (ours, theirs))
    close(found, wanted)


@pytest.mark.parametrize("left", LEFT)
def test_gradients_by_entry_whatever_their_layout(left: float) -> None:
    before, keep, b, _ = layers(left)
    rows = (torch.relu(before) * keep).detach()
    own = Thinned(rows)
    grad = F.dropout(torch.randn(30, 20), 0.7)
    where = (rows != 0) if own.entries is not None else torch.ones_like(rows)
    for given in (grad, sp.csr_matrix(grad.numpy())):
        close(own.towards(given, b.detach()), grad @ b.detach().T * where)
        across = own.across(given)
        close(across if isinstance(across, torch.Tensor) else torch.from_numpy(across.toarray()), rows.T @ grad)


def test_the_share_from_which_on_entries_are_few() -> None:
    rows = torch.zeros(10, 50)
    rows.view(-1)[: int(500 * products.FEW)] = 1
    assert Thinned(rows).entries is not None
    rows.view(-1)[int(500 * products.FEW)] = 1
    assert Thinned(rows).entries is None


def test_no_rows() -> None:
    b, bias = torch.randn(4, 3, requires_grad=True), torch.randn(3, requires_grad=True)
    found = thinned_product(torch.zeros(0, 4), b, bias)
    assert found.shape == (0, 3)
    close(torch.autograd.grad(found.sum(), [b, bias]), (torch.zeros(4, 3), torch.zeros(3)))
