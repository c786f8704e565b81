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
    seen: dict[int, object] = {}  # kept alive: an id must not be given to another
    waiting = deque(roots)
    while waiting:
        one = waiting.popleft()
        if id(one) in seen or isinstance(one, (*_PLAIN, types.ModuleType, type)):
            continue
        seen[id(one)] = one
        yield one
        waiting.extend(_next(one))


def _next(one: Any) -> Iterable[object]:
    """The objects that an object holds directly."""
    if isinstance(one, Mapping):
        yield from [*one.keys(), *one.values()]
    elif isinstance(one, list | tuple | set | frozenset | deque):
        yield from list(one)
    elif isinstance(one, torch.Tensor):
        yield one._base
    elif isinstance(one, np.ndarray):
        yield one.base
        yield from one.ravel().tolist() if one.dtype == object else ()
    elif isinstance(one, types.FunctionType):
        yield from (_content(cell) for cell in one.__closure__ or ())
        yield from (one.__defaults__, one.__kwdefaults__)
    elif isinstance(one, types.MethodType):
        yield from (one.__self__, one.__func__)
    elif isinstance(one, functools.partial):
        yield from (one.func, one.args, one.keywords)
    yield getattr(one, "__dict__", None)
    for cls in type(one).__mro__:
        names = cls.__dict__.get("__slots__", ())
        yield from (getattr(one, name, None) for name in ((names,) if isinstance(names, str) else names))


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def memory(*roots: object) -> set[int]:
    """Addresses of the memory of all tensors and arrays that the roots lead to."""
    addresses = {address for one in reachable(*roots) for address in _addresses(one)}
    return addresses - {0}


def _addresses(one: object) -> Iterator[int]:
    if isinstance(one, np.ndarray):
        while isinstance(one.base, np.ndarray):
            one = one.base
        yield one.__array_interface__["data"][0] if one.size else 0
    elif isinstance(one, torch.Tensor) and one.layout == torch.sparse_csr:
        yield from (part.untyped_storage().data_ptr() for part in (one.values(), one.col_indices()))
    elif isinstance(one, torch.Tensor) and one.layout == torch.strided:
        yield one.untyped_storage().data_ptr()
