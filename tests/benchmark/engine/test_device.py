"""Runs of every method on a device that behaves like a GPU (`pretend`) and computes on this CPU."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._device import _device_constructors

from fglbench.benchmark.contract.trial import trials
from fglbench.benchmark.engine import Params, backbone, placing
from fglbench.benchmark.engine.backbones import Backbone
from fglbench.benchmark.engine.device import HOST, here, on_host, placed
from fglbench.benchmark.engine.kernels import CPU, active_kernels
from fglbench.benchmark.engine.placing import on
from fglbench.benchmark.engine.train import train
from fglbench.methods import METHODS

from ...sampled import sampled_trials
from .recorded import difference, run

pytestmark = pytest.mark.usefixtures("wrapped_predictions")
EQUAL = 1e-5  # tolerance of accuracies


drawn = backbone._drawn


def off_by_rounding(*arguments: Any) -> Params:
    """Initial weights."""
    return {name: value * (1 + 1e-7) for name, value in drawn(*arguments).items()}


FILES: dict[str, list[str]] = {}  # files of methods -> registered names
for each in METHODS.names():
    FILES.setdefault(METHODS.cls(each).__module__, []).append(each)


DRAWN = random.Random(0).sample(sorted(FILES), len(FILES) // 3)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(random.Random(module).choice(names), marks=[pytest.mark.slow] * (module not in DRAWN))
        for module, names in FILES.items()
    ],
)
def test_every_method_runs_on_a_device(name: str, at_hand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One method of each file, a third of them by default, on a federation drawn by its name: no operation has two
    devices, and scores are those of the CPU (`test_gpu.py` runs all of them on a GPU).

    Scores may differ only if initial weights changed by rounding also change them on the CPU."""
    trial = random.Random(name).choice(sampled_trials(METHODS.build(name)))
    trial = replace(trial, config=trial.config.model_copy(update={"rounds": 2, "local_epochs": 1}))
    cpu = run(trial, name)
    with at_hand() as device:
        outcome = run(trial, name, device)
    assert (outcome.upload_bytes, outcome.download_bytes) == (cpu.upload_bytes, cpu.download_bytes)
    if difference(cpu, outcome) > EQUAL:
        monkeypatch.setattr(backbone, "_drawn", off_by_rounding)
        assert difference(cpu, run(trial, name)) > EQUAL, f"{trial.name}: not the CPU's figures"


@pytest.mark.parametrize("which", ["one architecture", pytest.param("overlapping clients", marks=pytest.mark.slow)])
def test_every_backbone_and_option_of_training(which: str, backbone: Backbone, at_hand: Any) -> None:
    """With half of the clients in each round, clipped gradients, and every model on every data."""
    trial = next(candidate for candidate in trials() if candidate.name == which)
    config = trial.config.model_copy(update={"participation": 0.5, "grad_clip": 1.0, "keep_optimiser": True})
    cpu = train(trial.federation, METHODS.build("fedprox"), (backbone,), config, 0)
    with at_hand() as device:
        outcome = train(trial.federation, METHODS.build("fedprox"), (backbone,), config, 0, device=device)
    assert difference(cpu, outcome) <= EQUAL
    assert outcome.matrix == pytest.approx(cpu.matrix, abs=EQUAL)


def test_tensors_are_made_on_the_device(far: torch.device) -> None:
    source = torch.Generator().manual_seed(3)
    wanted = torch.rand(4, generator=torch.Generator().manual_seed(3))
    with on(far):
        tensors = [torch.zeros(2), torch.tensor([1.0]), torch.arange(3), torch.from_numpy(np.ones(2)), torch.eye(2)]
        tensors += [torch.rand(4, generator=source), torch.empty(3).uniform_(generator=source), placed(wanted)]
        assert {tensor.device for tensor in tensors} == {far}
        assert {here(), torch.zeros(1, device=HOST).device} == {far, HOST}
        np.testing.assert_array_equal(tensors[5].numpy(), wanted.numpy())
        with on_host():
            assert (here(), torch.zeros(1).device, torch.from_numpy(np.ones(1)).device) == (HOST, HOST, HOST)
        assert torch.zeros(1).device == far
    assert (here(), torch.zeros(1).device, torch.from_numpy(np.ones(1)).device) == (HOST, HOST, HOST)


def test_an_operation_on_two_devices_is_an_error(far: torch.device) -> None:
    near = torch.ones(2)
    with on(far), pytest.raises(RuntimeError, match="same device"):
        near + torch.ones(2)


def test_all_functions_that_create_tensors_are_known() -> None:
    known = {func for func, how in placing._instead().items() if how is placing._made}
    strange = {maker.__name__ for maker in _device_constructors() - known}
    assert strange <= {"empty_quantized"}


def test_a_failed_run_restores_the_host(far: torch.device) -> None:
    with pytest.raises(ZeroDivisionError), on(far):
        raise ZeroDivisionError
    assert (here(), torch.zeros(1).device) == (HOST, HOST)
    assert active_kernels() is CPU
