"""Models on the wire by the leading singular values of their matrices."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...benchmark.engine import Params, Tree, section, transform


def rank(values: torch.Tensor, energy: float) -> int:
    """The smallest number of leading singular values (descending) whose squares reach the share `energy` of all."""
    reached = values.double().square().cumsum(0)
    return min(int((reached < energy * reached[-1]).sum()) + 1, len(values))


def factor(matrix: torch.Tensor, energy: float) -> Tree:
    """(m, n) as left (m, r), values (r,), right (r, n); whole in `left`, without values, where that is not larger."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    r = rank(values, energy)
    if r * (matrix.shape[0] + matrix.shape[1] + 1) >= matrix.numel():
        return {"left": matrix, "values": matrix.new_empty(0), "right": matrix.new_empty(0)}
    return {"left": left[:, :r].contiguous(), "values": values[:r].clone(), "right": right[:r].contiguous()}


def product(parts: Tree) -> torch.Tensor:
    """The matrix that `factor` took apart."""
    left: torch.Tensor = parts["left"]
    return (left * parts["values"]) @ parts["right"] if len(parts["values"]) else left


def compress(model: Params, energy: float) -> Tree:
    """One model, without client axis: matrices factored, vectors as they are."""
    with section("compression"):
        return {name: factor(value, energy) if value.dim() == 2 else value for name, value in model.items()}


def restore(tree: Tree) -> Params:
    """The model that `compress` took apart."""
    with section("compression"):
        return {name: product(value) if isinstance(value, dict) else value for name, value in tree.items()}


def gather(trees: Sequence[Tree]) -> Tree:
    """One tree a client as one tree whose leaves are lists with one tensor a client."""
    first = trees[0]
    return {
        key: gather([tree[key] for tree in trees]) if isinstance(value, dict) else [tree[key] for tree in trees]
        for key, value in first.items()
    }


def row(tree: Tree, client: int) -> Tree:
    """One client's part of a tree whose leaves have one entry a client."""
    found: Tree = transform(tree, lambda leaf: leaf[client])
    return found


def stack(models: Sequence[Params]) -> Params:
    """One model a client as (K, ...)."""
    return {name: torch.stack([model[name] for model in models]) for name in models[0]}
