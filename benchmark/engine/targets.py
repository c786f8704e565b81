"""What is scored: which rows, whose they are, and the figures over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from ...datasets.federation import Federation, NodeClient
from .batch import Batch
from .ops import segment_sum


@dataclass
class Target:
    """Rows to score, by split part: row numbers, the scored client of each row, and the true label of each."""

    rows: dict[str, torch.Tensor]
    owner: dict[str, torch.Tensor]
    label: dict[str, torch.Tensor]
    clients: int
    _counts: dict[str, torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self._counts = {part: torch.bincount(own, minlength=self.clients) for part, own in self.owner.items()}

    def count(self, part: str) -> torch.Tensor:
        """(clients,) how many rows each scored client has."""
        return self._counts[part]

    def accuracy(self, predicted: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) share of right predictions, nan for a client without rows. predicted: class of every row (N,)."""
        hit = (predicted[self.rows[part]] == self.label[part]).float()
        return segment_sum(hit, self.owner[part], self.clients) / self.count(part)

    def loss(self, logits: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) mean cross-entropy, nan for a client without rows."""
        values = F.cross_entropy(logits[self.rows[part]], self.label[part], reduction="none")
        return segment_sum(values, self.owner[part], self.clients) / self.count(part)

    def macro_f1(self, predicted: torch.Tensor, part: str) -> float:
        """Mean over clients of the macro-averaged F1 over the classes that occur in truth or prediction."""
        from sklearn.metrics import f1_score  # a second and more to import: only where it is needed

        rows, owner, label = self.rows[part], self.owner[part], self.label[part]
        values = [
            f1_score(label[owner == k], predicted[rows][owner == k], average="macro", zero_division=0)
            for k in range(self.clients)
            if (owner == k).any()
        ]
        return float(sum(values) / len(values)) if values else float("nan")


def own_rows(batch: Batch) -> Target:
    """Every client scored on its own rows of a batch."""
    rows = {part: batch.rows[part] for part in ("val", "test")}
    return Target(
        rows,
        {part: batch.owner[r] for part, r in rows.items()},
        {part: batch.label[r] for part, r in rows.items()},
        batch.clients,
    )


def original_rows(federation: Federation, placed: Sequence[torch.Tensor]) -> Target:
    """The original clients' rows in the one graph of an arranged federation. placed: see `Arrangement.scored`."""
    rows: dict[str, torch.Tensor] = {}
    owner: dict[str, torch.Tensor] = {}
    label: dict[str, torch.Tensor] = {}
    for part in ("val", "test"):
        clients = [client for client in federation.clients if isinstance(client, NodeClient)]
        picks = [client.graph.ndata[f"{part}_mask"].bool() for client in clients]
        rows[part] = torch.cat([place[pick] for place, pick in zip(placed, picks, strict=True)])
        owner[part] = torch.cat([torch.full((int(pick.sum()),), k) for k, pick in enumerate(picks)])
        label[part] = torch.cat([c.graph.ndata["label"][pick] for c, pick in zip(clients, picks, strict=True)])
    return Target(rows, owner, label, len(placed))


def join(targets: Sequence[Target], sizes: Sequence[int]) -> Target:
    """The targets of consecutive cohorts as one; sizes: rows of each."""
    if len(targets) == 1:
        return targets[0]
    rows: dict[str, torch.Tensor] = {}
    owner: dict[str, torch.Tensor] = {}
    label: dict[str, torch.Tensor] = {}
    for part in ("val", "test"):
        row, client, r, o = 0, 0, [], []
        for target, size in zip(targets, sizes, strict=True):
            r.append(target.rows[part] + row)
            o.append(target.owner[part] + client)
            row, client = row + size, client + target.clients
        rows[part], owner[part] = torch.cat(r), torch.cat(o)
        label[part] = torch.cat([target.label[part] for target in targets])
    return Target(rows, owner, label, sum(target.clients for target in targets))
