"""What a piece of training could read: the tensors that its functions, its cohort and its optimiser lead to.

Two rounds whose surveys have the same form differ in the values of these tensors alone, as far as Python can be seen:
the same code, the same numbers and words, tensors of the same shapes in the same places, and all other objects the
same ones. Lazy parameters stored by rows (rowsparse.py) are surveyed as what they are stored in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from enum import Enum
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch

from .lazy import Content, Lazy
from .rowsparse import ByRows, rows_of
from .timing import section

PLAIN = (int, float, complex, str, bytes, Enum, range, np.generic, torch.device, torch.dtype, type(None))


class Unfit(Exception):
    """What was asked for cannot be replayed; the message is the reason."""


class Found:
    """A tensor that was found. content: of the lazy one that it stores the rows of."""

    def __init__(self, value: torch.Tensor, content: Content | None = None) -> None:
        self.value, self.content = value, content

    def move(self, value: torch.Tensor) -> Callable[[], None]:
        """Let everyone who holds the tensor find another's memory in it, which has the same strides; how to undo it."""
        if self.content is None:
            before = self.value.data
            self.value.data = value
            return lambda: setattr(self.value, "data", before)
        content, parts = self.content, self.content.parts
        assert isinstance(parts, ByRows)
        content.parts = ByRows(parts.touched, value)

        def undo() -> None:
            content.parts, content._whole = parts, None

        return undo


class Survey:
    """form: equal where two surveys differ in values alone. leaves: the tensors, in the order in which they were met.

    held: the objects that the form knows by identity, which is theirs as long as they live.
    """

    def __init__(self, *roots: Any) -> None:
        self.leaves: list[Found] = []
        self.held: list[Any] = []
        self._passed: list[Any] = []  # on the way: their ids are their own until the survey is done
        self._form: list[Hashable] = []
        self._met: dict[Hashable, int] = {}  # containers, tensors and their memory: at which place first
        for root in roots:
            self._look(root)
        self.form = tuple(self._form)

    def _look(self, one: Any) -> None:
        if isinstance(one, PLAIN):
            self._form.append((type(one), one))
        elif isinstance(one, section):
            self._form.append(one.name)
        elif isinstance(one, torch.Tensor):
            self._tensor(one)
        elif isinstance(one, dict | list | tuple | FunctionType | MethodType | partial | CellType):
            known = id(one) in self._met
            self._form.append((type(one), self._met.setdefault(id(one), len(self._met))))
            if not known:
                self._passed.append(one)
                self._inside(one)
        else:
            self._form.append(id(one))
            self.held.append(one)

    def _inside(self, one: Any) -> None:
        if isinstance(one, dict):
            self._form.append(tuple(one))
            within: Any = one.values()
        elif isinstance(one, FunctionType):
            self._form.append(one.__code__)
            within = (one.__closure__, one.__defaults__, one.__kwdefaults__)
        elif isinstance(one, MethodType):
            within = (one.__func__, one.__self__)
        elif isinstance(one, partial):
            within = (one.func, one.args, one.keywords)
        elif isinstance(one, CellType):
            within = [one.cell_contents]
        else:
            within = one
        self._form.append(len(within))
        for value in within:
            self._look(value)

    def _tensor(self, one: torch.Tensor) -> None:
        rows = rows_of(one)
        if rows is not None:
            assert isinstance(one, Lazy)
            self._form.append(id(rows.touched))
            self.held.append(rows.touched)
            return self._leaf(rows.stack, one.content)
        if isinstance(one, Lazy):
            if one.content.parts is not None:
                raise Unfit("a tensor in parts")
            one = one.content.whole()
        if one.layout != torch.strided or one.requires_grad:
            raise Unfit("a sparse tensor, or one with gradients of its own")
        return self._leaf(one)

    def _leaf(self, value: torch.Tensor, content: Content | None = None) -> None:
        known, storage = id(value) in self._met, ("memory", storage_of(value))
        places = [self._met.setdefault(own, len(self._met)) for own in (id(value), storage)]
        self._form.append((value.dtype, value.device, value.shape, value.stride(), *places))
        if not known:
            self.leaves.append(Found(value, content))


def storage_of(value: torch.Tensor) -> int:
    """The memory that a tensor lies in, by a number that is its own as long as somebody holds it."""
    return int(value.untyped_storage()._cdata)
