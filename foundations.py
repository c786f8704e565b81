"""Which Python, torch and DGL go together, and the one thing that has to be done for it.

DGL has builds for Python 3.10 and 3.11 in its version 1.1.3 and for 3.12 in 2.1.0 (setup.cfg chooses by Python). The
later one brings `graphbolt`, a part for sampling on disk whose C++ library exists for torch up to 2.2 only; DGL loads
it together with everything else, through `dgl.distributed`, and does not import without it. fglbench uses neither, so
`keep_graphbolt_out` puts an empty module in its place before DGL is imported. Where the library fits the torch that is
there, nothing is done. This module imports nothing heavy and runs on any Python, to say so.
"""

import contextlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

OLDEST, NEWEST = (3, 10), (3, 12)
PYTHONS = "Python 3.10, 3.11 or 3.12"
NEEDS = "torch>=2.4,<2.14 and dgl==1.1.3 (2.1.0 on Python 3.12)"


def python_fits() -> bool:
    """Whether this Python is one that DGL has a build for."""
    return OLDEST <= sys.version_info[:2] <= NEWEST


def keep_graphbolt_out() -> None:
    """Make `import dgl` work where its graphbolt cannot be loaded.

    Has to come before DGL's first import, which is why importing `fglbench` does it.
    """
    name = "dgl.graphbolt"
    if "dgl" not in sys.modules and _unloadable():
        sys.modules[name] = ModuleType(name, "Not loaded: it has no library for this torch (see fglbench.foundations).")


@contextlib.contextmanager
def without_distributed_tensors() -> Iterator[None]:
    """Inside, torch finds that it has no `DTensor`, where that has not been imported yet.

    Before it hands the first operation on a subclass of tensor to that subclass, newer versions of torch ask once for
    the class of its distributed tensors, and import half of torch and SymPy with it: more than half a second.
    """
    name = "torch.distributed.tensor"
    if name in sys.modules:
        yield
        return
    absent = ModuleType(name, "Not loaded: nothing here is distributed over devices (see fglbench.foundations).")
    vars(absent)["DTensor"] = type("DTensor", (), {})
    sys.modules[name] = absent
    try:
        yield
    finally:
        del sys.modules[name]  # who wants the real one imports it


def _unloadable() -> bool:
    """Whether there is a graphbolt, without a library for the torch that is installed."""
    spec = importlib.util.find_spec("dgl")  # finds the folder and imports nothing
    if spec is None or spec.origin is None:
        return False
    folder = Path(spec.origin).parent / "graphbolt"
    try:
        torch = importlib.metadata.version("torch").split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return False
    return folder.is_dir() and not any(folder.glob(f"*graphbolt_pytorch_{torch}.*"))
