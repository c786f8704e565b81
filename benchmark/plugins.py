"""Methods, datasets and backbones that live outside the package: Python files and modules that register them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from ..registry import UserError


def load_plugins(names: Iterable[str]) -> None:
    """Import each plug-in, a `.py` file or a module name, once. UserError (one line) when it cannot be imported."""
    for name in names:
        try:
            _load_file(Path(name).resolve()) if name.endswith(".py") else importlib.import_module(name)
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"plug-in {name!r} cannot be imported: {type(error).__name__}: {error}") from None


def _load_file(path: Path) -> None:
    name = f"fglbench_plugin_{path.stem}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"plug-in {str(path)!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
