"""Robust aggregation: what the server makes of models of which some are hostile.

`config.aggregator` names the rule. n is the number of clients of a step with a positive weight (one without
training nodes has none), f = round(tolerated * n) the number of hostile
ones that the rule is set for, u_k client k's update (its upload minus what it received). The rule's result takes
the place of every client's model, so that it is what any weighted mean of them gives (as in `privacy`): FedAvg with it
is the rule of the paper, and every other method that uploads models has it too. The rules weigh clients equally, except
for `norm-clip`.

- `mean`: the method's own average; nothing is changed.
- `median`: the median of each entry; `trimmed-mean`: the mean of each entry without its f greatest and f smallest
  values (Yin et al., ICML 2018, arXiv 1803.01498).
- `krum`: the one model with the smallest sum of squared distances to its n - f - 2 nearest others; `multi-krum`: the
  mean of the n - f best by that sum (Blanchard et al., NeurIPS 2017, arXiv 1703.02757).
- `norm-clip`: every update is clipped to the median of the updates' 2-norms; the method's own average follows (Sun et
  al., 2019, arXiv 1911.07963, with a fixed bound; the median is our choice, since it needs no setting).

Raises Skip for a method that uploads anything but models or gets another model per client, and UserError where f is
too large for the number of clients.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...registry import UserError
from .client_batch import ClientBatch, Skip
from .config import TrainConfig
from .method import Server
from .optim import sum_squares
from .payload import Download, Each, Tree
from .transforms import Transform, check_models


def median(rows: torch.Tensor, f: int) -> torch.Tensor:
    """(n, D) -> (D,)."""
    ordered = rows.sort(0).values
    return (ordered[(len(rows) - 1) // 2] + ordered[len(rows) // 2]) / 2


def trimmed_mean(rows: torch.Tensor, f: int) -> torch.Tensor:
    """(n, D) -> (D,)."""
    _check(len(rows) > 2 * f, "trimmed-mean", f, len(rows), "n > 2 f")
    return rows.sort(0).values[f : len(rows) - f].mean(0)


def krum_scores(rows: torch.Tensor, f: int) -> torch.Tensor:
    """(n,) the sum of squared distances of each row of (n, D) to its n - f - 2 nearest others."""
    near = len(rows) - f - 2
    _check(near >= 1, "krum", f, len(rows), "n >= f + 3")
    squares = torch.stack([(rows - row).square().sum(1) for row in rows.double()])
    return squares.fill_diagonal_(torch.inf).sort(1).values[:, :near].sum(1)


def krum(rows: torch.Tensor, f: int) -> torch.Tensor:
    """(n, D) -> (D,)."""
    return rows[krum_scores(rows, f).argmin()]


def multi_krum(rows: torch.Tensor, f: int) -> torch.Tensor:
    """(n, D) -> (D,)."""
    best = krum_scores(rows, f).argsort(stable=True)[: len(rows) - f]
    return rows[best.sort().values].mean(0)


RULES: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "median": median, "trimmed-mean": trimmed_mean, "krum": krum, "multi-krum": multi_krum,
}  # fmt: skip


def _check(holds: bool, rule: str, f: int, n: int, needed: str) -> None:
    if not holds:
        raise UserError(
            f"aggregator {rule!r} needs {needed}, and {n} clients take part with f = {f}: lower training.tolerated"
        )


class RobustAggregation(Transform):
    """The rule of one run. Inactive with `mean`."""

    def __init__(self, config: TrainConfig, server: Server) -> None:
        self.rule, self.tolerated = config.aggregator, config.tolerated
        self.active = self.rule != "mean"
        if self.active and len(server.backbones) > 1:
            raise Skip(f"the aggregator {self.rule} compares whole models and cannot mix architectures")
        self._base: Tree = {}

    def upload(self, cohort: ClientBatch, upload: Tree, message: Download) -> Tree:
        if upload:
            check_models(upload, cohort.received, "no robust aggregation")
            if isinstance(message, Each):
                raise Skip("no robust aggregation: the server sends each client another model")
            self._base = {
                name: {key: cohort.received[name][key][:1] for key in model} for name, model in upload.items()
            }
        return upload

    def aggregate(self, server: Server, uploads: Tree) -> Tree:
        """Return the rule's model for each client, or with `norm-clip` the clipped ones."""
        counted = (server.weights > 0).nonzero().squeeze(1)
        if not uploads or len(counted) < 2:
            return uploads
        if self.rule == "norm-clip":
            return self._clipped(uploads, counted)
        places = [(name, key) for name, model in uploads.items() for key in model]
        rows = torch.cat([uploads[name][key][counted].flatten(1) for name, key in places], 1)
        result = RULES[self.rule](rows, round(self.tolerated * len(rows)))
        parts = iter(torch.split(result, [uploads[name][key][0].numel() for name, key in places]))
        return {
            name: {key: next(parts).view(value.shape[1:]).expand_as(value).contiguous() for key, value in model.items()}
            for name, model in uploads.items()
        }

    def _clipped(self, uploads: Tree, counted: torch.Tensor) -> Tree:
        """Return the models with every update clipped to the median norm; what is not clipped stays bit for bit."""
        updates = {
            f"{name}.{key}": value - self._base[name][key]
            for name, model in uploads.items()
            for key, value in model.items()
        }
        norm = sum_squares(updates).sqrt()
        bound = norm[counted].quantile(0.5)

        def clipped(name: str, key: str, value: torch.Tensor) -> torch.Tensor:
            own = norm.view(-1, *[1] * (value.dim() - 1))
            return torch.where(own > bound, self._base[name][key] + bound / own * updates[f"{name}.{key}"], value)

        return {name: {key: clipped(name, key, v) for key, v in model.items()} for name, model in uploads.items()}
