"""A plug-in with a dataset whose only source is one machine."""

from __future__ import annotations

import os
from typing import ClassVar

from fglbench.datasets import DATASETS
from fglbench.datasets.csbm import CSBM
from fglbench.datasets.sources import Route, Unavailable, obtain


class OneMachine(Route):
    """Available if SHIPPED_FROM_HERE is set."""

    kind: ClassVar[str] = "mirror"

    def fetch(self, work):
        if "SHIPPED_FROM_HERE" not in os.environ:
            raise Unavailable("not from here")
        return {}


@DATASETS.register("shipped")
class Shipped(CSBM):
    """A block model that is kept like a dataset of files."""

    name: ClassVar[str] = "shipped"
    synthetic: ClassVar[bool] = False

    def content(self):
        content, _ = CSBM(nodes=60, classes=2, features=8).content()
        return obtain("shipped", [OneMachine({}, lambda files: content)], None)
