"""Methods, datasets, partitions, splits and backbones from outside the package.

Python files and modules are imported if a command names them (`load_plugins`). Installed packages announce theirs in
the entry point groups `fglbench.methods`, `.datasets`, `.partitions`, `.splits` and `.backbones`; the name of an entry
point is the name of the method, dataset, ... A package is imported only if such a name is used, so a broken package
affects nothing else. Built-in names cannot be replaced.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import walk_tb
from typing import Any

from ...datasets import DATASETS, PARTITIONS, SPLITS
from ...methods import METHODS
from ...registry import Registry, UserError, did_you_mean
from ..engine.backbones import BACKBONES

REGISTRIES: dict[str, Registry[Any]] = {  # by kind
    registry.kind: registry for registry in (METHODS, DATASETS, PARTITIONS, SPLITS, BACKBONES)
}
PACKAGE = __name__.split(".")[0]
elsewhere: Callable[[Registry[Any], str], type[Any]] | None = None
"""If set (by `apart`), this looks up the names of installed packages, instead of an import here."""


def load_plugins(names: Iterable[str]) -> tuple[str, ...]:
    """Import each plug-in, a `.py` file or a module name, once. Returns names that are valid in any folder.

    Raises UserError (one line) if it cannot be imported, registers nothing, or has a built-in name.
    """
    plugins = located(names)
    for name in plugins:
        modules, entries = len(sys.modules), len(_registered())
        with _guarded(f"plug-in {name!r}"), redirect_stdout(sys.stderr):  # its prints are no output of a command
            _load_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
        if len(sys.modules) > modules and len(_registered()) == entries:
            raise UserError(f"plug-in {name!r} registers nothing: write @fglbench.register(NAME) above its class")
    return plugins


def located(names: Iterable[str]) -> tuple[str, ...]:
    """Names of plug-ins that are valid in any folder; nothing is imported. UserError for an invalid name."""
    plugins = []
    for name in names:
        path = Path(name).resolve() if name.endswith(".py") else None
        if path is None and not re.fullmatch(r"\w+(\.\w+)*", name):
            raise UserError(f"plug-in {name!r:.200} is neither a Python file (.py) nor the name of a module")
        plugins.append(str(path or name))
    return tuple(plugins)


def installed(registry: Registry[Any]) -> dict[str, EntryPoint]:
    """Name -> entry point of installed packages for a registry; nothing is imported.

    Entry points with built-in names are left out (see `refused`).
    """
    return {name: points[0] for name, points in _announced(registry).items() if not _built_in(registry, name)}


def kinds() -> dict[str, str]:
    """Name -> kind, of all names that are registered or of installed packages; the first kind of several counts."""
    return {name: kind for kind, one in reversed(REGISTRIES.items()) for name in (*one.names(), *installed(one))}


def refused(registry: Registry[Any]) -> list[str]:
    """A line for each announced name that is refused: it is built in, or several packages have it."""
    lines = []
    for name, points in _announced(registry).items():
        owners = ", ".join(_owner(point) for point in points)
        if _built_in(registry, name):
            lines.append(f"{registry.kind} {name!r} of {owners} is refused: a built-in {registry.kind} has this name")
        elif len(points) > 1:
            lines.append(f"{registry.kind} {name!r} is refused: several packages have it ({owners}); uninstall one")
    return lines


def _announced(registry: Registry[Any]) -> dict[str, list[EntryPoint]]:
    points = entry_points(group=f"fglbench.{registry.kind}s")
    several = {(point.name, _owner(point), point.value): point for point in points}
    by_name: dict[str, list[EntryPoint]] = {}
    for place in sorted(several):
        by_name.setdefault(place[0], []).append(several[place])
    return by_name


def _owner(point: EntryPoint) -> str:
    return f"package {point.dist.name!r}" if point.dist is not None else f"module {point.module!r}"


def built_in(kind: str, name: str) -> bool:
    """Whether a name is defined in the package. UserError for an unknown name."""
    return REGISTRIES[kind].cls(name).__module__.startswith(f"{PACKAGE}.")


def raised(error: BaseException) -> bool:
    """Whether code of a plug-in raised an error, also in a function that it called."""
    modules = {one.cls(name).__module__ for one, name in _registered() if not _built_in(one, name)}
    return any(frame.f_globals.get("__name__") in modules for frame, _ in walk_tb(error.__traceback__))


def _registered() -> list[tuple[Registry[Any], str]]:
    """The registries, each with each of its names."""
    return [(one, name) for one in REGISTRIES.values() for name in one.names()]


def _built_in(registry: Registry[Any], name: str) -> bool:
    return name in registry.names() and registry.cls(name).__module__.startswith(f"{PACKAGE}.")


def _resolve(registry: Registry[Any], name: str) -> type[Any] | None:
    announced = _announced(registry)
    if name not in announced:
        if announced:  # suggest names of installed packages too
            raise did_you_mean(name, {*registry.names(), *announced}, registry.kind)
        return None
    point, *others = announced[name]
    if others:
        raise UserError(next(line for line in refused(registry) if f" {name!r} " in line))
    if elsewhere is not None:
        return elsewhere(registry, name)
    what = f"{registry.kind} {name!r} of {_owner(point)}"
    with _guarded(what):
        point.load()
    if name not in registry.names():
        raise UserError(f"{what}: {point.value} registers no {registry.kind} under the name of its entry point")
    return registry.cls(name)


for _registry in REGISTRIES.values():
    _registry.resolver(partial(_resolve, _registry))


@contextmanager
def _guarded(what: str) -> Iterator[None]:
    """Around an import: turn errors into one line, and restore built-in names that it replaced."""
    before = [(one, name, one.cls(name)) for one, name in _registered() if _built_in(one, name)]
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # also SystemExit and the like of a plug-in
        reason = " ".join(str(error).split()) or "no message"
        if "registered twice" in reason:  # an error of the registry
            raise UserError(f"{what}: {reason}; choose another name") from None
        raise UserError(f"{what} cannot be imported: {type(error).__name__}: {reason:.300}") from None
    finally:
        lost = [f"{one.kind} {name!r}" for one, name, cls in before if one.cls(name) is not cls]
        for one, name, cls in before:
            one.register(name)(cls)
    if lost:
        raise UserError(f"{what} registers {', '.join(lost)}, which is built in; choose another name")


def _load_file(path: Path) -> None:
    name = f"fglbench_plugin_{path.stem}"
    if name in sys.modules:
        if (loaded := sys.modules[name].__file__) != str(path):
            raise UserError(f"two plug-ins are named {path.name}: {loaded} and {path}; rename one")
        return
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # because the path ends with .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
