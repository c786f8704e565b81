"""The tasks other than classification: one file each, with split, data, loss, model and scores.

Importing this package imports all of them and fills the registries.
"""

from importlib import import_module
from pkgutil import iter_modules

for _found in iter_modules(__path__):
    import_module(f"{__name__}.{_found.name}")
