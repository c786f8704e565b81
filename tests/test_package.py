"""The installed package and the container agree with setup.cfg and the Makefile."""

from __future__ import annotations

import configparser
import importlib.metadata
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fglbench
from fglbench.benchmark.cli import main

from . import conftest

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
    packages = {
        ".".join(["fglbench", *folder.parts]) for folder in folders if not any(p[0] == "." for p in folder.parts)
    }
    assert listed == packages


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
    for name in ("__init__.py", "setup.cfg"):
        shutil.copy(ROOT / name, folder / name)
    hooks = "\n\n".join(map(inspect.getsource, (conftest.Anywhere, conftest.pytest_configure)))
    imports = "from pathlib import Path\nimport pytest\n"
    (folder / "tests" / "conftest.py").write_text(f"{imports}{hooks}\n\n@pytest.fixture\ndef one():\n    return 1\n")
    (folder / "tests" / "test_one.py").write_text("def test_one(one):\n    assert one == 1\n")
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


DOCKERFILE = (ROOT / "Dockerfile").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
ARGUMENTS = dict(re.findall(r"^ARG (\w+)=(.*)$", DOCKERFILE, re.MULTILINE))


def test_make_run_is_a_valid_command() -> None:
    (command,) = re.findall(r"fglbench (run .*) --results", MAKEFILE)
    assert main([*command.split(), "--dry-run"]) == 0


def test_the_container_installs_with_make() -> None:
    runs = re.findall(r"^RUN (.*)$", DOCKERFILE, re.MULTILINE)
    assert [run for run in runs if "pip install" in run] == []
    (install,) = [run for run in runs if "make install" in run]
    variables = dict(re.findall(r'"?(\w+)=([^\s"]+)"?', install.split("make install")[1]))
    assert set(variables) == {"PYTHON", "TORCH", "CPU_WHEELS"}
    assert all(re.search(rf"^{name} [:?]?= ", MAKEFILE, re.MULTILINE) for name in variables)
    assert (variables["TORCH"], variables["CPU_WHEELS"]) == ("${TORCH}", "${WHEELS}")


def test_the_defaults_of_the_container_are_those_of_make() -> None:
    assert f"TORCH ?= {ARGUMENTS['TORCH']}\n" in MAKEFILE
    assert f"CPU_WHEELS := {ARGUMENTS['WHEELS']}\n" in MAKEFILE
    assert ARGUMENTS["PYTHON"] in ("3.10", "3.11", "3.12")


def test_make_takes_the_arguments() -> None:
    """What `make install` would run: the given torch, from the given wheels; and without wheels no index but pip's."""
    shown = [
        subprocess.run(
            ["make", "-n", "install", "PYTHON=python3", "VENV=absent", "TORCH=torch==9", f"CPU_WHEELS={wheels}"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout
        for wheels in ("https://wheels.example/cu1", "")
    ]  # fmt: skip
    assert all('pip install $extra "torch==9"' in text for text in shown)
    assert 'extra="--extra-index-url https://wheels.example/cu1"' in shown[0]
    assert 'u.urlopen("/torch/"' in shown[1]  # no address: it fails and adds nothing


def test_files_ignored_by_git_are_not_in_the_container() -> None:
    left_out = set((ROOT / ".dockerignore").read_text().split("\n"))
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    assert {name for name in ignored if "*" not in name} - {"__pycache__"} <= left_out
    assert ".git" not in left_out
