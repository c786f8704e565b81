"""Figures of clients: the spread of their scores, and their labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fglbench.benchmark.store import Store
from fglbench.registry import UserError
from fglbench.report import build
from fglbench.report.figures import clients

from . import samples


def test_clients_are_sorted_within_a_seed_before_seeds_are_averaged() -> None:
    rows = [samples.row("cora", "alpha", seed, 0.5) for seed in (0, 1)]
    files = [{"per_client": {"score": scores}} for scores in ([0.9, 0.1, 0.5], [0.2, 0.6, 0.8])]
    data = clients.clients_data(samples.ranking(rows, files=files))
    ((line,),) = (panel["lines"] for panel in data["panels"])
    assert line["name"] == "alpha"
    assert line["scores"] == pytest.approx([0.15, 0.55, 0.85])


def test_a_client_without_a_score_is_left_out_of_its_seed() -> None:
    runs = [np.array([0.0, 0.2, 0.4, 0.6]), np.array([0.1, 0.3])]  # the second is 0.1, 1/6, 7/30, 0.3 on four places
    assert clients.spread(runs) == pytest.approx([0.05, 11 / 60, 19 / 60, 0.45])


def test_local_scores_replace_union_scores() -> None:
    rows = [samples.row("cora", name, 0, 0.5) for name in ("alpha", "beta", "gamma")]
    both = {"score": [0.7], "global_on_local": [0.3, 0.4], "personal_on_local": [0.5, 0.6]}
    some = {"score": [0.7], "personal_on_local": [0.5, 0.6]}
    files = [{"per_client": scores} for scores in (both, some, {"score": [0.7]})]
    data = clients.clients_data(samples.ranking(rows, files=files))
    (panel,) = data["panels"]
    assert {line["name"]: line["scores"] for line in panel["lines"]} == {"alpha": [0.3, 0.4], "beta": [0.5, 0.6]}


@pytest.mark.parametrize("scores", [[1, 2], {"score": "x"}, {"score": [None, None]}, {"score": [{}, []]}])
def test_invalid_score_lists_give_no_line(scores: Any) -> None:
    assert (
        clients.clients_data(samples.ranking([samples.row("cora", "alpha", 0, 0.5)], files=[{"per_client": scores}]))
        is None
    )


def test_label_counts_are_of_the_lowest_seed() -> None:
    places = [("cora", "alpha", 1), ("cora", "beta", 0), ("wiki", "alpha", 0)]
    rows = [samples.row(*place, 0.5) for place in places]
    files: list[dict[str, Any]] = [{"label_counts": [[9, 9]]}, {"label_counts": [[1, 2], [0, 3]]}, {}]
    data = clients.labels_data(samples.ranking(rows, files=files))
    assert data == {"panels": [{"task": "cora", "seed": 0, "counts": [[1, 2], [0, 3]]}], "lacking": ["wiki"]}
    figure = clients.draw_labels(data)
    assert figure.get_supxlabel() == "No counts are stored for: wiki"


def test_tasks_on_the_same_clients_have_one_panel_of_labels() -> None:
    """Two decoders score the same clients."""
    decoders = [(name, json.dumps({"decoder": name})) for name in ("dot", "mlp")]
    rows = [
        samples.row("cora", method, 0, 0.5, task="link", clients=clients, backbone_params=params)
        for method, (_, params) in (("alpha", decoders[0]), ("beta", decoders[1]))
        for clients in (5, 10)
    ]
    data = clients.labels_data(samples.ranking(rows, files=[{"label_counts": [[1, 2]]}] * 4))
    assert [panel["task"] for panel in data["panels"]] == ["cora (10 clients)", "cora (5 clients)"]


@pytest.mark.parametrize(
    "counts", [None, [], [1, 2], [[1, 2], [3]], [[1, -1]], [[0, 0]], [["a"]], [[0.5]], {"a": 1}, [[1], "x"], [[3], [4]]]
)
def test_invalid_label_counts_are_ignored(counts: Any) -> None:
    row = samples.row("cora", "alpha", 0, 0.5)
    board_ranking = samples.ranking([row], files=[{"label_counts": counts}])
    assert clients.labels_data(board_ranking) is None
    assert not board_ranking.characteristics.sentences


def test_plot_has_one_bubble_per_client_and_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes

    drawn = []
    scatter = Axes.scatter
    monkeypatch.setattr(
        Axes, "scatter", lambda self, x, y, **how: drawn.append((x, y, how["s"])) or scatter(self, x, y, **how)
    )
    labels = np.array([[2, 1], [0, 2]])
    clients.save_labels(labels, "square", tmp_path / "new" / "square.png")
    ((client, label, area),) = drawn
    assert list(zip(client, label, strict=True)) == [(0, 0), (0, 1), (1, 1)]
    np.testing.assert_allclose(area / area[0], [1, 0.5, 1])
    assert (tmp_path / "new" / "square.png").read_bytes().startswith(b"\x89PNG")
    for path in (tmp_path / "square.nonsense", tmp_path / "new" / "square.png" / "x.png"):
        with pytest.raises(UserError, match="the plot cannot be written"):
            clients.save_labels(labels, "square", path)


@pytest.mark.filterwarnings("error")
def test_boards_of_any_shape_are_drawn_without_warnings(tmp_path: Path) -> None:
    """One task and one method; two tasks and a legend of long names that is higher than the panels."""
    rows = [samples.row("cora", "alpha", 0, 0.5, suite="small")]
    wide = [(data, f"a method of quite some length {i}", i) for data in ("cora", "wiki") for i in range(24)]
    rows += [samples.row(data, name, 0, 0.5 + i / 100, suite="wide") for data, name, i in wide]
    folder = samples.write(tmp_path / "results", rows)
    for row in rows:
        Store(folder).write_history(row.suite, row.key, {**samples.history(0.5), "label_counts": [[3, 0], [1, 2]]})
    wanted = {"per_client.png", "label_distribution.png", "convergence.png", "cost.png"}
    drawn = [each for path, each in build.make(folder, None).figures.items() if path.name in wanted]
    assert len(drawn) == 7  # a single method has no ranks for the cost figure
    for plot, data in drawn:
        assert plot.png(data).startswith(b"\x89PNG")
