"""Hostile clients and robust aggregation: the input of the server, against slow references, identities and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import trim_mean

from fglbench.benchmark.contract.recording import record
from fglbench.benchmark.contract.trial import trials
from fglbench.benchmark.engine import METHODS, Skip, TrainConfig, stream
from fglbench.benchmark.engine.hostile import (
    DEVIATIONS,
    GAUSSIAN_SCALE,
    RULES,
    SIGN_SCALE,
    hostile_clients,
    krum_scores,
)
from fglbench.benchmark.engine.train import train
from fglbench.datasets.corruptions import reversed_labels
from fglbench.registry import UserError

from .recorded import trial, watched

RULE_NAMES = ["median", "trimmed-mean", "krum", "multi-krum", "norm-clip"]


def test_a_greater_share_has_the_hostile_clients_of_a_smaller_one() -> None:
    few, more = (hostile_clients(share, 20, 3) for share in (0.1, 0.3))
    assert len(few) == 2 and len(more) == 6 and few < more
    assert few == set(stream(3, "hostile clients").permutation(20)[:2])


@pytest.mark.parametrize("attack", ["sign_flip", "small_deviation"])
def test_hostile_updates_by_hand(attack: str) -> None:
    seen, hostile = watched("fedavg", **{attack: 0.5}), hostile_clients(0.5, 4, 0)
    assert len(hostile) == 2
    for down, up, handed in zip(seen.down, seen.up, seen.handed, strict=True):
        for k in range(4):
            if k not in hostile:
                wanted = up[k]
            elif attack == "sign_flip":
                wanted = down[k] + SIGN_SCALE * (up[k] - down[k])
            else:
                update = up - down
                wanted = down[k] + update.mean(0) - DEVIATIONS * update.std(0)
            np.testing.assert_allclose(handed[k], wanted, atol=1e-5)


def test_gaussian_updates_have_the_stated_norm_and_are_drawn_per_client() -> None:
    seen, hostile = watched("fedavg", gaussian=0.5), sorted(hostile_clients(0.5, 4, 0))
    noise = []
    for down, up, handed in zip(seen.down, seen.up, seen.handed, strict=True):
        for k in hostile:
            sent, honest = handed[k] - down[k], np.linalg.norm(up[k] - down[k])
            assert np.linalg.norm(sent) / honest == pytest.approx(GAUSSIAN_SCALE, rel=0.3)
            noise.append(sent / np.linalg.norm(sent))
    overlap = np.abs(np.array(noise) @ np.array(noise).T - np.eye(len(noise)))
    assert overlap.max() < 0.5


@pytest.mark.parametrize("place", [0, 4], ids=["nodes", "graphs"])
def test_reversed_labels_change_training_labels_of_hostile_clients_only(place: int) -> None:
    federation = trials()[place].federation
    changed = reversed_labels(federation, {1})
    for k, (before, after) in enumerate(zip(federation.clients, changed.clients, strict=True)):
        old, new = ((c.graph.ndata["label"] if place == 0 else c.label) for c in (before, after))
        masks = before.graph.ndata["train_mask"] if place == 0 else before.masks["train"]
        for i, trains in enumerate(masks.bool().tolist()):
            expected = federation.num_classes - 1 - int(old[i]) if k == 1 and trains else int(old[i])
            assert int(new[i]) == expected
    assert reversed_labels(federation, ()) is federation


def test_reversed_labels_are_those_of_the_client_and_only_classes(labelled_sets) -> None:
    federation = labelled_sets((6, 6))
    client = replace(federation.clients[1], label=federation.clients[1].label.clamp(max=1), classes=2)
    changed = reversed_labels(replace(federation, clients=[federation.clients[0], client]), {1}).clients[1]
    train = client.masks["train"]
    assert torch.equal(changed.label[train], 1 - client.label[train])
    numbers = replace(federation.clients[1], label=torch.rand(6, 1))
    with pytest.raises(UserError, match="label_flip reverses classes"):
        reversed_labels(replace(federation, clients=[federation.clients[0], numbers]), {1})


def krum_by_hand(rows: np.ndarray, f: int) -> list[float]:
    scores = []
    for i in range(len(rows)):
        near = sorted(float(((rows[i] - rows[j]) ** 2).sum()) for j in range(len(rows)) if j != i)
        scores.append(sum(near[: len(rows) - f - 2]))
    return scores


@pytest.mark.parametrize("n", [7, 10])
def test_rules_against_loops_and_scipy(n: int) -> None:
    rows, f = np.random.default_rng(n).standard_normal((n, 13)).astype("float32"), 2
    tensor = torch.from_numpy(rows)
    scores = krum_by_hand(rows.astype(np.float64), f)
    best = np.argsort(scores, kind="stable")[: n - f]
    np.testing.assert_allclose(krum_scores(tensor, f).numpy(), scores, rtol=1e-6)
    expected = {
        "median": np.median(rows, 0),
        "trimmed-mean": trim_mean(rows, f / n + 1e-9, axis=0),
        "krum": rows[int(np.argmin(scores))],
        "multi-krum": rows[best].mean(0),
    }
    for name, rule in RULES.items():
        np.testing.assert_allclose(rule(tensor, f).numpy(), expected[name], atol=1e-6, err_msg=name)


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_the_server_gets_the_result_of_the_rule_under_attack(rule: str) -> None:
    seen = watched("fedavg", sign_flip=0.25, aggregator=rule, tolerated=0.0 if "krum" in rule else 0.3)
    hostile = hostile_clients(0.25, 4, 0)
    for down, up, handed, weights in zip(seen.down, seen.up, seen.handed, seen.weights, strict=True):
        counted = weights > 0  # one client has no training node
        assert counted.sum() == 3
        sent = np.array([down[k] + SIGN_SCALE * (up[k] - down[k]) if k in hostile else up[k] for k in range(4)])
        if rule == "norm-clip":
            norms = np.linalg.norm(sent - down, axis=1)
            factor = np.minimum(1, np.median(norms[counted]) / np.maximum(norms, 1e-30))[:, None]
            wanted = down + factor * (sent - down)
        else:
            result = RULES[rule](torch.from_numpy(sent[counted]), 0 if "krum" in rule else 1).numpy()
            wanted = np.repeat(result[None], 4, 0)
        np.testing.assert_allclose(handed, wanted, atol=1e-5)


def test_the_traffic_equals_the_plain_method() -> None:
    plain, attacked = (
        train(setting.federation, METHODS.build("fedavg"), setting.backbones, setting.config, 0)
        for setting in (trial(), trial(gaussian=0.5, aggregator="median"))
    )
    assert (plain.upload_bytes, plain.download_bytes) == (attacked.upload_bytes, attacked.download_bytes)


@pytest.mark.parametrize("name", ["fedproto", "scaffold", "fedgta"])
def test_methods_that_upload_more_than_models_are_skipped(name: str) -> None:
    for options in ({"sign_flip": 0.5}, {"aggregator": "median"}):
        with pytest.raises(Skip, match=r"it uploads|another model"):
            record(METHODS.build(name), trial(**options))


@pytest.mark.parametrize("options", [{"gaussian": 0.5}, {"aggregator": "median"}, {"dp_clip": 1.0}])
def test_models_without_parameters_are_skipped(options: dict[str, Any]) -> None:
    """FedPer keeps all of a model of few layers at the clients."""
    with pytest.raises(Skip, match="it uploads models without parameters"):
        record(METHODS.build("fedper", {"own_layers": 9}), trial(**options))


@pytest.mark.parametrize(
    "options", [{"label_flip": 0.5}, {"sign_flip": 0.5}, {"aggregator": "median"}, {"dp_clip": 1.0}]
)
def test_a_reference_on_pooled_data_is_skipped(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(Skip, match=f"global pools the clients' data: {name} cannot apply"):
        record(METHODS.build("global"), trial(**options))


def test_wrong_combinations_are_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="label_flip and gaussian are given: a run has one attack"):
        TrainConfig(label_flip=0.1, gaussian=0.1)
    with pytest.raises(ValueError, match="dp_clip protects the mean"):
        TrainConfig(dp_clip=1.0, aggregator="krum")
    with pytest.raises(ValueError, match="small_deviation replaces models after dp_clip has clipped them"):
        TrainConfig(dp_clip=1.0, small_deviation=0.2)
    with pytest.raises(UserError, match=r"aggregator 'krum' needs n >= f \+ 3, and 3 clients take part with f = 1"):
        record(METHODS.build("fedavg"), trial(aggregator="krum", tolerated=0.49))
