"""Curves of runs in TensorBoard, Weights & Biases and MLflow: observers for `fglbench.run(observer=...)`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..registry import UserError
from .runner.backend import Observer
from .store.row_file import safe_name

if TYPE_CHECKING:
    from .runner.plan import Item
    from .store.schema import Row

FINAL = ("score", "val", "macro_f1", "best_round", "upload_bytes", "download_bytes", "train_seconds")


class Tracker(Observer):
    """An observer that opens one run of a tracking service per run of a plan; several may be open at the same time.

    A subclass defines `open`, `log` and `close`. Runs of other processes (`elsewhere`) are not logged.
    """

    def __init__(self) -> None:
        self._open: dict[str, Any] = {}

    def open(self, item: Item) -> Any:
        """Begin a run of the service. The result is the first argument of `log` and `close`."""
        raise NotImplementedError

    def log(self, run: Any, figures: Mapping[str, float], number: int) -> None:
        """Add the figures of round `number` (from 1)."""
        raise NotImplementedError

    def close(self, run: Any, row: Row | None) -> None:
        """End a run. row: None if the plan was interrupted before."""
        raise NotImplementedError

    def started(self, item: Item) -> None:
        if _place(item) not in self._open:  # a second attempt of a cell continues its run
            self._open[_place(item)] = self.open(item)

    def round(self, item: Item, number: int, figures: Mapping[str, Any]) -> None:
        if _place(item) in self._open:
            self.log(self._open[_place(item)], _numbers(figures), number)

    def finished(self, item: Item, row: Row, *, elsewhere: bool) -> None:
        if (run := self._open.pop(_place(item), None)) is not None:
            self.close(run, None if elsewhere else row)

    def ended(self) -> None:
        while self._open:
            self.close(self._open.popitem()[1], None)


class TensorBoard(Tracker):
    """Event files in `folder`/<suite>/<run> for `tensorboard --logdir folder`. Needs the extra `tensorboard`."""

    def __init__(self, folder: str | os.PathLike[str] = "runs/tensorboard") -> None:
        super().__init__()
        _needed("tensorboard", "tensorboard")
        self.folder = Path(folder)

    def open(self, item: Item) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(str(self.folder / _name(item)))
        about = "\n".join(f"    {name}: {value}" for name, value in _settings(item).items())
        writer.add_text("settings", about)
        return writer

    def log(self, run: Any, figures: Mapping[str, float], number: int) -> None:
        for name, value in figures.items():
            run.add_scalar(name, value, number)

    def close(self, run: Any, row: Row | None) -> None:
        if row is not None:
            for name, value in _final(row).items():
                run.add_scalar(f"final/{name}", value, 0)
        run.close()


class WandB(Tracker):
    """One Weights & Biases run per run, in `project`. options: further arguments of `wandb.init`, such as
    mode="offline". Needs the extra `wandb`."""

    def __init__(self, project: str = "fglbench", **options: Any) -> None:
        super().__init__()
        self._wandb = _needed("wandb", "wandb")
        self.project, self.options = project, options

    def open(self, item: Item) -> Any:
        given = {"group": item.suite, "config": _settings(item), "reinit": "create_new"} | self.options
        return self._wandb.init(project=self.project, name=_name(item), **given)

    def log(self, run: Any, figures: Mapping[str, float], number: int) -> None:
        run.log(dict(figures), step=number)

    def close(self, run: Any, row: Row | None) -> None:
        if row is not None:
            run.summary.update({f"final/{name}": value for name, value in _final(row).items()} | {"status": row.status})
        run.finish(exit_code=0 if row is not None and row.status in ("ok", "skipped") else 1)


class MLflow(Tracker):
    """One MLflow run per run, in `experiment` at `uri` (default: MLFLOW_TRACKING_URI). Needs the extra `mlflow`.
    UserError if the server cannot be used."""

    def __init__(self, experiment: str = "fglbench", uri: str | None = None) -> None:
        super().__init__()
        mlflow = _needed("mlflow", "mlflow")
        try:
            self.client = mlflow.MlflowClient(uri)
            known = self.client.get_experiment_by_name(experiment)
            self.experiment = self.client.create_experiment(experiment) if known is None else known.experiment_id
        except mlflow.MlflowException as error:
            raise UserError(f"MLflow cannot be used at {uri!r}: {str(error).splitlines()[0]:.300}") from None

    def open(self, item: Item) -> Any:
        run = self.client.create_run(self.experiment, run_name=_name(item), tags={"suite": item.suite})
        for name, value in _settings(item).items():
            self.client.log_param(run.info.run_id, name, value)
        return run.info.run_id

    def log(self, run: Any, figures: Mapping[str, float], number: int) -> None:
        for name, value in figures.items():
            self.client.log_metric(run, name, value, step=number)

    def close(self, run: Any, row: Row | None) -> None:
        if row is not None:
            for name, value in _final(row).items():
                self.client.log_metric(run, f"final_{name}", value)
            self.client.set_tag(run, "status", row.status)
        sound = row is not None and row.status in ("ok", "skipped")
        self.client.set_terminated(run, "FINISHED" if sound else "KILLED" if row is None else "FAILED")


def _needed(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(f"{module} cannot be imported ({error}): pip install 'fglbench[{extra}]'") from None


def _place(item: Item) -> str:
    return f"{item.suite}/{item.cell.key}"


def _name(item: Item) -> str:
    cell = item.cell
    return f"{item.suite}/{safe_name(cell.dataset.name)}-{cell.method.name}-seed{cell.seed}-{cell.key[:6]}"


def _settings(item: Item) -> dict[str, Any]:
    """Name -> value: suite, key, seed, clients, the parts of the cell, parameters of the method, training settings."""
    cell = item.cell
    settings: dict[str, Any] = {"suite": item.suite, "key": cell.key, "seed": cell.seed, "clients": cell.clients}
    settings |= {kind: choice.name for kind, choice in cell.choices()}
    settings |= {f"method.{name}": value for name, value in cell.method.params.items()}
    return settings | {f"training.{name}": value for name, value in cell.training.model_dump().items()}


def _numbers(figures: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in figures.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def _final(row: Row) -> dict[str, float]:
    return _numbers({name: getattr(row, name) for name in FINAL})
