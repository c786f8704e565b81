"""`fglbench data describe`: what makes the tasks of suites unlike one another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Suites, names
from .output import complain, plain_console, plain_table

if TYPE_CHECKING:
    from ..suites.cell import Cell
    from ..suites.tasktable import Task

SHOWN = {  # heading -> property
    "homophily": "adjusted_homophily",
    "skew": "label_skew",
    "majority": "client_majority",
    "lost": "lost_edges",
    "nodes": "client_nodes",
}
DEFAULT = ["node", "leaderboard", "overlap"]


def describe(
    suite: Suites = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="write all properties there")] = None,
) -> None:
    """Describe the node tasks of suites: adjusted homophily, label skew, share of a client's largest class, share of
    lost edges, nodes a client; means over seeds."""
    from ..suites.suitefile import load_suite
    from ..suites.tasktable import write_properties

    cells = [cell for name in names(suite) or DEFAULT for cell in load_suite(name).cells()]
    found = measured(cells)
    if csv is not None:
        write_properties(found, csv)
        typer.echo(f"wrote {len(found)} tasks to {csv}")
        return
    table = plain_table("dataset", "partition", "clients", *SHOWN, numeric=True)
    for (dataset, _, partition, _, clients), own in found.items():
        table.add_row(dataset, partition, clients, *(f"{own[name]:.3g}" for name in SHOWN.values()))
    plain_console().print(table)


def measured(cells: list[Cell]) -> dict[Task, dict[str, float]]:
    """The properties of every node task among the cells, in their order; an unavailable dataset is left out."""
    from ...datasets import DATASETS, PARTITIONS
    from ...datasets.federation import NodeData
    from ...datasets.properties import properties
    from ...datasets.rng import derive
    from ...registry import UserError
    from ..store.provenance import canonical

    tasks: dict[Task, dict[int, Cell]] = {}  # with a cell of each seed
    for cell in cells:
        params = {kind: canonical(cell.identity[kind]["params"]) for kind in ("dataset", "partition")}
        task: Task = (cell.dataset.name, params["dataset"], cell.partition.name, params["partition"], str(cell.clients))
        tasks.setdefault(task, {}).setdefault(cell.seed, cell)
    found: dict[Task, dict[str, float]] = {}
    missing = set[str]()
    for task, seeds in tasks.items():
        first = next(iter(seeds.values()))
        try:
            data = first.dataset.build(DATASETS).load()
        except UserError as error:
            if task[0] not in missing:
                complain(str(error))
            missing.add(task[0])
            continue
        if not isinstance(data, NodeData):
            continue
        partition = first.partition.build(PARTITIONS)
        cuts = (partition(data, first.clients, derive(seed, "partition")) for seed in seeds)
        each = [properties(data, parts) for parts in cuts]
        found[task] = {name: sum(own[name] for own in each) / len(each) for name in each[0]}
    return found
