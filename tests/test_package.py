"""The package as it is installed: what setup.cfg lists is what there is."""

from __future__ import annotations

import configparser
import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fglbench

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def setup():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_every_package_is_listed(setup):
    listed = set(setup["options"]["packages"].split())
    folders = {path.parent.relative_to(ROOT) for path in ROOT.rglob("__init__.py")}
    folders = {folder for folder in folders if not {"tests", "build"} & set(folder.parts)}
    there = {".".join(["fglbench", *folder.parts]) for folder in folders if not any(p[0] == "." for p in folder.parts)}
    assert listed == there


def test_data_files_are_listed(setup):
    patterns = {
        (package, pattern) for package, lines in setup["options.package_data"].items() for pattern in lines.split()
    }
    for package, pattern in patterns:
        folder = ROOT.joinpath(*package.split(".")[1:])
        assert list(folder.glob(pattern)), f"{package}: nothing matches {pattern}"
    shipped = {path for package, pattern in patterns for path in ROOT.joinpath(*package.split(".")[1:]).glob(pattern)}
    assert set((ROOT / "benchmark" / "suites").glob("*.yaml")) <= shipped
    tables = [path for room in ("benchmark", "datasets", "report") for path in (ROOT / room).rglob("*.csv")]
    assert [path.name for path in tables if path not in shipped and "tuned" not in path.parts] == []


def test_tests_are_found_in_a_folder_of_any_name(tmp_path):
    """As of an unpacked source distribution: its name has dots, and its folder is the package."""
    folder = tmp_path / "fglbench-0.2.0"
    (folder / "tests").mkdir(parents=True)
    for name in ("__init__.py", "setup.cfg", "tests/conftest.py"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "tests" / "test_one.py").write_text("def test_one(federation):\n    assert federation().clients\n")
    done = subprocess.run([sys.executable, "-m", "pytest"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_version_is_the_same_everywhere(setup):
    """setup.cfg reads it from the package; the citation, the installed metadata and the newest entry name it too."""
    assert setup["metadata"]["version"] == "attr: fglbench.__version__"
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    newest = re.search(r"^## (\S+) - ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert cited and newest and cited[1] == newest[1] == fglbench.__version__
    assert importlib.metadata.version("fglbench") == fglbench.__version__, "install the package again: make install"
