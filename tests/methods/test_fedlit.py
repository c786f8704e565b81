"""FedLIT: types of edges, typed convolutions and the server's matching, each against loops or DGL."""

from __future__ import annotations

from itertools import permutations

import dgl
import dgl.nn
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine.backbones import BACKBONES, Params
from fglbench.benchmark.engine.batch import collate
from fglbench.benchmark.engine.payload import Each
from fglbench.datasets.federation import NodeClient
from fglbench.methods.fedlit import Links, Pairs, group_mean, initial, matching, scores

from .rounds import PLAIN, Make, close, start, stepped, tracked

D, H, C, TYPES = 12, 4, 3, 3


def different(clients: int) -> Params:
    """Different parameters per client, biases included."""
    draws = [initial(BACKBONES.build("gcn", {"hidden": H}), k, D, C, TYPES) for k in range(clients)]
    torch.manual_seed(0)
    return {n: torch.stack([o[n] for o in draws]) + 0.1 * torch.randn(clients, *draws[0][n].shape) for n in draws[0]}


def codes_of(client: NodeClient, projected: torch.Tensor) -> list[tuple[int, int, torch.Tensor]]:
    """(u, v, code) of every edge with u < v, in order."""
    ends = sorted((u, v) for u, v in zip(*(e.tolist() for e in client.graph.edges()), strict=True) if u < v)
    return [(u, v, torch.cat([projected[u], projected[v]])) for u, v in ends]


def test_types_and_centroids(federation: Make) -> None:
    world = federation()
    batch = collate(list(world.clients))
    torch.manual_seed(1)
    projected, centroids = torch.randn(len(batch.label), H), torch.randn(3, TYPES, 2 * H)
    projected[batch.offsets[2] :] = projected[batch.offsets[2] :].abs()
    centroids[2] = centroids[2].abs()
    centroids[2, 1] *= -1  # farthest from all codes: no edge takes it, so it stays
    pairs = Pairs(batch)
    types = pairs.assign(projected, centroids)
    means = pairs.means(projected, types, centroids)
    torch.testing.assert_close(
        pairs.codes(projected),
        torch.stack([
            code
            for client, rows in zip(world.clients, projected.split(batch.sizes), strict=True)
            for _, _, code in codes_of(client, rows)
        ]),
    )  # fmt: skip
    for k, (client, rows) in enumerate(zip(world.clients, projected.split(batch.sizes), strict=True)):
        assert isinstance(client, NodeClient)
        members: list[list[torch.Tensor]] = [[] for _ in range(TYPES)]
        chosen = []
        for _, _, code in codes_of(client, rows):
            cosines = [float(F.cosine_similarity(code, c, dim=0)) for c in centroids[k]]
            chosen.append(cosines.index(max(cosines)))
            members[chosen[-1]].append(code)
        assert types.split(pairs.counts)[k].tolist() == chosen
        for c in range(TYPES):
            expected = torch.stack(members[c]).mean(0) if members[c] else centroids[k, c]
            torch.testing.assert_close(means[k, c], expected)
    assert min(types.split(pairs.counts)[2].bincount(minlength=TYPES).tolist()) == 0


def test_model_against_dgl(federation: Make) -> None:
    """Outputs and gradients of the channels: DGL's GraphConv on the subgraph of each edge type."""
    world, backbone = federation(), BACKBONES.build("gcn", {"hidden": H})
    batch = collate(list(world.clients))
    params = {name: value.requires_grad_(True) for name, value in different(3).items()}
    pairs = Pairs(batch)
    types = torch.randint(0, TYPES, (len(pairs.first),), generator=torch.Generator().manual_seed(0))
    links = Links(pairs, types, TYPES)
    x = torch.cat(
        [
            x @ params["first.weight"][k] + params["first.bias"][k]
            for k, x in enumerate(batch.x.dense().split(batch.sizes))
        ]
    )
    logits = scores(backbone, params, x, links, batch, None)
    pull = torch.randn_like(logits)
    grads = dict(zip(params, torch.autograd.grad((logits * pull).sum(), list(params.values())), strict=True))
    counts = links.counts(batch.masks["train"])
    for k, client in enumerate(world.clients):
        one = {name: value[k].detach().clone().requires_grad_(True) for name, value in params.items()}
        projected = client.feat.to_dense() @ one["first.weight"] + one["first.bias"]
        out = torch.zeros(len(projected), H)
        kind = {}
        for (u, v, _), t in zip(codes_of(client, projected), types.split(pairs.counts)[k].tolist(), strict=True):
            kind[u, v] = kind[v, u] = t
        edges = list(zip(*(e.tolist() for e in client.graph.edges()), strict=True))
        for c in range(TYPES):
            chosen = torch.tensor([kind[pair] == c for pair in edges], dtype=torch.bool)
            sub = dgl.edge_subgraph(client.graph, chosen)
            nodes = sub.ndata[dgl.NID]
            assert int(counts[k, c]) == int(client.graph.ndata["train_mask"][nodes].sum())
            h = projected[nodes] @ one["channel.weight"][c] + one["channel.bias"][c]
            for i in range(2):
                conv = dgl.nn.GraphConv(H, H, norm="both", weight=False, bias=False)
                weight, bias = one[f"channel.{i}.weight"][c], one[f"channel.{i}.bias"][c]
                h = torch.relu(conv(sub, h, weight=weight) + bias)
            out = out.index_add(0, nodes, h)
        expected = out @ one["out.weight"] + one["out.bias"]
        torch.testing.assert_close(logits.split(batch.sizes)[k], expected)
        slow = torch.autograd.grad((expected * pull.split(batch.sizes)[k]).sum(), list(one.values()))
        close(grads, dict(zip(one, slow, strict=True)), k, atol=1e-6)


def test_matching_is_greedy_and_has_the_right_axes() -> None:
    """Greedy matching of well separated centroids gives the permutation, also if its inverse differs."""
    torch.manual_seed(2)
    centres = torch.eye(4, 8)
    for order in permutations(range(4)):
        centroids = centres[list(order)] + 0.05 * torch.randn(4, 8)
        assert matching(centres, centroids).tolist() == list(order)
    # The best pair is matched first, also if another assignment has a larger sum.
    centres = torch.tensor([[1.0, 0.0], [0.8, 0.6]])
    centroids = torch.tensor([[0.96, 0.28], [0.0, 1.0]])
    similar = F.cosine_similarity(centres.unsqueeze(1), centroids.unsqueeze(0), dim=2)
    best = divmod(int(similar.argmax()), 2)
    assert matching(centres, centroids)[best[1]] == best[0]


def test_server_rule(federation: Make) -> None:
    simulation = start(federation((13, 7, 10, 9)), "fedlit", {"types": TYPES}, backbone={"hidden": H}).simulation
    server, method = simulation.server, simulation.method
    old = {name: value.clone() for name, value in server.state["model"].items()}
    models = {name: torch.stack([value + k + 1 for k in range(4)]) for name, value in old.items()}
    for name in models:
        if name.startswith("channel."):
            models[name] = models[name] + 10 * torch.arange(TYPES).view(1, TYPES, *[1] * (models[name].dim() - 2))
    basis, orders = torch.eye(TYPES, 2 * H), ([0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1])
    centroids = torch.stack([(k + 1) * basis[list(order)] for k, order in enumerate(orders)])
    counts = torch.tensor([[1.0, 0, 2], [3, 0, 1], [0, 0, 1], [1, 0, 1]])
    download = method.server(server, {"model": models, "centroids": centroids, "counts": counts})
    assert isinstance(download, Each)
    weights = server.weights
    train = [float(c.graph.ndata["train_mask"].sum()) for c in federation((13, 7, 10, 9)).clients]
    torch.testing.assert_close(weights, torch.tensor(train) / sum(train))
    new = server.state["model"]
    for name in ("first.weight", "first.bias", "out.weight", "out.bias"):
        torch.testing.assert_close(new[name], sum(w * v for w, v in zip(weights, models[name], strict=True)))
    for group in range(TYPES):
        members = [(k, order.index(group)) for k, order in enumerate(orders)]
        torch.testing.assert_close(new["centroids"][group], basis[group] * sum(k + 1 for k, _ in members) / 4)
        trained = [(k, c) for k, c in members if counts[k, c] > 0]
        for name in (n for n in new if n.startswith("channel.")):
            mean = sum(models[name][k, c] for k, c in trained) / len(trained) if trained else old[name][group]
            torch.testing.assert_close(new[name][group], mean)
    for k, order in enumerate(orders):  # each client gets the channels in its order
        for name, value in download.tree["model"].items():
            typed = name.startswith("channel.") or name == "centroids"
            torch.testing.assert_close(value[k], new[name][list(order)] if typed else new[name])
    model = method.global_model(server)
    batch = simulation.client_batches[0].batch
    whole = {name: value.expand(4, *value.shape) for name, value in model.items()}
    network = simulation.client_batches[0].network
    as_global = method.predict(whole, network, (batch,))
    torch.testing.assert_close(method.predict(download.tree["model"], network, (batch,)), as_global)


def test_a_group_without_members_stays() -> None:
    values, old = torch.arange(12.0).view(2, 3, 2), torch.full((3, 2), -1.0)
    group, member = torch.tensor([[0, 1, 2], [1, 0, 2]]), torch.tensor([[True, True, False], [False, True, False]])
    means = group_mean(values, group, member, old)
    torch.testing.assert_close(means, torch.stack([(values[0, 0] + values[1, 1]) / 2, values[0, 1], old[2]]))


def test_with_one_type_it_is_fedavg_of_one_channel(federation: Make) -> None:
    """With one type the result does not depend on centroids. Loop over clients with DGL's modules."""
    world = federation()
    backbone = {"hidden": H, "dropout": 0.0}
    run = start(world, "fedlit", {"types": 1}, **PLAIN | {"backbone": backbone}, lr=0.2, local_epochs=1)
    theta = {name: value.clone() for name, value in run.simulation.server.state["model"].items()}
    train = torch.tensor([float(c.graph.ndata["train_mask"].sum()) for c in world.clients])
    for number in (1, 2):
        run.round(number)
        trained = []
        for client in world.clients:
            one = tracked(theta)
            h = client.feat.to_dense() @ one["first.weight"] + one["first.bias"]
            h = h @ one["channel.weight"][0] + one["channel.bias"][0]
            for i in range(2):
                conv = dgl.nn.GraphConv(H, H, norm="both", weight=False, bias=False, allow_zero_in_degree=True)
                h = torch.relu(
                    conv(client.graph, h, weight=one[f"channel.{i}.weight"][0]) + one[f"channel.{i}.bias"][0]
                )
            h = h * (client.graph.in_degrees() > 0).unsqueeze(1)
            logits, mask = h @ one["out.weight"] + one["out.bias"], client.graph.ndata["train_mask"]
            loss = F.cross_entropy(logits[mask], client.graph.ndata["label"][mask])
            trained.append(stepped(one, loss, 0.2))
        for n in theta:
            weights = torch.ones(3) / 3 if n.startswith("channel.") else train / train.sum()
            theta[n] = sum(w * one[n] for w, one in zip(weights, trained, strict=True))
    close({n: run.simulation.server.state["model"][n] for n in theta}, theta, atol=1e-6)


def test_first_centroids_are_those_of_k_means(federation: Make) -> None:
    """k-means of the client's codes, equal in any client batch; zeros if there are too few edges."""
    world = federation((20, 2, 16))
    centroids = []
    for size in (3, 1):
        run = start(world, "fedlit", {"types": TYPES}, backbone={"hidden": H}, clients_per_batch=size)
        centroids.append(torch.cat([run.method._first_centroids(c) for c in run.simulation.client_batches]))
    torch.testing.assert_close(centroids[0], centroids[1])
    edges = [c.graph.num_edges() // 2 for c in world.clients]
    assert edges[1] < TYPES
    for client_centroids, count in zip(centroids[0], edges, strict=True):
        assert int(client_centroids.any(1).sum()) == min(TYPES, count)
