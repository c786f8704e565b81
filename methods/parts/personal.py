"""Personalised aggregation at the server: each client gets a different mixture of the clients' models."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from ...benchmark.engine import Backbone, Each, Facts, Params, Server, average
from ..fedavg import LocalTraining


def last_layers(names: Collection[str], count: int) -> set[str]:
    """Return the names of the parameters of the last `count` layers, the classifier included.

    names: of all parameters, in the order of the layers, "0.weight", "1.weight", ..., "head.weight". All names if there
    are at most `count` layers.
    """
    layers = list(dict.fromkeys(name.split(".")[0] for name in names))
    last = layers[max(0, len(layers) - count) :]
    return {name for name in names if name.split(".")[0] in last}


class CommonWidth(LocalTraining):
    """Base of methods whose backbones have `linear_head`: all layers have the run's width h, and a linear map h -> C
    follows. The personal models are scored.

    Without it the last layer of a GNN is the classifier, SGC has no embedding, and heads of different architectures
    have different shapes. So on a board of one architecture these methods (and Fed-PUB, whose paper has the same head)
    have one linear map more than the other methods; it changes `local` and `fedavg` by less than a point on Cora,
    CiteSeer and Amazon Photo.
    """

    delivers = "personal"
    heterogeneous = True

    def adapt(self, backbone: Backbone) -> Backbone:
        return backbone.model_copy(update={"linear_head": True})

    def skip(self, facts: Facts, backbones: Sequence[Backbone]) -> str | None:
        widths = sorted({backbone.hidden for backbone in backbones})
        if len(widths) > 1:
            return f"{self.name} needs one embedding width for all clients, got {', '.join(map(str, widths))}"
        return super().skip(facts, backbones)


def mix(server: Server, models: Params, weights: torch.Tensor) -> Each:
    """Send sum_j weights[i, j] models_j to participant i; the others get their last download again (first theta_0).

    models: the participants' uploads (n, ...). weights: (n, n), rows sum to 1. Returns the download {"model": (K, ...)}
    for all clients, because the next round's participants are not known, and keeps it in server.state["personal"].
    """
    return send(server, average(models, weights))


def send(server: Server, fresh: Params) -> Each:
    """Send `fresh` (n, ...) to the participants; otherwise as `mix`."""
    if len(server.participants) < server.clients:
        last = server.state.get("personal")
        if last is None:
            last = {name: v.expand(server.clients, *v.shape) for name, v in server.initial_model().items()}
        index = torch.tensor(server.participants)
        fresh = {name: value.index_copy(0, index, fresh[name]) for name, value in last.items()}
    server.state["personal"] = fresh
    return Each({"model": fresh}, range(server.clients))


def cosine(vectors: torch.Tensor) -> torch.Tensor:
    """Return the cosine similarities (n, n) of the rows of vectors (n, c); 1 on the diagonal."""
    unit = torch.nn.functional.normalize(vectors.double(), dim=1, eps=1e-300)
    return (unit @ unit.T).fill_diagonal_(1).to(vectors.dtype)
