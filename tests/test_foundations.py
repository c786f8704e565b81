"""The combinations of Python, torch and DGL that are made to work, without installing them."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fglbench import foundations


@pytest.fixture
def fake_dgl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder that replaces DGL, with torch 2.13.0+cpu beside it; DGL is not yet imported."""
    folder = tmp_path / "dgl"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: SimpleNamespace(origin=str(folder / "__init__.py")))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2.13.0+cpu")
    for name in [name for name in sys.modules if name.split(".")[0] == "dgl"]:
        monkeypatch.delitem(sys.modules, name)
    yield folder
    sys.modules.pop("dgl.graphbolt", None)


@pytest.mark.parametrize(
    ("libraries", "stands_in"),
    [
        (None, False),  # DGL 1.1.3: no such part
        ([], True),
        (["libgraphbolt_pytorch_2.2.1.so", "libgraphbolt_pytorch_2.13.so"], True),
        (["libgraphbolt_pytorch_2.2.1.so", "libgraphbolt_pytorch_2.13.0.so"], False),
        (["graphbolt_pytorch_2.13.0.dll"], False),
    ],
)
def test_graphbolt_is_replaced_if_its_library_is_missing(fake_dgl: Path, libraries, stands_in) -> None:
    if libraries is not None:
        (fake_dgl / "graphbolt").mkdir()
        for name in libraries:
            (fake_dgl / "graphbolt" / name).touch()
    foundations.keep_graphbolt_out()
    assert ("dgl.graphbolt" in sys.modules) == stands_in


def test_nothing_is_touched_once_dgl_is_there(fake_dgl: Path, monkeypatch) -> None:
    (fake_dgl / "graphbolt").mkdir()
    monkeypatch.setitem(sys.modules, "dgl", SimpleNamespace())
    foundations.keep_graphbolt_out()
    assert "dgl.graphbolt" not in sys.modules


def test_imports_of_torch_and_dgl_in_a_new_process() -> None:
    """The first operation on lazy weights imports neither SymPy nor distributed tensors. The import statement that DGL
    uses takes an empty module from where it is put."""
    code = (
        "import fglbench, sys, torch, types\n"
        "from fglbench.benchmark.engine import lazy\n"
        "assert 'sympy' not in sys.modules\n"
        "pieces = lazy.in_parts(lazy.Joined([torch.ones(1, 2), torch.ones(2, 2)]))\n"
        "assert (pieces.detach() + 1).sum() == 12\n"
        "assert 'sympy' not in sys.modules and 'torch.distributed.tensor' not in sys.modules\n"
        "sys.modules.setdefault('dgl.graphbolt', types.ModuleType('dgl.graphbolt'))\n"
        "import dgl\n"
        "from dgl import graphbolt\n"
        "print(dgl.graph(([0], [1])).num_nodes(), graphbolt.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["2", "dgl.graphbolt"], done.stderr


@pytest.mark.parametrize(("version", "fits"), [((3, 9), False), ((3, 10), True), ((3, 12), True), ((3, 13), False)])
def test_the_pythons_are_those_that_setup_cfg_asks_for(monkeypatch, version, fits) -> None:
    monkeypatch.setattr(sys, "version_info", (*version, 0, "final", 0))
    assert foundations.python_fits() == fits
    text = (Path(foundations.__file__).parent / "setup.cfg").read_text()
    assert "python_requires = >=3.10,<3.13" in text
    assert f"Python {'.'.join(map(str, version))}".replace("Python", "Python ::") in text or not fits


def test_imported_distributed_tensors_are_kept() -> None:
    real = SimpleNamespace()
    name = "torch.distributed.tensor"
    before = sys.modules.get(name)
    try:
        sys.modules[name] = real
        with foundations.without_distributed_tensors():
            assert sys.modules[name] is real
        assert sys.modules[name] is real
        del sys.modules[name]
        with foundations.without_distributed_tensors():
            assert not isinstance(torch.zeros(1), sys.modules[name].DTensor)
        assert name not in sys.modules
    finally:
        sys.modules.pop(name, None)
        sys.modules.update({name: before} if before else {})
