"""Which parameters belong to a model's last layers."""

from __future__ import annotations

from collections.abc import Collection


def last_layers(names: Collection[str], count: int) -> set[str]:
    """Return the names of the parameters of the last `count` layers, the classifier included.

    names: of all parameters, in the order of the layers, "0.weight", "1.weight", ..., "head.weight". All of them where
    there are no more layers than `count`.
    """
    layers = list(dict.fromkeys(name.split(".")[0] for name in names))
    last = set(layers[len(layers) - count :]) if 0 < count < len(layers) else set(layers if count else ())
    return {name for name in names if name.split(".")[0] in last}
