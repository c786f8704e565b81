"""Hostile clients: a share of the clients that sends wrong models, or trains on wrong labels.

The hostile clients are the first `round(share * K)` of one random order of the run's seed: all attacks have the same
hostile clients, and a greater share has all those of a smaller one. They take part as the others do, and the server
cannot tell them apart. Validation and test labels stay as they are, and all clients are scored.

- `label_flip`: class c of a training node becomes C - 1 - c (Tolpegin et al., ESORICS 2020, arXiv 2007.08432, flip
  pairs of classes; this reversal is that of Fang et al., USENIX Security 2020, arXiv 1911.11815).
- `sign_flip`: the update u becomes -4 u (Li et al., AAAI 2019, arXiv 1811.03761).
- `gaussian`: the update becomes Gaussian noise of expected 2-norm 100 |u| (after Blanchard et al., NeurIPS 2017, arXiv
  1703.02757, whose noise has standard deviation 200 on every entry; ours follows the scale of the model).
- `small_deviation`: all hostile updates are the mean of the participants' updates minus 1.5 times their standard
  deviation, entry by entry (Baruch et al., NeurIPS 2019, arXiv 1902.06156). The attackers know all updates.

An update is the uploaded model minus the received one. What is uploaded besides models has no such attack: Skip.
"""

from __future__ import annotations

import math

import torch

from .client_batch import ClientBatch
from .config import TrainConfig
from .method import Server
from .optim import sum_squares
from .payload import Download, Tree
from .rng import stream
from .transforms import Transform, check_models

UPDATE_ATTACKS = ("sign_flip", "gaussian", "small_deviation")
SIGN_SCALE, GAUSSIAN_SCALE, DEVIATIONS = -4.0, 100.0, 1.5


def hostile_clients(share: float, clients: int, seed: int) -> frozenset[int]:
    """Return the hostile clients of a run: `round(share * clients)` of them."""
    order = stream(seed, "hostile clients").permutation(clients)
    return frozenset(order[: round(share * clients)].tolist())


class Attack(Transform):
    """The attack of one run on uploaded models. Inactive if the run has none."""

    def __init__(self, config: TrainConfig, server: Server) -> None:
        self.kind = next((name for name in UPDATE_ATTACKS if getattr(config, name)), "")
        self.active = bool(self.kind)
        share = getattr(config, self.kind) if self.active else 0.0
        self.hostile = hostile_clients(share, server.clients, server.seed)

    def upload(self, cohort: ClientBatch, upload: Tree, message: Download) -> Tree:
        """Return the upload with the models of hostile clients replaced. Raises Skip if it is not models alone."""
        if not upload:
            return upload
        check_models(upload, cohort.received, "not attacked")
        bad = [place for place, client in enumerate(cohort.clients) if client in self.hostile]
        if not bad or self.kind == "small_deviation":
            return upload
        own = {name: {key: value[bad] for key, value in model.items()} for name, model in upload.items()}
        base = {name: {key: cohort.received[name][key][bad] for key in model} for name, model in own.items()}
        updates = {name: {key: own[name][key] - base[name][key] for key in own[name]} for name in own}
        if self.kind == "sign_flip":
            wrong = {n: {key: SIGN_SCALE * value for key, value in model.items()} for n, model in updates.items()}
        else:
            wrong = self._noise(updates, cohort, bad)
        return {
            name: {key: _with_rows(value, bad, base[name][key] + wrong[name][key]) for key, value in model.items()}
            for name, model in upload.items()
        }

    @staticmethod
    def _noise(updates: Tree, cohort: ClientBatch, bad: list[int]) -> Tree:
        """Return noise of expected norm 100 times that of the updates, each client's from its own stream."""
        flat = {f"{name}.{key}": value for name, model in updates.items() for key, value in model.items()}
        entries = sum(value[0].numel() for value in flat.values())
        spread = GAUSSIAN_SCALE * sum_squares(flat).sqrt() / math.sqrt(entries)
        sources = [cohort.streams("attack")[place] for place in bad]

        def drawn(shape: tuple[int, ...]) -> torch.Tensor:
            rows = [torch.from_numpy(source.standard_normal(shape[1:], "float32")) for source in sources]
            return torch.stack(rows) * spread.view(-1, *[1] * (len(shape) - 1))

        return {name: {key: drawn(value.shape) for key, value in model.items()} for name, model in updates.items()}

    def aggregate(self, server: Server, uploads: Tree) -> Tree:
        """Put the mean minus 1.5 standard deviations in the place of hostile models, if this is the attack."""
        bad = [place for place, client in enumerate(server.participants) if client in self.hostile]
        if self.kind != "small_deviation" or not bad or not uploads:
            return uploads
        return {
            name: {
                key: _with_rows(value, bad, value.mean(0) - DEVIATIONS * value.std(0, unbiased=False))
                for key, value in model.items()
            }
            for name, model in uploads.items()
        }


def _with_rows(value: torch.Tensor, rows: list[int], new: torch.Tensor) -> torch.Tensor:
    """Return a copy of (K, ...) with other rows in these places."""
    changed = value.detach().clone()
    changed[rows] = new
    return changed
