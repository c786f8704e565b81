"""Client-level differential privacy of what crosses: clipped updates, a noisy average, the account of it.

Each client's update (its upload minus what it received) is clipped to the 2-norm C. What the server half gets in the
place of the clients' models is, for each of them, one and the same model: the average by the aggregation weights w with
Gaussian noise of standard deviation sigma C max w on every entry. So for every rule it is a function of a noisy
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
from .client_batch import ClientBatch, Skip
from .config import TrainConfig
from .method import Server, average
from .optim import sum_squares
from .payload import Download, Each, Tree
from .rng import stream
from .transforms import Transform, check_models


class Privacy(Transform):
    """The mechanism of one run, and how often each client took part in it. Inactive without `dp_clip`."""

    def __init__(self, config: TrainConfig, server: Server) -> None:
        self.active, self.clip = config.dp_clip is not None, config.dp_clip or math.inf
        self.noise, self.delta = config.dp_noise, config.dp_delta
        self.steps = [0] * server.clients
        self._seed = torch.Generator().manual_seed(int(stream(server.seed, "privacy").integers(2**63)))
        if not self.active:
            return
        if len(server.backbones) > 1:
            raise Skip("client-level privacy averages whole models and cannot mix architectures")
        if self.noise and find_spec("opacus") is None:
            raise UserError("dp_noise needs Opacus for the account of it: pip install 'fglbench[privacy]'")

    def upload(self, cohort: ClientBatch, upload: Tree, message: Download) -> Tree:
        """Clip each client's update to norm C. Raises Skip if an upload is not models alone."""
        received = cohort.received
        if not upload:
            return upload
        check_models(upload, received, "not private")
        if isinstance(message, Each):
            raise Skip("not private: the server sends each client another model, which one average cannot serve")
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

    def aggregate(self, server: Server, uploads: Tree) -> Tree:
        """Return the noisy average in the place of every client's upload."""
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
