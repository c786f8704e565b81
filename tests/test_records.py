"""Records: their fields cannot be reassigned, except in those that are filled during a run."""

from __future__ import annotations

import ast
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from fglbench.datasets.federation import Federation

ROOT = Path(__file__).resolve().parents[1]
FILLED = {  # everything else is frozen
    "Assignment", "Codes", "Each", "Findings", "Forward", "Models", "PrototypeNet", "Raw", "Record",
    "Report", "Scored", "Server", "Slot", "_State", "StackedOptimiser", "Summary", "Target",
    "Client",
}  # fmt: skip
THEMSELVES = {  # compared by identity: they have frames and arrays, which have no plain ==
    "Block", "Board", "Characteristics", "GraphBatch", "GraphRows", "Inference", "LinkRows",
    "Ours", "PrivacyCost", "Ranking", "Robustness", "Rows", "SampledRows", "Trial", "View",
}  # fmt: skip


def test_records_are_frozen_and_compared_as_the_lists_say() -> None:
    decorators: dict[str, str] = {}
    for room in ("benchmark", "datasets", "methods", "report", "tasks"):
        for path in (ROOT / room).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "@dataclass" in text else ():
                for each in node.decorator_list if isinstance(node, ast.ClassDef) else ():
                    if "dataclass" in (how := ast.unparse(each)):
                        decorators[node.name] = how
    assert {name for name, how in decorators.items() if "frozen=True" not in how} == FILLED
    assert {name for name, how in decorators.items() if "eq=False" in how} == THEMSELVES


@pytest.mark.parametrize("kind", ["federation", "graph_sets"])
def test_nothing_of_a_federation_can_be_reassigned(kind: str, request: pytest.FixtureRequest) -> None:
    world: Federation = request.getfixturevalue(kind)((5, 8, 6))
    for one in (world, world.whole, *world.clients):
        for each in fields(one):
            with pytest.raises(FrozenInstanceError):
                setattr(one, each.name, getattr(one, each.name))
