"""The Dockerfile installs what the Makefile installs: read, since no test may need Docker."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
ARGUMENTS = dict(re.findall(r"^ARG (\w+)=(.*)$", DOCKERFILE, re.MULTILINE))


def test_it_installs_by_make_alone() -> None:
    runs = re.findall(r"^RUN (.*)$", DOCKERFILE, re.MULTILINE)
    assert [run for run in runs if "pip install" in run] == []
    (install,) = [run for run in runs if "make install" in run]
    given = dict(re.findall(r'"?(\w+)=([^\s"]+)"?', install.split("make install")[1]))
    assert set(given) == {"PYTHON", "TORCH", "CPU_WHEELS"}
    assert all(re.search(rf"^{name} [:?]?= ", MAKEFILE, re.MULTILINE) for name in given)
    assert (given["TORCH"], given["CPU_WHEELS"]) == ("${TORCH}", "${WHEELS}")


def test_its_defaults_are_those_of_make() -> None:
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
    assert 'u.urlopen("/torch/"' in shown[1]  # no address: it fails, and nothing is added


def test_what_git_ignores_stays_out() -> None:
    left_out = set((ROOT / ".dockerignore").read_text().split("\n"))
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    assert {name for name in ignored if "*" not in name} - {"__pycache__"} <= left_out
    assert ".git" not in left_out
