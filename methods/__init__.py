"""The methods: one paper, one file or folder. Importing this package imports all of them and fills the registry."""

from importlib import import_module
from pkgutil import iter_modules

from .. import tasks as _tasks  # noqa: F401  registers the tasks other than classification
from ..benchmark.engine import METHODS

for _found in iter_modules(__path__):
    import_module(f"{__name__}.{_found.name}")
METHODS.settle()

__all__ = ["METHODS"]
