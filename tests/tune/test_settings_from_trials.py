"""The tuned settings are recomputed from the rows of their trials, without the code that made them."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import yaml

import fglbench
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.schema import Row

ROOT = Path(fglbench.__file__).parent
SUITES = sorted(path.stem for path in (ROOT / "benchmark" / "suites" / "tuned").glob("*.yaml"))
Trial = dict[int, Row]  # by seed


def trials_at_full_length(suite: str) -> dict[tuple[str, str, int], list[Trial]]:
    """(method, dataset, rounds) -> the trials with these rounds: rows of equal settings by their seeds."""
    groups: dict[tuple[Any, ...], Trial] = defaultdict(dict)
    for row in Store(ROOT / "results" / "tuning").rows(suite, latest_only=True):
        if row.val is not None:
            groups[row.method, row.dataset, row.training, row.method_params, row.backbone_params][row.seed] = row
    found: dict[tuple[str, str, int], list[Trial]] = defaultdict(list)
    for (method, dataset, training, _, _), seeds in groups.items():
        found[method, dataset, json.loads(training)["rounds"]].append(seeds)
    return found


def settings(row: Row) -> dict[str, Any]:
    backbone = json.loads(row.backbone_params)
    return {
        "method": json.loads(row.method_params),
        "training": json.loads(row.training),
        "backbone": backbone[0] if isinstance(backbone, list) else backbone,
    }


@pytest.mark.parametrize("suite", SUITES)
def test_tuned_settings_are_the_best_of_their_trials(suite: str) -> None:
    """A trial has exactly the settings and the validation value of each entry, and none of its study has a higher one.

    The trials of a study were made at one commit (rows of several are those of a study that was gone on with).
    """
    trials, wrong = trials_at_full_length(suite), list[str]()
    table = yaml.safe_load((ROOT / "benchmark" / "suites" / "tuned" / f"{suite}.yaml").read_text())
    for method, datasets in table.items():
        for dataset, entry in datasets.items():
            of_the_entry = [
                (fmean(trial[seed].val or 0 for seed in entry["seeds"]), trial[entry["seeds"][0]])
                for trial in trials[method, dataset, (entry.get("rungs") or [0])[-1]]
                if set(entry["seeds"]) <= set(trial)
            ]
            chosen = [
                row for val, row in of_the_entry
                if val == entry["val"]
                and all(
                    settings(row)[part].get(name) == value
                    for part in ("method", "training", "backbone")
                    for name, value in (entry.get(part) or {}).items()
                )
            ]  # fmt: skip
            commits = {row.git_sha for row in chosen}
            best = max((val for val, row in of_the_entry if row.git_sha in commits), default=None)
            if not chosen or best != entry["val"]:
                wrong.append(f"{method} on {dataset}: {entry['val']}, {len(chosen)} such trials, the best has {best}")
    assert not wrong, "\n".join(wrong)
