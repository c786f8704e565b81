"""APPLE: every client learns how much of each other client's model goes into its own."""

from __future__ import annotations

import math
from typing import Literal

import torch

from ..benchmark.engine import METHODS, ClientBatch, Download, Params, Server, Tensors, Tree
from ..registry import option
from .fedavg import LocalTraining

RELATION = "relation"  # what is learnt at the client, p_i - p_0
LEAST = 1e-3  # epsilon of the exponential schedule in the released code


@METHODS.register("apple")
class Apple(LocalTraining):
    """Luo, Wu, IJCAI 2022 (arXiv 2110.08394): adaptive personalised cross-silo federated learning.

    Client i has a core model theta_i and directed relationships p_i, a number for each of the K clients. Its personal
    model is sum_j p_ij theta_j, with the others' core models as received. E epochs on
        L_i(sum_j p_ij theta_j) + lambda(r) mu ||p_i - p_0||^2
    train theta_i and p_i, all other theta_j fixed; p_i starts at p_0, the shares of the clients by the training
    configuration's `weighting`. In round r (from 0) of R, lambda is 0.001^(r / L) or (1 + cos(pi r / L)) / 2, 0 from
    round L = `last` R on. Server: keeps the core models and sends all to all.
    Messages: theta_i up; K core models down (one's own among them); p_i stays. Scored: the personal models, with the
    core models that are sent next.

    Departures: p_i descends at a rate of its own, by plain steps on the full gradient, where the released code has
    momentum 0.9 for core models and relationships; core models have the cell's optimiser. The paper halves mu, the
    released code does not. No bound on the core models that a client may receive in a round.
    """

    family = "personal"
    summary = "every client learns by gradient how much of each client's model goes into its own"
    title = "APPLE"
    venue = "IJCAI 2022"
    paper_url = "https://arxiv.org/abs/2110.08394"
    code_url = "https://github.com/ljaiverson/pFL-APPLE"
    tasks = ("node", "graph-classification")
    delivers = "personal"

    rate: float = option(1e-3, "rate of the relationships (code: 1e-3)", ge=0, tune=[1e-3, 1e-2, 1e-1])
    mu: float = option(0.1, "pull of the relationships to p_0 (code: 0.1)", ge=0, tune=[0.01, 0.1, 1.0])
    last: float = option(0.1, "share of the rounds with that pull (code: 0.1)", ge=0, le=1)
    schedule: Literal["exponential", "cosine"] = option("exponential", "how it fades (code: exponential)")

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
        pull = self.mu * self.fading(clients.round - 1, clients.config.rounds)

        def loss(clients: ClientBatch) -> torch.Tensor:
            self_weight = relation[rows, places]
            model = {
                name: mixed(relation * others, value)
                + self_weight.view(-1, *[1] * (value.dim() - 2)) * clients.params[name]
                for name, value in cores.items()
            }
            told = clients.cross_entropy(clients.forward(model).logits)
            return told + pull * (relation - start).square().sum(1)

        def descend(clients: ClientBatch, grads: Tensors) -> Tensors:
            with torch.no_grad():
                relation.sub_(grads[RELATION], alpha=self.rate)
            return {name: grad for name, grad in grads.items() if name != RELATION}

        clients.fit(loss, params=clients.params | {RELATION: relation}, adjust=descend)
        clients.state[RELATION] = relation - start
        return {"model": clients.params}

    def fading(self, number: int, rounds: int) -> float:
        """Lambda in round `number`, from 0."""
        until = int(rounds * self.last)
        if number >= until:
            return 0.0
        part = number / until
        return LEAST**part if self.schedule == "exponential" else (1 + math.cos(math.pi * part)) / 2

    def server(self, server: Server, uploads: Tree) -> Download:
        there = torch.tensor(server.participants)
        cores = {n: v.index_copy(0, there, uploads["model"][n]) for n, v in server.state["cores"].items()}
        server.state["cores"] = cores
        share = server.sizes / server.sizes.sum() if server.sizes.sum() > 0 else server.sizes + 1 / server.clients
        return {"cores": cores, "share": share}

    def personal_model(self, clients: ClientBatch) -> Params | None:
        relation = clients.received["share"] + clients.state.get(RELATION, 0)
        return {name: mixed(relation, value) for name, value in clients.received["cores"].items()}


def mixed(relation: torch.Tensor, cores: torch.Tensor) -> torch.Tensor:
    """(K, n) numbers and n models at each of K clients (K, n, ...), the same at all -> (K, ...) weighted sums."""
    return torch.tensordot(relation, cores[0], 1)
