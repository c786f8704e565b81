"""Packages that compute, left out of commands that only name things.

A method's or dataset's class says its parameters, defaults and protocol, and stands in a module that imports torch and
DGL: seconds, for a command that looks at declarations. `leave_out` puts a stand-in in a package's place before it is
imported. Declaring works with it: names are imported from it, called as decorators, subclassed, subscripted; computing
does not: a stand-in is no number, has no length and cannot be iterated. Only for a process that ends with such a
command, since whatever was declared with a stand-in keeps it.
"""

import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class StandIn:
    """In the place of anything that a package has."""

    __iter__ = None  # otherwise __getitem__ would make it iterable

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> "StandIn":
        return _part(self.__name__, name)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """As a decorator, what it decorates."""
        return given[0] if len(given) == 1 and callable(given[0]) else self

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __getitem__(self, key: Any) -> "StandIn":
        return self

    def __or__(self, other: Any) -> "StandIn":  # of types
        return self

    __ror__ = __or__


class _LeftOut(ModuleType):
    def __getattr__(self, name: str) -> StandIn:
        return _part(self.__name__, name)


def _part(of: str, name: str) -> StandIn:
    if name.startswith("__"):  # protocols that it does not follow
        raise AttributeError(f"{of}.{name}: {of.split('.')[0]} is left out of this command")
    return StandIn(f"{of}.{name}")


class _Finder(MetaPathFinder, Loader):
    def __init__(self, packages: Iterable[str]) -> None:
        self.packages = frozenset(packages)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] in self.packages else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LeftOut(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def left_out() -> bool:
    """Whether there are stand-ins in this process, in which nothing can be computed then."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def leave_out(*packages: str) -> None:
    """From now on these are stand-ins in this process; those that are imported already stay what they are."""
    sys.meta_path.insert(0, _Finder({name for name in packages if name not in sys.modules}))
