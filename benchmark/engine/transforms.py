"""Transforms of a round, independent of the method: privacy, dropped clients, stragglers, layers kept at the clients.

The simulation calls the hooks of all active transforms at fixed points of a round, in the order of its list. A new
transform (compression, other noise) is a subclass here and an entry of `simulation.Simulation.transforms`. Hostile
clients and robust aggregation are in hostile.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import torch

from ...registry import UserError
from .client_batch import ClientBatch, Skip, is_statistic
from .config import TrainConfig
from .method import Phase, Server, at_home, average, crossing
from .optim import sum_squares
from .payload import Download, Each, Tree
from .rng import stream, torch_source
from .segment_ops import of_shape

MODEL, HOME = "model", "layers at home"  # the name of uploaded models, and of the layers kept in a client's state


KINDS = {  # the kind of an upload by its name
    **dict.fromkeys(("model", "head", "update"), "models"),
    **dict.fromkeys(("generator", "gradient"), "generators"),
    "control": "control variates",
    **dict.fromkeys(("mean", "moments", "deviation", "profile"), "moments"),
    "sketch": "one-bit sketches",
    **dict.fromkeys(("prototypes", "centroids"), "prototypes"),
    **dict.fromkeys(("function", "encoding", "consensus"), "embeddings"),
    **dict.fromkeys(("prediction", "output"), "predictions"),
    **dict.fromkeys(("features", "feat"), "features"),
    "sums": "feature sums",
    **dict.fromkeys(("missing", "degree"), "neighbour counts"),
    **dict.fromkeys(("neighbours", "edges"), "neighbour lists"),
    **dict.fromkeys(("id", "wanted", "reached", "last"), "node ids"),
    "rows": "rows of the propagation matrix",
    "gradient_of_vectors": "gradients of node vectors",
    "condensed": "condensed features",
    "clusters": "clusters of nodes and of their neighbours",
    **dict.fromkeys(("classes", "votes"), "classes held"),
    **dict.fromkeys(
        ("count", "counts", "nodes", "norm", "strength", "confidence", "links", "reliability"), "statistics"
    ),
}


def kind_of(name: str) -> str:
    """The kind of an upload of this name, or the name."""
    return KINDS.get(name, name)


def _shapes(model: object) -> dict[str, object]:
    """The shapes of a model's parameters; for other values, a shape that no model has."""
    if not isinstance(model, dict):
        return {"": "no model"}
    return {
        name: tuple(value.shape) if isinstance(value, torch.Tensor) else "no tensor" for name, value in model.items()
    }


def check_models(upload: Tree, received: Tree, purpose: str) -> None:
    """Raise Skip, with a message that starts with `purpose`, unless the upload is models with the received shapes."""
    others = [kind for name in upload if (kind := kind_of(name)) != "models"]
    if others:
        raise Skip(f"{purpose}: it uploads {', '.join(dict.fromkeys(others))}")
    for name, model in upload.items():
        if _shapes(model).items() - _shapes(received.get(name, {})).items():
            raise Skip(f"{purpose}: its upload {name!r} is no update of a model that the clients received")
    if not any(upload.values()):
        raise Skip(f"{purpose}: it uploads models without parameters")


def per_parameter(function: Callable[..., torch.Tensor], models: Tree, *others: Tree) -> Tree:
    """The models with each parameter replaced by function(parameter, the same parameter of each of `others`)."""
    return {
        name: {key: function(value, *(other[name][key] for other in others)) for key, value in model.items()}
        for name, model in models.items()
    }


def norms(update: Tree) -> torch.Tensor:
    """(K,) 2-norms of the clients' updates, over all parameters of all models."""
    flat = {f"{name}.{key}": value for name, model in update.items() for key, value in model.items()}
    return sum_squares(flat).sqrt()


class Transform:
    """A transform that changes nothing; subclasses override hooks. active: False if it has nothing to do in a run."""

    active = True

    def prepare(self, clients: ClientBatch) -> None:
        """Called once per client batch, after `Method.prepare`."""

    def start_round(self, phase: Phase, participants: list[int]) -> list[int]:
        """Return the clients that take part in this round, given those that were drawn."""
        return participants

    def download(self, clients: ClientBatch) -> None:
        """Change `clients.received` before a client step, and before models are read for evaluation."""

    def start_step(self, clients: ClientBatch) -> None:
        """Change how the clients of a client batch train in the next step."""

    def upload(self, clients: ClientBatch, upload: Tree, message: Download) -> Tree:
        """Return the changed upload. message: the download of this step."""
        return upload

    def aggregate(self, server: Server, uploads: Tree) -> Tree:
        """Return the input of the server half, given the uploads of all clients that acted."""
        return uploads


class DroppedClients(Transform):
    """A client fails with probability `config.failure`: it gets and sends nothing in the round, and keeps its state."""

    def __init__(self, config: TrainConfig, server: Server) -> None:
        self.probability, self.clients = config.failure, server.clients
        self.active = bool(config.failure)
        self._draws = stream(server.seed, "failure")

    def start_round(self, phase: Phase, participants: list[int]) -> list[int]:
        if phase.everyone:
            return participants
        fails = self._draws.random(self.clients) < self.probability
        return [client for client in participants if not fails[client]]


class Stragglers(Transform):
    """A client straggles with probability `config.straggle`: it does 1 to E local epochs, drawn uniformly (Li et al.,
    MLSys 2020, systems heterogeneity). For the same seed, a larger probability adds stragglers to those of a smaller.
    """

    def __init__(self, config: TrainConfig, server: Server) -> None:
        self.probability, self.clients, self.full = config.straggle, server.clients, config.local_epochs
        self.active = bool(config.straggle)
        self._draws = stream(server.seed, "straggle")
        self._epochs: Sequence[int] | None = None  # per client, in this round

    def start_round(self, phase: Phase, participants: list[int]) -> list[int]:
        self._epochs = None if phase.everyone else self._draw_epochs()
        return participants

    def _draw_epochs(self) -> list[int]:
        if self.full == 1:
            raise Skip("a client that straggles does at least one local epoch, and there is one")
        late = self._draws.random(self.clients) < self.probability
        fewer = self._draws.integers(1, self.full + 1, self.clients)
        return [int(n) if slow else self.full for slow, n in zip(late, fewer, strict=True)]

    def start_step(self, clients: ClientBatch) -> None:
        clients.epochs = tuple(self._epochs[client] for client in clients.ids) if self._epochs else None

    def upload(self, clients: ClientBatch, upload: Tree, message: Download) -> Tree:
        clients.epochs = None
        return upload


class HomeLayers(Transform):
    """If each client has its own features and classes, it keeps its first and last layers (`method.OWN_LAYERS`).

    They are removed from uploaded models and added to received ones.
    """

    def __init__(self, server: Server) -> None:
        self.active = server.domains

    def prepare(self, clients: ClientBatch) -> None:
        self._keep(clients, at_home(clients.params))

    def download(self, clients: ClientBatch) -> None:
        if MODEL in clients.received:
            clients.received = {**clients.received, MODEL: clients.received[MODEL] | clients.state[HOME]}

    def upload(self, clients: ClientBatch, upload: Tree, message: Download) -> Tree:
        if MODEL not in upload:
            return upload
        # A method that does not upload these layers keeps them in the clients' models.
        self._keep(clients, at_home(upload[MODEL]) or at_home(clients.params))
        return {**upload, MODEL: crossing(upload[MODEL])}

    @staticmethod
    def _keep(clients: ClientBatch, layers: Tree) -> None:
        clients.state[HOME] = {name: value.clone() for name, value in layers.items()}


class Privacy(Transform):
    """Client-level differential privacy of uploads: clipped updates, a noisy average, privacy accounting.

    Inactive without `dp_clip`.

    Each client's update (the upload minus the received model) is clipped to the 2-norm C. The server step gets the same
    model for each client: the average by the aggregation weights w, with Gaussian noise of standard deviation
    sigma C max w on every entry (DP-FedAvg: McMahan et al., ICLR 2018, arXiv 1710.06963; here the noise is relative to
    the largest weight).

    The guarantee hides whether an update of a client in a round was replaced by 0; weights and participants are public.
    Accounting composes the Gaussian mechanisms of the client that took part most often, without amplification by
    sampling. Without noise there is no privacy, and the server step gets the clipped models.
    """

    def __init__(self, config: TrainConfig, server: Server) -> None:
        self.active, self.clip = config.dp_clip is not None, config.dp_clip or math.inf
        self.noise, self.delta = config.dp_noise, config.dp_delta
        self.steps = [0] * server.clients
        self._seed = torch_source(stream(server.seed, "privacy"))
        if not self.active:
            return
        if len(server.backbones) > 1:
            raise Skip("client-level privacy averages whole models and cannot mix architectures")
        if self.noise and find_spec("opacus") is None:
            raise UserError("dp_noise needs Opacus for privacy accounting: pip install 'fglbench[privacy]'")

    def upload(self, clients: ClientBatch, upload: Tree, message: Download) -> Tree:
        """Clip each client's update to norm C. Raises Skip if an upload is not models alone."""
        received = clients.received
        if not upload:
            return upload
        check_models(upload, received, "not private")
        if self.noise and any(is_statistic(name) for model in upload.values() for name in model):
            raise Skip("not private: its model has BatchNorm, and noise can make a variance of it negative")
        if isinstance(message, Each):
            raise Skip("not private: the server sends each client another model, which one average cannot serve")
        norm = norms(per_parameter(torch.sub, upload, received))

        def clipped(value: torch.Tensor, base: torch.Tensor) -> torch.Tensor:  # unclipped: bitwise identical
            lengths = of_shape(norm, value)
            return torch.where(lengths > self.clip, base + self.clip / lengths * (value - base), value)

        return per_parameter(clipped, upload, received)

    def aggregate(self, server: Server, uploads: Tree) -> Tree:
        """Return the noisy average as every client's upload."""
        if not self.noise or not uploads:
            return uploads
        for client in server.participants:
            self.steps[client] += 1
        weights = server.weights
        spread = self.noise * self.clip * float(weights.max())

        def noisy(mean: torch.Tensor) -> torch.Tensor:
            drawn = mean + spread * torch.randn(mean.shape, generator=self._seed, dtype=mean.dtype)
            return drawn.expand(len(weights), *mean.shape).contiguous()

        return per_parameter(noisy, average(uploads, weights))

    @property
    def epsilon(self) -> float | None:
        """The epsilon, for dp_delta, of the client that was in most steps; None without noise."""
        if not self.noise:
            return None
        if not max(self.steps):
            return 0.0
        from opacus.accountants import RDPAccountant

        account = RDPAccountant()
        account.history = [(self.noise, 1.0, max(self.steps))]
        return float(account.get_epsilon(self.delta))
