"""A user's own graph as arrays: `graph.npz`."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from . import content as contents
from .federation import PARTS
from .ownraw import Mistakes, Raw, Words

ARCHIVE = "graph.npz"
MEMBERS = {"feature": "features", "label": "labels", "client": "clients", "split": "train, val, test"}


def read_archive(path: Path, mistakes: Mistakes) -> Raw | None:
    """What the arrays say; None where they are not of the form that they must have."""
    try:
        with contents.open_npz(path) as opened:
            arrays: dict[str, Any] = {name: opened[name] for name in opened.files}
        if "features" not in arrays:
            arrays["features"] = contents.csr(arrays, "features")
        edges, label, feat = (arrays[name] for name in ("edges", "labels", "features"))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        fix = "write it with np.savez(path, edges=..., features=..., labels=...)"
        mistakes.append(f"{path.name}: {type(error).__name__}: {' '.join(str(error).split()):.150}; {fix}")
        return None
    mistakes += [f"{path.name}: {line}" for line in _misshapen(arrays)]
    if mistakes:
        return None
    n = len(label)
    mistakes.where(
        ((edges < 0) | (edges >= n)).any(axis=1),
        lambda i: f"{path.name}: edges[{i}]: {edges[i].tolist()} for {n} nodes; name nodes from 0 to {n - 1}",
    )
    return Raw(
        edges=edges.astype(np.int64),
        feat=sp.csr_matrix(feat, dtype=np.float32) if sp.issparse(feat) else feat.astype(np.float32),
        label=_words(label),
        client=_words(arrays["clients"]) if "clients" in arrays else None,
        part=_parts(arrays, path.name, mistakes),
        at=lambda name, i: f"{path.name}: {MEMBERS[name]}[{i}]",
    )


def _misshapen(arrays: dict[str, Any]) -> Iterator[str]:
    """A line for each array that has another shape or type than it must have."""
    n = len(arrays["labels"]) if arrays["labels"].ndim else 0
    wanted: dict[str, tuple[tuple[int | None, ...], str, str]] = {
        "edges": ((None, 2), "iu", "whole numbers (M, 2)"),
        "features": ((n, None), "fiub", "numbers (N, d)"),
        "labels": ((n,), "iuU", "whole numbers or words (N,)"),
        "clients": ((n,), "iuU", "a whole number or word for each node (N,)"),
        **dict.fromkeys(PARTS, ((n,), "b", "true or false for each node (N,)")),
    }
    for name, (shape, kinds, what) in wanted.items():
        if name not in arrays:
            continue
        own = arrays[name]
        fits = own.ndim == len(shape) and all(
            size in (None, given) for size, given in zip(shape, own.shape, strict=True)
        )
        if not fits or own.dtype.kind not in kinds or not n:
            yield f"{name} is {own.dtype} {tuple(own.shape)} for N = {n}; give {what}"


def _parts(arrays: dict[str, Any], file: str, mistakes: Mistakes) -> Words | None:
    """The part of each node; None where there is no split."""
    given = [name for name in PARTS if name in arrays]
    part = np.full(len(arrays["labels"]), "", dtype="U5")
    for name in given:
        twice = np.flatnonzero(arrays[name] & (part != "")).tolist()
        mistakes += [f"{file}: {name}[{i}]: also in {part[i]}; put it in one part" for i in twice[:1]]
        part[arrays[name]] = name
    return part if given else None


def _words(values: np.ndarray) -> Words:
    """Whole numbers as words, those below 0 as none."""
    words: Words = values.astype(str)
    return np.where(values < 0, "", words) if values.dtype.kind == "i" else words
