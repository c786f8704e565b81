"""One rule for every random stream of the data side, so that all methods of a cell share partition and split."""

from __future__ import annotations

import hashlib

import numpy as np

from ..registry import UserError


def derive(seed: int, purpose: str) -> int:
    """A 32-bit seed for one purpose ("partition", "split", …) of a cell with seed `seed` >= 0.

    numpy.random.SeedSequence([seed, first 4 bytes of sha256(purpose)]): streams of different purposes are independent,
    and neither the method nor the order of calls enters. Raises UserError for a negative seed.
    """
    if seed < 0:
        raise UserError(f"a seed is a whole number of at least 0, got {seed}")
    tag = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:4], "little")
    return int(np.random.SeedSequence([seed, tag]).generate_state(1)[0])
