"""GHOST: one round; clients send generators of graphs, and the server trains the global model on generated graphs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F

from ..benchmark.engine import (
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
    Diverged,
    Download,
    Params,
    Phase,
    Server,
    Skip,
    Step,
    TrainConfig,
    Tree,
    option,
    placed,
)
from .fedavg import FedAvg
from .fedpub import tiled
from .fedtad import fresh_generator, generated, nearest

NOISE, DROPOUT = 64, 0.2  # the generator of the released code
TRANSPORTS = 5  # steps of the Frank-Wolfe algorithm


@METHODS.register("ghost")
class GHOST(FedAvg):
    """Qian, Wan, Huang, Zhang, Wu, Du, Ye, ICML 2025: one-shot, with proxy-based topology knowledge retention.

    Client k, in the only round: a generator x = G_k(z, c), of noise z (64) and class c, is trained for `epochs` epochs,
    in each with new z_i and the class y_i for each of its n training nodes i, on
        lam_divergence mean_i KL(softmax x_i || softmax x~_i) + mean_i (1 - cos(x_i, x~_i)) + lam_topology FGW.
    FGW is the fused Gromov-Wasserstein distance, alpha = 1/2, between its graph on training nodes with features x and
    the graph of the generated nodes; each generated node is joined, in both directions, to the `neighbours` nearest
    nodes by cosine (itself is one of them).
    Server: for each client in turn and `graphs` times: n_k generated nodes with all classes in equal numbers, joined as
    above, n_k the client's weight by the training configuration's `weighting`; the criterion c = |gradient for theta of
    sum over edges ij of ((h_i W)^T tanh(h_j W))^2|, h the first layer's output and W its weights; then `steps` steps of
    Adam on the mean cross-entropy + lam_retention sum over earlier graphs g of c_g (theta - theta_g)^2, theta_g the
    model after the steps on g.
    Messages: G_k up, once; nothing down. Scored: theta after the round.

    Budget: a client's epochs are at most those of all rounds of the suite, which the only round may use (see
    docs/protocol.md, "One round").

    Departures. The released generator gets the labels of all nodes, here of training nodes only. By mistake its
    generated graph has only self-loops in FGW, and its criterion counts self-loops twice and adds the gradient of the
    last step; here self-loops do not count, and no gradient is added. The norm of the criterion, which it adds to the
    loss, has no gradient and is left out. FGW's plan is computed from the uniform one by 5 steps of the Frank-Wolfe
    algorithm (with equal weights each step is an assignment; released: until convergence) and has no gradient. The
    released order of clients is random. The server's passes have no dropout (released: 0.2 in generators, 0.3 in the
    model). The generator's rate and decay are the run's (released: Adam 0.005, 4e-4). With order, dropout, rates and
    width 128 as released, Photo of `leaderboard` has 23 (here 20; means of 5 draws at the server), Cora 65 (66; 3
    draws), CiteSeer 72 (69; one draw).

    Low accuracy. All classes in equal numbers and clients in turn are as released. On `leaderboard`, seed 0, it has
    Photo 22.7, Cora 66.5, CiteSeer 67.6 (FedAvg 83.0, 79.3, 73.1). The generators are good: with classes drawn in the
    shares of the client's training nodes, and 150 steps on the mean loss of all clients' graphs, the same ones give 89,
    80, 74. One of the two changes is not enough. Generated nodes of classes of which a client has few nodes or none are
    wrong: in equal numbers these steps give 26 to 54, 66, 73. The model forgets earlier clients: in turn, with the
    shares, 24, 75, 68. No `lam_retention` from 0 to 1 prevents it: Photo has 13 to 23, Cora 66 to 67 with 0 to 1e-9 and
    41 with 1. With the released clients (classes divided by Dirichlet(0.05), scored on the graph of all test nodes) and
    settings, four runs have 6 to 22 on Photo and 31 to 50 on Cora.
    """

    family = "distillation"
    summary = "one round: clients send generators of graphs, and the server trains the model on generated graphs"
    title = "GHOST"
    venue = "ICML 2025"
    paper_url = "https://proceedings.mlr.press/v267/qian25a.html"
    code_url = "https://github.com/JiaruQian/GHOST"
    tasks = ("node",)
    heterogeneous_features = False

    epochs: int = option(
        100,
        "epochs of the generator, no more than the suite's rounds times local epochs (code: 100)",
        ge=1,
        tune=[30, 100, 300],
    )
    graphs: int = option(3, "generated graphs per client (code: 3)", ge=1)
    steps: int = option(5, "steps of the global model per graph (code: 5)", ge=1)
    neighbours: int = option(5, "nearest nodes to which a generated node is joined (code: 5)", ge=1)
    lam_divergence: float = option(0.05, "weight of the divergence (code: 0.05)", ge=0)
    lam_topology: float = option(0.1, "weight of FGW (code: 0.1)", ge=0)
    lam_retention: float = option(
        1e-11,
        "weight of the penalty for earlier graphs (code: 1 times `r_scale`, 1e-11; paper: a weight)",
        ge=0,
        tune=[1e-11, 1e-3, 1.0],
    )
    lr_server: float = option(0.01, "Adam rate of the server (code: 0.01)", gt=0)

    def phases(self, config: TrainConfig) -> list[Phase]:
        return [Phase((Step(self.client, self.server),), 1)]

    def open(self, server: Server) -> Download:
        server.state["model"] = server.initial_model()
        return {}

    def personal_model(self, clients: ClientBatch) -> Params | None:
        return None

    # -- client -----------------------------------------------------------------------------------------------------

    def prepare(self, clients: ClientBatch) -> None:
        seeds = [int(draws.integers(2**63)) for draws in clients.streams("generator")]
        sources = [torch.Generator().manual_seed(seed) for seed in seeds]
        drawn = [fresh_generator(source, clients.classes, NOISE, clients.features) for source in sources]
        clients.params = {name: placed(torch.stack([params[name] for params in drawn])) for name in drawn[0]}

    def client(self, clients: ClientBatch) -> Tree:
        batch, rows = clients.batch, clients.batch.rows["train"]
        sizes = tuple(batch.counts["train"])
        real, edges = batch.x.dense()[rows], self.edges(clients)

        def loss(clients: ClientBatch) -> torch.Tensor:
            draws = zip(clients.streams("noise"), sizes, strict=True)
            noise = [source.standard_normal((n, NOISE), np.float32) for source, n in draws]
            z = placed(torch.from_numpy(np.concatenate(noise)))
            made = generated(clients.params, z, batch.label[rows], sizes, clients.streams, DROPOUT)
            divergence = F.kl_div(made.log_softmax(1), real.softmax(1), reduction="none").sum(1)
            node_loss = self.lam_divergence * divergence + 1 - F.cosine_similarity(real, made, dim=1)
            pairs = zip(real.split(sizes), made.split(sizes), edges, strict=True)
            topology = torch.stack([fused(*pair, self.neighbours) for pair in pairs])
            return clients.mean_over(node_loss, rows) + self.lam_topology * topology

        clients.fit(loss, min(self.epochs, clients.config.total_epochs))
        return {"generator": clients.params}

    def edges(self, clients: ClientBatch) -> list[torch.Tensor]:
        """Return the adjacency matrix (n, n) of each client's graph on its training nodes."""
        graphs, sums = [], clients.batch.sum.scipy()
        train = clients.batch.masks["train"].cpu().numpy()
        for start, stop in pairwise(clients.batch.offsets):
            rows = np.flatnonzero(train[start:stop]) + start
            graphs.append(placed(torch.from_numpy(sums[rows][:, rows].toarray())))
        return graphs

    # -- server -----------------------------------------------------------------------------------------------------

    def server(self, server: Server, uploads: Tree) -> Download:
        model = {name: v.clone().requires_grad_(True) for name, v in server.state["model"].items()}
        optimiser = torch.optim.Adam(model.values(), lr=self.lr_server, weight_decay=server.config.weight_decay)
        weight = {name: torch.zeros_like(v) for name, v in model.items()}  # sum of c_g, and of c_g theta_g
        anchor = {name: torch.zeros_like(v) for name, v in model.items()}
        for i, k in enumerate(server.participants):
            generator = {name: value[i : i + 1] for name, value in uploads["generator"].items()}
            for _ in range(self.graphs):
                batch, label = self.proxy(server, generator, max(int(server.sizes[k]), server.classes))
                importance = criterion(server.backbones[0], model, batch)
                for _ in range(self.steps):
                    optimiser.zero_grad()
                    logits = server.backbones[0].forward({n: v[None] for n, v in model.items()}, batch).logits
                    penalty = sum((weight[n] * v * v - 2 * anchor[n] * v).sum() for n, v in model.items())
                    (F.cross_entropy(logits, label) + self.lam_retention * penalty).backward()
                    optimiser.step()
                for name, value in importance.items():
                    weight[name] += value
                    anchor[name] += value * model[name].detach()
        server.state["model"] = {name: value.detach().clone() for name, value in model.items()}
        return {}

    @torch.no_grad()
    def proxy(self, server: Server, generator: Params, n: int) -> tuple[Batch, torch.Tensor]:
        """Return a generated graph of n nodes and its labels (n,)."""
        label = placed(torch.from_numpy(np.sort(np.arange(n) % server.classes)))
        z = placed(torch.from_numpy(server.generator.standard_normal((n, NOISE), dtype=np.float32)))
        x = generated(generator, z, label, (n,))
        return tiled(x, nearest(x, self.neighbours), 1), label


def fused(real: torch.Tensor, made: torch.Tensor, edges: torch.Tensor, neighbours: int) -> torch.Tensor:
    """Return the part of FGW, alpha = 1/2, with gradient: sum_ij T_ij |x_i - x~_j|^2 / 2 for the plan T (n, n)."""
    if not len(real):
        return real.new_zeros(())
    cost = (real * real).sum(1, keepdim=True) - 2 * real @ made.T + (made * made).sum(1)
    if not cost.isfinite().all():
        raise Diverged("the generated features are not finite")
    with torch.no_grad():
        joined = torch.zeros_like(edges)
        joined[tuple(nearest(made, neighbours))] = 1
        share = plan(cost.double().cpu().numpy(), edges.double().cpu().numpy(), joined.double().cpu().numpy())
    return (placed(torch.from_numpy(share)).to(cost.dtype) * cost).sum() / 2


def plan(cost: np.ndarray, a: np.ndarray, b: np.ndarray, steps: int = TRANSPORTS) -> np.ndarray:
    """Return a transport plan (n, n) with equal weights and small sum T cost + sum (a_ij - b_kl)^2 T_ik T_jl."""
    from scipy.optimize import linear_sum_assignment  # the import takes half a second

    n = len(cost)
    transport = np.full((n, n), 1 / n**2)
    linear = cost + ((a * a).sum(1)[:, None] + (b * b).sum(1)) / n
    for _ in range(steps):
        mixed = a @ transport @ b
        row, column = linear_sum_assignment(linear - 4 * mixed)
        move = -transport
        move[row, column] += 1 / n
        square, slope = -2 * ((a @ move @ b) * move).sum(), ((linear - 4 * mixed) * move).sum()
        length = min(1.0, max(0.0, -slope / (2 * square))) if square > 0 else float(square + slope < 0)
        if not length:
            break
        transport = transport + length * move
    return transport


def criterion(backbone: Backbone, model: Params, batch: Batch) -> Params:
    """Return the criterion c of each parameter that has a gradient."""
    params = {name: value.detach().clone().requires_grad_(True) for name, value in model.items()}
    out = backbone.forward({name: v[None] for name, v in params.items()}, batch)
    if not out.pre:
        return {}
    h = out.hidden[0]
    matrix = next(value for value in params.values() if value.dim() == 2)
    if matrix.shape[1] != h.shape[1]:  # GraphSAGE has two matrices side by side
        raise Skip("its criterion needs one matrix of weights in the first layer: choose another architecture, as gcn")
    image = h @ matrix.T
    source, target = batch.ends
    loss = ((image[source] * image[target].tanh()).sum(1) ** 2).sum()
    grads = torch.autograd.grad(loss, list(params.values()), allow_unused=True)
    return {name: grad.abs() for name, grad in zip(params, grads, strict=True) if grad is not None}
