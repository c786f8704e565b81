"""Write benchmark/suites/published.json, and enter new clients in federations.csv, from the rows in results/:

    python tools/published.py

Run it when rows of the boards have changed (`make published`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from fglbench.benchmark.runner.cost_estimate import Costs
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.schema import mapping
from fglbench.benchmark.suites.published import BOARDS, FILE, TASK, TRAINED, read_properties
from fglbench.benchmark.suites.registered import register
from fglbench.files import write_atomically
from fglbench.report.loading import frame

KEPT = ("adjusted_homophily", "label_skew", "majority")


def tasks(boards: dict[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """The tasks of the boards (suite -> rows) whose properties are known."""
    found: dict[tuple[str, str, int], dict[str, Any]] = {}
    for suite, rows in boards.items():
        for own in tasks_of(rows):
            found.setdefault((own["dataset"], own["partition"], own["clients"]), {"suite": suite} | own)
    return [found[place] for place in sorted(found)]


def tasks_of(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The tasks of a board's rows. A method without a score for every seed of a task is left out of it."""
    known, found = read_properties(), []
    rows = rows[(rows["status"] == "ok") & ~rows["reference"].astype(bool)]
    for names, own in rows.groupby([*TASK, "split", "split_params"], sort=True):
        place = [str(name) for name in names]
        properties = known.get(tuple(place[: len(TASK)]))
        dataset, split, params = place[0], place[-2], mapping(place[-1])
        share = TRAINED.get(dataset) if split == "fixed" else params.get("train")
        if properties is None or share is None:
            continue
        labels = share * properties["client_nodes"] / properties["classes"]
        facts = {name: properties[name] for name in KEPT} | {"labels": labels, "nodes": properties["client_nodes"]}
        runs = own.groupby("method")["seed"].nunique()
        means = own[own["method"].map(runs) == runs.max()].groupby("method")[["score", "macro_f1"]].mean()
        found.append({
            "dataset": dataset, "partition": place[2], "clients": int(place[4]),
            "metric": own["score_metric"].iloc[0].split(",")[0],
            "properties": {name: round(value, 4) for name, value in facts.items()},
            "methods": {str(name): {key: round(value, 5) for key, value in line.items()}
                        for name, line in means.to_dict("index").items()},
        })  # fmt: skip
    return found


def text(found: dict[str, Any]) -> str:
    """JSON with a line for each entry of a list."""
    costs = ",\n".join(f' "{name}": {_lines(own)}' for name, own in found["costs"].items())
    return f'{{"costs": {{\n{costs}}},\n"tasks": {_lines(found["tasks"])}}}\n'


def _lines(entries: list[Any]) -> str:
    return "[\n" + ",\n".join(map(json.dumps, entries)) + "]"


if __name__ == "__main__":
    store = Store(Path(__file__).parents[1] / "results")
    boards = {suite: frame(store.rows(suite, latest_only=True)) for suite in BOARDS}
    found = {"costs": Costs(store.rows()).as_data(), "tasks": tasks(boards)}
    write_atomically(FILE, text(found).encode())
    print(f"{FILE.name}: {len(found['tasks'])} tasks, {FILE.stat().st_size >> 10} KiB")
    print(f"federations.csv: {len(register(store.rows()))} new")
