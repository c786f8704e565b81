"""FedLIT: latent link types from clustering of edges, and a graph convolution for each type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from ..benchmark.engine import (
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
    Download,
    Each,
    Network,
    Params,
    Server,
    SparseMatrix,
    Streams,
    TrainConfig,
    Tree,
    affine,
    average,
    dropout,
    glorot,
    of_shape,
    option,
    segment_add,
    segment_product,
    stream,
    torch_source,
)
from .fedavg import FedAvg

# -- types of links ----------------------------------------------------------------------------------------------------


class Pairs:
    """The undirected edges of a batch as pairs of rows first < second, client by client. counts: pairs per client."""

    def __init__(self, batch: Batch) -> None:
        source, target = batch.ends
        code = (source * len(batch.label) + target)[source < target].sort().values
        self.first, self.second = code // max(len(batch.label), 1), code % max(len(batch.label), 1)
        self.batch, self.owner = batch, batch.owner[self.first]
        self.counts: list[int] = torch.bincount(self.owner, minlength=batch.clients).tolist()

    def codes(self, projected: torch.Tensor) -> torch.Tensor:
        """Return the codes (pairs, 2h) [x'_first; x'_second]. projected: x' (N, h)."""
        return torch.cat([projected[self.first], projected[self.second]], 1)

    def assign(self, projected: torch.Tensor, centroids: torch.Tensor) -> torch.Tensor:
        """Return the types (pairs,) by largest cosine of code and centroid (K, types, 2h), without storing codes."""
        unit = F.normalize(centroids, dim=2).transpose(1, 2)
        first, second = (segment_product(projected, half, self.batch.sizes) for half in unit.chunk(2, dim=1))
        return (first[self.first] + second[self.second]).argmax(1)

    def means(self, projected: torch.Tensor, types: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Return the mean codes (K, types, 2h) of each type's edges; `before` for a type without edges."""
        clients, number, width = before.shape
        place = self.owner * number + types
        sums = [
            projected.new_zeros(clients * number, width // 2).index_add_(0, place, projected[end])
            for end in (self.first, self.second)
        ]
        count = torch.bincount(place, minlength=clients * number).view(clients, number, 1)
        mean = torch.cat(sums, 1).view_as(before) / count.clamp(min=1)
        return torch.where(count > 0, mean, before)


class Links:
    """The typed graph. Its rows are (client, type, node): one block per channel of each client.

    matrix: D_c^-1/2 A_c D_c^-1/2 of all types. spread: (rows, N) copies each node to every type. gather: (N, rows) sums
    over the types in which a node has an edge.
    """

    def __init__(self, pairs: Pairs, types: torch.Tensor, number: int) -> None:
        sizes = torch.tensor(pairs.batch.sizes)
        start = torch.tensor(pairs.batch.offsets[:-1])
        self.sizes = tuple(n for n in pairs.batch.sizes for _ in range(number))  # rows per block
        self.wide = [n * number for n in pairs.batch.sizes]  # rows per client
        total = sum(self.wide)
        self._block = torch.repeat_interleave(torch.arange(len(self.sizes)), torch.tensor(self.sizes))
        self._shape = (len(sizes), number)
        client = self._block // number
        self._node = torch.arange(total) - (start * (number - 1))[client] - ((self._block % number) * sizes[client])
        shift = (start * (number - 1))[pairs.owner] + types * sizes[pairs.owner]
        first, second = (pairs.first + shift).numpy(), (pairs.second + shift).numpy()
        ends = np.concatenate([first, second]), np.concatenate([second, first])
        degree = np.bincount(ends[0], minlength=total)
        weight = (degree[ends[0]] * degree[ends[1]]).astype(np.float32) ** -0.5
        self.matrix = SparseMatrix(sp.csr_matrix((weight, ends), shape=(total, total)), symmetric=True)
        self._present = degree > 0
        nodes = len(pairs.batch.label)
        row, node = np.arange(total), self._node.numpy()
        self.spread = SparseMatrix(sp.csr_matrix((np.ones(total, np.float32), (row, node)), shape=(total, nodes)))
        present = (self._present.astype(np.float32), (node, row))
        self.gather = SparseMatrix(sp.csr_matrix(present, shape=(nodes, total)))

    def counts(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the numbers (K, types), float32, of nodes of a mask (N,) with an edge of each type."""
        counted = mask[self._node] & torch.from_numpy(self._present)
        return torch.bincount(self._block[counted], minlength=len(self.sizes)).view(self._shape).float()


# -- the method --------------------------------------------------------------------------------------------------------


@METHODS.register("fedlit")
class FedLIT(FedAvg):
    """Xie, Xiong, Yang, WWW 2023 (doi 10.1145/3543507.3583471): node classification with latent link types.

    Model: x' = W1 x; one channel for each type c: linear h -> h, then graph convolutions with ReLU and dropout on the
    edges of that type only (D_c^-1/2 A_c D_c^-1/2, without self-loops; 0 for a node without such an edge); the sum of
    the channels; a linear classifier. Code of an edge: [x'_u; x'_v], u < v.
    Client, each epoch: each edge gets the type whose centroid has the largest cosine with its code; then each centroid
    becomes the mean of its edges' codes (unchanged for a type without edges); then a step on the mean cross-entropy.
    The first centroids are those of mini-batch k-means on the client's codes.
    Server: each client's centroids are matched one-to-one to the centres, greedily by cosine (initially the first
    client's centroids are the centres); a centre becomes the mean of its centroids. W1 and the classifier are averaged
    with the clients' numbers of training nodes; a channel is averaged uniformly over the clients with a training node
    on an edge of its type, and is unchanged if there are none. A client gets channels and centres in the order of its
    types.

    Messages: theta, centroids (types, 2h) and training nodes of each type (types,) up; theta, centres down.

    Width, dropout and the number of convolutions are the run's hidden, dropout and layers; the kind of backbone has no
    effect. Departures: the released server exchanges the axes of its matching, so a client may get the inverse
    permutation; its first epoch uses the labels of k-means, here the types are by cosine from the start.
    """

    summary = "finds latent types of links and applies a graph convolution to each type"
    title = "FedLIT"
    venue = "WWW 2023"
    paper_url = "https://doi.org/10.1145/3543507.3583471"
    code_url = "https://github.com/Oxfordblue7/FedLIT"
    tasks = ("node",)

    types: int = option(
        4, "link types (the paper's synthetic data: 4; our choice for real graphs)", ge=1, tune=[2, 4, 6]
    )
    train_nodes: bool = option(True, "weight shared layers by training nodes (released code), or by `weighting`")

    def protocol(self, config: TrainConfig) -> TrainConfig:
        return config.model_copy(update={"weighting": "train_nodes"}) if self.train_nodes else config

    # -- client -----------------------------------------------------------------------------------------------------

    def prepare(self, clients: ClientBatch) -> None:
        backbone, count = clients.network.backbones[0], len(clients)
        fresh = initial(backbone, clients.streams.seed, clients.features, clients.classes, self.types)
        clients.params = {name: value.expand(count, *value.shape).clone() for name, value in fresh.items()}
        clients.state["centroids"] = torch.zeros(count, self.types, 2 * backbone.hidden)
        clients.state["counts"] = torch.zeros(count, self.types)

    def client(self, clients: ClientBatch) -> Tree:
        received = dict(clients.received["model"])
        centroids = received.pop("centroids", None)
        clients.load(received)
        clients.state["centroids"] = self._first_centroids(clients) if centroids is None else centroids
        clients.fit(self.local_loss)
        return {"model": clients.params, "centroids": clients.state["centroids"], "counts": clients.state["counts"]}

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        """Return the cross-entropy (K,) with the types of the current centroids; update the centroids."""
        pairs, before = self._pairs(clients), clients.state["centroids"]
        projected = affine(clients.params, "first", clients.batch.x, clients.batch)
        types = pairs.assign(projected.detach(), before)
        links = Links(pairs, types, self.types)
        clients.state["centroids"] = pairs.means(projected.detach(), types, before)
        clients.state["counts"] = links.counts(clients.batch.masks["train"])
        backbone = clients.network.backbones[0]
        return clients.cross_entropy(scores(backbone, clients.params, projected, links, clients.batch, clients.streams))

    def _pairs(self, clients: ClientBatch) -> Pairs:
        if "pairs" not in clients.cache:
            clients.cache["pairs"] = Pairs(clients.batch)
        pairs: Pairs = clients.cache["pairs"]
        return pairs

    @torch.no_grad()
    def _first_centroids(self, clients: ClientBatch) -> torch.Tensor:
        """Return centroids (K, types, 2h) of mini-batch k-means on each client's codes; 0 if edges are too few."""
        from sklearn.cluster import MiniBatchKMeans  # the import takes more than a second

        pairs = self._pairs(clients)
        codes = pairs.codes(affine(clients.params, "first", clients.batch.x, clients.batch))
        centroids = torch.zeros(len(clients), self.types, codes.shape[1])
        for k, (client_codes, generator) in enumerate(
            zip(codes.split(pairs.counts), clients.streams("link types"), strict=True)
        ):
            seed, types = int(generator.integers(2**31)), min(self.types, len(client_codes))
            if types:
                means = MiniBatchKMeans(types, batch_size=1024, max_iter=1, n_init=1, random_state=seed).fit(
                    client_codes.numpy()
                )
                centroids[k, :types] = torch.from_numpy(means.cluster_centers_)
        return centroids

    # -- server -----------------------------------------------------------------------------------------------------

    def open(self, server: Server) -> Download:
        backbone = server.backbones[0]
        server.state["model"] = initial(backbone, server.seed, server.features, server.classes, self.types)
        return {"model": server.state["model"]}

    def server(self, server: Server, uploads: Tree) -> Download:
        old, models, centroids = server.state["model"], uploads["model"], uploads["centroids"]
        centres = old.get("centroids", centroids[0])
        group = torch.stack([matching(centres, client_centroids) for client_centroids in centroids])
        model = average(
            {name: value for name, value in models.items() if not name.startswith("channel.")}, server.weights
        )
        for name in models:
            if name.startswith("channel."):
                model[name] = group_mean(models[name], group, uploads["counts"] > 0, old[name])
        model["centroids"] = group_mean(centroids, group, centroids.any(2), centres)
        server.state["model"] = model
        order = server.state.setdefault("order", torch.arange(self.types).repeat(server.clients, 1))
        order[server.participants] = group

        def placed(name: str, value: torch.Tensor) -> torch.Tensor:
            typed = name.startswith("channel.") or name == "centroids"
            return value[order] if typed else value.expand(server.clients, *value.shape)

        return Each({"model": {name: placed(name, value) for name, value in model.items()}}, range(server.clients))

    # -- evaluation -------------------------------------------------------------------------------------------------

    def personal_model(self, clients: ClientBatch) -> Params | None:
        return clients.params | {"centroids": clients.state["centroids"]}

    @torch.no_grad()
    def predict(self, params: Params, network: Network, data: Sequence[Batch]) -> torch.Tensor:
        return self._predict(params, network, data[0], Pairs(data[0]))

    @torch.no_grad()
    def predict_own(self, params: Params, clients: ClientBatch) -> torch.Tensor:
        return self._predict(params, clients.network, clients.batch, self._pairs(clients))

    def _predict(self, params: Params, network: Network, batch: Batch, pairs: Pairs) -> torch.Tensor:
        projected = affine(params, "first", batch.x, batch)
        links = Links(pairs, pairs.assign(projected, params["centroids"]), self.types)
        return scores(network.backbones[0], params, projected, links, batch, None)


def initial(backbone: Backbone, seed: int, features: int, classes: int, types: int) -> Params:
    """Return PyTorch's default for linear maps, Glorot and zero bias for convolutions, as in the released code."""
    source = torch_source(stream(seed, "initialisation"))
    h = backbone.hidden

    def uniform(n_in: int, *shape: int) -> torch.Tensor:
        return torch.empty(shape).uniform_(-(n_in**-0.5), n_in**-0.5, generator=source)

    params = {"first.weight": uniform(features, features, h), "first.bias": uniform(features, h)}
    params |= {"channel.weight": uniform(h, types, h, h), "channel.bias": uniform(h, types, h)}
    for i in range(backbone.layers):
        params[f"channel.{i}.weight"] = torch.stack([glorot(h, h, source) for _ in range(types)])
        params[f"channel.{i}.bias"] = torch.zeros(types, h)
    return params | {"out.weight": uniform(h, h, classes), "out.bias": uniform(h, classes)}


def scores(
    backbone: Backbone, params: Params, projected: torch.Tensor, links: Links, batch: Batch, streams: Streams | None
) -> torch.Tensor:
    """Return logits (N, C) from x' = W1 x (N, h). streams: given in training only."""

    def per_type(name: str, rows: torch.Tensor) -> torch.Tensor:
        return segment_product(rows, params[f"{name}.weight"].flatten(0, 1), links.sizes)

    def shift(name: str, rows: torch.Tensor) -> torch.Tensor:
        return segment_add(rows, params[f"{name}.bias"].flatten(0, 1), links.sizes)

    h = shift("channel", per_type("channel", links.spread @ projected))
    for i in range(backbone.layers):
        z = shift(f"channel.{i}", links.matrix @ per_type(f"channel.{i}", h))
        h = dropout(z, backbone.dropout, streams, links.wide, relu=True)
    return affine(params, "out", links.gather @ h, batch)


def matching(centres: torch.Tensor, centroids: torch.Tensor) -> torch.Tensor:
    """Return the centre (types,) of each centroid, one-to-one; the pair with the largest cosine is matched first."""
    similar = (F.normalize(centres, dim=1) @ F.normalize(centroids, dim=1).T).numpy().copy()
    group = torch.empty(len(centroids), dtype=torch.int64)
    for _ in range(len(centroids)):
        centre, centroid = divmod(int(similar.argmax()), len(centroids))
        group[centroid] = centre
        similar[centre], similar[:, centroid] = -np.inf, -np.inf
    return group


def group_mean(values: torch.Tensor, group: torch.Tensor, member: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Return means (types, ...) of values (n, types, ...) over each group; `old` for an empty group.

    group: (n, types) the group of each value; member: bool (n, types), the values that are used.
    """
    flat, place, counts = values.flatten(0, 1), group.flatten(), member.flatten()
    total = torch.zeros_like(old).index_add_(0, place[counts], flat[counts])
    number = of_shape(torch.bincount(place[counts], minlength=len(old)), old)
    return torch.where(number > 0, total / number.clamp(min=1), old)
