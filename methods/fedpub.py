"""FED-PUB: personalised averaging by functional similarity, with private weight masks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from ..benchmark.engine import (
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
    Download,
    Features,
    Params,
    Phase,
    Server,
    Step,
    Tensors,
    TrainConfig,
    Tree,
    as_graph,
    of_shape,
    option,
    section,
)
from .fedavg import LocalTraining
from .parts.personal import cosine, mix

BLOCKS, BLOCK_SIZE, P_IN = 5, 100, 0.1  # the proxy graph of the released code


@METHODS.register("fed-pub")
class FedPub(LocalTraining):
    """Baek et al., ICML 2023 (arXiv 2206.10206): personalised averaging by functional similarity, masked weights.

    Client k: weights W_k * mu_k with private masks mu_k on all layers and on a linear classifier after them; biases are
    not masked. Loss CE + l1 ||mu_k||_1 + proximal sum_W ||W_k - W'_k||_2 over the tensors of the received model W', not
    squared; the last term is left out in the first round. Outside training, masks with absolute value below `prune` are
    0. The functional embedding f_k is the mean over nodes of the last hidden layer, before activation, on one random
    graph for all clients: 5 blocks of 100 nodes, edges with probability 0.1 within a block, features N(0, 1).
    Server: client i gets sum_j a_ij theta_j, a_ij = exp(scale cos(f_i, f_j)) / sum_j exp(scale cos(f_i, f_j)).

    Messages: theta and f_k (h) up, a personal theta down; masks are not sent. The random graph, (500, d) features and
    its edges (2, m) int64, is sent down once before the rounds. Scored: the client's masked model after training. A
    client that skips rounds keeps its last download.

    Departures. The released code computes both penalties from detached tensors, so they have no gradient:
    `as_released`. Its l1 = 1e-3 therefore has no effect; with gradient, Adam would reduce most masks to 0 and with them
    the accuracy, so the default is smaller. Weight decay applies to W and not to the masks, which have the L1 penalty
    (`as_released`: to both). Width, decay, epochs and features are the run's; the released code has h = 128, decay
    1e-6, E = 1 on Cora and features divided by their row sums.
    """

    family = "personal"
    summary = "averages clients by the similarity of their models' outputs, with private masks on the weights"
    title = "Fed-PUB"
    venue = "ICML 2023"
    paper_url = "https://arxiv.org/abs/2206.10206"
    code_url = "https://github.com/JinheonBaek/FED-PUB"
    revision: ClassVar[int] = 2

    delivers = "personal"

    l1: float = option(
        1e-5,
        "L1 weight of the masks; our choice on validation (code: 1e-3, no effect)",
        ge=0,
        tune=[1e-6, 1e-5, 1e-4, 1e-3],
    )
    prune: float = option(1e-3, "size below which a mask counts as 0 outside training (code: 1e-3)", ge=0)
    proximal: float = option(1e-3, "weight of the distance to the received model (code: 1e-3)", ge=0)
    scale: float = option(
        10.0,
        "tau, factor of the cosines in the softmax (code: 10, scripts: 3 disjoint, 5 overlapping; OpenFGL: 10)",
        ge=0,
        tune=[1.0, 5.0, 10.0],
    )
    as_released: bool = option(False, "penalties without gradient, weight decay on masks (released code)")

    def adapt(self, backbone: Backbone) -> Backbone:
        return backbone.model_copy(update={"linear_head": True})

    # -- exchange ---------------------------------------------------------------------------------------------------

    def phases(self, config: TrainConfig) -> list[Phase]:
        proxy = Phase((Step(self.keep_proxy, self.start),), 1, scored=False, name="proxy graph", everyone=True)
        return [proxy, *super().phases(config)]

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        masks = {name: torch.ones_like(value) for name, value in clients.params.items() if name.endswith("weight")}
        clients.state["mask"] = masks

    def open(self, server: Server) -> Download:
        return proxy_graph(server.generator, server.features)

    def keep_proxy(self, clients: ClientBatch) -> Tree:
        # The same tensor for each client, because state has one entry per client.
        clients.state["proxy"] = {name: list(value) for name, value in clients.received.items()}
        return {}

    def start(self, server: Server, uploads: Tree) -> Download:
        return {"model": server.initial_model()}

    def client(self, clients: ClientBatch) -> Tree:
        clients.load(clients.received["model"])
        trained = clients.params | {f"mask.{name}": mask for name, mask in clients.state["mask"].items()}
        clients.fit(self.local_loss, params=trained, adjust=None if self.as_released else self.penalised)
        return {"model": clients.params, "function": self.function(clients)}

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        return clients.cross_entropy(clients.forward(masked(clients.params, clients.state["mask"])).logits)

    @torch.no_grad()
    def penalised(self, clients: ClientBatch, grads: Tensors) -> Tensors:
        """Return the gradients plus those of both penalties, in closed form, because autograd takes twice the time."""
        with_penalties = dict(grads)
        for name, mask in clients.state["mask"].items():
            # Subtract weight_decay * mask, which the optimiser will add.
            penalty = mask.sign().mul_(self.l1).sub_(mask, alpha=clients.config.weight_decay)
            with_penalties[f"mask.{name}"] = grads[f"mask.{name}"] + penalty
        if clients.round > 1:
            for name, received in clients.received["model"].items():
                gap = clients.params[name] - received
                norm = gap.flatten(1).norm(dim=1).clamp_(min=torch.finfo(gap.dtype).tiny)  # gradient 0 at distance 0
                with_penalties[name] = grads[name].addcmul(gap, of_shape(self.proximal / norm, gap))
        return with_penalties

    @torch.no_grad()
    @section("proxy graph")
    def function(self, clients: ClientBatch) -> torch.Tensor:
        """Return the functional embeddings (K, h) of the clients."""
        if "proxy" not in clients.cache:
            proxy = clients.state["proxy"]
            clients.cache["proxy"] = tiled(proxy["feature"][0], proxy["edge"][0], len(clients))
        hidden = clients.network.forward(self.personal_model(clients), (clients.cache["proxy"],)).pre[-1]
        return hidden.view(len(clients), -1, hidden.shape[1]).mean(1)

    def server(self, server: Server, uploads: Tree) -> Download:
        return mix(server, uploads["model"], (self.scale * cosine(uploads["function"])).softmax(1))

    # -- evaluation -------------------------------------------------------------------------------------------------

    def personal_model(self, clients: ClientBatch) -> Params:
        masks = {n: mask * (mask.abs() >= self.prune) for n, mask in clients.state["mask"].items()}
        return masked(clients.params, masks)


def masked(params: Params, masks: Params) -> Params:
    """Return the parameters, multiplied by their masks if they have one."""
    return params | {name: params[name] * mask for name, mask in masks.items()}


def proxy_graph(generator: np.random.Generator, features: int) -> Tree:
    """Return a random graph of separate blocks: "feature" (n, features) and "edge" (2, m), both directions."""
    one, other = np.triu_indices(BLOCK_SIZE, 1)
    ends = []
    for block in range(BLOCKS):
        drawn = generator.random(len(one)) < P_IN
        ends.append(np.stack([one[drawn], other[drawn]]) + block * BLOCK_SIZE)
    pairs = np.concatenate(ends, 1)
    feature = generator.standard_normal((BLOCKS * BLOCK_SIZE, features), dtype=np.float32)
    edge = np.concatenate([pairs, pairs[::-1]], 1)
    return {"feature": torch.from_numpy(feature), "edge": torch.from_numpy(edge)}


class _Repeated(Features):
    """The same dense rows for K clients, stored once."""

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        return (self.value @ weight).flatten(0, 1)


def tiled(feature: torch.Tensor, edge: torch.Tensor, clients: int) -> Batch:
    """Return K copies of the graph, one per client, as one batch without labels."""
    n = len(feature)
    shift = n * torch.arange(clients).view(-1, 1)
    graph = as_graph((edge[0] + shift).flatten(), (edge[1] + shift).flatten(), n * clients)
    sizes = (n,) * clients
    ids, unlabelled = torch.arange(n).repeat(clients), torch.full((n * clients,), -1)
    return Batch(graph, _Repeated(feature, sizes), sizes, unlabelled, {}, ids)
