"""Write benchmark/suites/published.json, and add new clients to federations.csv, from the rows in results/:

    python tools/published.py

Run it after changes of the rows of boards (`make published`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from fglbench.benchmark.runner.job import Costs
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.schema import mapping
from fglbench.benchmark.suites.catalogue import BOARDS, PUBLISHED, TASK, TRAINED, read_properties
from fglbench.benchmark.suites.cell import register_clients
from fglbench.files import write_atomically
from fglbench.report.loading import frame

KEPT = ("adjusted_homophily", "label_skew", "majority")


def tasks(boards: dict[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """The tasks of the boards (suite -> rows) whose properties are known."""
    tasks_by_place: dict[tuple[str, str, int], dict[str, Any]] = {}
    for suite, rows in boards.items():
        for task in tasks_of(rows):
            tasks_by_place.setdefault((task["dataset"], task["partition"], task["clients"]), {"suite": suite} | task)
    return [tasks_by_place[place] for place in sorted(tasks_by_place)]


def tasks_of(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The tasks of a board's rows. A method without a score for every seed of a task is left out of this task."""
    known, tasks = read_properties(), []
    rows = rows[(rows["status"] == "ok") & ~rows["reference"].astype(bool)]
    for names, task_rows in rows.groupby([*TASK, "split", "split_params"], sort=True):
        place = [str(name) for name in names]
        properties = known.get(tuple(place[: len(TASK)]))
        dataset, split, params = place[0], place[-2], mapping(place[-1])
        share = TRAINED.get(dataset) if split == "fixed" else params.get("train")
        if properties is None or share is None:
            continue
        labels = share * properties["client_nodes"] / properties["classes"]
        facts = {name: properties[name] for name in KEPT} | {"labels": labels, "nodes": properties["client_nodes"]}
        runs = task_rows.groupby("method")["seed"].nunique()
        means = task_rows[task_rows["method"].map(runs) == runs.max()].groupby("method")[["score", "macro_f1"]].mean()
        tasks.append({
            "dataset": dataset, "partition": place[2], "clients": int(place[4]),
            "metric": task_rows["score_metric"].iloc[0].split(",")[0],
            "properties": {name: round(value, 4) for name, value in facts.items()},
            "methods": {str(name): {key: round(value, 5) for key, value in line.items()}
                        for name, line in means.to_dict("index").items()},
        })  # fmt: skip
    return tasks


def text(content: dict[str, Any]) -> str:
    """JSON with one line per list entry."""
    costs = ",\n".join(f' "{name}": {_lines(cost)}' for name, cost in content["costs"].items())
    return f'{{"costs": {{\n{costs}}},\n"tasks": {_lines(content["tasks"])}}}\n'


def _lines(entries: list[Any]) -> str:
    return "[\n" + ",\n".join(map(json.dumps, entries)) + "]"


if __name__ == "__main__":
    store = Store(Path(__file__).parents[1] / "results")
    boards = {suite: frame(store.rows(suite, latest_only=True)) for suite in BOARDS}
    content = {"costs": Costs(store.rows()).as_data(), "tasks": tasks(boards)}
    write_atomically(PUBLISHED, text(content).encode())
    print(f"{PUBLISHED.name}: {len(content['tasks'])} tasks, {PUBLISHED.stat().st_size >> 10} KiB")
    print(f"federations.csv: {len(register_clients(store.rows()))} new")
