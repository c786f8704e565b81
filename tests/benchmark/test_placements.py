"""Two methods run wherever environment, cache and mirror lie: one in another, behind links, with odd names."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import torch

import fglbench
from fglbench.benchmark.store import Store

PLACES: dict[str, tuple[str, str, str, dict[str, str]]] = {  # environment, cache, mirror; links and where they lead
    "names that begin alike": ("fglbench-venv", "fglbench", "fglbench-mirror", {}),
    "environment in the cache": ("cache/venv", "cache", "mirror", {}),
    "cache in the environment": ("venv", "venv/cache", "mirror", {}),
    "mirror in the cache": ("venv", "cache", "cache/mirror", {}),
    "cache in the mirror": ("venv", "mirror/cache", "mirror", {}),
    "cache behind a link": ("venv", "link/cache", "mirror", {"link": "real"}),
    "mirror behind a link": ("venv", "cache", "link", {"link": "real"}),
    "environment behind a link": ("link/venv", "cache", "mirror", {"link": "real"}),
    "blanks": ("my venv", "my cache", "my mirror", {}),
    "colons": ("venv", "12:30 c", "m:1", {}),
    "quotes and letters": ("vé'n[v]", 'c ü"(x)', "m#é", {}),
    "dots": (".a/../venv", "./x/../.cache", ".mirror", {}),
}


def environment(place: Path) -> Path:
    """Make an environment with the packages of this one; its interpreter."""
    venv.create(place, symlinks=True)
    site = next(place.glob("lib/python*/site-packages"))
    (site / "others.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    (site / "fglbench").symlink_to(Path(fglbench.__file__).parent.absolute())  # the checkout may have any name
    return place / "bin" / "python"


def mirror(place: Path) -> None:
    """48 paths of three nodes in two classes, as a set of the TU collection."""
    place.mkdir(parents=True, exist_ok=True)
    edges = [pair for start in range(1, 145, 3) for i in (start, start + 1) for pair in ((i, i + 1), (i + 1, i))]
    tables = {
        "A": [f"{a}, {b}" for a, b in edges],
        "graph_indicator": [1 + node // 3 for node in range(144)],
        "graph_labels": [graph % 2 for graph in range(48)],
        "node_labels": [node % 3 for node in range(144)],
    }
    (place / "tu").mkdir()
    with zipfile.ZipFile(place / "tu" / "TINY.zip", "w") as archive:
        for name, lines in tables.items():
            archive.writestr(f"TINY/TINY_{name}.txt", "".join(f"{line}\n" for line in lines))


@pytest.mark.skipif(os.name != "posix", reason="links and names of POSIX")
@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[pytest.mark.slow] * (number > 0)) for number, what in enumerate(PLACES)]
)
def test_two_methods_run_in_any_place(what: str, tmp_path: Path) -> None:
    own, cache, mirrored, links = PLACES[what]
    for link, target in links.items():
        (tmp_path / target).mkdir()
        (tmp_path / link).symlink_to(target)
    (tmp_path / "x").mkdir()
    (tmp_path / ".a").mkdir()
    python = environment(tmp_path / own)
    mirror(tmp_path / mirrored)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables |= {"FGLBENCH_CACHE": f"{tmp_path}/{cache}", "FGLBENCH_MIRROR": f"{tmp_path}/{mirrored}"}
    code = "import sys; from fglbench.benchmark.cli import main; sys.exit(main(sys.argv[1:]))"
    options = ["-d", "tu:TINY", "-m", "fedavg,local", "-p", "uniform", "-k", "2", "--split", "ratio", "-b", "gin"]
    options += ["--seeds", "1", "--set", "training.rounds=1", "-j", "1", "--results", "results"]
    done = subprocess.run(
        [python, "-c", code, "run", *options], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = Store(tmp_path / "results").rows()
    assert {row.method: row.status for row in rows} == {"fedavg": "ok", "local": "ok"}
    assert sys.prefix not in str(python.parent)
