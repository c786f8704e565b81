"""FEROMA: each client gets a mean of the models, weighted by the similarity of the clients' data profiles."""

from __future__ import annotations

import torch

from ..benchmark.engine import (
    METHODS,
    ClientBatch,
    Download,
    Each,
    Params,
    Server,
    Tree,
    average,
    option,
    segment_sum,
)
from .fedavg import FedAvg
from .parts.personal import send

SMALLEST = 1e-8  # added to distances (released code)
MISSING = -1.0  # entries of a class without nodes (released code)


@METHODS.register("feroma")
class Feroma(FedAvg):
    """Li, Fenoglio, Gjoreski, Langheinrich, ICLR 2026 (arXiv 2602.07671): aggregation by distribution profiles.

    FedAvg for `warm_up` rounds; its global model theta_w is then fixed as the extractor. After that each round client k
    trains the model that it received, and sends it with the profile p_k: mean and standard deviation over its training
    nodes of the extractor's embedding, and the same per class, -1 for a class without nodes. A node counts in it as
    often as it is in `draws` random halves, so the profile of the same data varies. Each of the 2 (C + 1) vectors of a
    profile is scaled to [0, 1] by the least and the largest entry of the first profiles.
    Server: theta_k = sum_j a_kj theta_j, a_kj proportional to w_j / (||p_k - q_j|| + 1e-8), rows with sum 1; q_j is the
    profile that j sent in an earlier round, w_j by the training configuration's `weighting`. The first profiles have
    no earlier ones, so that round is FedAvg.
    Messages: theta_k up, after the warm-up also 2 (C + 1) h scalars; theta down, once also the extractor for a client
    that missed it. Scored: each client's model after training. Without rounds after the warm-up it is FedAvg.

    Departures: the warm-up ends before the last round. The released code takes the profile from validation data,
    reduces embeddings to C principal components of random points (here they stay whole), can add noise for differential
    privacy, draws exact halves, and counts a class with one node as missing. FedGB takes the profile from each client's
    current model. Parts for changing data and for new clients are left out. A client that never sent a profile is
    compared by its present one.
    """

    family = "personal"
    summary = "sends each client a mean of the models, weighted by the similarity of the clients' embedding statistics"
    title = "FEROMA"
    venue = "ICLR 2026"
    paper_url = "https://arxiv.org/abs/2602.07671"
    code_url = "https://github.com/dariofenoglio98/FEROMA"
    tasks = ("node", "graph-classification")
    delivers = "personal"
    heterogeneous_features = False

    warm_up: int = option(5, "rounds of FedAvg before the first profile (released code: 5)", ge=1, tune=[5, 20])
    draws: int = option(3, "random halves of the training nodes in a profile (released code: 3)", ge=1)

    # -- clients ------------------------------------------------------------------------------------------------------

    def client(self, clients: ClientBatch) -> Tree:
        upload = super().client(clients)
        if "extractor" not in clients.received:
            return upload
        return upload | {"profile": self.profile(clients, self._extractor(clients))}

    @staticmethod
    def _extractor(clients: ClientBatch) -> Params:
        """Return the extractor, which a client keeps when it comes."""
        kept: Params = clients.state.get("extractor") or {n: v.detach().clone() for n, v in clients.params.items()}
        arrived = clients.received["extractor"]
        for place in (place for place, vector in enumerate(arrived) if len(vector)):
            pieces = arrived[place].split([v[0].numel() for v in kept.values()])
            for value, piece in zip(kept.values(), pieces, strict=True):
                value[place] = piece.view(value.shape[1:])
        clients.state["extractor"] = kept
        return kept

    @torch.no_grad()
    def profile(self, clients: ClientBatch, extractor: Params) -> torch.Tensor:
        """Return (K, 2 (C + 1), h): means and deviations of all nodes, then of each class."""
        embedding, counts = clients.forward(extractor, training=False).embedding, clients.batch.counts["train"]
        kept = clients.streams.keep("profile", [self.draws * n for n in counts], 0.5).to(embedding.dtype)
        times = torch.cat([part.view(self.draws, -1).sum(0) for part in kept.split([self.draws * n for n in counts])])
        rows, groups = clients.batch.rows["train"], clients.classes + 1
        owner = clients.batch.owner[rows] * groups
        slot = torch.cat([owner, owner + 1 + clients.batch.label[rows]])  # all nodes, and those of the class
        both = moments(embedding[rows].repeat(2, 1), times.repeat(2), slot, len(clients) * groups)
        return torch.stack([each.view(len(clients), groups, -1) for each in both], 1).flatten(1, 2)

    # -- server -------------------------------------------------------------------------------------------------------

    def server(self, server: Server, uploads: Tree) -> Download:
        state = server.state
        if "profile" in uploads:
            state["informed"] |= set(server.participants)
            weights = self.weights(server, uploads["profile"])
            return self._with_extractor(server, send(server, average(uploads["model"], weights)))
        download = super().server(server, uploads)
        if server.round < min(self.warm_up, server.config.rounds - 1):
            return download
        state["personal"] = {n: v.expand(server.clients, *v.shape) for n, v in state["model"].items()}
        state["informed"], state["profiles"] = set[int](), {}
        return self._with_extractor(server, Each({"model": state["personal"]}, range(server.clients)))

    def weights(self, server: Server, sent: torch.Tensor) -> torch.Tensor:
        """Return a (n, n) and keep the profiles. sent: (n, 2 (C + 1), h)."""
        if "scale" not in server.state:
            low, high = sent.amin((0, 2)), sent.amax((0, 2))
            server.state["scale"] = low.unsqueeze(1), torch.where(high > low, high - low, 1).unsqueeze(1)
        low, span = server.state["scale"]
        now, earlier = ((sent - low) / span).flatten(1), server.state["profiles"]
        before = [earlier.get(client, profile) for client, profile in zip(server.participants, now, strict=True)]
        distance = torch.cdist(now, torch.stack(before), compute_mode="donot_use_mm_for_euclid_dist")
        near = 1 / (distance + SMALLEST) if earlier else torch.ones_like(distance)
        server.state["profiles"] = earlier | dict(zip(server.participants, now, strict=True))
        share = near * server.weights
        return share / share.sum(1, keepdim=True)

    def _with_extractor(self, server: Server, download: Each) -> Each:
        """Add the extractor for the clients that do not have it yet."""
        vector = torch.cat([value.flatten() for value in server.state["model"].values()])
        informed = server.state["informed"]
        parts = [vector.new_zeros(0) if client in informed else vector for client in range(server.clients)]
        return Each({**download.tree, "extractor": parts}, download.clients)

    def global_model(self, server: Server) -> Params | None:
        return None


def moments(
    values: torch.Tensor, times: torch.Tensor, slot: torch.Tensor, slots: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and standard deviation (slots, h) of values (n, h) that count `times` each; MISSING without any."""
    mass = segment_sum(times, slot, slots).unsqueeze(1)
    weight = times.unsqueeze(1) / mass.clamp(min=1)[slot]
    mean = segment_sum(weight * values, slot, slots)
    variance = segment_sum(weight * (values - mean[slot]).square(), slot, slots)
    return torch.where(mass > 0, mean, MISSING), torch.where(mass > 0, variance.sqrt(), MISSING)
