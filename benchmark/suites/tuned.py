"""Settings that `fglbench tune` chose: files that suites refer to, one setting per method and dataset.

    fedavg:
      cora:
        method: {}                                     # values that replace those of the suite
        training: {optimiser: sgd, lr: 0.5, weight_decay: 0.0005}
        backbone: {dropout: 0.5}
        study: leaderboard/fedavg/cora/1f0c2a9b        # rows: results/tuning/leaderboard/fedavg.csv
        trials: 12
        rounds: 464                                    # of all trials together
        seeds: [100]
        rungs: [11, 33, 100]
        trial: 7
        val: 0.83
        default: 0.79
        commit: 0123abc

Other settings have the value of the suite. `fglbench tune` merges its choices into the file.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from ...files import write_atomically, writing
from ...registry import OWN, UserError
from ...yamltext import parse
from ..store.provenance import canonical
from .cell import Cell, Choice, Part, settled, train_config

FOLDER = Path(__file__).parent / "tuned"
HEAD = (
    "# Written by `fglbench tune`: what was chosen on validation, a method and dataset. `params: tuned` refers to it.\n"
)


TRAINING, BACKBONE = {"optimiser", "lr", "weight_decay"}, {"dropout"}  # parameters that `fglbench tune` chooses


class Values(Part):
    """The tuned values of a cell by section."""

    method: dict[str, Any] = Field({})
    training: dict[str, Any] = Field({})
    backbone: dict[str, Any] = Field({})

    def __str__(self) -> str:
        parts = ("training", "backbone", "method")
        return ", ".join(f"{name}={value}" for part in parts for name, value in getattr(self, part).items())

    def applied(self, cell: Cell) -> Cell:
        """The cell with these values. UserError for a wrong parameter."""
        method = Choice(name=cell.method.name, params=cell.method.params | self.method)
        backbones = tuple(Choice(name=choice.name, params=choice.params | self.backbone) for choice in cell.backbones)
        training = train_config(dict(cell.training) | self.training)
        changed = {"method": method, "backbones": backbones, "training": training}
        return settled(cell.model_copy(update=changed), filled=True)


def own_content(cell: Cell) -> dict[str, str]:
    """The fingerprint and the metric of a dataset of the user; empty for other datasets."""
    own = cell.dataset.name.startswith(OWN)
    return {name: cell.dataset.params[name] for name in ("sha256", "metric")} if own else {}


def with_rounds(cell: Cell, rounds: int) -> Cell:
    """The cell with this number of rounds."""
    return Values(training={"rounds": rounds}).applied(cell)


class Tuned(Values):
    """A chosen setting, and how it was chosen."""

    study: str = Field(description="suite/method/dataset/digest of everything that defines the study")
    trials: int = Field(ge=1)
    rounds: int = Field(ge=1, description="training rounds of all trials and seeds together")
    seeds: list[int] = Field(min_length=1)
    rungs: list[int] = Field([], description="training rounds of a trial of each rung; [] for those of the suite")
    trial: int = Field(ge=0, description="its number; 0 is the setting of the suite")
    val: float = Field(le=1, allow_inf_nan=False, description="mean validation score over the seeds; errors: negative")
    default: float | None = Field(le=1, allow_inf_nan=False, description="val of trial 0; empty if it failed")
    commit: str = ""
    data: dict[str, str] = Field({}, description="of a dataset of the user: see `own_content`")

    def scored(self, cell: Cell) -> Cell:
        """The cell with this setting and its `tuning`. UserError as for `unseen` and `check_data`."""
        self.unseen(cell)
        self.check_data(cell)
        study = canonical({name: getattr(self, name) for name in ("study", "trials", "rounds", "seeds")})
        return self.applied(cell).model_copy(update={"tuning": study})

    def check_data(self, cell: Cell) -> None:
        """Raise UserError if the setting was chosen on another content or metric of a dataset of the user."""
        for name, value in own_content(cell).items():
            if self.data and self.data[name] != value:
                what = f"{cell.dataset.name} has {name} {value!r}, but {cell.method.name} was tuned on it with"
                raise UserError(f"{what} {self.data[name]!r}; tune again: fglbench tune --data FOLDER")

    def unseen(self, cell: Cell) -> None:
        """Raise UserError if the setting was chosen on the seed of the cell."""
        if cell.seed in self.seeds:
            raise UserError(
                f"{cell}: seed {cell.seed} chose the setting ({self.study}) and cannot be scored; take another"
            )


Table = dict[str, dict[str, Tuned]]  # method -> dataset -> setting


def without_settings(pairs: Iterable[tuple[str, str]], table: Table) -> list[tuple[str, str]]:
    """The pairs (method, dataset) that have no setting."""
    return [(method, dataset) for method, dataset in pairs if dataset not in table.get(method, {})]


def tuned_file(name: str) -> Path:
    """The file of settings of the package with this name, or the YAML file with this path."""
    return Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"


def read_tuned(path: Path) -> Table:
    """The settings in a file; empty if there is no file. UserError (one line) for an invalid file."""
    try:
        table = _table(path.read_text(encoding="utf-8"), str(path))
        return {method: dict(by_dataset) for method, by_dataset in table.items()}
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        problem = error.errors()[0]
        reason = f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"
    except (OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
    except UserError as error:
        reason = str(error)
    raise UserError(f"cannot read tuned settings {str(path)!r}: {reason}; `fglbench tune` writes them")


@lru_cache(maxsize=8)  # every plan of a suite needs it
def _table(text: str, source: str) -> Table:
    return TypeAdapter(Table).validate_python(parse(text, source)[1] or {})


def check_writable(path: Path) -> None:
    """Raise UserError if a file of settings cannot be written. Called before trials run."""
    with writing(path, "; use --out FILE"):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        tempfile.TemporaryFile(dir=path.parent).close()


def write_tuned(path: Path, table: Mapping[str, Mapping[str, Tuned]]) -> None:
    """Replace a file of settings, sorted by method and dataset. UserError if it cannot be written."""
    values = {
        method: {
            dataset: tuned.model_dump(exclude=None if tuned.data else {"data"})
            for dataset, tuned in sorted(table[method].items())
        }
        for method in sorted(table)
    }
    text = HEAD + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)
    with writing(path, "; use --out FILE"):
        write_atomically(path, text.encode())
