"""`fglbench data`: list, fetch, show and partition datasets."""

from __future__ import annotations

import inspect
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from ...registry import UserError, did_you_mean
from . import common as given
from .common import Json, Parameters, Plugins, complain, facts_table, names, plain_console, plain_table, print_json

if TYPE_CHECKING:
    from ...datasets import DatasetSpec, Description
    from ..suites.catalogue import Task
    from ..suites.cell import Cell

SHOWN = {  # heading -> property
    "homophily": "adjusted_homophily",
    "skew": "label_skew",
    "majority": "client_majority",
    "lost": "lost_edges",
    "nodes": "client_nodes",
}
DEFAULT = ["node", "leaderboard", "overlap"]


def describe(
    suite: given.Suites = None,
    csv: Annotated[Path | None, Option("--csv", metavar="FILE", help="write all properties there")] = None,
    json: Json = False,
) -> None:
    """Describe the node tasks of suites: adjusted homophily, label skew, share of a client's largest class, share of
    lost edges, nodes per client; means over seeds."""
    from ..suites.catalogue import TASK, write_properties
    from ..suites.suite import load_suite

    cells = [cell for name in names(suite) or DEFAULT for cell in load_suite(name).cells()]
    by_task = measured(cells)
    if csv is not None:
        write_properties(by_task, csv)
        typer.echo(f"wrote {len(by_task)} tasks to {csv}", err=json)
    if json:
        print_json([dict(zip(TASK, task, strict=True)) | values for task, values in by_task.items()])
    if json or csv is not None:
        return
    table = plain_table("dataset", "partition", "clients", *SHOWN, numeric=True)
    for (dataset, _, partition, _, clients), values in by_task.items():
        table.add_row(dataset, partition, clients, *(f"{values[name]:.3g}" for name in SHOWN.values()))
    plain_console().print(table)


def measured(cells: list[Cell]) -> dict[Task, dict[str, float]]:
    """Node task -> properties, in the order of the cells; unavailable datasets are left out."""
    from ...datasets import DATASETS, PARTITIONS
    from ...datasets.build import parts_for
    from ...datasets.describe import properties
    from ...datasets.federation import NodeData
    from ..store.provenance import canonical

    tasks: dict[Task, dict[int, Cell]] = {}  # task -> seed -> a cell
    for cell in cells:
        params = {kind: canonical(cell.identity[kind]["params"]) for kind in ("dataset", "partition")}
        task: Task = (cell.dataset.name, params["dataset"], cell.partition.name, params["partition"], str(cell.clients))
        tasks.setdefault(task, {}).setdefault(cell.seed, cell)
    means: dict[Task, dict[str, float]] = {}
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
        partitions = (parts_for(data, partition, first.clients, seed) for seed in seeds)
        by_seed = [properties(data, parts) for parts in partitions]
        means[task] = {name: sum(values[name] for values in by_seed) / len(by_seed) for name in by_seed[0]}
    return means


app = typer.Typer(help="Datasets: list, fetch, look at, partition into clients.")
app.command()(describe)


@app.command("list")
def list_datasets(plugin: Plugins = None, json: Json = False) -> None:
    """List the datasets, and which of them are in the cache."""
    from ...datasets import DATASETS
    from ...datasets.sources import cache_file
    from ...files import cache_dir

    table, rows = plain_table("name", "task", "in cache", "what"), list[dict[str, str]]()
    for name in DATASETS.names():
        cls = DATASETS.cls(name)
        cached = "yes" if cache_file(name).is_file() else "" if cls.routes else "generated"
        table.add_row(name, cls.task, cached, _what(cls))
        rows.append({"name": name, "task": cls.task, "in_cache": cached or "no", "what": _what(cls)})
    if json:
        print_json({"cache": cache_dir(), "datasets": rows})
        return
    table.add_row("tu:NAME", "graph", "", "Any other set of the TU collection, by its own name.")
    plain_console().print(table)
    typer.echo(f"\ncache: {cache_dir()} (FGLBENCH_CACHE)")


@app.command()
def fetch(
    names: Annotated[list[str], given.named("dataset", metavar="NAME...", help="datasets, or all")],
    json: Json = False,
) -> None:
    """Get datasets into the cache and check them."""
    from ...datasets import DATASETS

    if names == ["all"]:
        names = [name for name in DATASETS.names() if DATASETS.cls(name).routes]
    specs = [part for name in names for part in DATASETS.build(name).parts]  # a wrong name fails before any download
    failed, fetched = [], list[dict[str, Any]]()
    for spec in specs:
        try:
            content, source = spec.content()
        except UserError as error:
            if len(specs) == 1:
                raise
            failed.append(spec.name)
            typer.echo(f"{spec.name}: {error}", err=True)
            continue
        edges, size = len(content["edges"]), len(content["label"])
        checked = "" if spec.fingerprint and not spec.unverified else f" ({_checked(spec)})"
        kind = "nodes" if spec.task == "node" else "graphs"
        fetched.append({"name": spec.name, kind: size, "edges": edges, "source": source, "checked": _checked(spec)})
        typer.echo(f"{spec.name}: {size} {kind}, {edges} undirected edges, from {source}{checked}", err=json)
    if json and not failed:
        print_json(fetched)
    if failed:
        raise UserError(f"{len(failed)} of {len(specs)} datasets are unavailable: {', '.join(failed)}")


@app.command()
def info(
    name: Annotated[str, given.named("dataset")],
    set_: Parameters = None,
    plugin: Plugins = None,
    json: Json = False,
) -> None:
    """Show a dataset: statistics, citation, licence, source, fingerprint."""
    from ...datasets import DATASETS, statistics

    spec = DATASETS.build(name, _section(set_, {"dataset": DATASETS.cls(name)})["dataset"])
    data = spec.load()
    rows: dict[str, Any] = {"dataset": name, "what": _what(type(spec)), **statistics(data)}
    rows["options"] = ", ".join(f"{key}={value}" for key, value in spec.params().items())
    rows |= {**asdict(spec.about), "synthetic": "yes: not a real dataset" if spec.synthetic else ""}
    rows |= (
        {"scored by": spec.scored_by.replace("_", " ")} if spec.task == "node" or spec.scored_by != "accuracy" else {}
    )
    rows |= {"source": data.source, "fingerprint": data.fingerprint, "checked": _checked(spec)}
    rows = {key: value for key, value in rows.items() if value != ""}
    if json:
        print_json({key.replace(" ", "_"): value for key, value in rows.items()})
        return
    texts = {key: f"{value:.4g}" if isinstance(value, float) else str(value) for key, value in rows.items()}
    plain_console().print(facts_table(texts))


@app.command()
def partition(
    name: Annotated[str, given.named("dataset", help="a dataset")],
    partition: Annotated[
        str | None,
        given.naming(
            "partition",
            "--partition",
            "-p",
            metavar="NAME",
            help="the partition (default: own if clients come with the data, else louvain or uniform)",
        ),
    ] = None,
    clients: Annotated[
        int | None,
        Option("--clients", "-k", metavar="K", help="number of clients (default: those of the data, else 10)"),
    ] = None,
    seed: Annotated[int, Option("--seed", metavar="N", help="seed of the run, as in `fglbench run`")] = 0,
    set_: Parameters = None,
    plot: Annotated[bool, Option("--plot", help="draw the label distribution")] = False,
    out: Annotated[Path | None, Option("--out", metavar="FILE", help="file of --plot (png, pdf, svg)")] = None,
    plugin: Plugins = None,
    json: Json = False,
) -> None:
    """Partition a dataset into clients and show the data of each; --set: parameters of dataset and partition."""
    from ...datasets import DATASETS, PARTITIONS, describe
    from ...datasets.build import parts_for
    from ...datasets.own_data import OwnPartition

    if partition is None:
        otherwise = "louvain" if DATASETS.cls(name).task == "node" else "uniform"
        partition = "own" if DATASETS.build(name).own_clients() else otherwise
    params = _section(set_, {"partition": PARTITIONS.cls(partition), "dataset": DATASETS.cls(name)})
    spec = PARTITIONS.build(partition, params["partition"])
    dataset = DATASETS.build(name, params["dataset"])
    if clients is None:
        clients = (dataset.own_clients() if isinstance(spec, OwnPartition) else None) or 10
    data = dataset.load()
    description = describe(data, parts_for(data, spec, clients, seed))
    if json:
        counts = [list(map(int, labels)) for labels in description.labels]
        clients_data = zip(description.clients.to_dict("records"), counts, strict=True)
        print_json({
            "clients": [{**client, "labels": labels} for client, labels in clients_data],
            **{name: getattr(description, name) for name in ("emd", "lost_edges", "total_edges", "coverage", "in_all")},
        })  # fmt: skip
    else:
        _print(description)
    if plot or out:
        from ...report.figures.clients import save_labels

        path = out or Path(f"{name.replace(':', '-')}-{partition}-{clients}.png")
        save_labels(description.labels, f"{name}, {partition}, {clients} clients, seed {seed}", path)
        typer.echo(f"\nwrote {path}", err=json)


def _print(description: Description) -> None:
    table = plain_table("client", *description.clients.columns, "labels (class:count)", numeric=True)
    table.columns[-1].justify, table.columns[-1].no_wrap = "left", False
    for (client, row), counts in zip(description.clients.iterrows(), description.labels, strict=True):
        labels = " ".join(f"{c}:{count}" for c, count in enumerate(counts) if count)
        table.add_row(str(client), *(f"{v:.4f}" if key == "emd" else str(int(v)) for key, v in row.items()), labels)
    plain_console().print(table)
    typer.echo(f"\nEMD {description.emd:.4f} (label skew, weighted by size; 0 = as the whole)")
    lost, edges = description.lost_edges, description.total_edges
    if lost is not None and edges:
        typer.echo(f"lost edges {lost} of {edges} ({lost / edges:.1%})")
    typer.echo(f"coverage {description.coverage:.1%} of all; held by every client {description.in_all:.1%}")
    typer.echo(f"overlap of two clients {description.pairwise:.1%} (mean of |A and B| / |A or B|)")


def _section(settings: list[str] | None, owners: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Owner -> `--set` parameters, from `owner.key=value`, or `key=value` for the first owner with this key."""
    from ..suites.request import parse_setting

    params: dict[str, dict[str, Any]] = {owner: {} for owner in owners}
    owner_of = {key: owner for owner, cls in reversed(owners.items()) for key in cls.model_fields}
    for setting in map(parse_setting, settings or ()):
        owner = setting.section or owner_of.get(setting.name)
        if owner is None:
            raise did_you_mean(setting.name, owner_of, "parameter")
        if owner not in owners:
            raise did_you_mean(owner, owners, "section of --set")
        params[owner][setting.name] = setting.value
    return params


def _what(cls: type[DatasetSpec]) -> str:
    return (inspect.getdoc(cls) or "").splitlines()[0]


def _checked(spec: DatasetSpec) -> str:
    """How the content of a dataset is checked, in words."""
    from ...datasets.own_data import OwnData

    if spec.parts != (spec,):
        return "; ".join(f"{part.name}: {_checked(part)}" for part in spec.parts)
    if not spec.routes:
        return "yours; rows have its fingerprint" if isinstance(spec, OwnData) else "generated, nothing to check"
    if spec.fingerprint is None:
        return "NOT checked: no fingerprint is registered for this dataset"
    if spec.unverified:
        return f"all but {', '.join(spec.unverified)}, for which no fingerprint could be registered"
    return "against the registered fingerprint"
