"""Personalised aggregation at the server: every client gets a mixture of the clients' models of its own."""

from __future__ import annotations

import torch

from ...benchmark.engine import Each, Params, Server, average


def mix(server: Server, models: Params, weights: torch.Tensor) -> Each:
    """Participant i gets sum_j weights[i, j] models_j; the others are sent what they were sent last (at first theta_0).

    models: the participants' uploads (n, ...). weights: (n, n), rows sum to 1. Returns the download {"model": (K, ...)}
    for all clients, since those of the next round are not known, and keeps it in server.state["personal"].
    """
    return send(server, average(models, weights))


def send(server: Server, fresh: Params) -> Each:
    """The download of `mix`, with participants' models (n, ...) that were mixed in another way."""
    if len(server.participants) < server.clients:
        last = server.state.get("personal")
        if last is None:
            last = {name: v.expand(server.clients, *v.shape) for name, v in server.initial_model().items()}
        index = torch.tensor(server.participants)
        fresh = {name: value.index_copy(0, index, fresh[name]) for name, value in last.items()}
    server.state["personal"] = fresh
    return Each({"model": fresh}, range(server.clients))


def cosine(vectors: torch.Tensor) -> torch.Tensor:
    """(n, c) -> (n, n) cosine similarities of the rows; 1 of a row with itself."""
    unit = torch.nn.functional.normalize(vectors.double(), dim=1, eps=1e-300)
    return (unit @ unit.T).fill_diagonal_(1).to(vectors.dtype)
