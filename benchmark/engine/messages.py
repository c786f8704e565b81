"""What crosses between a client and the server: values, their bytes, and the rule that nobody writes into them.

An upload is a tree (dicts) whose leaves hold one value a client: a tensor with a leading client axis (K, ...), or a
list of K tensors where sizes differ. A download is a tree of tensors that are the same for everyone, or `Each` of a
tree shaped like an upload. Integers of 64 bits count 8 bytes, float32 counts 4: the bytes of the values themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

Leaf: TypeAlias = "torch.Tensor | list[torch.Tensor]"
Tree: TypeAlias = dict[str, Any]  # nested dicts with leaves


@dataclass
class Each:
    """A download with a value of its own for each client that gets it: leaves (K, ...) or lists of K tensors.

    clients: the ids addressed, in the order of the leaves; None = the participants of the round. A method that allows
    partial participation addresses all clients, since those of the next round are not known yet.
    """

    tree: Tree
    clients: Sequence[int] | None = None


Download: TypeAlias = "Tree | Each"


def leaves(tree: Any) -> Iterator[Leaf]:
    """The leaves of a tree, in key order of the dicts. TypeError for anything that cannot cross the wire."""
    if isinstance(tree, dict):
        for key in tree:
            yield from leaves(tree[key])
    elif isinstance(tree, torch.Tensor) or (
        isinstance(tree, list) and all(isinstance(entry, torch.Tensor) for entry in tree)
    ):
        yield tree
    else:
        raise TypeError(f"a message holds tensors and lists of tensors, not {type(tree).__name__}")


def transform(tree: Any, function: Callable[[Leaf], Any]) -> Any:
    """The same tree with `function` applied to every leaf."""
    if isinstance(tree, dict):
        return {key: transform(value, function) for key, value in tree.items()}
    return function(tree)


def merge(trees: Sequence[Tree]) -> Tree:
    """The uploads of several cohorts as one, clients in order."""
    first = trees[0]
    if len(trees) == 1:
        return first
    merged: Tree = {}
    for key, value in first.items():
        column = [tree[key] for tree in trees]
        if isinstance(value, dict):
            merged[key] = merge(column)
        elif isinstance(value, list):
            merged[key] = [entry for part in column for entry in part]
        else:
            merged[key] = torch.cat(column)
    return merged


def tree_bytes(tree: Tree, clients: int) -> list[int]:
    """Bytes that each of the K clients of a cohort sends or gets. ValueError when a leaf lacks one value a client."""
    totals = [0] * clients
    for leaf in leaves(tree):
        if len(leaf) != clients:
            raise ValueError(f"a message holds one value for each of {clients} clients, this one holds {len(leaf)}")
        if isinstance(leaf, torch.Tensor):
            size = leaf.numel() // clients * leaf.element_size()
            totals = [total + size for total in totals]
        else:
            totals = [total + v.numel() * v.element_size() for total, v in zip(totals, leaf, strict=True)]
    return totals


def deliver(message: Download, clients: Sequence[int], participants: Sequence[int], *, partial: bool = False) -> Tree:
    """What these clients receive: leaves with a leading axis for them. participants: of the round of the message.

    A value that is the same for everyone is expanded, not copied (stride 0); the receiver must not write into it.
    RuntimeError when a personal download does not address one of the clients; with `partial`, an empty tree.
    """
    if isinstance(message, Each):
        addressed = list(participants if message.clients is None else message.clients)
        if addressed == list(clients):
            return message.tree
        missing = sorted(set(clients) - set(addressed))
        if missing and partial:
            return {}
        if missing:
            raise RuntimeError(f"the server has no download for clients {missing}: it addressed {addressed}")
        rows = [addressed.index(client) for client in clients]
        return transform(message.tree, lambda v: [v[row] for row in rows] if isinstance(v, list) else v[rows])
    k = len(clients)
    return transform(message, lambda v: [v] * k if isinstance(v, list) else v.expand(k, *v.shape))


class Seal:
    """Detects a write into a value after it was handed over, through the version counters of the tensors."""

    def __init__(self) -> None:
        self._seen: list[tuple[torch.Tensor, int, str]] = []

    def close(self, message: Download, what: str) -> None:
        for leaf in leaves(message.tree if isinstance(message, Each) else message):
            for value in leaf if isinstance(leaf, list) else [leaf]:
                self._seen.append((value, value._version, what))

    def check(self) -> None:
        """RuntimeError when a sealed value was written to."""
        for value, version, what in self._seen:
            if value._version != version:
                raise RuntimeError(f"{what} was written to after it was handed over: copy it first")
        self._seen.clear()
