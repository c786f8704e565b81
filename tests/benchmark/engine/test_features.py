"""Input weights stored by the rows that clients touch: the same numbers as plain tensors in all uses."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fglbench.benchmark.engine import BACKBONES, METHODS, TrainConfig, average, features, lazy, payload, simulation
from fglbench.benchmark.engine.features import ByRows, Features, Touched, rows_of, spread
from fglbench.benchmark.engine.lazy import Lazy, whole
from fglbench.benchmark.engine.payload import Seal, merge, transform
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.datasets.federation import Federation, NodeClient

Make = Callable[..., Federation]
CONFIGS: dict[str, dict[str, Any]] = {
    "adam kept": {},
    "adam anew": {"keep_optimiser": False},
    "no decay": {"weight_decay": 0.0},
    "strong decay": {"weight_decay": 0.05},
    "sgd momentum": {"optimiser": "sgd", "lr": 0.1, "momentum": 0.9},
    "clipped": {"optimiser": "sgd", "lr": 1.0, "grad_clip": 0.05},
    "adam clipped": {"grad_clip": 0.05},
    "partial kept": {"participation": 0.5},
    "partial anew": {"participation": 0.5, "keep_optimiser": False},
}
BY_ROWS, PLAIN = 1e9, 0.0  # values of `WORTH`: always and never by rows


def narrow(federation: Make) -> Federation:
    """Five clients, each without entries in more than half of 40 columns; no client has one in the last column."""
    world, rng = federation((13, 7, 10, 9, 8), features=40, without_train=(3,)), np.random.default_rng(3)
    clients = []
    for client in world.clients:
        held = torch.from_numpy(rng.random(40) < 0.4).index_fill_(0, torch.tensor([39]), False)
        clients.append(replace(client, feat=(client.feat.to_dense() * held).to_sparse_csr()))
    return replace(world, clients=clients)


def start(
    world: Federation, name: str = "fedavg", backbone: str = "gcn", size: int | None = None, **config: Any
) -> Simulation:
    method = METHODS.build(name)
    settings = method.protocol(TrainConfig(local_epochs=2, **config))
    models = method.architecture([BACKBONES.build(backbone, {"hidden": 8})])
    return Simulation(method, method.arrange(world), models, settings, 5, size)


def run(world: Federation, name: str = "fedavg", rounds: int = 3, **options: Any) -> Simulation:
    running = start(world, name, **options)
    for phase in running.method.phases(running.config):
        for number in range(1, 1 + (rounds if phase.scored else phase.length(running.server))):
            running.round(phase, number)
    return running


def held(running: Simulation) -> list[torch.Tensor]:
    """All tensors of server and clients, as plain tensors."""
    state = {"server": running.server.state, **{str(i): c.params for i, c in enumerate(running.client_batches)}}
    tensors: list[torch.Tensor] = []
    transform(state, lambda leaf: tensors.append(whole(leaf)) if isinstance(leaf, torch.Tensor) else None)
    return tensors


def both(monkeypatch: pytest.MonkeyPatch, *args: Any, **kwargs: Any) -> tuple[Simulation, Simulation]:
    """The same run with plain tensors and by rows."""
    monkeypatch.setattr(features, "WORTH", PLAIN)
    plain = run(*args, **kwargs)
    monkeypatch.setattr(features, "WORTH", BY_ROWS)
    return plain, run(*args, **kwargs)


@pytest.mark.parametrize("few", [0, 20])
@pytest.mark.parametrize("config", sorted(CONFIGS))
def test_weights_by_rows_equal_plain_weights(
    config: str, few: int, federation: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy, "FEW", few)
    plain, rows = both(monkeypatch, narrow(federation), rounds=20, **CONFIGS[config])
    assert not any(isinstance(value, Lazy) for value in plain.client_batches[0].params.values())
    if "participation" not in CONFIGS[config]:
        assert rows_of(rows.client_batches[0].params["0.weight"]) is not None
    torch.testing.assert_close(held(rows), held(plain), rtol=1e-5, atol=1e-6)
    assert rows.upload_bytes == plain.upload_bytes and rows.download_bytes == plain.download_bytes


@pytest.mark.parametrize("backbone", [name for name in BACKBONES.names() if name != "gine"])
def test_every_backbone(backbone: str, federation: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, rows = both(monkeypatch, narrow(federation), backbone=backbone)
    torch.testing.assert_close(held(rows), held(plain), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["fedprox", "scaffold", "moon", "feddc", "fedgta", "fed-pub", "fedopt", "fgssl"])
@pytest.mark.parametrize("config", ["adam kept", "partial kept"])
def test_methods_that_read_whole_weights(
    name: str, config: str, federation: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proximal terms, control variates, masks, similarities."""
    plain, rows = both(monkeypatch, narrow(federation), name, **CONFIGS[config])
    torch.testing.assert_close(held(rows), held(plain), rtol=1e-5, atol=1e-6)
    if name == "fedprox":  # its loss reads them: they stay whole
        assert type(rows.client_batches[0].params["0.weight"]) is torch.Tensor


@pytest.mark.parametrize("few", [0, 20])
def test_results_do_not_depend_on_the_client_batch_size(
    few: int, federation: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "WORTH", BY_ROWS)
    monkeypatch.setattr(lazy, "FEW", few)
    monkeypatch.setattr(payload, "LARGE", 0)
    world = narrow(federation)
    single = run(world, size=5)
    for size in (1, 2, 3):
        many = run(world, size=size)
        torch.testing.assert_close(many.server.state, single.server.state, rtol=1e-5, atol=1e-6)
        assert many.upload_bytes == single.upload_bytes


def test_reading_weights_between_rounds_changes_nothing(federation: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "WORTH", BY_ROWS)
    looked, alone = run(narrow(federation), rounds=1), run(narrow(federation), rounds=1)
    looked.client_batches[0].params["0.weight"].sum()
    for running in (looked, alone):
        running.round(running.method.phases(running.config)[0], 2)
    torch.testing.assert_close(held(looked), held(alone), rtol=1e-5, atol=1e-6)


def weights(clients: int = 3) -> tuple[torch.Tensor, torch.Tensor, Touched]:
    """Weights by rows, (clients, 4, 2), the same plain, and the rows that are touched: column k % 4 of client k."""
    x = sp.csr_matrix((np.ones(clients), (range(clients), [k % 4 for k in range(clients)])), shape=(clients, 4))
    touched, start = Touched(x, [1] * clients), torch.arange(8.0).view(4, 2)
    by_rows = spread(start, touched)
    rows_of(by_rows).rows.add_(10)
    plain = start.expand(clients, 4, 2).clone()
    for k in range(clients):
        plain[k, k % 4] += 10
    return by_rows, plain, touched


def test_any_operation_reads_whole_weights() -> None:
    by_rows, plain, _ = weights()
    assert torch.equal(by_rows + 1, plain + 1) and torch.equal(by_rows[1], plain[1])
    assert np.array_equal(weights()[0].numpy(), plain.numpy()) and weights()[0].tolist() == plain.tolist()
    assert torch.equal(copy.deepcopy(weights()[0]), plain)
    assert torch.equal(pickle.loads(pickle.dumps(weights()[0])), plain)
    assert torch.equal(torch.cat([weights()[0], plain]), torch.cat([plain, plain]))


def test_copies_are_independent_and_aliases_are_not() -> None:
    by_rows, plain, _ = weights()
    alias, apart = by_rows.detach(), by_rows.clone()
    assert rows_of(apart) is not None
    by_rows[0, 0] = 99.0
    assert alias[0, 0, 0] == 99 and torch.equal(whole(apart), plain)
    alias.mul_(2)
    assert by_rows[0, 0, 0] == 198


@pytest.mark.parametrize("write", ["rows", "whole", "view"])
def test_a_write_breaks_the_seal(write: str) -> None:
    by_rows, _, _ = weights()
    seal = Seal()
    seal.close({"model": by_rows}, "an upload")
    if write == "rows":
        rows_of(by_rows).rows.add_(1)
    else:
        by_rows.sum()
        seal.check()  # a look is no write
        seal.close({"model": by_rows}, "an upload")
        (by_rows if write == "whole" else by_rows[1]).add_(1)
    with pytest.raises(RuntimeError, match="written to"):
        seal.check()


def test_gradients_of_several_uses_add_up() -> None:
    """Two input products, and one with a look at the whole weights beside: the gradient of the plain product."""
    _, plain, touched = weights()
    x = sp.csr_matrix((np.array([2.0, 3.0, 5.0], np.float32), ([0, 1, 2], [0, 1, 2])), shape=(3, 4))
    rows = Features(x, (1, 1, 1))
    rows.touched = touched
    dense = torch.from_numpy(x.toarray())
    for look in (False, True):
        reference = plain.clone().requires_grad_()
        by_rows = lazy.in_parts(ByRows(touched, rows_of(weights()[0]).stack)).requires_grad_()
        loss = (rows @ by_rows).square().sum() + (rows @ by_rows).sum()
        z = torch.einsum("nd,ndh->nh", dense, reference)
        expected = z.square().sum() + z.sum()
        if look:
            loss, expected = loss + by_rows.pow(3).sum(), expected + reference.pow(3).sum()
        (grad,) = torch.autograd.grad(loss, [by_rows])
        assert (rows_of(grad) is None) == look
        torch.testing.assert_close(whole(grad), torch.autograd.grad(expected, [reference])[0])


@pytest.mark.parametrize("few", [0, 20])
def test_weighted_sums(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one stack and of several client batches, plain and by rows, against a loop over clients."""
    monkeypatch.setattr(lazy, "FEW", few)
    monkeypatch.setattr(payload, "LARGE", 0)
    share = torch.tensor([0.1, 0.2, 0.0, 0.3, 0.15, 0.25])
    pairs = [weights(), weights()]
    plain = torch.cat([pair[1] for pair in pairs])
    expected = sum(float(w) * row for w, row in zip(share, plain, strict=True))
    assert isinstance(expected, torch.Tensor)
    for uploads in ([pair[0] for pair in pairs], [pair[1] for pair in pairs], [pairs[0][1], weights()[0]]):
        merged = merge([{"model": upload} for upload in uploads])
        assert isinstance(merged["model"], Lazy) and merged["model"].shape == plain.shape
        torch.testing.assert_close(average(merged, share)["model"], expected)
        assert torch.equal(whole(merged["model"]), plain)
    by_rows, plain_weights, _ = weights()
    torch.testing.assert_close(average({"w": by_rows}, share[:3])["w"], torch.tensordot(share[:3], plain_weights, 1))
    assert rows_of(by_rows) is not None  # no whole weights were built
    mixed = torch.rand(3, 3)
    torch.testing.assert_close(average({"w": weights()[0]}, mixed)["w"], torch.tensordot(mixed, plain_weights, 1))


def test_sums_follow_their_weights() -> None:
    """A kept sum is reused only with the same weights."""
    by_rows, plain, _ = weights(5)
    share, other = torch.rand(5), torch.rand(5)

    def right(of: torch.Tensor) -> None:
        expected = sum(float(w) * row for w, row in zip(of, plain, strict=True))
        torch.testing.assert_close(average({"w": by_rows}, of)["w"], expected)

    for shares in (share, share, other, share):
        right(shares)
    share[2] = 7.0
    right(share)


def test_server_weights_use_the_nodes_of_participants(federation: Make) -> None:
    """By the nodes of participants that have a training node."""
    server = start(federation((13, 7, 10), without_train=(1,)), weighting="nodes").server
    for participants, expected in (([0, 1, 2], [13, 0, 10]), ([1, 2], [0, 1]), ([2, 0], [10, 13]), ([1], [1])):
        server.participants = participants
        torch.testing.assert_close(server.weights, torch.tensor(expected, dtype=torch.float32) / sum(expected))


def test_uploads_of_many_clients_are_not_copied_to_be_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "LARGE", 0)
    merged = merge([{"model": weights(15)[0]}, {"model": weights(15)[1]}])
    average(merged, torch.full((30,), 1 / 30))
    assert merged["model"].content.parts is not None


def test_client_batches_are_bounded_by_stored_bytes(federation: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: GCN-8 of 40 inputs has 40 x 8 + 8 + 8 x 3 + 3 = 355 numbers; of the 320, the touched share counts."""
    world = narrow(federation)
    held = [len(set(client.feat.col_indices().tolist())) for client in world.clients if isinstance(client, NodeClient)]
    each = 16 * (35 + 320 * sum(held) / 5 / 40)
    assert each < 16 * 355 / 2
    monkeypatch.setattr(simulation, "FEW_BYTES", 16 * 355 * 2.01)
    assert [len(clients) for clients in start(world).client_batches] == [2, 2, 1]  # with few clients, whole parameters
    monkeypatch.setattr(lazy, "FEW", 4)
    for bound, sizes in ((each * 1.01, [1] * 5), (each * 2.01, [2, 2, 1]), (each * 5.01, [5])):
        monkeypatch.setattr(simulation, "BATCH_BYTES", bound)
        assert [len(clients) for clients in start(world).client_batches] == sizes


def test_weighted_sums_of_gradients() -> None:
    """They have no shared rows: a client's untouched rows count as zero."""
    _, _, touched = weights(5)
    rows, share = torch.arange(10.0).view(5, 2), torch.tensor([0.1, 0.2, 0.3, 0.15, 0.25])
    expected = torch.zeros(4, 2)
    for k in range(5):  # client k touches row k % 4
        expected[k % 4] += share[k] * rows[k]
    torch.testing.assert_close(ByRows(touched, rows).weighted_sum(share), expected)
