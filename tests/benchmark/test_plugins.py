"""Plug-ins: files, and distributions that announce methods and datasets by entry points. The latter are real: a module
next to its dist-info folder on the path of a new process."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = '''
import fglbench.methods.fedavg as base
from fglbench.methods import METHODS
from pydantic import Field

print("imported good", flush=True)


@METHODS.register("good-avg")
class GoodAvg(base.FedAvg):
    """Someone, 2026: FedAvg under another name. Messages as FedAvg."""

    extra: float = Field(0.0, description="nothing")
'''
DATA = '''
from typing import ClassVar

from fglbench.datasets import DATASETS
from fglbench.datasets.csbm import CSBM


@DATASETS.register("good-data")
class GoodData(CSBM):
    """A block model under another name."""
'''
TAKES = '''
from fglbench.methods import METHODS
from fglbench.methods import fedavg


@METHODS.register("fedavg")
class FedAvg(fedavg.Local):
    """Takes the place of a built-in method, by its name and that of its class."""
'''


def distribution(
    folder: Path, name: str, code: str, methods: dict[str, str] | None = None, **kinds_of_entries: dict[str, str]
) -> None:
    """A module and its dist-info, as installed by pip."""
    module = name.replace("-", "_")
    folder.mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "RECORD").write_text(f"{module}.py,,\n")
    groups = {f"fglbench.{kinds}": each for kinds, each in {"methods": methods or {}, **kinds_of_entries}.items()}
    (info / "entry_points.txt").write_text(
        "".join(f"[{g}]\n" + "".join(f"{k} = {v}\n" for k, v in each.items()) for g, each in groups.items())
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Valid and broken plug-in packages."""
    folder = tmp_path_factory.mktemp("site")
    distribution(folder, "good-pack", GOOD, {"good-avg": "good_pack:GoodAvg"})
    distribution(folder, "data-pack", DATA, datasets={"good-data": "data_pack"})
    distribution(folder, "broken-pack", "import nowhere_at_all", {"broken": "broken_pack:Broken"})
    distribution(folder, "exit-pack", "raise SystemExit(3)", {"leaves": "exit_pack"})
    distribution(folder, "odd-pack", "x = 1", {"odd": "odd_pack:x", "odder": "odd_pack:absent"})
    distribution(folder, "taking-pack", TAKES, {"fedavg": "taking_pack:FedAvg", "mine": "taking_pack:FedAvg"})
    distribution(folder, "one-pack", "", {"same": "one_pack"})
    distribution(folder, "two-pack", "", {"same": "two_pack"})
    return folder


RUNNER = """
import contextlib, io, json, sys
from fglbench.benchmark.cli import main
from fglbench.benchmark.submission import verify

verify.in_child = lambda function, plugins, *arguments: function(*arguments)  # this process is one already

outputs = []
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    outputs.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(outputs))
"""


def fglbench(site: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """(exit code, output, error output) of commands given one after the other in a process with `site` on its path."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [sys.executable, "-c", RUNNER, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=True)
    return [tuple(each) for each in json.loads(done.stdout)]


def test_installed_methods_and_datasets_are_listed_and_broken_ones_named(site: Path) -> None:
    methods, datasets, shown, checked = fglbench(
        site, ["list", "methods"], ["list", "datasets"], ["show", "good-avg"], ["check", "good-data"]
    )
    assert methods[0] == 0
    assert "good-avg" in methods[1]
    assert "(plug-in: good-pack)" in methods[1]
    assert methods[2].splitlines() == [
        "fglbench: method 'fedavg' of package 'taking-pack' is refused: a built-in method has this name",
        "fglbench: method 'same' is refused: several packages have it (package 'one-pack', package 'two-pack'); "
        "uninstall one",
        "fglbench: method 'broken' of package 'broken-pack' cannot be imported: ModuleNotFoundError: No module named "
        "'nowhere_at_all'",
        "fglbench: method 'leaves' of package 'exit-pack' cannot be imported: SystemExit: 3",
        "fglbench: method 'mine' of package 'taking-pack' registers method 'fedavg', which is built in; choose another "
        "name",
        "fglbench: method 'odd' of package 'odd-pack': odd_pack:x registers no method under the name of its entry "
        "point",
        "fglbench: method 'odder' of package 'odd-pack' cannot be imported: AttributeError: module 'odd_pack' has no "
        "attribute 'absent'",
    ]
    assert (datasets[0], datasets[2]) == (0, "")
    assert "(plug-in: data-pack)" in " ".join(datasets[1].split())  # for any width of the column
    assert "FedAvg under another name" in shown[1]
    assert checked[0] == 0
    assert "good-data passes the contract" in checked[1]


BAD = {
    "broken": "method 'broken' of package 'broken-pack' cannot be imported: ModuleNotFoundError",
    "god-avg": "unknown method 'god-avg'; did you mean 'good-avg'?",
}


def test_commands_import_only_packages_that_they_need(site: Path) -> None:
    dry = ["run", "--quick", "-d", "cora", "--dry-run", "-m"]
    sound = [["list", "suites"], ["show", "fedavg"], [*dry, "fedavg"]]
    outputs = fglbench(site, *sound, *([*dry, name] for name in BAD), ["show", "fedavg"])
    for code, out, err in outputs[:3]:
        assert (code, err) == (0, "")
        assert "imported good" not in out
    for (code, _, err), message in zip(outputs[3:-1], BAD.values(), strict=True):
        assert code == 2
        assert err.startswith(f"fglbench: {message}")
        assert err.count("\n") == 1
    assert outputs[-1] == outputs[1]  # built-in methods are unchanged
    assert "McMahan" in outputs[1][1]


@pytest.mark.usefixtures("registries")
def test_a_bad_plugin_file_is_one_line_and_built_in_methods_stay(tmp_path: Path, cli) -> None:
    codes = {
        "missing": ("import nowhere_at_all", "cannot be imported: ModuleNotFoundError"),
        "torn": ("1 +", "cannot be imported: SyntaxError"),
        "taking": (TAKES, "registers method 'fedavg', which is built in; choose another name"),
        "other": (TAKES.replace("class FedAvg", "class Other"), "method 'fedavg' is registered twice"),
        "cutting": (
            "from fglbench.datasets import PARTITIONS\n\n\n"
            "@PARTITIONS.register('louvain')\nclass Louvain(PARTITIONS.cls('uniform')):\n    pass\n",
            "registers partition 'louvain', which is built in; choose another name",
        ),
    }
    paths = [tmp_path / f"{name}.py" for name in codes]
    for path, (code, _) in zip(paths, codes.values(), strict=True):
        path.write_text(code)
    for path, (_, message) in zip(paths, codes.values(), strict=True):
        error = cli(["show", "fedavg", "--plugin", str(path)], 2)
        assert error.startswith(f"fglbench: plug-in '{path}'")
        assert message in error
        assert error.count("\n") == 1
    assert "McMahan" in cli("show fedavg")


PAGE = (Path(__file__).parents[2] / "docs" / "plug-ins.md").read_text()


def test_a_package_written_from_the_page_has_all_five_kinds(tmp_path: Path) -> None:
    """The package of docs/plug-ins.md as it is printed, outside the tree; each of its five passes the contract."""
    announced, code = re.findall(r"```(?:toml|python)\n(.*?)```", PAGE, re.DOTALL)
    groups: dict[str, dict[str, str]] = {}
    for kinds, lines in re.findall(r'entry-points\."fglbench\.(\w+)"\]\n((?:.+\n)+)', announced):
        groups[kinds] = dict(re.findall(r'(\S+) = "(\S+)"', lines))
    assert sorted(groups) == ["backbones", "datasets", "methods", "partitions", "splits"]
    distribution(tmp_path, "coastal", code, **groups)
    names = [name for each in groups.values() for name in each]
    run = next(line for line in PAGE.splitlines() if line.startswith("    fglbench run -m")).split()[1:]
    results = str(tmp_path / "results")
    listed, *checked, ran = fglbench(
        tmp_path,
        ["list", "backbones"],
        *(["check", name, *(["--no-real"] if name == "slow-avg" else [])] for name in names),
        [*run, "-j", "1", "--results", results],
    )
    for name, (code, out, err) in zip(names, checked, strict=True):
        assert code == 0, (name, out, err)
        assert f"{name} passes the contract" in out
    assert "(plug-in: coastal)" in " ".join(listed[1].split())
    assert ran[0] == 0, ran
    row = next(csv.DictReader((tmp_path / "results" / "custom" / "slow-avg.csv").open()))
    parts = {kinds: row[kinds.removesuffix("s")] for kinds in groups}
    assert parts == {kinds: next(iter(each)) for kinds, each in groups.items()}
    assert row["status"] == "ok"
