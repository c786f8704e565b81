"""Clients as plain data, and rows as data frames and LaTeX: against the store, the engine and hand calculations."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot

import fglbench
from fglbench.benchmark.store import Store
from fglbench.registry import UserError

RESULTS = Path(fglbench.__file__).parent / "results"


@pytest.fixture
def of_cora(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """The rows of one task, without a display."""
    with matplotlib.rc_context({"backend": "agg"}):
        yield rows[rows["dataset"] == "cora"]
        pyplot.close("all")


def test_figures_show_the_means_of_the_frames(of_cora: pd.DataFrame) -> None:
    methods = list(dict.fromkeys(of_cora["method"]))
    axes = fglbench.plot.curves(of_cora, RESULTS)
    frame = fglbench.curves(of_cora, RESULTS).groupby(["method", "round"])["score"].mean()
    assert [line.get_label() for line in axes.lines] == methods
    for line in axes.lines:
        np.testing.assert_allclose(line.get_ydata(), frame[line.get_label()])
    clients = fglbench.plot.per_client(of_cora, RESULTS, value="val")
    each = fglbench.per_client(of_cora, RESULTS).groupby(["method", "client"])["val"].mean()
    for line in clients.lines:
        np.testing.assert_allclose(line.get_ydata(), each[line.get_label()])
    dots = fglbench.plot.scores(of_cora, axes=pyplot.figure().subplots())
    ordered = of_cora.groupby("method")["score"].mean().sort_values()
    assert [text.get_text() for text in dots.get_yticklabels()] == list(ordered.index)
    assert dots.lines[1].get_xdata()[0] == pytest.approx(ordered.iloc[0])
    assert (dots.get_xlabel(), axes.get_ylabel(), clients.get_ylabel()) == (*["score: accuracy"] * 2, "val: accuracy")
    errors = of_cora.assign(score_metric="RMSE (lower is better), global model, local test")
    dots = fglbench.plot.scores(errors, axes=pyplot.figure().subplots())
    assert [text.get_text() for text in dots.get_yticklabels()] == list(ordered.index[::-1])
    assert dots.get_xlabel() == "score: RMSE (lower is better)"


def test_figures_are_of_one_task_with_curves(rows: pd.DataFrame, of_cora: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="these are of 3: "):
        fglbench.plot.curves(rows, RESULTS)
    with pytest.raises(UserError, match="lack the column 'dataset'"):
        fglbench.plot.scores(pd.DataFrame({"score": [1.0]}))
    with pytest.raises(UserError, match="no 'roc_auc' in these rows"):
        fglbench.plot.scores(of_cora.assign(roc_auc=float("nan")), metric="roc_auc")
    with pytest.raises(UserError, match="no curves of 'nothing'"):
        fglbench.plot.curves(of_cora, RESULTS, value="nothing")
    with pytest.raises(UserError, match="these are of 0"):
        fglbench.plot.per_client(of_cora[:0], RESULTS)
    with pytest.raises(UserError, match="fedprox, seed 0, has several rows"):
        fglbench.plot.scores(pd.concat([of_cora, of_cora[of_cora["method"] == "fedprox"].assign(method_params="{}")]))


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return fglbench.load_results(RESULTS, "quick")


def test_curves_equal_the_store(rows: pd.DataFrame) -> None:
    few = rows[rows["method"] == "fedavg"]
    frame, store = fglbench.curves(few, RESULTS), Store(RESULTS)
    assert set(frame["key"]) == set(few["key"])
    for key, curve in frame.groupby("key"):
        kept = store.history("quick", key)
        assert kept is not None
        for name in ("round", "val", "score", "upload_bytes"):
            assert curve[name].tolist() == kept["history"][name]
        row = few.set_index("key").loc[key]
        assert curve.set_index("round")["score"][row["best_round"]] == pytest.approx(row["score"], abs=1e-6)


def test_rows_with_a_column_per_setting_have_curves_too(rows: pd.DataFrame) -> None:
    wide = fglbench.load_results(RESULTS, "quick", expand=True)
    for frame in (fglbench.curves, fglbench.per_client):
        pd.testing.assert_frame_equal(frame(wide, RESULTS), frame(rows, RESULTS).drop(columns="method_params"))
    assert fglbench.to_latex(wide) == fglbench.to_latex(rows)


def test_the_mean_over_clients_is_the_score(rows: pd.DataFrame) -> None:
    frame = fglbench.per_client(rows, RESULTS)
    means = frame.groupby("key")["score"].mean()
    nodes = rows[(rows["status"] == "ok") & (rows["task"] == "node")].set_index("key")["score"]
    np.testing.assert_allclose(means[nodes.index], nodes, atol=1e-6)
    assert frame.groupby("key")["client"].max().max() == rows["clients"].max() - 1


def test_a_latex_table_has_the_means_and_deviations(rows: pd.DataFrame) -> None:
    frame = pd.DataFrame(
        [
            {"suite": "s", "dataset": d, "partition": "p", "clients": 2, "method": m, "method_params": "{}", "seed": s,
             "key": f"{d}{m}{s}", "status": "ok", "score": v, "score_metric": "accuracy"}
            for d, m, s, v in [("a_b", "x", 0, 0.5), ("a_b", "x", 1, 0.7), ("a_b", "y", 0, 0.4), ("c", "y", 0, 0.25)]
        ]
    )  # fmt: skip
    text = fglbench.to_latex(frame, caption="All.")
    assert r"Method & a\_b & c \\" in text
    assert r"x & $\mathbf{60.0} \pm 14.1$ & -- \\" in text
    assert r"y & $40.0$ & $\mathbf{25.0}$ \\" in text
    assert r"\caption{All.}" in text
    errors = frame.assign(score=10 * frame["score"], score_metric="RMSE (lower is better)/global model")
    text = fglbench.to_latex(errors)
    assert r"x & $6.000 \pm 1.414$ & -- \\" in text and r"y & $\mathbf{4.000}$ & $\mathbf{2.500}$" in text
    chosen = fglbench.to_latex(frame, methods=["y"])
    assert "x &" not in chosen and r"y & $\mathbf{40.0}$ & $\mathbf{25.0}$" in chosen
    assert r"Method & a\_b \\" in fglbench.to_latex(frame, methods=["x"])  # c has no row of x
    with pytest.raises(UserError, match="no row with status ok of z"):
        fglbench.to_latex(frame, methods=["z"])
    with pytest.raises(UserError, match="x on a_b, seed 0, has several rows"):
        fglbench.to_latex(pd.concat([frame, frame.assign(suite="t")]))
    with pytest.raises(UserError, match="metric is 'loss'"):
        fglbench.to_latex(frame, "loss")
    with pytest.raises(UserError, match="rows lack the column 'suite'"):
        fglbench.curves(pd.DataFrame({"a": [1]}), RESULTS)


@pytest.mark.parametrize("dense", [True, False])
def test_plain_clients_equal_those_of_the_runs(dense: bool) -> None:
    arguments: dict[str, Any] = {"suite": "quick", "seed": 1}
    federation = fglbench.federation("csbm", **arguments)
    plain = fglbench.clients("csbm", dense=dense, **arguments)
    assert len(plain) == len(federation.clients)
    for data, client in zip(plain, federation.clients, strict=True):
        assert torch.equal(data.label, client.graph.ndata["label"])  # type: ignore[union-attr]
        assert torch.equal(data.feat.to_dense(), client.feat.to_dense())  # type: ignore[union-attr]
        assert data.feat.layout == torch.strided or not dense
        for part in ("train", "val", "test"):
            assert torch.equal(getattr(data, f"{part}_mask"), client.graph.ndata[f"{part}_mask"].bool())  # type: ignore[union-attr]


def test_a_federation_of_links_warns_of_no_method() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fglbench.federation("csbm", suite="quick", split="links").task == "link-prediction"


def test_clients_of_links_are_refused_with_the_reason() -> None:
    with pytest.raises(UserError, match="'csbm' is for link prediction in this suite"):
        fglbench.clients("csbm", suite="quick", split="links")


def test_a_client_in_pyg_has_the_same_edges() -> None:
    pytest.importorskip("torch_geometric")
    (first, *_) = fglbench.clients("csbm", suite="quick")
    data = first.to_pyg()
    assert torch.equal(data.edge_index, torch.stack(first.graph.edges(order="eid")))
    assert torch.equal(data.x, first.feat) and torch.equal(data.train_mask, first.train_mask)


def test_predictions_on_sets_of_graphs_are_scored() -> None:
    """By hand: the mean over clients of the share of right test graphs."""
    from fglbench.benchmark.contract.trial import labelled_graphs

    federation = labelled_graphs()
    guess = torch.zeros(len(federation.whole.label), dtype=torch.int64)
    shares = [
        float((client.label[client.masks["test"].bool()] == 0).float().mean())  # type: ignore[union-attr]
        for client in federation.clients
        if client.masks["test"].any()  # type: ignore[union-attr]
    ]
    evaluation = fglbench.evaluate(guess, federation)
    assert evaluation.score == pytest.approx(np.mean(shares))
    assert "of graphs" in evaluation.metric
    each = [torch.zeros(len(client.label), dtype=torch.int64) for client in federation.clients]  # type: ignore[union-attr]
    assert fglbench.evaluate(each, federation).score == evaluation.score
