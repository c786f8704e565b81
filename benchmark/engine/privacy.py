"""Client-level differential privacy of what crosses: clipped updates, a noisy average, the account of it.

Each client's update (its upload minus what it received) is clipped to the 2-norm C. What the server half gets in the
place of the clients' models is, for each of them, one and the same model: the average by the aggregation weights w with
Gaussian noise of standard deviation sigma C max w on every entry. So whatever its rule is, it is a function of a noisy
average (DP-FedAvg: McMahan et al., ICLR 2018, arXiv 1710.06963; here the noise is relative to the largest share).

Protected is whether a client's update was in a round or 0 was in its place; weights and who takes part are public. The
account composes the Gaussian mechanisms of the client that took part most often; sampling of clients amplifies nothing.
Without noise there is no privacy, and the server half gets the clipped models themselves.
"""

from __future__ import annotations

import math
from importlib.util import find_spec

import torch

from ...registry import UserError
from .backbones import Params
from .cohort import Skip
from .config import TrainConfig
from .messages import Download, Each, Tree
from .method import Server, average
from .optim import sum_squares
from .random import stream

KINDS = {  # what the names of uploads stand for
    **dict.fromkeys(("model", "head", "update"), "models"),
    **dict.fromkeys(("generator", "gradient"), "generators"),
    "control": "control variates",
    **dict.fromkeys(("mean", "moments"), "moments"),
    **dict.fromkeys(("prototypes", "centroids"), "prototypes"),
    **dict.fromkeys(("function", "encoding"), "embeddings"),
    **dict.fromkeys(("prediction", "output"), "predictions"),
    **dict.fromkeys(("features", "feat"), "features"),
    "missing": "neighbour counts",
    **dict.fromkeys(("neighbours", "edges"), "neighbour lists"),
    "id": "node ids",
    **dict.fromkeys(("classes", "votes"), "classes held"),
    **dict.fromkeys(("count", "counts", "nodes", "norm", "strength", "confidence"), "statistics"),
}


def kind_of(name: str) -> str:
    """What an upload of this name stands for; the name itself where nobody has said it."""
    return KINDS.get(name, name)


def _shapes(model: object) -> dict[str, object]:
    """The shapes of a model's parameters; of what is no model, something that no model has."""
    if not isinstance(model, dict):
        return {"": "no model"}
    return {
        name: tuple(value.shape) if isinstance(value, torch.Tensor) else "no tensor" for name, value in model.items()
    }


class Privacy:
    """The mechanism of one run, and how often each client was in it. Without `dp_clip` everything passes as it is."""

    def __init__(self, config: TrainConfig, server: Server) -> None:
        self.on, self.clip = config.dp_clip is not None, config.dp_clip or math.inf
        self.noise, self.delta = config.dp_noise, config.dp_delta
        self.steps = [0] * server.clients
        self._seed = torch.Generator().manual_seed(int(stream(server.seed, "privacy").integers(2**63)))
        if not self.on:
            return
        if len(server.backbones) > 1:
            raise Skip("client-level privacy averages whole models and cannot mix architectures")
        if self.noise and find_spec("opacus") is None:
            raise UserError("dp_noise needs Opacus for the account of it: pip install 'fglbench[privacy]'")

    def clipped(self, upload: Tree, received: Tree, message: Download) -> Tree:
        """The upload of a cohort with each client's update of norm C at most. Skip where it is not models alone."""
        if not self.on or not upload:
            return upload
        self._check(upload, received, message)
        update = {
            f"{name}.{key}": value - received[name][key]
            for name, model in upload.items()
            for key, value in model.items()
        }
        norm = sum_squares(update).sqrt()
        return {
            name: {key: self._shrunk(value, received[name][key], norm) for key, value in model.items()}
            for name, model in upload.items()
        }

    def _shrunk(self, value: torch.Tensor, base: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
        """A parameter (K, ...) after the clip of updates of these norms (K,); what is not clipped stays bit for bit."""
        norm = norm.view(-1, *[1] * (value.dim() - 1))
        return torch.where(norm > self.clip, base + self.clip / norm * (value - base), value)

    @staticmethod
    def _check(upload: Tree, received: Tree, message: Download) -> None:
        others = [kind for name in upload if (kind := kind_of(name)) != "models"]
        if others:
            raise Skip(f"not private: it uploads {', '.join(dict.fromkeys(others))}")
        if isinstance(message, Each):
            raise Skip("not private: the server sends each client another model, which one average cannot serve")
        for name, model in upload.items():
            base = received.get(name, {})
            if _shapes(model).items() - _shapes(base).items():
                raise Skip(f"not private: its upload {name!r} is no update of a model that the clients received")

    def noised(self, server: Server, uploads: Tree) -> Tree:
        """What the server half gets: uploads of all who acted, in whose place the noisy average stands."""
        if not self.noise or not uploads:
            return uploads
        for client in server.participants:
            self.steps[client] += 1
        weights = server.weights
        spread = self.noise * self.clip * float(weights.max())
        return {name: self._one(model, weights, spread) for name, model in uploads.items()}

    def _one(self, model: Params, weights: torch.Tensor, spread: float) -> Params:
        mean: Params = average(model, weights)
        drawn = {k: v + spread * torch.randn(v.shape, generator=self._seed, dtype=v.dtype) for k, v in mean.items()}
        return {key: value.expand(len(weights), *value.shape).contiguous() for key, value in drawn.items()}

    @property
    def epsilon(self) -> float | None:
        """What (epsilon, dp_delta) the run spent on the client that was in most steps; None without noise."""
        if not self.noise:
            return None
        if not max(self.steps):
            return 0.0
        from opacus.accountants import RDPAccountant

        account = RDPAccountant()
        account.history = [(self.noise, 1.0, max(self.steps))]
        return float(account.get_epsilon(self.delta))
