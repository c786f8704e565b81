"""Random streams by seed, purpose and client.

A client draws the same numbers in any client batch, and different purposes have different streams.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch

_LEVELS = 1 << 16


def stream(seed: int, purpose: str, client: int | None = None) -> np.random.Generator:
    """The generator of one purpose for one client, or for the server if `client` is None."""
    word = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:4], "little")
    entropy = [seed, word, 0 if client is None else client + 1]
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(entropy)))


def torch_source(generator: np.random.Generator) -> torch.Generator:
    """Return a generator of torch whose seed is the next draw."""
    return torch.Generator().manual_seed(int(generator.integers(2**63)))


class Streams:
    """The persistent streams of a sequence of clients; `select` shares the same generators."""

    def __init__(self, seed: int, clients: Sequence[int], table: dict[int, dict[str, np.random.Generator]]) -> None:
        """table: the existing generators of each client by purpose; entries are added."""
        self.seed, self.clients = seed, tuple(clients)
        self._table = {client: table.setdefault(client, {}) for client in self.clients}  # only of these clients
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
        """Bool (sum(counts),), True with probability 1 - p. Client k's stream draws its counts[k] entries.

        16-bit integers are compared with a threshold, so p is rounded to a multiple of 2^-16 (see `rate`).
        """
        return torch.from_numpy(self.kept(purpose, counts, p))

    def kept(self, purpose: str, counts: Sequence[int], p: float) -> np.ndarray:
        """The same as a NumPy array. Draws are made on the host, so they are the same for every device."""
        kept, at, threshold = np.empty(sum(counts), bool), 0, round(p * _LEVELS) - _LEVELS // 2
        for generator, n in zip(self(purpose), counts, strict=True):
            # 64-bit words, four entries each: NumPy's fastest draw, 25 times as fast as torch.bernoulli on one core.
            words = generator.bit_generator.random_raw((n + 3) // 4)
            np.greater_equal(words.view(np.int16)[:n], threshold, out=kept[at : at + n])
            at += n
        return kept


def rate(p: float) -> float:
    """The drop probability of `Streams.keep` for p: p rounded to a multiple of 2^-16."""
    return round(p * _LEVELS) / _LEVELS
