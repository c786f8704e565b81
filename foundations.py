"""Check the versions of Python, torch and DGL, and make DGL importable with newer versions of torch.

DGL has builds for Python 3.10 and 3.11 in version 1.1.3 and for Python 3.12 in version 2.1.0 (setup.cfg chooses).
Version 2.1.0 contains `graphbolt`, a package for sampling on disk. Its C++ library exists for torch up to 2.2 only, and
`import dgl` fails without it, because `dgl.distributed` loads it. fglbench uses neither, so `keep_graphbolt_out`
replaces graphbolt by an empty module before DGL is imported, unless the library fits the installed torch. This module
imports the standard library only and runs on any Python. It also chooses the library that multiplies matrices.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

OLDEST, NEWEST = (3, 10), (3, 12)
PYTHONS = "Python 3.10, 3.11 or 3.12"
NEEDS = "torch>=2.4,<2.14 and dgl==1.1.3 (2.1.0 on Python 3.12)"


def python_fits() -> bool:
    """Return whether DGL has a build for this Python."""
    return OLDEST <= sys.version_info[:2] <= NEWEST


def keep_graphbolt_out() -> None:
    """Make `import dgl` work if its graphbolt cannot be loaded.

    It must be called before DGL is first imported, so `import fglbench` does it.
    """
    name = "dgl.graphbolt"
    if "dgl" not in sys.modules and _graphbolt_fails():
        sys.modules[name] = ModuleType(name, "Not loaded: it has no library for this torch (see fglbench.foundations).")


@contextlib.contextmanager
def without_distributed_tensors() -> Iterator[None]:
    """Hide torch's `DTensor` within the context, unless it is already imported.

    Before the first operation on a subclass of tensor, newer versions of torch import the class of distributed tensors,
    and with it half of torch and SymPy, which takes more than half a second.
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
        del sys.modules[name]  # later imports find the real module


def _graphbolt_fails() -> bool:
    """Return whether graphbolt is installed without a library for the installed torch."""
    spec = importlib.util.find_spec("dgl")  # imports nothing
    if spec is None or spec.origin is None:
        return False
    folder = Path(spec.origin).parent / "graphbolt"
    try:
        torch = importlib.metadata.version("torch").split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return False
    return folder.is_dir() and not any(folder.glob(f"*graphbolt_pytorch_{torch}.*"))


@cache
def prefers_onednn() -> bool:
    """Whether torch multiplies faster by oneDNN than by MKL: an AMD processor with AVX-512, where MKL uses only AVX2.

    Not with AMX, because oneDNN may round to bfloat16 there.
    """
    import torch

    amd = (cpu := Path("/proc/cpuinfo")).exists() and "AuthenticAMD" in cpu.read_text()
    wide = torch._C._has_mkldnn and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return amd and wide and not torch.cpu._is_amx_tile_supported()
