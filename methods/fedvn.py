"""FedVN: shared virtual nodes, linked to the nodes of each graph by a personal network per client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F

from ..benchmark.engine import (
    METHODS,
    Backbone,
    ClientBatch,
    Download,
    Forward,
    GraphModel,
    GraphRows,
    Params,
    Server,
    Streams,
    Tree,
    average,
    dropout,
    glorot,
    linear_maps,
    option,
    segment_sum,
    torch_source,
)
from .fedavg import FedAvg
from .parts.contrast import unit_rows
from .parts.encoders import Padded, linear, normalise

# -- the two networks --------------------------------------------------------------------------------------------------

GENERATOR = "generator."
HALF = 0.5  # initial mean links


@dataclass(frozen=True)
class Pass:
    """Options of a forward pass. streams: for dropout, None: no dropout. of_batch: BatchNorm uses the batch's
    statistics, not the running ones. track: the running statistics are updated."""

    streams: Streams | None = None
    of_batch: bool = False
    track: bool = False


SCORING, FIXED = Pass(), Pass(of_batch=True)


class VirtualModel(GraphModel):
    """M virtual nodes with values V (M, h) in each graph, linked to node i by s_i in (0, 1)^M.

    h = X W_in; in layer l, with V_0 = V: T = sum over the graph's nodes i of s_i h_i^T + V_l, h_i <- h_i + s_i V_l,
    h <- drop(ReLU(BN(MLP(h + sum over neighbours h)))), MLP linear h -> 2 h, BN, ReLU, linear 2 h -> h, and
    V_(l+1) = drop(ReLU(BN(f(ReLU(BN(f'(T))))))), f' h -> 2 h, f 2 h -> h, BN for each entry of each virtual node. The
    last layer has no ReLU and computes no V. Mean over nodes; z = linear h -> h; logits = linear head on drop(ReLU(z)).
    s = sigmoid of a network of the same layers without virtual nodes, then linear h -> h, ReLU, linear h -> M.

    Parameters: "generator." of the network of s, "virtual" for V.
    """

    virtual: int = option(20, "M, virtual nodes per graph", ge=1)

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        source, h, m = torch_source(generator), self.hidden, self.virtual
        maps = {"input": (features, h), "post": (h, h), "head": (h, classes)}
        norms: dict[str, int] = {}
        maps |= {f"generator.{name}": (features if name == "input" else h, h) for name in ("input", "post")}
        for i in range(self.layers):
            for part in (f"{i}", f"generator.{i}"):
                maps |= {f"{part}.inner": (h, 2 * h), f"{part}.outer": (2 * h, h)}
                norms |= {f"{part}.inner.norm": 2 * h, f"{part}.norm": h}
            if i < self.layers - 1:
                maps |= {f"{i}.virtual.inner": (h, 2 * h), f"{i}.virtual.outer": (2 * h, h)}
                norms |= {f"{i}.virtual.inner.norm": 2 * h * m, f"{i}.virtual.outer.norm": h * m}
        params = linear_maps(maps | {"generator.head": (h, m)}, source, self.linear_start)
        for name, width in norms.items():
            params |= {f"{name}.{key}": torch.ones(width) for key in ("weight", "running_var")}
            params |= {f"{name}.{key}": torch.zeros(width) for key in ("bias", "running_mean")}
        return params | {"virtual": glorot(m, h, source)}

    def forward(self, params: Params, batch: GraphRows, streams: Streams | None = None) -> Forward:  # type: ignore[override]
        """Return logits (B, C) of graphs; `pre` is [z], z (B, h)."""
        how = Pass(streams, streams is not None, streams is not None)
        return self.classify(params, batch, self.links(params, batch, SCORING), how)

    def links(self, params: Params, batch: GraphRows, how: Pass) -> torch.Tensor:
        """Return s (N, M) of all nodes."""
        sizes = batch.nodes.sizes
        h = linear(params, "generator.input", batch.of.x, sizes)
        for i in range(self.layers):
            h = self._layer(params, f"generator.{i}", h, batch, how, last=i == self.layers - 1)
        h = dropout(torch.relu(linear(params, "generator.post", h, sizes)), self.dropout, how.streams, sizes)
        return torch.sigmoid(linear(params, "generator.head", h, sizes))

    def classify(self, params: Params, batch: GraphRows, links: torch.Tensor, how: Pass) -> Forward:
        """Return the classifier's forward pass. links: s (N, M)."""
        padded, sizes = Padded.of(batch.of), batch.nodes.sizes
        h, virtual = linear(params, "input", batch.of.x, sizes), params["virtual"][batch.owner]
        for i in range(self.layers):
            last = i == self.layers - 1
            before = h
            h = self._layer(params, str(i), h + padded.spread(links, virtual), batch, how, last=last)
            if not last:
                virtual = self._virtual(params, f"{i}.virtual", padded.gathered(links, before) + virtual, batch, how)
        mean = segment_sum(h, batch.of.membership, len(batch.label)) / batch.lengths.unsqueeze(1)
        z = linear(params, "post", mean, batch.sizes)
        h = dropout(torch.relu(z), self.dropout, how.streams, batch.sizes)
        logits = linear(params, "head", h, batch.sizes)
        return Forward(batch.own_classes(logits), [z])

    def _layer(
        self, params: Params, part: str, h: torch.Tensor, batch: GraphRows, how: Pass, *, last: bool
    ) -> torch.Tensor:
        sizes = batch.nodes.sizes
        z = linear(params, f"{part}.inner", h + batch.nodes.sum @ h, sizes)
        z = torch.relu(self._normal(params, f"{part}.inner.norm", z, sizes, how))
        z = self._normal(params, f"{part}.norm", linear(params, f"{part}.outer", z, sizes), sizes, how)
        return dropout(z if last else torch.relu(z), self.dropout, how.streams, sizes)

    def _virtual(self, params: Params, part: str, values: torch.Tensor, batch: GraphRows, how: Pass) -> torch.Tensor:
        """Return V_(l+1) (B, M, h). values: T (B, M, h)."""
        sizes = tuple(n * self.virtual for n in batch.sizes)
        for name in (f"{part}.inner", f"{part}.outer"):
            rows = linear(params, name, values.flatten(0, 1), sizes).view(len(values), -1)
            rows = torch.relu(self._normal(params, f"{name}.norm", rows, batch.sizes, how))
            values = rows.view(len(values), self.virtual, -1)
        return dropout(rows, self.dropout, how.streams, batch.sizes).view_as(values)

    @staticmethod
    def _normal(params: Params, name: str, rows: torch.Tensor, sizes: tuple[int, ...], how: Pass) -> torch.Tensor:
        return normalise(params, name, rows, sizes, training=how.of_batch, track=how.track)


# -- the method --------------------------------------------------------------------------------------------------------


@METHODS.register("fedvn")
class FedVN(FedAvg):
    """Fu et al., AAAI 2025 ("Virtual Nodes Can Help"): sets of graphs, virtual nodes.

    Each graph gets M virtual nodes, with values V shared by all clients, and links s_i in (0, 1)^M to its nodes i from
    a personal generator network (VirtualModel). Client k, with the received classifier and V: first E epochs of its
    generator, all else fixed, on the mean over graphs of
        CE + link_weight softplus((cos(S, S') - cos(S, S_k)) / temperature),
    S the sum of a graph's s_i, S_k the mean S of the client's previous minibatch, S' the rival; then E epochs of
    classifier and V, generator fixed, on CE + spread_weight mean over pairs of corr(V_a, V_b)^2, the correlation over
    entries, pairs a = b included. Server and messages as FedAvg, of the classifier and V; the generator is not sent.
    Scored: the global classifier with the client's generator. A client trains twice and so takes twice as many steps as
    with FedAvg.

    S' is constant, 1 / M for all links, in the released code (`rival` "uniform"); with "mean" it is the mean over
    clients of S_k of the previous round, with M more scalars up and down. Width, depth and dropout are those of the
    run's backbone; the architecture is always the paper's. Written from the released code; the paper's text was not
    available. Departures: scoring, and the generator in the epochs of the classifier, normalise by running statistics,
    which are averaged too; the code has none and uses the statistics of the present graphs. V starts from Glorot's
    draw; in the code from 0, where the gradient of a correlation is unbounded. The code trains by SGD.
    """

    family = "personal"
    summary = "FedAvg on graphs with shared virtual nodes, linked by a personal network per client"
    title = "FedVN"
    venue = "AAAI 2025"
    paper_url = "https://arxiv.org/abs/2412.19229"
    code_url = "https://github.com/xbfu/FedVN"
    tasks = ("graph-classification",)
    delivers = "personal"

    virtual: int = option(20, "M, virtual nodes per graph (code: 20)", ge=1, tune=[5, 10, 20])
    spread_weight: float = option(0.1, "lambda_1, weight of the correlations of virtual nodes (code: 0.1)", ge=0)
    link_weight: float = option(1.0, "lambda_2, weight of the contrast of links (code: 1)", ge=0, tune=[0.1, 1.0, 10.0])
    temperature: float = option(0.1, "t, temperature of the contrast (code: 0.1)", gt=0)
    rival: Literal["uniform", "mean"] = option("uniform", "S': equal links (released code), or the mean over clients")

    def adapt(self, backbone: Backbone) -> Backbone:
        return backbone.turned_into(VirtualModel, encoder=backbone, virtual=self.virtual)

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        clients.state["links"] = torch.full((len(clients), self.virtual), HALF)

    def shared(self, params: Params) -> Params:
        return {name: value for name, value in params.items() if not name.startswith(GENERATOR)}

    def open(self, server: Server) -> Download:
        download = super().open(server)
        assert isinstance(download, dict)
        return download | ({"links": torch.full((self.virtual,), 1 / self.virtual)} if self.rival == "mean" else {})

    def client(self, clients: ClientBatch) -> Tree:
        clients.load(clients.received["model"])
        generator = {name: value for name, value in clients.params.items() if name.startswith(GENERATOR)}
        clients.fit(self.generator_loss, params=generator, name="generator")
        clients.fit(self.local_loss, params=self.shared(clients.params))
        links = {"links": clients.state["links"]} if self.rival == "mean" else {}
        return {"model": self.shared(clients.params), **links}

    def generator_loss(self, clients: ClientBatch) -> torch.Tensor:
        """Return the generator's loss (K,); keep the mean links of the minibatch for the next one."""
        model, batch = parts(clients)
        links = model.links(clients.params, batch, Pass(clients.streams, of_batch=True, track=True))
        loss = clients.cross_entropy(model.classify(clients.params, batch, links, FIXED).logits)
        total = segment_sum(links, batch.of.membership, len(batch.label))
        rows, owner = batch.rows["train"], batch.owner[batch.rows["train"]]
        unit = unit_rows(total[rows])
        uniform = torch.full((len(clients), self.virtual), 1 / self.virtual)
        rival = clients.received["links"] if self.rival == "mean" else uniform
        near, far = ((unit * unit_rows(fixed)[owner]).sum(1) for fixed in (clients.state["links"], rival))
        contrast = F.softplus((far - near) / self.temperature)
        self._keep_links(clients, total[rows].detach(), owner)
        return loss + self.link_weight * clients.mean_over(contrast, rows)

    @staticmethod
    def _keep_links(clients: ClientBatch, links: torch.Tensor, owner: torch.Tensor) -> None:
        """Keep the mean links of each client with graphs in this minibatch."""
        count = segment_sum(torch.ones_like(owner), owner, len(clients)).unsqueeze(1)
        mean = segment_sum(links, owner, len(clients)) / count.clamp(min=1)
        clients.state["links"] = torch.where(count > 0, mean, clients.state["links"])

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        values = clients.params["virtual"]
        centred = values - values.mean(2, keepdim=True)
        unit = unit_rows(centred)
        correlation = (unit @ unit.mT).square().mean((1, 2))
        return super().local_loss(clients) + self.spread_weight * correlation

    def server(self, server: Server, uploads: Tree) -> Download:
        download = super().server(server, {"model": uploads["model"]})
        assert isinstance(download, dict)
        return download | ({"links": average(uploads["links"], server.weights)} if self.rival == "mean" else {})

    def global_model(self, server: Server) -> Params | None:
        return None  # a generator is needed for predictions

    def personal_model(self, clients: ClientBatch) -> Params | None:
        return clients.params | clients.received["model"]


def parts(clients: ClientBatch) -> tuple[VirtualModel, GraphRows]:
    """Return the model, and the graphs of the step."""
    model, batch = clients.network.groups[0].backbone, clients.batch
    assert isinstance(model, VirtualModel)
    assert isinstance(batch, GraphRows)
    return model, batch
