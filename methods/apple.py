"""APPLE: each client learns a weight for each client's model; their weighted sum is its personal model."""

from __future__ import annotations

import math
from typing import Literal

import torch

from ..benchmark.engine import METHODS, ClientBatch, Download, Params, Server, Tensors, Tree, of_shape, option
from .fedavg import LocalTraining

RELATION = "relation"  # p_i - p_0
LEAST = 1e-3  # epsilon of the exponential schedule in the released code


@METHODS.register("apple")
class Apple(LocalTraining):
    """Luo, Wu, IJCAI 2022 (arXiv 2110.08394): adaptive personalised cross-silo federated learning.

    Client i has a core model theta_i and directed relationships p_i, one number per client. Its personal model is
    sum_j p_ij theta_j, with the received core models of the others. E epochs on
        L_i(sum_j p_ij theta_j) + lambda(r) mu ||p_i - p_0||^2
    train theta_i and p_i; all other theta_j are fixed. p_i starts at p_0, the clients' shares by the training
    configuration's `weighting`. In round r (from 0) of R, lambda is 0.001^(r / L) or (1 + cos(pi r / L)) / 2, and 0
    from round L = `last` R on. Server: keeps the core models and sends all of them to all clients.
    Messages: theta_i up; K core models (also theta_i) and K shares down; p_i is not sent. Scored: the personal models,
    with the core models of the next download.

    Departures: p_i has a separate learning rate and plain gradient steps, and core models have the run's optimiser; the
    released code uses momentum 0.9 for both, draws each core model at random (here all start equal), and scores before
    the new core models of others arrive. The paper halves mu, the released code does not. The number of core models
    that a client receives in a round is not limited.
    """

    family = "personal"
    summary = "each client learns by gradient a weight for each client's model in its personal model"
    title = "APPLE"
    venue = "IJCAI 2022"
    paper_url = "https://arxiv.org/abs/2110.08394"
    code_url = "https://github.com/ljaiverson/pFL-APPLE"
    tasks = ("node", "graph-classification")
    delivers = "personal"
    heterogeneous_features = True

    rate: float = option(1e-3, "learning rate of the relationships (code: 1e-3)", ge=0, tune=[1e-3, 1e-2, 1e-1])
    mu: float = option(0.1, "weight of the penalty ||p_i - p_0||^2 (code: 0.1)", ge=0, tune=[0.01, 0.1, 1.0])
    last: float = option(0.1, "share of the rounds with the penalty (code: 0.1)", ge=0, le=1)
    schedule: Literal["exponential", "cosine"] = option("exponential", "decay of the penalty (code: exponential)")

    def open(self, server: Server) -> Download:
        cores = {n: v.expand(server.clients, *v.shape).clone() for n, v in server.initial_model().items()}
        server.state["cores"] = cores
        return {"cores": cores, "share": server.weights}

    def client(self, clients: ClientBatch) -> Tree:
        cores = clients.received["cores"]
        rows, places = torch.arange(len(clients)), torch.tensor(clients.ids)
        clients.load({name: value[rows, places] for name, value in cores.items()})
        start = clients.received["share"]
        relation = start + clients.state.get(RELATION, 0)
        others = torch.ones_like(relation)
        others[rows, places] = 0
        penalty = self.mu * self.fading(clients.round - 1, clients.config.rounds)

        def loss(clients: ClientBatch) -> torch.Tensor:
            self_weight = relation[rows, places]
            model = {
                name: mixed(relation * others, value)
                + of_shape(self_weight, clients.params[name]) * clients.params[name]
                for name, value in cores.items()
            }
            task = clients.cross_entropy(clients.forward(clients.params | model).logits)
            return task + penalty * (relation - start).square().sum(1)

        def descend(clients: ClientBatch, grads: Tensors) -> Tensors:
            with torch.no_grad():
                relation.sub_(grads[RELATION], alpha=self.rate)
            return {name: grad for name, grad in grads.items() if name != RELATION}

        clients.fit(loss, params=clients.params | {RELATION: relation}, adjust=descend)
        clients.state[RELATION] = relation - start
        return {"model": clients.params}

    def fading(self, number: int, rounds: int) -> float:
        """Return lambda in round `number`, counted from 0."""
        end = int(rounds * self.last)
        if number >= end:
            return 0.0
        part = number / end
        return LEAST**part if self.schedule == "exponential" else (1 + math.cos(math.pi * part)) / 2

    def server(self, server: Server, uploads: Tree) -> Download:
        participants = torch.tensor(server.participants)
        cores = {n: v.index_copy(0, participants, uploads["model"][n]) for n, v in server.state["cores"].items()}
        server.state["cores"] = cores
        share = server.sizes / server.sizes.sum() if server.sizes.sum() > 0 else server.sizes + 1 / server.clients
        return {"cores": cores, "share": share}

    def personal_model(self, clients: ClientBatch) -> Params | None:
        relation = clients.received["share"] + clients.state.get(RELATION, 0)
        return clients.params | {n: mixed(relation, value) for n, value in clients.received["cores"].items()}


def mixed(relation: torch.Tensor, cores: torch.Tensor) -> torch.Tensor:
    """Return weighted sums of models (K, ...). relation: (K, n) weights; cores: (K, n, ...), n models, equal for K."""
    return torch.tensordot(relation, cores[0], 1)
