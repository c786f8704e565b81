"""Suites with tuned settings, files of tuned settings, and settings that are the best of their trials."""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import pytest
import yaml

from fglbench.benchmark.cli import main
from fglbench.benchmark.runner.execute import FederationCache, execute
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.submission import validate as claims
from fglbench.benchmark.suites import suite as suites
from fglbench.benchmark.suites.cell import Cell, Choice
from fglbench.benchmark.suites.select import Request, select
from fglbench.benchmark.suites.suite import load_suite
from fglbench.benchmark.suites.tuned import Tuned, own_content, read_tuned, write_tuned
from fglbench.benchmark.tune.design import TABLE
from fglbench.benchmark.tune.session import Wanted, studies
from fglbench.methods import METHODS
from fglbench.registry import UserError, searched, tunable
from fglbench.report.display_names import entrant_labels

ROOT = Path(__file__).resolve().parents[2]
CHOSEN = {
    "method": {"mu": 1.0}, "training": {"lr": 0.5, "optimiser": "sgd"}, "backbone": {"dropout": 0.0},
    "study": "tiny/fedprox/csbm/01234567", "trials": 12, "rounds": 464, "seeds": [100], "rungs": [11, 33, 100],
    "trial": 3, "val": 0.8, "default": 0.7, "commit": "",
}  # fmt: skip


@pytest.fixture
def tuned(tmp_path, suite):
    """The tiny suite with two tuned methods, of which one has a setting."""
    values = yaml.safe_load(Path(suite).read_text())
    values["tuned"] = str(tmp_path / "chosen.yaml")
    tuned = [{"name": name, "params": "tuned"} for name in ("fedprox", "moon")]
    values["cross"]["methods"] = ["fedavg", *tuned]
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(values))
    write_tuned(tmp_path / "chosen.yaml", {"fedprox": {"csbm": Tuned(**CHOSEN)}})
    return path


def test_a_tuned_cell_has_its_setting_on_every_task_and_in_its_row(tuned, tmp_path) -> None:
    cells = [cell for cell in load_suite(str(tuned)).cells() if cell.method.name == "fedprox"]
    assert {(cell.partition.name, cell.clients) for cell in cells} == {
        (name, clients) for name in ("uniform", "louvain") for clients in (3, 2)
    }
    for cell in cells:
        assert (cell.method.params["mu"], cell.training.lr, cell.training.optimiser) == (1.0, 0.5, "sgd")
        assert cell.training.rounds == 9 and cell.backbones[0].params["dropout"] == 0.0
        assert cell.backbones[0].params["hidden"] == 16  # not tuned
    row = execute(cells[0], "tiny", Store(tmp_path), FederationCache(), {"environment": "0" * 12})
    assert json.loads(row.tuning) == {"rounds": 464, "seeds": [100], "study": CHOSEN["study"], "trials": 12}
    again = Cell.of(row)  # without later options at their default
    assert (again.identity, again.tuning) == (cells[0].identity, cells[0].tuning)
    assert cells[0].key == Cell.of(row.model_copy(update={"tuning": ""})).key  # not part of the experiment


def test_settings_of_a_dataset_of_the_user_are_for_its_content_and_metric(tuned) -> None:
    cell = load_suite(str(tuned)).cells()[0]
    own = {"sha256": "0123456789abcdef", "metric": "accuracy", "features": "raw"}
    cell = cell.model_copy(update={"dataset": Choice(name="own:some", params=own)})
    assert own_content(cell) == {"sha256": own["sha256"], "metric": "accuracy"}
    chosen = Tuned(**CHOSEN | {"method": {}}, data=own_content(cell))
    chosen.check_data(cell)
    Tuned(**CHOSEN | {"method": {}}).check_data(cell)  # a file of an earlier version
    for name, value in (("sha256", "f" * 16), ("metric", "roc-auc")):
        other = cell.model_copy(update={"dataset": Choice(name="own:some", params=own | {name: value})})
        with pytest.raises(UserError, match=f"own:some has {name} {value!r}, but fedavg was tuned on it with"):
            chosen.check_data(other)


def test_methods_without_settings_in_a_given_file_are_named(tuned, tmp_path) -> None:
    request = Request(
        suites=("quick",), methods=("fedavg", "fedprox"), datasets=("cora",), tuned=tmp_path / "cora.yaml"
    )
    write_tuned(tmp_path / "cora.yaml", {"fedprox": {"cora": Tuned(**CHOSEN)}})
    with pytest.warns(UserWarning, match=r"cora.yaml' has no settings of fedavg on cora; .* their runs are left out"):
        assert {cell.method.name for _, cell in select(request)} == {"fedprox"}


def test_a_given_file_replaces_the_settings_of_the_suite(tmp_path) -> None:
    """Also for a method or dataset without settings in the suite, and with no value of the suite's settings left."""
    write_tuned(
        tmp_path / "new.yaml", {"fedprox": {name: Tuned(**CHOSEN | {"method": {}}) for name in ("cora", "csbm")}}
    )
    request = Request(suites=("node-3",), methods=("fedprox",), tuned=tmp_path / "new.yaml")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cells = [cell for name in ("cora", "csbm") for _, cell in select(replace(request, datasets=(name,)))]
    mu = METHODS.build("fedprox").mu
    found = {(cell.dataset.name, cell.training.lr, cell.method.params["mu"]) for cell in cells}
    assert found == {("cora", 0.5, mu), ("csbm", 0.5, mu)}


def test_a_parameter_has_one_source(tuned, tmp_path) -> None:
    write_tuned(tmp_path / "cora.yaml", {"fedprox": {"cora": Tuned(**CHOSEN)}})
    request = Request(suites=("quick",), methods=("fedprox",), datasets=("cora",), tuned=tmp_path / "cora.yaml")
    for text in ("lr=0.1", "mu=0.1", "backbone.dropout=0.1"):
        with pytest.raises(UserError, match=f"{text[-6:-4]}: tuning chooses this parameter of fedprox on cora; leave"):
            select(replace(request, settings=(text,)))
        with pytest.raises(UserError, match="tuning chooses this parameter of fedprox on cora"):
            studies(Wanted("quick", ("fedprox",), ("cora",), settings=(text,)))
    (cell,) = {cell.training for _, cell in select(replace(request, settings=("training.rounds=4",)))}
    assert (cell.rounds, cell.lr) == (4, 0.5)
    with pytest.raises(UserError, match=r"--set training.rounds is given 2 times; give it once"):
        select(replace(request, tuned=None, settings=("training.rounds=4", "rounds=5")))


def test_untuned_methods_are_left_out_and_named_with_their_command(tuned, cli) -> None:
    suite = load_suite(str(tuned))
    assert suite.untuned() == [("moon", "csbm")]
    assert {cell.method.name for cell in suite.cells()} == {"fedavg", "fedprox"}
    with pytest.warns(UserWarning, match=r"no tuned settings of moon on csbm; `fglbench tune -s tiny -m moon -d csbm`"):
        assert len(select(Request(suites=(str(tuned),)))) == 16
    with pytest.raises(UserError, match="no tuned settings of moon on csbm"):
        select(Request(suites=(str(tuned),), methods=("moon",)))
    cli(f"run -s {tuned} --dry-run")
    assert "no tuned settings of moon on csbm; `fglbench tune -s tiny" in " ".join(cli(f"show {tuned}").split())


def test_untuned_methods_are_named_on_one_short_line(tuned, monkeypatch, capsys) -> None:
    values = yaml.safe_load(tuned.read_text())
    names = ["fedprox", "moon", "fedgta", "fedproto", "scaffold", "local"]
    values["cross"]["methods"] = [{"name": name, "params": "tuned"} for name in names]
    values["cross"]["datasets"] = [values["cross"]["datasets"], "cora", "citeseer", "pubmed", "actor"]
    tuned.write_text(yaml.safe_dump(values))
    message = (
        "no tuned settings of fedprox, moon, fedgta and 3 more on cora, citeseer, pubmed and 2 more; `fglbench tune"
    )
    for command in (["run", "--dry-run"], ["status"]):
        assert main([*command, "-s", str(tuned), "--results", str(tuned.parent)]) == 0
        out, err = capsys.readouterr()
        assert (out + err).count(f"suite 'tiny': {message} -s tiny` makes them") == 1
        assert (out + err).count("no tuned settings") == 1
    monkeypatch.setattr(suites, "FOLDER", tuned.parent)
    claims.cells_of.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cells = claims.expected("tiny", "fedprox")  # as `validate` asks
    claims.cells_of.cache_clear()
    assert sum(map(len, cells.values())) == 8


def test_the_seed_that_chose_is_not_scored(tuned) -> None:
    with pytest.raises(UserError, match=r"seed 100 chose the setting \(tiny/fedprox/csbm/01234567\)"):
        select(Request(suites=(str(tuned),), methods=("fedprox",), seeds=(0, 100)))


def test_tuning_uses_the_first_task_and_the_tuned_methods(tuned, suite) -> None:
    for path, names in ((tuned, {"fedprox", "moon"}), (suite, {"fedavg", "local"})):
        cells = load_suite(str(path)).base().cells()
        assert {cell.method.name for cell in cells} == names
        assert {(cell.partition.name, cell.clients) for cell in cells} == {("uniform", 3)}
        assert {cell.tuning for cell in cells} == {""}
    assert {cell.method.params.get("mu") for cell in load_suite(str(tuned)).base().cells()} == {0.01, 1.0}


@pytest.mark.parametrize("text", ["[]", "fedavg: {cora: {}}", "a: [", "fedavg: {cora: {study: a, lr: 1}}"])
def test_a_file_that_holds_no_settings_is_one_line(tmp_path, text) -> None:
    path = tmp_path / "chosen.yaml"
    path.write_text(text)
    if text != "[]":  # an empty file is no settings
        with pytest.raises(UserError, match=r"cannot read tuned settings .*`fglbench tune` writes them"):
            read_tuned(path)
    else:
        assert read_tuned(path) == {}


def test_settings_are_read_as_they_were_written(tmp_path) -> None:
    table = {"b": {"y": Tuned(**CHOSEN), "x": Tuned(**CHOSEN)}, "a": {"x": Tuned(**CHOSEN)}}
    write_tuned(tmp_path / "t.yaml", table)
    assert read_tuned(tmp_path / "t.yaml") == table
    assert (tmp_path / "t.yaml").read_text().startswith("# Written by `fglbench tune`")


def test_a_tuned_method_is_one_entry_with_any_settings() -> None:
    fixed = {"backbone": "gcn", "backbone_params": "{}", "method_params": "{}"}
    rows = [
        {"method": method, "tuning": tuning, "training": f'{{"lr":{lr}}}', **fixed}
        for method, tuning, lr in [
            ("a", "s", 1),
            ("a", "s", 2),
            ("b", "", 1),
            ("b", "", 2),
            ("c", "", 1),
            ("c", "s", 2),
        ]
    ]
    labels = entrant_labels(pd.DataFrame(rows), pd.Series(["cora"] * 6))
    assert list(labels) == ["a", "a", "b (lr=1)", "b (lr=2)", "c", "c (tuned)"]


def test_ranges_are_within_bounds_and_at_most_two_per_method() -> None:
    for name in (name for name in METHODS.names() if not name.startswith("t-")):
        ranges = searched(METHODS.cls(name))
        assert len(ranges) <= 2, name
        for settings in ranges.values():
            for setting in settings:
                METHODS.build(name, setting)  # raises for a value that the method refuses


def test_choices_set_the_same_fields() -> None:
    for choices in ((1, {"a": 1}), ({"a": 1}, {"a": 1, "b": 2}), ()):
        with pytest.raises(ValueError, match=r"tunable\(\) takes values, or mappings with the same fields"):
            tunable(*choices)


def test_show_names_the_tuned_values(cli) -> None:
    assert "tune: 0.001 | 0.01 | 0.1 | 1.0" in " ".join(cli("show fedprox").split())


def test_the_protocol_page_has_the_share_of_rates_at_the_edge() -> None:
    settings = [
        setting
        for each in read_tuned(ROOT / "benchmark/suites/tuned/node-3.yaml").values()
        if len(each) == 8
        for setting in each.values()
    ]
    ranges: dict[str, set[float]] = {}
    for row in TABLE:
        ranges.setdefault(row.optimiser, set()).add(row.rate)
    edges = {name: {min(rates), max(rates)} for name, rates in ranges.items()}
    chosen = [
        (setting.training.get("optimiser", "sgd"), (setting.training | setting.method).get("lr"))
        for setting in settings
    ]
    at_edge = sum(rate in edges[name] for name, rate in chosen)
    message = f"now in {100 * at_edge / len(chosen):.0f}% of {len(chosen)}"
    assert message in (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("field", "last", "beyond"),
    [
        ("trials", 1, 0), ("rounds", 1, 0), ("trial", 0, -1), ("seeds", [7], []), ("val", 1, 1.01),
        ("val", -4.2, float("nan")), ("default", 1, 1.01), ("default", None, "none"),  # errors are negative
    ],
)  # fmt: skip
def test_figures_of_a_setting_must_be_within_bounds(field: str, last: Any, beyond: Any, tmp_path: Path) -> None:
    file = tmp_path / "tuned.yaml"
    file.write_text(yaml.safe_dump({"fedprox": {"csbm": {**CHOSEN, field: last}}}))
    assert getattr(read_tuned(file)["fedprox"]["csbm"], field) == last
    file.write_text(yaml.safe_dump({"fedprox": {"csbm": {**CHOSEN, field: beyond}}}))
    with pytest.raises(UserError, match=rf"cannot read tuned settings .*fedprox\.csbm\.{field}"):
        read_tuned(file)


SUITES = sorted(path.stem for path in (ROOT / "benchmark" / "suites" / "tuned").glob("*.yaml"))
Trial = dict[int, Row]  # by seed


def trials_at_full_length(suite: str) -> dict[tuple[str, str, int], list[Trial]]:
    """(method, dataset, rounds) -> the trials with these rounds: rows of equal settings by their seeds."""
    groups: dict[tuple[Any, ...], Trial] = defaultdict(dict)
    for row in Store(ROOT / "results" / "tuning").rows(suite, latest_only=True):
        if row.val is not None:
            groups[row.method, row.dataset, row.training, row.method_params, row.backbone_params][row.seed] = row
    trials: dict[tuple[str, str, int], list[Trial]] = defaultdict(list)
    for (method, dataset, training, _, _), seeds in groups.items():
        trials[method, dataset, json.loads(training)["rounds"]].append(seeds)
    return trials


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
