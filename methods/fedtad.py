"""FedTAD: the server distils the clients' models into their average on a generated graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

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
    Facts,
    Params,
    Phase,
    Server,
    Step,
    Streams,
    TrainConfig,
    Tree,
    affine,
    dropout,
    linear_maps,
    option,
    owners,
    placed,
    segment_sum,
    torch_source,
)
from .fedavg import FedAvg
from .fedpub import tiled
from .parts.encoders import linear

NOISE, WIDTHS = 32, (64, 128, 256)  # the generator of the released code
CHUNK = 512  # start nodes of random walks that are computed together


@METHODS.register("fedtad")
class FedTAD(FedAvg):
    """Zhu et al., IJCAI 2024 (arXiv 2404.14061): topology-aware data-free knowledge distillation.

    Once, client k: its reliability on class c, Phi_kc = sum over its training nodes i of class c of
        (1 + sum_{j in N(i)} cos(h_i, h_j)) / (|N(i)| + 1),  h = [features, topology].
    Rounds: FedAvg; then at the server, `server_epochs` times, with p_kc = Phi_kc / sum_k Phi_kc over the participants:
        a generator G makes `generated` nodes x = G(z, c) from noise z (32) and classes c in equal numbers; each node is
        joined, in both directions, to the `neighbours` nearest nodes by cosine (itself is one of them);
        G takes a step on  lam_semantic sum_kc p_kc CE_c(theta_k)
                           + lam_diversity K exp(-mean_ij |z_i - z_j|^2 |x_i - x_j|)  - sum_kc p_kc D_c(theta, theta_k),
        CE_c and D_c are means over nodes of class c; D_c of |difference of logits|, the logits of theta_k fixed;
        the global theta takes `steps` steps on sum_kc p_kc D_c(theta, theta_k).
    Messages: C scalars Phi_k up once; theta up and down. The generator is at the server only and uses no data.
    Scored: theta after distillation. Without server epochs it is FedAvg.

    Departures and readings. The topology of a node is its return probabilities after 1 to `walks` steps of a random
    walk with self-loops. The released code uses the numbers of the nodes that one walk visits; they depend on the
    numbering of nodes and are much larger than the features. The server's passes have no dropout; the released ones
    always have it, by mistake, also in teachers. |z_i - z_j|^2 and |x_i - x_j| are means over coordinates, as released.
    """

    family = "distillation"
    summary = "FedAvg; the server distils each client's reliable classes into the average on a generated graph"
    title = "FedTAD"
    venue = "IJCAI 2024"
    paper_url = "https://arxiv.org/abs/2404.14061"
    code_url = "https://github.com/zyl24/FedTAD"
    tasks = ("node",)
    heterogeneous_features = False

    server_epochs: int = option(5, "epochs of generator and distillation at the server (code: 5)", ge=0, tune=[1, 5])
    steps: int = option(5, "steps of the global model per server epoch (code: 5)", ge=1)
    lr_generator: float = option(1e-3, "Adam rate of the generator (code: 1e-3)", gt=0)
    lr_server: float = option(1e-3, "Adam rate of the distillation (code: 1e-3)", gt=0, tune=[1e-4, 1e-3, 1e-2])
    generated: int = option(100, "generated nodes, at least one per class (code: 100)", ge=2)
    neighbours: int = option(5, "nearest nodes to which a generated node is joined (code: 5)", ge=1)
    lam_semantic: float = option(1.0, "weight of the teachers' cross-entropy (code: 1)", ge=0)
    lam_diversity: float = option(1.0, "weight of the diversity (code: 1)", ge=0)
    walks: int = option(5, "steps of the random walks (code: 5)", ge=0)
    on: Literal["features", "hidden"] = option(
        "features", "generated: features, or the last layer's inputs (code: raw_distill, its default; rep_distill)"
    )

    def skip(self, facts: Facts, backbones: Sequence[Backbone]) -> str | None:
        if self.on == "hidden" and any(len(b.widths(1, 1)) < 2 and not b.linear_head for b in backbones):
            return f"{self.name} generates inputs of the last layer, and here it is the only one: choose on=features"
        return super().skip(facts, backbones)

    def phases(self, config: TrainConfig) -> list[Phase]:
        reliability = Phase((Step(self.tell, self.note),), 1, scored=False, name="reliability", everyone=True)
        return [reliability, *super().phases(config)]

    def open(self, server: Server) -> Download:
        return {}

    # -- reliability ------------------------------------------------------------------------------------------------

    def tell(self, clients: ClientBatch) -> Tree:
        """Upload the reliability Phi (K, C)."""
        batch, owner = clients.batch, clients.batch.owner
        source, target = batch.ends
        train = batch.masks["train"]
        kept = train[target]  # edges that end at a training node
        source, target = source[kept], target[kept]
        cosines = torch.zeros(len(train)).index_add_(0, target, self._cosines(clients, source, target))
        mean = (1 + cosines) / (batch.degrees + 1)
        rows = batch.rows["train"]
        slot = owner[rows] * clients.classes + batch.label[rows]
        return {"reliability": segment_sum(mean[rows], slot, len(clients) * clients.classes).view(len(clients), -1)}

    def _cosines(self, clients: ClientBatch, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Return the cosines (edges,) of both ends' [features, topology]."""
        value = clients.batch.x.value
        x: Any = value if sp.issparse(value) else sp.csr_matrix(value.cpu().numpy())
        u, v = (ends.numpy() for ends in clients.batch.graph.edges(order="eid"))
        n = len(x.indptr) - 1
        graph = sp.csr_matrix((np.ones(len(u), np.float32), (u, v)), shape=(n, n))
        walks = [returns(graph[start:stop, start:stop], self.walks) for start, stop in pairwise(clients.batch.offsets)]
        h = sp.hstack([x, np.concatenate(walks)], "csr")
        norm = np.sqrt(np.asarray(h.multiply(h).sum(1)).ravel()).clip(1e-8)
        a, b = source.cpu().numpy(), target.cpu().numpy()
        dots = [
            np.asarray(h[a[i : i + 65536]].multiply(h[b[i : i + 65536]]).sum(1)).ravel()
            for i in range(0, len(a), 65536)
        ]
        return placed(torch.from_numpy(np.concatenate([*dots, np.zeros(0)]) / (norm[a] * norm[b])).float())

    def note(self, server: Server, uploads: Tree) -> Download:
        server.state["reliability"] = uploads["reliability"]
        model = server.state["model"] = server.initial_model()
        width = server.features if self.on == "features" else server.backbones[0].hidden
        draws = torch_source(server.generator)
        generator = fresh_generator(draws, server.classes, NOISE, width)
        server.state["generator"] = {name: placed(value).requires_grad_(True) for name, value in generator.items()}
        server.state["student"] = {name: value.clone().requires_grad_(True) for name, value in model.items()}
        decay = server.config.weight_decay
        server.state["optimisers"] = [
            torch.optim.Adam(server.state[name].values(), lr=lr, weight_decay=decay)
            for name, lr in (("generator", self.lr_generator), ("student", self.lr_server))
        ]
        return {"model": model}

    # -- distillation -----------------------------------------------------------------------------------------------

    def server(self, server: Server, uploads: Tree) -> Download:
        download = super().server(server, uploads)
        if not self.server_epochs:
            return download
        student: Params = server.state["student"]
        for name, value in server.state["model"].items():
            student[name].data.copy_(value)
        self._distil(server, uploads["model"])
        server.state["model"] = {name: value.detach().clone() for name, value in student.items()}
        return {"model": server.state["model"]}

    def _distil(self, server: Server, teachers: Params) -> None:
        classes, backbone, student = server.classes, server.backbones[0], server.state["student"]
        reliability = server.state["reliability"][server.participants]
        share = reliability / reliability.sum(0).clamp(min=1e-12)
        n, clients = max(self.generated, classes), len(share)
        label = (torch.arange(n) // (n // classes)).clamp(max=classes - 1)
        of_generator, of_student = server.state["optimisers"]
        for _ in range(self.server_epochs):
            z = placed(torch.from_numpy(server.generator.standard_normal((n, NOISE), dtype=np.float32)))
            x = generated({name: v[None] for name, v in server.state["generator"].items()}, z, label, (n,))
            edge = nearest(x.detach(), self.neighbours)
            taught = self._logits(backbone, teachers, x, tiled(x, edge, clients))
            own = self._logits(backbone, {name: v.detach()[None] for name, v in student.items()}, x, tiled(x, edge, 1))
            errors = F.cross_entropy(taught.transpose(1, 2), label.expand(clients, n), reduction="none")
            loss = self.lam_semantic * (share * per_class(errors, label, classes)).sum()
            loss = loss + self.lam_diversity * clients * alikeness(z, x)
            loss = loss - gap(own, taught.detach(), share, label)
            of_generator.zero_grad()
            loss.backward()
            of_generator.step()
            with torch.no_grad():
                x = generated({name: v[None] for name, v in server.state["generator"].items()}, z, label, (n,))
                edge = nearest(x, self.neighbours)
                taught = self._logits(backbone, teachers, x, tiled(x, edge, clients))
            graph = tiled(x, edge, 1)
            for _ in range(self.steps):
                of_student.zero_grad()
                own = self._logits(backbone, {name: v[None] for name, v in student.items()}, x, graph)
                gap(own, taught, share, label).backward()
                of_student.step()

    def _logits(self, backbone: Backbone, models: Params, x: torch.Tensor, graph: Batch) -> torch.Tensor:
        """Return logits (K, n, C) of K models on the generated nodes x. graph: their graph, once per model."""
        if self.on == "features":
            out = backbone.forward(models, graph).logits
        elif backbone.linear_head:
            out = affine(models, "head", x.repeat(graph.clients, 1), graph)
        else:
            out = backbone.layer(models, backbone.layers - 1, x.repeat(graph.clients, 1), graph)
        return out.view(graph.clients, len(x), -1)


def returns(graph: sp.csr_matrix, walks: int) -> np.ndarray:
    """Return the probabilities (n, walks) that a random walk with self-loops returns after 1, 2, ... steps."""
    n = graph.shape[0]
    looped = graph + sp.identity(n, np.float32, "csr")
    step = sp.diags(1 / np.asarray(looped.sum(1)).ravel()) @ looped
    returned = np.zeros((n, walks), np.float32)
    for start in range(0, n, CHUNK):
        stop = min(start + CHUNK, n)
        reached = np.eye(stop - start, n, start, np.float32).T  # (n, starts): probabilities of each node
        for i in range(walks):
            reached = step.T @ reached
            returned[start:stop, i] = reached[np.arange(start, stop), np.arange(stop - start)]
    return returned


def fresh_generator(source: torch.Generator, classes: int, noise: int, width: int) -> Params:
    """Return a vector (C) per class, and an MLP noise + C -> 64 -> 128 -> 256 -> width with PyTorch's default start."""
    params = {"class": torch.randn(classes, classes, generator=source)}
    maps = {str(i): shape for i, shape in enumerate(pairwise((noise + classes, *WIDTHS, width)))}
    return params | linear_maps(maps, source, "torch")


def generated(
    params: Params,
    noise: torch.Tensor,
    label: torch.Tensor,
    sizes: tuple[int, ...],
    streams: Streams | None = None,
    rate: float = 0.0,
) -> torch.Tensor:
    """Return nodes (n, width) of classes `label` (n,) from noise (n, z), by K generators (K, ...). sizes: nodes per
    generator. With streams, hidden layers have dropout of this rate.
    """
    h = torch.cat([params["class"][owners(sizes), label], noise], 1)
    for i in range(len(WIDTHS)):
        h = dropout(torch.tanh(linear(params, str(i), h, sizes)), rate, streams, sizes)
    return linear(params, str(len(WIDTHS)), h, sizes)


def nearest(x: torch.Tensor, neighbours: int) -> torch.Tensor:
    """Return edges (2, m), both directions, of each node to the `neighbours` nearest by cosine; itself counts, without
    an edge."""
    unit = F.normalize(x, dim=1)
    near = (unit @ unit.T).topk(min(neighbours, len(x)), dim=1).indices
    joined = torch.zeros(len(x), len(x), dtype=torch.bool).scatter_(1, near, True)
    return (joined | joined.T).fill_diagonal_(False).nonzero().T


def per_class(values: torch.Tensor, label: torch.Tensor, classes: int) -> torch.Tensor:
    """Return means (K, C) of values (K, n) over the nodes of each class. label: (n,)."""
    member = F.one_hot(label, classes).float()
    return values @ (member / member.sum(0))


def gap(student: torch.Tensor, teachers: torch.Tensor, share: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Return sum_kc share_kc D_c. student: (1, n, C); teachers: (K, n, C); share: (K, C)."""
    return (share * per_class((student - teachers).abs().mean(2), label, share.shape[1])).sum()


def alikeness(z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return exp(-mean_ij |z_i - z_j|^2 |x_i - x_j|), squares and absolute values as means over coordinates."""
    far = F.pdist(z).square() / z.shape[1] * F.pdist(x, p=1) / x.shape[1]  # i < j
    return torch.exp(-2 * far.sum() / len(x) ** 2)
