"""Minibatches of nodes with drawn neighbours against full batches; passes in parts against whole passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fglbench.benchmark.engine import Skip, TrainConfig, sampled_batch
from fglbench.benchmark.engine.backbone import Network
from fglbench.benchmark.engine.backbones import BACKBONES, Backbone
from fglbench.benchmark.engine.rng import Streams
from fglbench.benchmark.engine.sampled_batch import SampledClientBatch
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.benchmark.engine.train import set_up, train
from fglbench.datasets.federation import Federation
from fglbench.methods import METHODS

Make = Callable[..., Federation]
ALL = 1000  # more training nodes than any client has, more neighbours than any node has
# Their losses have a term over all nodes; a step computes it over its rows.
OVER_ALL_NODES = {"moon": {"mu": 0.0}, "fedkd": {"nodes": "train"}, "fml": {"nodes": "train"}}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "gcn": {}, "sage": {}, "gin": {"train_eps": True}, "gat": {"heads": 2}, "sgc": {}, "mlp": {},
    "gcn ": {"linear_head": True, "residual": True, "layers": 3}, "sgc ": {"linear_head": True},
}  # fmt: skip
TRAINED = [
    name
    for name in METHODS.names()
    if METHODS.cls(name).takes_minibatches() and METHODS.cls(name).trains and "node" in METHODS.cls(name).tasks
]


def architecture(name: str, **params: Any) -> Backbone:
    return BACKBONES.build(name.strip(), {"hidden": 8, "dropout": 0.0, **ARCHITECTURES.get(name, {}), **params})


def trained(federation: Federation, method: str, backbone: Backbone, config: TrainConfig, **options: Any) -> Simulation:
    """The simulation after all rounds."""
    built = METHODS.build(method, OVER_ALL_NODES.get(method, {}))
    simulation, _ = set_up(federation, built, [backbone], config, 0, **options)
    for phase in built.phases(simulation.config):
        for number in range(1, phase.length(simulation.server) + 1):
            simulation.round(phase, number)
    return simulation


def params_of(simulation: Simulation) -> dict[str, torch.Tensor]:
    batches = simulation.client_batches
    return {name: torch.cat([batch.params[name] for batch in batches]) for name in batches[0].params}


def assert_equal_params(first: Simulation, second: Simulation, tolerance: float = 1e-5) -> None:
    params, other_params = params_of(first), params_of(second)
    assert params.keys() == other_params.keys()
    for name, value in params.items():
        torch.testing.assert_close(value, other_params[name], rtol=tolerance, atol=tolerance)


SGD = {"optimiser": "sgd", "lr": 0.1, "rounds": 2, "local_epochs": 2}


@pytest.mark.parametrize("method", TRAINED)
def test_one_batch_with_all_neighbours_is_the_full_batch(method: str, federation: Make) -> None:
    backbone = architecture("gcn", linear_head=True)
    full = trained(federation(), method, backbone, TrainConfig(**SGD))
    assert_equal_params(trained(federation(), method, backbone, TrainConfig(**SGD, batch_size=ALL)), full)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_all_neighbours_drawn_are_the_full_batch_for_every_architecture(
    name: str, sparse: bool, federation: Make
) -> None:
    backbone, data = architecture(name), federation(sparse=sparse, without_train=(1,))
    # Weight decay would change the client without a training node in full batches; in minibatches it takes no step.
    full = trained(data, "fedavg", backbone, TrainConfig(**SGD, weight_decay=0.0))
    drawn = TrainConfig(
        **SGD, weight_decay=0.0, batch_size=ALL, fanout=[ALL] * backbone.layers if backbone.hops else None
    )
    assert_equal_params(trained(data, "fedavg", backbone, drawn), full)


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fedproto"])
def test_draws_do_not_depend_on_other_clients(method: str, federation: Make) -> None:
    backbone = architecture("sage", dropout=0.5, linear_head=True)
    config = TrainConfig(rounds=2, local_epochs=2, batch_size=2, fanout=[2, 1])
    together = trained(federation(sizes=(30, 14, 22)), method, backbone, config)
    alone = trained(federation(sizes=(30, 14, 22)), method, backbone, config, clients_per_batch=1)
    assert_equal_params(together, alone)
    again = trained(federation(sizes=(30, 14, 22)), method, backbone, config)
    assert_equal_params(together, again, tolerance=0)


def drawing_batch(federation: Federation, backbone: Backbone, fanout: tuple[int, ...]) -> SampledClientBatch:
    config = TrainConfig(batch_size=ALL, fanout=fanout)
    clients = range(len(federation.clients))
    network = Network([backbone], clients)
    batch = SampledClientBatch(
        federation.clients, network, config, Streams(0, clients, {}), federation.num_classes, federation.num_features
    )
    batch.params = network.init(0, batch.features, batch.classes)
    return batch


@pytest.mark.parametrize("name", ["gcn", "gin", "sage"])
def test_the_mean_of_many_draws_is_the_sum_over_all_neighbours(name: str, federation: Make) -> None:
    """One layer, so that the output is linear in the draws (GIN's MLP: ReLUs opened by large shifts)."""
    backbone = architecture(name, layers=1, train_eps=False) if name == "gin" else architecture(name, layers=1)
    batch = drawing_batch(federation(sizes=(40, 30)), backbone, (2,))
    if name == "gin":
        batch.params["0.inner.bias"] += 50.0  # all of its ReLUs are open
    rows = batch.batch.rows["train"]
    with torch.no_grad():
        whole = batch.forward(training=False).logits[rows]
        draws = torch.stack([batch.forward().logits for _ in range(150) for _ in batch.steps()])
    spread = draws.std(0) / len(draws) ** 0.5
    assert (spread > 0).any(), "nothing was drawn"
    assert ((draws.mean(0) - whole).abs() < 5 * spread + 1e-4).all()


def test_a_step_sees_training_nodes_only_and_an_epoch_each_once(federation: Make) -> None:
    data = federation(sizes=(60, 20, 9), without_train=(2,))
    batch = drawing_batch(data, architecture("gcn"), (3, 3))
    batch.config = TrainConfig(batch_size=5, fanout=(3, 3))
    whole = batch.batch
    seen = []
    for active in batch.steps():
        assert isinstance(batch.at, torch.Tensor)
        assert batch.batch.masks["train"].all() and batch.batch.label.min() >= 0
        assert batch.forward().logits.shape[0] == len(batch.at) == sum(batch.batch.sizes)
        assert max(batch.batch.sizes) <= 6 and batch.batch.sizes[2] == 0
        assert active is None or 2 not in active
        torch.testing.assert_close(batch.batch.global_id, whole.global_id[batch.at])
        drawn = [block.ends[1:] - block.ends[:-1] for block in batch.batch.blocks]
        assert max(int(degrees.max()) for degrees in drawn) <= 3
        seen.append(batch.at)
    assert torch.equal(torch.cat(seen).sort().values, whole.rows["train"])
    assert batch.batch is whole and batch.at == slice(None)


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_pass_in_parts_is_a_whole_pass(name: str, sparse: bool, federation: Make) -> None:
    backbone, data = architecture(name), federation(sizes=(23, 1, 17), sparse=sparse)
    batch = drawing_batch(data, backbone, (-1,) * backbone.hops)
    with torch.no_grad():
        whole = batch.forward(training=False)
        batch.data = (replace(batch.batch, at_once=7),)
        parts = batch.forward(training=False)
    torch.testing.assert_close(parts.logits, whole.logits)
    assert len(parts.pre) == len(whole.pre)
    for one, other in zip(parts.pre, whole.pre, strict=True):
        torch.testing.assert_close(one, other)


def test_scores_equal_whole_passes(federation: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainConfig(rounds=2, batch_size=4, fanout=[3, 2])
    backbone, data = architecture("gcn"), federation(sizes=(40, 30, 22))
    whole = train(data, METHODS.build("fedavg", {}), [backbone], config, 0)
    monkeypatch.setattr(sampled_batch, "ROWS", 7)
    parts = train(data, METHODS.build("fedavg", {}), [backbone], config, 0)
    assert whole.score == pytest.approx(parts.score) and whole.matrix == pytest.approx(parts.matrix)
    assert (
        whole.optimiser_steps
        == whole.budget_steps
        == 2 * 3 * max(-(-int(client.graph.ndata["train_mask"].sum()) // 4) for client in data.clients)
    )


def refused(federation: Federation, method: str, backbone: Backbone, config: TrainConfig) -> str:
    with pytest.raises(Skip) as caught:
        set_up(federation, METHODS.build(method, {}), [backbone], config, 0)
    return str(caught.value)


def test_minibatches_are_skipped_with_a_reason(federation: Make) -> None:
    config, data = TrainConfig(batch_size=4, fanout=[3, 2]), federation()
    assert "fgssl looks at more than the rows of a step" in refused(data, "fgssl", architecture("gcn"), config)
    assert "fanout has 2 numbers for 3 layers" in refused(data, "fedavg", architecture("gcn", layers=3), config)
    assert "BatchNorm" in refused(data, "fedavg", architecture("gin", batch_norm=True), config)
    assert "ortho-gcn computes whole graphs only" in refused(data, "fedavg", architecture("ortho-gcn"), config)
    for wrong in ([0, 3], [-2, 3]):
        with pytest.raises(ValueError, match="positive number or -1"):
            TrainConfig(batch_size=4, fanout=wrong)
    with pytest.raises(ValueError, match="fanout needs batch_size"):
        TrainConfig(fanout=[3, 2])


def test_draws_do_not_depend_on_the_number_of_threads(federation: Make) -> None:
    def drawn(threads: int) -> list[np.ndarray]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        sampled_batch.set_num_threads(threads)
        try:
            batch = drawing_batch(federation(sizes=(300, 200)), architecture("gcn"), (2, 2))
            return [block.sources for _ in batch.steps() for block in batch.batch.blocks]
        finally:
            torch.set_num_threads(before)
            sampled_batch.set_num_threads(before)

    for one, two in zip(drawn(1), drawn(2), strict=True):
        np.testing.assert_array_equal(one, two)
