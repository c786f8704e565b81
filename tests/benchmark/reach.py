"""All objects that an object leads to: through attributes, containers, closures and bound methods, not through the
garbage collector, module globals or frames."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

_PLAIN = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.Size, np.generic, range)


def reachable(*roots: object) -> Iterator[object]:
    """Every object that the roots lead to, themselves included, once."""
    seen: dict[int, object] = {}  # kept alive, so that no id is reused
    waiting = deque(roots)
    while waiting:
        item = waiting.popleft()
        if id(item) in seen or isinstance(item, (*_PLAIN, types.ModuleType, type)):
            continue
        seen[id(item)] = item
        yield item
        waiting.extend(_next(item))


def _next(item: Any) -> Iterable[object]:
    """The objects that an object holds directly."""
    if isinstance(item, Mapping):
        yield from [*item.keys(), *item.values()]
    elif isinstance(item, list | tuple | set | frozenset | deque):
        yield from list(item)
    elif isinstance(item, torch.Tensor):
        yield item._base
    elif isinstance(item, np.ndarray):
        yield item.base
        yield from item.ravel().tolist() if item.dtype == object else ()
    elif isinstance(item, types.FunctionType):
        yield from (_content(cell) for cell in item.__closure__ or ())
        yield from (item.__defaults__, item.__kwdefaults__)
    elif isinstance(item, types.MethodType):
        yield from (item.__self__, item.__func__)
    elif isinstance(item, functools.partial):
        yield from (item.func, item.args, item.keywords)
    yield getattr(item, "__dict__", None)
    for cls in type(item).__mro__:
        names = cls.__dict__.get("__slots__", ())
        yield from (getattr(item, name, None) for name in ((names,) if isinstance(names, str) else names))


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def memory(*roots: object) -> set[int]:
    """Addresses of the memory of all tensors and arrays that the roots lead to."""
    addresses = {address for item in reachable(*roots) for address in _addresses(item)}
    return addresses - {0}


def _addresses(item: object) -> Iterator[int]:
    if isinstance(item, np.ndarray):
        while isinstance(item.base, np.ndarray):
            item = item.base
        yield item.__array_interface__["data"][0] if item.size else 0
    elif isinstance(item, torch.Tensor) and item.layout == torch.sparse_csr:
        yield from (part.untyped_storage().data_ptr() for part in (item.values(), item.col_indices()))
    elif isinstance(item, torch.Tensor) and item.layout == torch.strided:
        yield item.untyped_storage().data_ptr()
