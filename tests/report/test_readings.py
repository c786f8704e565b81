"""Readings by hand: their rows, the choice on validation, the compared round, the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fglbench.benchmark.store import Store
from fglbench.report import build
from fglbench.report.papers import Reading, cells, papers, printed, tables
from fglbench.report.reproduction.match import SuiteRows, chosen
from fglbench.report.reproduction.view import JudgedClaim
from fglbench.report.statistics import Difference

from . import samples

BASE = Reading(id="printed", where={"split": "ratio", "method_params": {"beta": 10.0}}, methods=["omd"])
SQUARED = Reading(id="squared", methods=["omd"], where={"method_params": {"norm": "squared"}})
WEAK = Reading(id="weak", methods=["omd"], choose={"beta": [0.1, 1.0]})
OTHER = Reading(id="other", where={"split": "fixed"})
LAST = Reading(id="last", round="last")
ALL = [BASE, SQUARED, WEAK, OTHER, LAST]
BOTH = Reading(id="both", methods=["omd"], where={"method_params": {"norm": "squared"}}, shared={"split": "fixed"})


def test_the_cells_of_a_reading() -> None:
    omd, avg = {"method": "omd"}, {"method": "avg"}
    ratio = {"method": "omd", "split": "ratio"}
    assert cells(ALL, BASE, omd) == [ratio | {"method_params": {"beta": 10.0, "norm": None}}]
    assert cells(ALL, SQUARED, omd) == [ratio | {"method_params": {"beta": 10.0, "norm": "squared"}}]
    assert cells(ALL, WEAK, omd) == [ratio | {"method_params": {"beta": b, "norm": None}} for b in (0.1, 1.0)]
    assert cells(ALL, OTHER, omd) == [ratio | {"split": "fixed", "method_params": {"beta": 10.0, "norm": None}}]
    assert cells(ALL, LAST, omd) == cells(ALL, BASE, omd)
    for reading in (BASE, SQUARED, WEAK, LAST):  # no filter for other methods
        assert cells(ALL, reading, avg) == [avg]
    assert cells(ALL, OTHER, avg) == [{"method": "avg", "split": "fixed"}]
    assert [reading.changes(BASE, omd) for reading in ALL] == [False, True, True, True, True]
    assert [reading.changes(BASE, avg) for reading in ALL] == [False, False, False, True, True]


def test_shared_and_method_filters_of_a_reading() -> None:
    known = [*ALL, BOTH]
    squared = {"method": "omd", "split": "fixed", "method_params": {"beta": 10.0, "norm": "squared"}}
    assert cells(known, BOTH, {"method": "omd"}) == [squared]
    assert cells(known, BOTH, {"method": "avg"}) == [{"method": "avg", "split": "fixed"}]
    assert BOTH.changes(BASE, {"method": "omd"}) and BOTH.changes(BASE, {"method": "avg"})
    fine = Reading(id="fine", methods=["omd"], shared={"partition_params": {"delta": 1}})
    for method in ("omd", "avg"):  # the base's rows lack a shared parameter
        (base,) = cells([BASE, fine], BASE, {"method": method})
        assert base["partition_params"] == {"delta": None}

    every = Reading(id="every", methods=["omd"], where={"split": "ratio"}, shared={"partition": "louvain"})
    for method, wanted in (("omd", {"split": "ratio", "partition": "louvain"}), ("avg", {"partition": "louvain"})):
        assert cells([every, LAST], every, {"method": method}) == [{"method": method} | wanted]  # a base may ask of all
        assert cells([every, LAST], LAST, {"method": method}) == [{"method": method} | wanted]


def test_unaffected_figures_use_rows_of_the_base() -> None:
    def figure(**params: Any) -> dict[str, Any]:
        return {"method": "omd", "method_params": {"beta": 10.0, **params}}

    off = {"method_params": {"part": False}}
    still = Reading(id="still", methods=["omd"], unless=[off], where={"method_params": {"noise": 0}})
    known = [Reading(id="base"), still]
    assert cells(known, still, figure()) == [figure(noise=0)]
    assert cells(known, still, figure(part=True)) == [figure(part=True, noise=0)]
    assert cells(known, still, figure(part=False)) == cells(known, known[0], figure(part=False)) == [figure(part=False)]
    changes = [still.changes(known[0], figure(**params)) for params in ({}, {"part": True}, {"part": False})]
    assert changes == [True, True, False]
    about: dict[str, Any] = {"datasets": ["acm", "wiki"], "unless": [{"dataset": "acm", "clients": 5}]}
    own_split: dict[str, Any] = {"methods": ["omd"], "where": {"split": "fixed"}}
    some = Reading(id="some", shared={"partition": "metis"}, **about, **own_split)
    last = Reading(id="last", round="last", **about, **own_split)
    for dataset, clients, left in (("cora", 5, True), ("acm", 5, True), ("acm", 7, False), ("wiki", 5, False)):
        place = {"dataset": dataset, "clients": clients}
        for method, params in (("omd", {"split": "fixed"}), ("avg", {})):
            words = {"method": method} | place
            wanted = words if left else words | params | {"partition": "metis"}
            assert cells([known[0], some, last], some, words) == [wanted]
            assert some.changes(known[0], words) is not left
            assert last.changes(known[0], words)  # the round is that of all
            assert cells([known[0], some, last], last, words) == [words if left else words | params]


def test_a_parameter_of_one_of_mixed_architectures() -> None:
    """Mixtures without the parameter are of the base, those with it in any model are of the reading."""
    plain, normed = '[{"hidden":64},{"eps":0.0}]', '[{"hidden":64},{"batch_norm":true,"eps":0.0},{"hidden":64}]'
    params = (plain, normed, '[{"batch_norm":false}]', "[]", '{"batch_norm":true}')
    rows = SuiteRows.of(
        [samples.row("cora", "avg", seed, 0.1, backbone_params=text) for seed, text in enumerate(params)]
    )
    base = Reading(id="base")
    reading = Reading(id="normed", where={"backbone_params": {"batch_norm": True}})
    filters = [cells([base, reading], each, {"method": "avg"}) for each in (base, reading)]
    assert [[*rows.select(where, ["seed"])["seed"]] for (where,) in filters] == [[0, 3], [1, 4]]


def test_settings_are_chosen_on_validation() -> None:
    def row(beta: float, seed: int, score: float, val: float) -> Any:
        return samples.row("cora", "omd", seed, score, val=val, method_params=f'{{"beta":{beta}}}')

    low = [row(0.1, seed, 0.9, 0.5) for seed in range(3)]
    high = [row(1.0, seed, 0.4 + 0.1 * seed, 0.6) for seed in range(3)]
    options = cells(ALL, WEAK, {"method": "omd"})
    best = chosen(SuiteRows.of([*low, *high]), options, WEAK, "score")
    assert (best.seeds, best.chosen) == ({0: 0.4, 1: 0.5, 2: pytest.approx(0.6)}, "beta 1.0")
    # Only seeds of all settings are compared; a single setting gives no choice.
    few = chosen(SuiteRows.of([*low, *high[:2]]), options, WEAK, "score")
    assert (few.seeds, few.chosen) == ({0: 0.4, 1: 0.5}, "beta 1.0")
    alone = chosen(SuiteRows.of(low), options, WEAK, "score")
    assert (alone.seeds, alone.chosen) == ({}, "")


def test_compared_round() -> None:
    curves: list[Any] = [[0.1, 0.2, 0.3], [0.4], None, [0.5, "x"], [2.0]]
    rows = [samples.row("cora", "omd", seed, 0.9) for seed in range(5)]
    stored = {row.key: {"history": {"score": curve}} for row, curve in zip(rows, curves, strict=True)}
    known = SuiteRows.of(rows, lambda key: stored[key]["history"])
    where = {"method": "omd"}
    assert known.ours(where, "score", "last").seeds == {0: 0.3, 1: 0.4}  # the other curves are invalid
    assert known.ours(where, "score", 2).seeds == {0: 0.2}
    assert known.ours(where, "score", 4).seeds == {}
    assert known.ours(where, "macro_f1", "last").seeds == {}
    assert known.ours(where, "score").n == 5
    assert SuiteRows.of(rows).ours(where, "score", "last").seeds == {}  # no side files


@pytest.mark.parametrize(
    ("low", "high", "n", "size"),
    [(0.005, 0.015, 3, "less"), (0.005, 0.02, 3, "agrees"), (0.021, 0.03, 3, "more"), (0.0, 0.1, 2, "")],
)
def test_size_against_the_published_gain(low: float, high: float, n: int, size: str) -> None:
    figures = {row.method: row for row in printed() if (row.paper, row.table, row.dataset) == ("FedGL", "2", "Cora")}
    pair = figures["FedGL"], figures["Federated"]  # 0.830 and 0.810
    judged = JudgedClaim(pair, "supported", Difference((low + high) / 2, low, high, 0.5), n)
    assert judged.gain == pytest.approx(0.02)
    assert judged.size == size
    assert JudgedClaim(pair, "not run").size == ""


def rows_of_fgssl() -> tuple[list[Any], dict[str, dict[str, Any]]]:
    """FGSSL on Cora, 5 clients: a point below FedAvg at the best round, two points above at the last."""
    rows, stored = [], {}
    for method, best, last in (("fedavg", 0.80, 0.75), ("fgssl", 0.79, 0.77)):
        for seed in range(3):
            place = {"suite": "fgssl-table1", "split": "fs-per-class", "clients": 5}
            words = tables()["fgssl-table1"][1].map["method"]["FGSSL"]["method_params"]
            params = json.dumps(words) if method == "fgssl" else "{}"
            row = samples.row("cora", method, seed, best + 0.01 * seed, method_params=params, **place)
            rows.append(row)
            stored[row.key] = {"history": {"round": [1, 2], "score": [best + 0.01 * seed, last + 0.01 * seed]}}
    return rows, stored


def test_the_page_sets_readings_side_by_side(tmp_path: Path) -> None:
    rows, stored = rows_of_fgssl()
    folder = samples.write(tmp_path / "results", rows, curves=False)
    for row in rows:
        Store(folder).write_history(row.suite, row.key, stored[row.key])
    build.write(build.make(folder, None, figures=False))
    text = (folder / "fgssl-table1" / "REPRODUCTION.md").read_text()
    for reading in tables()["fgssl-table1"][0].readings:
        ran = reading.id in ("released-split", "last-round")
        (line,) = (line for line in text.splitlines() if line.startswith(f"- **{reading.id}**: "))
        assert line.endswith("*Not run.*") is not ran
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    (figure,) = (line for line in lines if line[0] == "FGSSL, Cora, M=5")
    assert figure[1:] == [
        "88.34 ± 0.34",
        "*80.00 ± 1.00* (n=3)<br>**\N{MINUS SIGN}8.34**",
        "*78.00 ± 1.00* (n=3)<br>**\N{MINUS SIGN}10.34**",
    ]
    (claim,) = (line for line in lines if line[0] == "FGSSL > FedAvg, Cora, M=5")
    assert claim[1:] == [
        "+1.71",
        "**contradicted**<br>\N{MINUS SIGN}1.00 (\N{MINUS SIGN}1.00 to \N{MINUS SIGN}1.00)<br>less than +1.71",
        "**supported**<br>+2.00 (+2.00 to +2.00)<br>more than +1.71",
        "last-round",
    ]
    index = [line for line in (folder / "REPRODUCTION.md").read_text().splitlines() if "](fgssl-table1/" in line]
    assert [line.split("|")[3].strip() for line in index] == ["released-split", "last-round"]
    assert [line.split("|")[1].strip()[:3] for line in index] == ["1: ", ""]  # the title is on the first line


def test_readings_have_ids_meanings_and_sources() -> None:
    for paper in papers():
        for spec in paper.tables.values():
            base, *rest = paper.readings_of(spec)
            everyone = [base, *rest]
            assert len({reading.id for reading in everyone}) == len(everyone)
            assert not rest or all(
                reading.id and reading.meaning.endswith(".") and reading.source for reading in everyone
            )
            assert all(reading.where or reading.choose or reading.round != base.round for reading in rest)
