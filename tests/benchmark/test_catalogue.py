"""The catalogue: order and titles of the boards, generated files, completion, and names of uploads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from fglbench.benchmark import describe
from fglbench.benchmark.cli import main
from fglbench.benchmark.cli.common import completes
from fglbench.benchmark.engine import ClientBatch, Tree
from fglbench.benchmark.engine.transforms import KINDS
from fglbench.benchmark.runner.execute import in_child
from fglbench.benchmark.suites import catalogue
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg

FILES = Path(catalogue.__file__).parent.glob("*.yaml")


def test_boards_are_sorted_by_number_and_quick_is_last() -> None:
    files = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in FILES}
    numbers = {name: content["order"] for name, content in files.items() if "order" in content}
    assert len(numbers) > 2 and len(set(numbers.values())) == len(numbers)
    boards = sorted(numbers, key=numbers.__getitem__)

    names = [name.swapcase().swapcase() for name in ["quick", "zebra", "aardvark", *reversed(boards)]]  # new objects
    wanted = [*(name for name in boards if name != "quick"), "aardvark", "zebra", "quick"]
    assert sorted(names, key=catalogue.board_order) == wanted


@pytest.mark.parametrize("name", ["leaderboard", "nobody's"])
def test_a_board_is_called_by_its_title_and_others_by_their_name(name: str) -> None:
    path = Path(catalogue.__file__).with_name(f"{name}.yaml")
    content = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    assert catalogue.is_board(name) == ("order" in content)
    assert catalogue.board_title(name) == content.get("title", name)


def test_generated_files_are_up_to_date() -> None:
    """In a new process, because other tests may register classes."""
    texts = list(in_child(describe.catalogued, ()))
    assert texts[0] == catalogue.FILE.read_text(encoding="utf-8"), "run `make catalogue`"
    assert texts[1] == catalogue.CELLS.read_text(encoding="utf-8"), "run `make catalogue`"


def test_every_method_and_dataset_of_the_package_has_a_group() -> None:
    methods, datasets = (catalogue.catalogue()[kind] for kind in ("method", "dataset"))
    assert {entry["family"] for entry in methods.values()} == set(catalogue.FAMILIES)
    assert [name for name, entry in datasets.items() if entry["kind"] == catalogue.OTHER] == []
    assert [name for name, entry in methods.items() if not entry["facts"].get("in short")] == []


@pytest.mark.parametrize(
    ("kinds", "typed", "offered"),
    [
        (("method",), "fedpro", ["fedproto", "fedprox", "fedprox-mlp"]),
        (("method",), "fedavg,fedy", ["fedavg,fedyogi"]),
        (("dataset",), "coauthor-", ["coauthor-cs", "coauthor-physics"]),
        (("suite",), "heterog", ["heterogeneous", "heterogeneous-3", "heterogeneous-depth", "heterogeneous-depth-3"]),
        (("method", "dataset", "suite"), "quic", ["quick"]),
        (("table",), "fclg", ["fclg-table2"]),
    ],
)
def test_names_are_completed(kinds: tuple[str, ...], typed: str, offered: list[str]) -> None:
    assert [name for name, _ in completes(*kinds)(typed)] == offered


NAMING = """
import sys
from fglbench.benchmark.cli import main
from fglbench.benchmark.cli.common import completes
for words in (["--version"], [], ["run", "--help"],
              ["list", "methods"], ["list", "suites"], ["show", "fedsage+"], ["show", "quick"], ["--help"],
              ["status", "-s", "quick", "--results", "none"], ["show", "fedavgg"], ["run", "--quick", "--dry-run"],
              ["run", "--quick", "-m", "fedprx"], ["run", "--data", "none", "--set", "training.lrr=1"],
              ["run", "--data", ".", "-m", "fedavg", "--seeds", "0"], ["run", "--data", ".", "-b", "gcn+gnc"]):
    main(words)
completes("method", "dataset", "partition", "split", "backbone", "suite")("fed")
print("IMPORTED", *{"torch", "dgl", "scipy", "sklearn", "pandas", "matplotlib"} & {*sys.modules})
"""


def test_planning_commands_import_no_numerical_package() -> None:
    done = subprocess.run([sys.executable, "-c", NAMING], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "IMPORTED"
    assert done.stdout.startswith("fglbench 0.")
    for meant in ("fedavg", "fedprox", "lr"):
        assert f"did you mean {meant!r}?" in done.stderr
    for message in ("--seeds is a count", "unknown backbone 'gnc'"):  # before own data are read
        assert f"fglbench: {message}" in done.stderr


STORED = {name: entry["uploads"] for name, entry in catalogue.catalogue()["method"].items()}


def test_every_name_of_an_upload_has_a_word() -> None:
    unknown = {upload for uploads in STORED.values() for upload in uploads.split(", ")} - set(KINDS.values())
    assert unknown == {"nothing"}


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("fedavg", {"model": ((20, 8), (8,), (8, 3), (3,))}),
        ("fedproto", {"prototypes": ((3, 8),), "classes": ((3,),)}),
        ("local", {}),
    ],
)
def test_names_and_shapes_of_uploads_are_per_client(name: str, names: dict[str, tuple[tuple[int, ...]]]) -> None:
    assert describe.uploads(METHODS.build(name)) == names


@pytest.mark.parametrize(
    ("name", "kind", "other"),
    [
        ("fedstruct", "gradients of node vectors", "generators"),
        ("fedlog", "statistics", "classes held"),  # the shares of classes
        ("fedgcn-hops", "neighbour counts", "statistics"),  # the degree of each node
    ],
)
def test_kinds_say_what_is_sent(name: str, kind: str, other: str) -> None:
    assert kind in STORED[name] and other not in STORED[name]


def test_show_runs_an_unknown_method_to_find_its_uploads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table has the methods of the package; another is run, and if it fails, the rest is still shown."""

    class Teller(FedAvg):
        """FedAvg that also uploads its clients' features."""

        def client(self, clients: ClientBatch) -> Tree:
            return super().client(clients) | {
                "features": torch.ones(len(clients), 2),
                "secret": torch.ones(len(clients)),
            }

    class Broken(FedAvg):
        """Fails."""

        def client(self, clients: ClientBatch) -> Tree:
            raise ValueError("no")

    monkeypatch.setattr(METHODS, "_classes", dict(METHODS._classes))
    for cls, message in ((Teller, "uploads: models, features, secret"), (Broken, "uploads: not known (ValueError")):
        METHODS.register(cls.__name__.lower())(cls)
        assert main(["show", cls.__name__.lower()]) == 0
        assert message in capsys.readouterr().out


def test_show_names_the_uploads(capsys: pytest.CaptureFixture[str]) -> None:
    for name, message in (("fedgta", "uploads: models, moments, statistics"), ("majority", "uploads: nothing")):
        assert main(["show", name]) == 0
        assert message in capsys.readouterr().out
