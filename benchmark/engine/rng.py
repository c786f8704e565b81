"""Random numbers that belong to a client, not to its place in a batch.

Every stream is derived from (seed, purpose, client), so a client draws the same numbers in a client batch of any size,
and two purposes never share a stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch

_LEVELS = 1 << 16


def stream(seed: int, purpose: str, client: int | None = None) -> np.random.Generator:
    """The generator of one purpose for one client, or for the server when `client` is None."""
    word = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:4], "little")
    entropy = [seed, word, 0 if client is None else client + 1]
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(entropy)))


class Streams:
    """The persistent streams of an ordered set of clients; narrower views share the same generators."""

    def __init__(self, seed: int, clients: Sequence[int], table: dict[int, dict[str, np.random.Generator]]) -> None:
        """table: the generators of each client by purpose, as far as there are any; entries are added."""
        self.seed, self.clients = seed, tuple(clients)
        self._table = {client: table.setdefault(client, {}) for client in self.clients}  # and no one else's
        self._known: dict[str, list[np.random.Generator]] = {}

    def select(self, positions: Sequence[int]) -> Streams:
        return Streams(self.seed, [self.clients[p] for p in positions], self._table)

    def __call__(self, purpose: str) -> list[np.random.Generator]:
        """One generator per client, in client order."""
        if purpose not in self._known:
            generators = []
            for client in self.clients:
                by_purpose = self._table[client]
                if purpose not in by_purpose:
                    by_purpose[purpose] = stream(self.seed, purpose, client)
                generators.append(by_purpose[purpose])
            self._known[purpose] = generators
        return self._known[purpose]

    def keep(self, purpose: str, counts: Sequence[int], p: float) -> torch.Tensor:
        """Bool (sum(counts),): True with probability 1 - p; client k's own stream decides its counts[k] entries.

        16-bit integers are compared with a threshold, so p is rounded to a multiple of 2^-16 (see `rate`).
        """
        return torch.from_numpy(self.kept(purpose, counts, p))

    def kept(self, purpose: str, counts: Sequence[int], p: float) -> np.ndarray:
        """The same for NumPy. Drawn on the host for every device of the run, so that draws are the same on all."""
        kept, at, threshold = np.empty(sum(counts), bool), 0, round(p * _LEVELS) - _LEVELS // 2
        for generator, n in zip(self(purpose), counts, strict=True):
            # Whole 64-bit words, four entries each: NumPy's fastest draw, 25 times torch.bernoulli on one core.
            words = generator.bit_generator.random_raw((n + 3) // 4)
            np.greater_equal(words.view(np.int16)[:n], threshold, out=kept[at : at + n])
            at += n
        return kept


def rate(p: float) -> float:
    """The drop probability that `Streams.keep` realises for p."""
    return round(p * _LEVELS) / _LEVELS
