"""Client-level privacy: identities, a slow reference of the mechanism, the exact Gaussian curve, refusals."""

from __future__ import annotations

import json
import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm

from fglbench.benchmark.contract.recording import record
from fglbench.benchmark.contract.trial import trials
from fglbench.benchmark.engine import METHODS, Facts, Skip, TrainConfig, transforms as module
from fglbench.benchmark.engine.train import train
from fglbench.benchmark.engine.transforms import Privacy
from fglbench.benchmark.runner.execute import FederationCache, execute
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.select import Request, select
from fglbench.methods.fedavg import FedAvg
from fglbench.registry import UserError

from .recorded import trial, watched

CLIP, NOISE = 0.05, 0.7


def test_every_update_is_clipped_to_the_norm_and_no_other_is_touched() -> None:
    plain = watched("fedavg", dp_clip=1e30)
    clip = float(np.median([np.linalg.norm(plain.up[0][k] - plain.down[0][k]) for k in range(4)]))
    seen = watched("fedavg", dp_clip=clip)
    shrunk = 0
    for down, up, handed in zip(seen.down, seen.up, seen.handed, strict=True):
        for client in range(4):
            start, wanted, got = down[client], up[client], handed[client]
            size = np.linalg.norm(wanted - start)
            if size <= clip:
                assert np.array_equal(got, wanted)
                continue
            shrunk += 1
            assert np.linalg.norm(got - start) == pytest.approx(clip, rel=1e-4)
            np.testing.assert_allclose(got - start, (wanted - start) * clip / size, atol=1e-6)
    assert 0 < shrunk < 12  # of three rounds and four clients


def test_the_server_half_gets_one_noisy_average_and_nothing_else() -> None:
    """Against the mechanism written out: theta + sum_k w_k clip(theta_k - theta) + N(0, (noise clip max w)^2)."""
    seen = watched("fedavg", dp_clip=CLIP, dp_noise=NOISE)
    errors = []
    for down, up, handed, weights in zip(seen.down, seen.up, seen.handed, seen.weights, strict=True):
        theta = down[0]
        mean = theta.copy()
        for client, weight in enumerate(weights.tolist()):
            update = up[client] - theta
            mean += weight * update * min(1.0, CLIP / max(np.linalg.norm(update), 1e-30))
        assert (handed == handed[0]).all()
        errors.append((handed[0] - mean) / (NOISE * CLIP * float(weights.max())))
    noise = np.concatenate(errors)
    assert abs(noise.mean()) < 4 / math.sqrt(len(noise))
    assert noise.std() == pytest.approx(1, abs=4 / math.sqrt(2 * len(noise)))
    assert abs(np.corrcoef(errors[0], errors[1])[0, 1]) < 4 / math.sqrt(len(errors[0]))  # fresh in each round


def test_noise_does_not_depend_on_the_cohort() -> None:
    together, alone = (
        record(METHODS.build("fedavg"), trial(dp_clip=CLIP, dp_noise=NOISE), clients_per_batch=size) for size in (4, 1)
    )
    for (what, _, left), (_, _, right) in zip(together.models, alone.models, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5, msg=what)


def exact(sigma: float, steps: int, delta: float) -> float:
    """Exact epsilon of `steps` Gaussian mechanisms, which are one of sensitivity sqrt(steps) (Balle & Wang, 2018)."""
    mu = math.sqrt(steps) / sigma

    def excess(epsilon: float) -> float:
        upper = norm.cdf(mu / 2 - epsilon / mu)
        return float(upper - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta)

    return float(brentq(excess, 0, 200))


@pytest.mark.parametrize(("sigma", "steps"), [(0.7, 3), (2.0, 10), (5.0, 100), (10.0, 100)])
def test_epsilon_is_a_tight_upper_bound_of_the_exact_curve(sigma: float, steps: int) -> None:
    account = Privacy(TrainConfig(dp_clip=1.0, dp_noise=sigma), SimpleNamespace(clients=2, seed=0, backbones=[0]))
    account.steps = [steps, steps - 1]
    assert exact(sigma, steps, 1e-5) <= account.epsilon <= 1.25 * exact(sigma, steps, 1e-5)


def test_the_account_counts_the_steps_of_the_client_that_was_in_most() -> None:
    config = trial(dp_clip=CLIP, dp_noise=2.0, participation=0.5).config
    outcome = train(trials()[0].federation, METHODS.build("fedavg"), trials()[0].backbones, config, 0)
    seen = watched("fedavg", dp_clip=CLIP, dp_noise=2.0, participation=0.5)
    times = np.bincount([client for each in seen.participants for client in each])
    assert 1 < times.max() <= 3
    assert exact(2.0, int(times.max()), 1e-5) <= outcome.dp_epsilon <= 1.25 * exact(2.0, int(times.max()), 1e-5)


def test_a_run_without_noise_claims_nothing_and_one_without_uploads_spends_nothing() -> None:
    plain = trials()[0]
    for training, name, wanted in (
        ({}, "fedavg", None),
        ({"dp_clip": CLIP}, "fedavg", None),
        ({"dp_clip": CLIP, "dp_noise": 1.0}, "local", 0.0),
    ):
        outcome = train(plain.federation, METHODS.build(name), plain.backbones, trial(**training).config, 0)
        assert outcome.dp_epsilon == wanted


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fedproto", "not private: it uploads prototypes"),
        ("scaffold", "not private: it uploads control variates"),
        ("fedgl", "not private: it uploads node ids"),
        ("fedgta", "not private: it uploads moments, statistics"),
        ("fedsage+", "not private: it uploads generators"),
        ("fed-pub", "not private: it uploads embeddings"),
        ("fedkd", "not private: its upload 'update' is no update of a model"),
    ],
)
def test_methods_that_upload_more_than_models_are_refused(name: str, reason: str) -> None:
    plain = trials()[0]
    with pytest.raises(Skip, match="not private") as refused:
        train(plain.federation, METHODS.build(name), plain.backbones, trial(dp_clip=CLIP, dp_noise=1.0).config, 0)
    for word in reason.removeprefix("not private: it uploads ").split(", "):
        assert word in str(refused.value)


def test_noise_on_running_statistics_is_refused() -> None:
    """A variance must not be negative."""
    method = METHODS.build("fedvn")
    graphs = next(each for each in trials() if not method.skip(Facts.of(each.federation), each.backbones))
    for noise, refused in ((0.0, False), (1.0, True)):
        config = graphs.config.model_copy(update={"dp_clip": 1.0, "dp_noise": noise})
        with pytest.raises(Skip, match="its model has BatchNorm") if refused else nullcontext():
            train(graphs.federation, method, graphs.backbones, config, 0)


def test_several_architectures_are_refused() -> None:
    mixed = trials()[1]
    config = TrainConfig(rounds=1, dp_clip=1.0)
    with pytest.raises(Skip, match="cannot mix architectures"):
        train(mixed.federation, METHODS.build("lg-fedavg"), mixed.backbones, config, 0)


def test_mistakes_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="dp_noise is in units of dp_clip: give both"):
        select(Request(quick=True, methods=("fedavg",), settings=("training.dp_noise=1.0",)))

    plain = trials()[0]
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'fglbench\[privacy\]'"):
        train(plain.federation, FedAvg(), plain.backbones, trial(dp_clip=1.0, dp_noise=1.0).config, 0)


def test_only_private_rows_have_epsilon_and_delta(tmp_path: Path) -> None:
    request = Request(methods=("fedavg",), datasets=("csbm",), clients=(3,), partitions=("uniform",), seeds=(0,))
    short = ("training.rounds=2", "dataset.nodes=200")
    private = ("training.dp_clip=0.5", "training.dp_noise=3.0")
    rows = []
    for settings in (short, short + private):
        (suite, cell), *_ = select(replace(request, settings=settings))
        stamp = {"environment": "0" * 12}
        rows.append(execute(cell, suite, Store(tmp_path), FederationCache(), stamp))
    plain, noisy = rows
    assert not {"dp_clip", "dp_noise", "dp_delta", "failure"} & set(json.loads(plain.training))
    assert (plain.dp_epsilon, plain.dp_delta) == (None, None)
    assert noisy.status == "ok", noisy.error
    assert noisy.key != plain.key
    assert noisy.dp_epsilon == pytest.approx(exact(3.0, 2, 1e-5), rel=0.25)
    assert noisy.dp_delta == 1e-5
