"""Figures of embeddings, and CKA against HSIC from its definition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fglbench.benchmark.store import Store
from fglbench.report import build
from fglbench.report.figures import PLOTS, embeddings
from fglbench.report.figures.embeddings import cka_table, mean_off_diagonal
from fglbench.report.ranking import Ranking

from . import samples


def arrays(seed: int = 0, clients: int = 3, nodes: int = 24, width: int = 4) -> dict[str, np.ndarray]:
    """Three separated classes; clients' embeddings are rotations of the global one."""
    rng = np.random.default_rng(seed)
    label = np.arange(nodes) % 3
    rows = 10 * np.eye(3, width)[label] + rng.normal(size=(nodes, width))
    stored = {"node": np.arange(nodes), "label": label, "global": rows.astype(np.float16), "note": np.array("")}
    for client in range(clients):
        turned = rows @ np.linalg.qr(rng.normal(size=(width, width)))[0]
        stored[f"client_{client:03d}"] = turned.astype(np.float16)
    return stored


def ranking(rows: list[Any], files: dict[int, dict[str, np.ndarray]]) -> Ranking:
    """A board in which some rows have embeddings."""
    stored = {rows[i].key: file for i, file in files.items()}
    return Ranking(replace(samples.board(rows), embeddings=stored.get))


def test_most_common_seed_is_shown_in_ranking_order() -> None:
    names = ["alpha", "beta", "gamma"]
    rows = [
        samples.row("cora", name, seed, 0.5 + i / 10, global_on_global=0.25 + i / 10)
        for seed in (0, 1)
        for i, name in enumerate(names)
    ]
    rows.append(samples.row("wiki", "alpha", 0, 0.4))
    data = embeddings.tsne_data(ranking(rows, {0: arrays(0), 3: arrays(1), 5: arrays(2)}))
    (task,) = data["tasks"]
    assert (task["task"], task["seed"]) == ("cora", 1)
    board = ranking(rows, {})
    assert [run["name"] for run in task["runs"]] == [name for name in board.order if name != "beta"]
    assert {run["name"]: run["accuracy"] for run in task["runs"]} == pytest.approx({"alpha": 0.25, "gamma": 0.45})
    alpha = next(run for run in task["runs"] if run["name"] == "alpha")
    assert np.array_equal(alpha["rows"], arrays(1)["global"])


def test_tsne_needs_a_global_model_and_cka_two_clients() -> None:
    rows = [samples.row("cora", name, 0, 0.5) for name in ("alpha", "beta")]
    personal = {name: value for name, value in arrays().items() if name != "global"}
    board = ranking(rows, {0: arrays(clients=1), 1: personal})
    shown = [
        [run["name"] for run in data(board)["tasks"][0]["runs"]] for data in (embeddings.tsne_data, embeddings.cka_data)
    ]
    assert shown == [["alpha"], ["beta"]]
    assert embeddings.tsne_data(ranking(rows, {})) is None
    assert embeddings.cka_data(ranking(rows, {})) is None


@pytest.mark.parametrize(
    "change",
    [
        {"global": np.full((24, 4), np.nan, np.float16)},
        {"global": np.ones((24, 4), np.float16)},
        {"global": np.zeros((24, 0), np.float16)},
        {"global": np.arange(24.0)},
        {"global": np.array([["x"] * 4] * 24)},
        {"label": np.zeros(23, int)},
        {"label": np.full(24, -1)},
        {"label": np.zeros(24)},
    ],
)
def test_arrays_that_are_no_embeddings_are_not_drawn(change: dict[str, np.ndarray]) -> None:
    assert embeddings.tsne_data(ranking([samples.row("cora", "alpha", 0, 0.5)], {0: arrays() | change})) is None


def test_clients_that_embed_other_nodes_are_not_compared() -> None:
    odd = arrays() | {"client_001": arrays()["client_001"][:20]}
    assert embeddings.cka_data(ranking([samples.row("cora", "alpha", 0, 0.5)], {0: odd})) is None


def test_titles_give_the_mean_over_pairs_of_clients() -> None:
    rows = [samples.row("cora", name, 0, 0.5) for name in ("alpha", "beta")]
    noise = {
        f"client_{k:03d}": np.random.default_rng(k).normal(size=(24, 2)).astype(np.float16) * (1, 1e-2)
        for k in range(2)
    }
    noise["client_001"] = noise["client_000"][::-1].copy()
    data = embeddings.cka_data(ranking(rows, {0: arrays(), 1: arrays(clients=0) | noise}))
    assert data is not None
    titles = [axes.get_title() for axes in embeddings.draw_cka(data).axes]
    x, y = (noise[f"client_{k:03d}"][:, 0] for k in range(2))
    assert titles[0] == "alpha (1.00)"
    assert titles[1] == f"beta ({np.corrcoef(x, y)[0, 1] ** 2:.2f})"  # one dimension is all there is: CKA is r^2


def test_tsne_keeps_far_classes_apart_and_repeats() -> None:
    stored = arrays(nodes=60)
    place = embeddings.project(stored["global"])
    assert np.array_equal(place, embeddings.project(stored["global"]))
    centre = np.stack([place[stored["label"] == label].mean(0) for label in range(3)])
    nearest = np.linalg.norm(place[:, None] - centre, axis=2).argmin(1)
    assert np.array_equal(nearest, stored["label"])


def test_one_bit_of_an_array_changes_the_digest() -> None:
    array = arrays()["global"]
    other = array.copy()
    other.view(np.uint16)[3, 1] ^= 1
    digest = PLOTS[0].digest
    assert digest({"a": array}) == digest({"a": array.copy()})
    assert len({digest({"a": value}) for value in (array, other, array.T, array.astype(np.float32))}) == 4


def test_a_report_with_embeddings_is_fresh_until_they_change(tmp_path: Path) -> None:
    rows = [samples.row("cora", name, 0, 0.5) for name in ("alpha", "beta")]
    folder = samples.write(tmp_path / "results", rows)
    store = Store(folder)
    for i, row in enumerate(rows):
        store.write_embeddings("demo", row.key, arrays(i))
    build.write(build.make(folder, None))
    assert build.stale(build.make(folder, None)) == []
    assert "(figures/cka.png)" in (folder / "demo" / "LEADERBOARD.md").read_text()
    store.write_embeddings("demo", rows[0].key, arrays(7))
    assert [path.name for path in build.stale(build.make(folder, None))] == ["cka.png", "manifest.json", "tsne.png"]
    for content in (b"", b"PK\x03\x04 cut", store.embeddings_file("demo", rows[1].key).read_bytes()[:900]):
        for row in rows:  # unreadable files only remove their panel
            store.embeddings_file("demo", row.key).write_bytes(content)
        assert not {"tsne.png", "cka.png"} & {path.name for path in build.make(folder, None).figures}


def cka(one: np.ndarray, other: np.ndarray) -> float:
    return float(cka_table([one, other])[0, 1])


def hsic(k: np.ndarray, other: np.ndarray) -> float:
    """tr(K H L H) / (n - 1)^2, H = I - 11'/n (Gretton et al., ALT 2005; Kornblith et al. 2019, Eq. 3)."""
    h = np.eye(len(k)) - 1 / len(k)
    return float(np.trace(k @ h @ other @ h)) / (len(k) - 1) ** 2


def by_definition(one: np.ndarray, other: np.ndarray) -> float:
    k, m = one @ one.T, other @ other.T
    return hsic(k, m) / (hsic(k, k) * hsic(m, m)) ** 0.5


@pytest.mark.parametrize("widths", [(3, 5), (1, 4), (6, 6)])
def test_cka_is_the_normalised_hsic_of_linear_kernels(widths: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    one = rng.normal(size=(9, widths[0])) + 3
    other = np.tanh(one[:, :1]) * rng.normal(size=widths[1]) + rng.normal(size=(9, widths[1]))
    assert cka(one, other) == pytest.approx(by_definition(one, other), rel=1e-10)


def test_cka_ignores_rotation_scale_and_shift() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 4))
    rotation, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    assert cka(rows, -7 * rows @ rotation + 2) == pytest.approx(1)
    assert cka(rows, rows @ np.diag([1, 1, 1, 20.0])) < 0.9  # another shape is
    half = (rows + 500).astype(np.float16)  # a sum of squares would overflow in half precision
    assert cka(half, half) == pytest.approx(1)


def test_cka_of_uncorrelated_columns_is_0_and_of_constants_nan() -> None:
    one, other = np.array([[1.0], [1], [-1], [-1]]), np.array([[1.0], [-1], [1], [-1]])
    assert cka(one, other) == 0
    assert np.isnan(cka(one, np.ones((4, 2))))


def test_the_mean_over_pairs() -> None:
    rng = np.random.default_rng(0)
    table = cka_table([rng.normal(size=(12, 3)), rng.normal(size=(12, 5)), np.ones((12, 2))])
    assert np.array_equal(table, table.T, equal_nan=True)
    assert mean_off_diagonal(table) == pytest.approx(table[0, 1])  # pairs with the constant one have no figure
    assert np.isnan(mean_off_diagonal(np.full((2, 2), np.nan)))
