"""What is uploaded, by method, and how `show` says it."""

from __future__ import annotations

import pytest
import torch

from fglbench.benchmark import describe
from fglbench.benchmark.cli import main
from fglbench.benchmark.engine import ClientBatch, Tree
from fglbench.benchmark.engine.transforms import KINDS
from fglbench.benchmark.suites.catalogue import catalogue
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg

STORED = {name: own["uploads"] for name, own in catalogue()["method"].items()}


def test_every_name_of_an_upload_is_said_in_a_word() -> None:
    unknown = {what for own in STORED.values() for what in own.split(", ")} - set(KINDS.values())
    assert unknown == {"nothing"}


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("fedavg", {"model": ((20, 8), (8,), (8, 3), (3,))}),
        ("fedproto", {"prototypes": ((3, 8),), "classes": ((3,),)}),
        ("local", {}),
    ],
)
def test_names_and_shapes_are_those_of_one_clients_message(name: str, names: dict[str, tuple[tuple[int, ...]]]) -> None:
    assert {own.name: own.shapes for own in describe.crossings(METHODS.build(name))} == names


def test_show_of_a_stranger_makes_a_dry_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table knows the package's own; another is tried, and one that fails is shown all the same."""

    class Teller(FedAvg):
        """FedAvg that also uploads its clients' features."""

        def client(self, cohort: ClientBatch) -> Tree:
            return super().client(cohort) | {"features": torch.ones(len(cohort), 2), "secret": torch.ones(len(cohort))}

    class Broken(FedAvg):
        """Fails."""

        def client(self, cohort: ClientBatch) -> Tree:
            raise ValueError("no")

    monkeypatch.setattr(METHODS, "_classes", dict(METHODS._classes))
    for cls, said in ((Teller, "uploads: models, features, secret"), (Broken, "uploads: not known (ValueError")):
        METHODS.register(cls.__name__.lower())(cls)
        assert main(["show", cls.__name__.lower()]) == 0
        assert said in capsys.readouterr().out


def test_show_says_what_is_uploaded(capsys: pytest.CaptureFixture[str]) -> None:
    for name, said in (("fedgta", "uploads: models, moments, statistics"), ("majority", "uploads: nothing")):
        assert main(["show", name]) == 0
        assert said in capsys.readouterr().out
