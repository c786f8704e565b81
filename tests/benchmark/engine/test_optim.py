"""Stacked optimisers against torch.optim, one instance per client."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fglbench.benchmark.engine.config import TrainConfig
from fglbench.benchmark.engine.optim import StackedOptimiser, clip_per_client

CASES: list[dict[str, Any]] = [
    {"optimiser": "adam", "lr": 0.02, "weight_decay": 0.1},
    {"optimiser": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    {"optimiser": "sgd", "lr": 0.1},
    {"optimiser": "adam", "grad_clip": 0.5},
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("uneven", [False, True])
def test_every_client_has_an_optimiser_of_its_own(case: dict[str, Any], uneven: bool) -> None:
    torch.manual_seed(0)
    config = TrainConfig(**case)
    stack = {"a": torch.randn(3, 4, 2), "b": torch.randn(3, 5)}
    singles = [[stack[n][k].clone().requires_grad_(True) for n in stack] for k in range(3)]
    kind = torch.optim.Adam if config.optimiser == "adam" else torch.optim.SGD
    extra = {} if config.optimiser == "adam" else {"momentum": config.momentum}
    theirs = [kind(own, config.lr, weight_decay=config.weight_decay, **extra) for own in singles]
    mine = StackedOptimiser(config)
    if uneven:  # client 1 has made two steps before the others start
        for _ in range(2):
            grads = {"a": torch.randn(1, 4, 2), "b": torch.randn(1, 5)}
            part, own = StackedOptimiser(config), {n: v[1:2].clone() for n, v in stack.items()}
            if mine.state:
                part.state = {n: {s: v[1:2].clone() for s, v in slots.items()} for n, slots in mine.state.items()}
                part.steps = {n: v[1:2].clone() for n, v in mine.steps.items()}
            part.step(own, grads)
            for n in stack:
                stack[n][1] = own[n][0]
                slots = mine.state.setdefault(n, {s: torch.zeros_like(stack[n]) for s in part.state[n]})
                for s in slots:
                    slots[s][1] = part.state[n][s][0]
                mine.steps.setdefault(n, torch.zeros(3))[1] = part.steps[n][0]
            step(theirs[1], singles[1], [grads["a"][0], grads["b"][0]], config.grad_clip)
    for _ in range(4):
        grads = {"a": torch.randn(3, 4, 2), "b": torch.randn(3, 5)}
        mine.step(stack, grads)
        for k in range(3):
            step(theirs[k], singles[k], [grads["a"][k], grads["b"][k]], config.grad_clip)
    for k in range(3):
        torch.testing.assert_close([stack["a"][k], stack["b"][k]], [v.detach() for v in singles[k]])


def step(
    optimiser: torch.optim.Optimizer, params: list[torch.Tensor], grads: list[torch.Tensor], clip: float | None
) -> None:
    for p, g in zip(params, grads, strict=True):
        p.grad = g.clone()
    if clip is not None:
        torch.nn.utils.clip_grad_norm_(params, clip)
    optimiser.step()


@pytest.mark.parametrize("case", CASES)
def test_a_gradient_may_be_a_view_of_any_strides(case: dict[str, Any]) -> None:
    torch.manual_seed(1)
    config, start = TrainConfig(**case), torch.randn(3, 4, 2)
    views = [torch.randn(3, 9, 2)[:, 2:6], torch.randn(3, 2, 4).transpose(1, 2), torch.randn(3, 1, 1).expand(3, 4, 2)]
    assert not any(view.is_contiguous() for view in views)
    strided, dense = {"w": start.clone()}, {"w": start.clone()}
    mine, other = StackedOptimiser(config), StackedOptimiser(config)
    for view in views:
        mine.step(strided, {"w": view})
        other.step(dense, {"w": torch.tensor(view.tolist())})
        torch.testing.assert_close(strided["w"], dense["w"], rtol=0, atol=0)


def test_reset_starts_anew() -> None:
    config = TrainConfig(optimiser="adam")
    params, grads = {"a": torch.zeros(1, 3)}, {"a": torch.ones(1, 3)}
    optimiser = StackedOptimiser(config)
    optimiser.step(params, grads)
    optimiser.reset()
    params["a"].zero_()
    optimiser.step(params, grads)
    torch.testing.assert_close(params["a"], torch.full((1, 3), -config.lr))  # Adam's first step is the rate


def test_clipping_is_a_client_s_own() -> None:
    grads = {"a": torch.tensor([[3.0], [0.3]]), "b": torch.tensor([[4.0], [0.4]])}
    clipped = clip_per_client(grads, 1.0)
    torch.testing.assert_close(clipped["a"], torch.tensor([[0.6], [0.3]]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(clipped["b"], torch.tensor([[0.8], [0.4]]), rtol=1e-5, atol=1e-6)
