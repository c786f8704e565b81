"""On a GPU, if there is one (`pytest -m gpu`): kernels, every method, too little memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import dgl
import pytest
import torch

from fglbench.benchmark.contract.trial import trials
from fglbench.benchmark.engine import Params, Skip, backbone
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.device import HOST
from fglbench.benchmark.engine.gpu_kernels import GPU
from fglbench.benchmark.engine.kernels import CPU
from fglbench.benchmark.engine.placing import on
from fglbench.methods import METHODS

from .recorded import difference, run

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
PERTURBATIONS = 5
EQUAL = 1e-4  # largest difference of scores per round between CPU and GPU


def gpu() -> torch.device:
    return torch.device("cuda", 0)


drawn = backbone._drawn


def off_by_rounding(seed: int) -> Callable[..., Params]:
    """Draw the initial weights of a run with random relative errors of up to a few roundings of a float32."""
    noise = torch.Generator().manual_seed(seed)

    def perturbed(*arguments: Any) -> Params:
        weights = drawn(*arguments)
        return {
            name: value * (1 + 1e-6 * (torch.rand(value.shape, generator=noise) - 0.5))
            for name, value in weights.items()
        }

    return perturbed


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_gives_the_scores_of_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores differ only if initial weights changed by rounding also change them on the CPU."""
    ran = 0
    for trial in trials():
        try:
            cpu = run(trial, name)
        except Skip:
            continue
        outcome = run(trial, name, gpu())
        ran += 1
        assert (outcome.upload_bytes, outcome.download_bytes) == (cpu.upload_bytes, cpu.download_bytes)
        if difference(cpu, outcome) > EQUAL:
            again = []
            for seed in range(PERTURBATIONS):
                with monkeypatch.context() as patch:
                    patch.setattr(backbone, "_drawn", off_by_rounding(seed))
                    again.append(difference(cpu, run(trial, name)))
            assert max(again) > EQUAL, f"{trial.name}: differs by {difference(cpu, outcome):.4f} from the CPU"
    assert ran


def test_edge_kernels_and_gradients() -> None:
    torch.manual_seed(0)
    n, e = 50, 300
    graph = dgl.graph((torch.randint(n, (e,)), torch.randint(n, (e,))), num_nodes=n)
    wide, weight = torch.randn(n, 2, 4), torch.randn(e, 2, 1)
    pull = torch.randn(n, 2, 4)
    results = []
    for kernels, device in ((CPU, HOST), (GPU, gpu())):
        with on(device):
            inputs = [tensor.to(device).requires_grad_() for tensor in (wide, weight)]
            value = kernels.u_mul_e_sum(graph, *inputs)
            grads = torch.autograd.grad((value * pull.to(device)).sum(), inputs)
        results.append([tensor.detach().cpu() for tensor in (value, *grads)])
    for host, device in zip(*results, strict=True):
        torch.testing.assert_close(device, host)


def test_two_runs_on_a_gpu_are_bitwise_identical() -> None:
    trial = trials()[0]
    first, second = (run(trial, "fedavg", gpu()) for _ in range(2))
    for name in ("val", "score"):
        assert first.history[name] == second.history[name]


def test_too_little_memory_is_an_error_of_torch() -> None:
    """A wide model: a small one fits into the free memory of blocks that earlier tests hold."""
    wide = dataclasses.replace(trials()[0], backbones=[BACKBONES.build("gcn", {"hidden": 100_000})])
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-6)
    try:
        with pytest.raises(torch.cuda.OutOfMemoryError):
            run(wide, "fedavg", gpu())
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert run(trials()[0], "fedavg", gpu()).score is not None
