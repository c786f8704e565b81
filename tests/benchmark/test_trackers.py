"""The trackers, read with the libraries of the services, offline. A test is skipped if its library is not installed
(`pip install 'fglbench[tensorboard,wandb,mlflow]'`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fglbench
from fglbench.benchmark.runner.plan import Item
from fglbench.benchmark.trackers import Tracker
from fglbench.registry import UserError

OPTIONS: dict[str, Any] = {
    "quick": True, "methods": ["fedavg", "local"], "datasets": ["csbm"], "seeds": [0],
    "settings": ["training.rounds=3"],
}  # fmt: skip


def tracked(observer: fglbench.Observer, results: Path, **options: Any) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """The rows of a run, and each run's curves by key."""
    rows = fglbench.run(**OPTIONS, results=results, observer=observer, **options or {"in_process": True})
    assert set(rows["status"]) == {"ok"} and len(rows) == 2
    curves = fglbench.curves(rows, results)
    return rows.set_index("key"), dict(iter(curves.groupby("key")))


def check_curve(points: list[tuple[int, float]], curve: pd.DataFrame, name: str) -> None:
    assert [step for step, _ in points] == list(curve["round"]) == [1, 2, 3]
    assert [value for _, value in points] == pytest.approx(list(curve[name]))


def test_tensorboard_has_the_curves(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows, curves = tracked(fglbench.TensorBoard(tmp_path / "tb"), tmp_path / "rows")
    files = list((tmp_path / "tb").rglob("events*"))
    assert len(files) == 2
    for file in files:
        (key,) = [key for key in rows.index if file.parent.name.endswith(key[:6])]
        events = EventAccumulator(str(file)).Reload()
        for name in ("val", "score"):
            check_curve([(event.step, event.value) for event in events.Scalars(name)], curves[key], name)
        assert events.Scalars("final/score")[0].value == pytest.approx(rows.loc[key, "score"])
        settings = events.Tensors("settings/text_summary")[0].tensor_proto.string_val[0].decode()
        assert f"method: {rows.loc[key, 'method']}" in settings and "training.rounds: 3" in settings


def test_wandb_has_the_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    observer = fglbench.WandB(mode="offline", dir=str(tmp_path))
    rows, curves = tracked(observer, tmp_path / "rows", jobs=2)  # two runs are open at a time
    files = list(tmp_path.rglob("*.wandb"))
    assert len(files) == 2
    for file in files:
        history, summary, config, code = wandb_records(file)
        key = config["key"]
        assert config["method"] == rows.loc[key, "method"] and config["training.rounds"] == 3 and code == 0
        for name in ("val", "score"):
            check_curve([(line["_step"], line[name]) for line in history if name in line], curves[key], name)
        assert summary["final/score"] == pytest.approx(rows.loc[key, "score"]) and summary["status"] == "ok"


def wandb_records(file: Path) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any], int]:
    """The content of the file of an offline run: history, summary, configuration, exit code."""
    from wandb.proto import wandb_internal_pb2

    def read(items: Any) -> dict[str, Any]:
        return {each.key or "/".join(each.nested_key): json.loads(each.value_json) for each in items}

    history: list[dict[str, Any]] = []
    summary, config, code = {}, {}, -1
    for data in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "history":
            history.append(read(record.history.item))
        elif kind == "summary":
            summary |= read(record.summary.update)
        elif kind == "run":
            config |= read(record.run.config.update)
        elif kind == "exit":
            code = record.exit.exit_code
    return history, summary, config, code


def records(data: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log: blocks of 32 KiB (the first begins with 7 bytes of its own); a piece of a record
    has 4 bytes of checksum, 2 of length, 1 of kind: whole, first, middle or last."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield whole
            whole = b""


def test_mlflow_has_the_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")  # and alembic, installed with optuna: the database of this test
    observer = fglbench.MLflow("own", uri=f"sqlite:///{tmp_path}/mlflow.db")
    rows, curves = tracked(observer, tmp_path / "rows")
    runs = observer.client.search_runs([observer.experiment])
    assert len(runs) == 2
    for run in runs:
        key = run.data.params["key"]
        assert run.info.status == "FINISHED" and run.data.params["method"] == rows.loc[key, "method"]
        for name in ("val", "score"):
            history = observer.client.get_metric_history(run.info.run_id, name)
            check_curve(sorted((each.step, each.value) for each in history), curves[key], name)
        assert run.data.metrics["final_score"] == pytest.approx(rows.loc[key, "score"])


class Noted(Tracker):
    """A service that notes each call."""

    def __init__(self, interrupted: bool = False) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self.interrupted = interrupted

    def open(self, item: Item) -> str:
        self.calls.append(("open", item.cell.method.name))
        return item.cell.method.name

    def log(self, run: str, figures: Any, number: int) -> None:
        self.calls.append(("log", run, number))
        assert all(isinstance(value, float) for value in figures.values()) and 0 <= figures["val"] <= 1
        if self.interrupted:
            raise KeyboardInterrupt

    def close(self, run: str, row: Any) -> None:
        self.calls.append(("close", run, row and row.status))


def test_every_run_is_opened_logged_and_closed(tmp_path: Path) -> None:
    options = OPTIONS | {"methods": ["fedavg", "fedgl"], "backbones": ["sage"], "in_process": True}
    noted = Noted()
    fglbench.run(**options, results=tmp_path / "a", observer=noted)
    assert noted.calls == [
        ("open", "fedavg"), *(("log", "fedavg", number) for number in (1, 2, 3)), ("close", "fedavg", "ok"),
        ("open", "fedgl"), ("close", "fedgl", "skipped"),
    ]  # fmt: skip
    noted = Noted(interrupted=True)
    with pytest.raises(KeyboardInterrupt):
        fglbench.run(**options, results=tmp_path / "b", observer=noted)
    assert noted.calls == [("open", "fedavg"), ("log", "fedavg", 1), ("close", "fedavg", None)]


def test_an_unavailable_mlflow_is_one_line() -> None:
    pytest.importorskip("mlflow")
    with pytest.raises(UserError, match=r"MLflow cannot be used at 'nowhere://x': "):
        fglbench.MLflow(uri="nowhere://x")


@pytest.mark.parametrize("name", ["TensorBoard", "WandB", "MLflow"])
def test_a_missing_library_is_named_with_its_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, name.lower(), None)
    with pytest.raises(UserError, match=rf"pip install 'fglbench\[{name.lower()}\]'"):
        getattr(fglbench, name)()
