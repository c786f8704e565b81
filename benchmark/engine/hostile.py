"""Hostile clients, and the server's rules against them.

Hostile clients send wrong models or train on wrong labels. They are the first `round(share * K)` clients in a random
order drawn with the run's seed: all attacks have the same hostile clients, and a larger share contains those of a
smaller one. The server does not know which clients are hostile. Validation and test labels are not changed, and all
clients are scored.

- `label_flip`: class c of a training node becomes C - 1 - c (Tolpegin et al., ESORICS 2020, arXiv 2007.08432, flip
  pairs of classes; this reversal is that of Fang et al., USENIX Security 2020, arXiv 1911.11815).
- `sign_flip`: the update u becomes -4 u (Li et al., AAAI 2019, arXiv 1811.03761).
- `gaussian`: the update becomes Gaussian noise of expected 2-norm 100 |u| (after Blanchard et al., NeurIPS 2017, arXiv
  1703.02757, whose noise has standard deviation 200 on every entry; here it depends on the size of the update).
- `small_deviation`: all hostile updates are the mean of the participants' updates minus 1.5 times their standard
  deviation, entry by entry (Baruch et al., NeurIPS 2019, arXiv 1902.06156). The attackers know all updates.

`config.aggregator` names the server's rule. n is the number of clients of a step with a positive weight (a client
without training nodes has weight 0), f = round(tolerated * n) the number of hostile clients that the rule tolerates.
The result replaces the model of every client, so that every weighted mean of them is the result: with FedAvg this is
the rule of the paper, and it applies to every method that uploads models. All rules but `norm-clip` weigh clients
equally.

- `mean`: the method's own average; nothing is changed.
- `median`: the median of each entry; `trimmed-mean`: the mean of each entry without its f largest and f smallest
  values (Yin et al., ICML 2018, arXiv 1803.01498).
- `krum`: the model with the smallest sum of squared distances to its n - f - 2 nearest others; `multi-krum`: the
  mean of the n - f models with the smallest sums (Blanchard et al., NeurIPS 2017, arXiv 1703.02757).
- `norm-clip`: every update is clipped to the median of the updates' 2-norms, then the method's own average follows (Sun
  et al., 2019, arXiv 1911.07963, with a fixed bound; the median is our choice because it needs no setting).

An update is the uploaded model minus the received one. Skip if a method uploads anything other than models, or pools
the clients' data, and for a rule other than `mean` if the server sends each client another model; UserError if f is too
large for the number of clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from ...registry import UserError
from .client_batch import ClientBatch, Skip
from .config import TrainConfig
from .method import Server
from .payload import Download, Each, Tree
from .rng import stream
from .segment_ops import of_shape
from .transforms import Transform, check_models, norms, per_parameter

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

    def upload(self, clients: ClientBatch, upload: Tree, message: Download) -> Tree:
        """Return the upload with the models of hostile clients replaced. Raises Skip if it is not models alone."""
        if not upload:
            return upload
        check_models(upload, clients.received, "not attacked")
        bad = [place for place, client in enumerate(clients.ids) if client in self.hostile]
        if not bad or self.kind == "small_deviation":
            return upload
        models = per_parameter(lambda value: value[bad], upload)
        base = per_parameter(lambda _, received: received[bad], upload, clients.received)
        updates = per_parameter(torch.sub, models, base)
        if self.kind == "sign_flip":
            wrong = per_parameter(lambda update: SIGN_SCALE * update, updates)
        else:
            wrong = self._noise(updates, clients, bad)
        hostile = per_parameter(torch.add, base, wrong)
        return per_parameter(lambda value, new: _with_rows(value, bad, new), upload, hostile)

    @staticmethod
    def _noise(updates: Tree, clients: ClientBatch, bad: list[int]) -> Tree:
        """Return noise of expected norm 100 times that of the updates, each client's from its own stream."""
        entries = sum(value[0].numel() for model in updates.values() for value in model.values())
        spread = GAUSSIAN_SCALE * norms(updates) / math.sqrt(entries)
        sources = [clients.streams("attack")[place] for place in bad]

        def drawn(update: torch.Tensor) -> torch.Tensor:
            rows = [torch.from_numpy(source.standard_normal(update.shape[1:], "float32")) for source in sources]
            return torch.stack(rows) * of_shape(spread, update)

        return per_parameter(drawn, updates)

    def aggregate(self, server: Server, uploads: Tree) -> Tree:
        """With `small_deviation`, replace hostile models by the mean minus 1.5 standard deviations."""
        bad = [place for place, client in enumerate(server.participants) if client in self.hostile]
        if self.kind != "small_deviation" or not bad or not uploads:
            return uploads
        return per_parameter(
            lambda value: _with_rows(value, bad, value.mean(0) - DEVIATIONS * value.std(0, unbiased=False)), uploads
        )


def _with_rows(value: torch.Tensor, rows: list[int], new: torch.Tensor) -> torch.Tensor:
    """Return a copy of value (K, ...) with its `rows` replaced by `new`."""
    changed = value.detach().clone()
    changed[rows] = new
    return changed


def median(rows: torch.Tensor, f: int) -> torch.Tensor:
    """(n, D) -> (D,)."""
    ordered = rows.sort(0).values
    return (ordered[(len(rows) - 1) // 2] + ordered[len(rows) // 2]) / 2


def trimmed_mean(rows: torch.Tensor, f: int) -> torch.Tensor:
    """(n, D) -> (D,)."""
    _check(len(rows) > 2 * f, "trimmed-mean", f, len(rows), "n > 2 f")
    return rows.sort(0).values[f : len(rows) - f].mean(0)


def krum_scores(rows: torch.Tensor, f: int) -> torch.Tensor:
    """(n, D) -> (n,) the sum of squared distances of each row to its n - f - 2 nearest others."""
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
            f"aggregator {rule!r} needs {needed}, and {n} clients take part with f = {f}: lower training.tolerated, or "
            "let more clients take part"
        )


class RobustAggregation(Transform):
    """The aggregation rule of one run. Inactive with `mean`."""

    def __init__(self, config: TrainConfig, server: Server) -> None:
        self.rule, self.tolerated = config.aggregator, config.tolerated
        self.active = self.rule != "mean"
        if self.active and len(server.backbones) > 1:
            raise Skip(f"the aggregator {self.rule} compares whole models and cannot mix architectures")
        self._base: Tree = {}

    def upload(self, clients: ClientBatch, upload: Tree, message: Download) -> Tree:
        if upload:
            check_models(upload, clients.received, "no robust aggregation")
            if isinstance(message, Each):
                raise Skip("no robust aggregation: the server sends each client another model")
            self._base = per_parameter(lambda _, received: received[:1], upload, clients.received)
        return upload

    def aggregate(self, server: Server, uploads: Tree) -> Tree:
        """Return the rule's model for each client, or with `norm-clip` the clipped models."""
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
        norm = norms(per_parameter(torch.sub, uploads, self._base))
        bound = norm[counted].quantile(0.5)

        def clipped(value: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
            lengths = of_shape(norm, value)
            return torch.where(lengths > bound, base + bound / lengths * (value - base), value)

        return per_parameter(clipped, uploads, self._base)
