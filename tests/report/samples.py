"""Sample result rows for the report's tests, stored in the real format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fglbench.benchmark.store import Store
from fglbench.benchmark.store.schema import Row
from fglbench.report import build
from fglbench.report.board import Board
from fglbench.report.loading import frame
from fglbench.report.ranking import Ranking

ENVIRONMENT = "0123456789ab"


def row(dataset: str, method: str, seed: int, score: float | None = None, **changes: Any) -> Row:
    """A row, with status ok if it has a score."""
    values: dict[str, Any] = {
        "suite": "demo",
        "task": "node",
        "dataset": dataset,
        "dataset_params": '{"normalise":true}',
        "dataset_fingerprint": hashlib.sha256(dataset.encode()).hexdigest(),
        "partition": "louvain",
        "partition_params": '{"resolution":1.0}',
        "partition_hash": f"{dataset}{seed}",
        "clients": 10,
        "split": "ratio",
        "split_params": '{"test":0.4,"train":0.2,"val":0.4}',
        "backbone": "gcn",
        "backbone_params": '{"hidden":64}',
        "method": method,
        "method_version": hashlib.sha256(method.encode()).hexdigest()[:12],
        "method_params": "{}",
        "training": '{"local_epochs":3,"rounds":100}',
        "seed": seed,
        "status": "ok" if score is not None else "failed",
        "score": score,
        "score_metric": "accuracy/global model/local test/mean over clients",
        "started": f"2025-01-02T03:04:{seed:02d}Z",
        "git_sha": "a" * 40,
        "git_dirty": False,
        "environment": ENVIRONMENT,
        "reference": method == "global",
    }
    if score is not None:
        values |= {
            "val": score,
            "macro_f1": score / 2,
            "best_round": 40,
            "rounds": 100,
            "upload_bytes": 10_000_000,
            "download_bytes": 10_000_000,
            "upload_bytes_best": 4_000_000,
            "download_bytes_best": 4_000_000,
            "train_seconds": 2.0,
            "total_seconds": 3.0,
            "peak_memory_mb": 500.0,
        }
    values |= changes
    identity = [values[name] for name in sorted(values) if name not in ("started", "score", "status", "error")]
    return Row(key=hashlib.sha256(repr(identity).encode()).hexdigest()[:16], **values)


def history(score: float, rounds: int = 20) -> dict[str, Any]:
    """A side file with a saturating curve."""
    steps = np.arange(1, rounds + 1)
    return {
        "history": {"round": steps.tolist(), "score": (score * (1 - np.exp(-steps / 5))).tolist()},
        "per_client": {"score": [score, score]},
    }


def write(folder: Path, rows: Iterable[Row], curves: bool = True) -> Path:
    """Write a results folder with these rows in this order."""
    store = Store(folder)
    for each in rows:
        store.append_row(each)
        if curves and each.score is not None:
            store.write_history(each.suite, each.key, history(each.score))
    about = {"python": "3.11.9", "cpu": "a | pipe", "cores": 2, "packages": {"torch": "2.5.0", "dgl": "1.1.3"}}
    (folder / "environments").mkdir(exist_ok=True)
    (folder / "environments" / f"{ENVIRONMENT}.json").write_text(json.dumps(about))
    return folder


def demo() -> list[Row]:
    """Three datasets, two seeds. alpha > beta > gamma, except that gamma is first on wiki. delta failed for a seed on
    cora and is skipped on wiki. global is the reference."""
    base = {"cora": 0.80, "pubmed": 0.85, "wiki": 0.50}
    rows = []
    for dataset, level in base.items():
        for seed in (0, 1):
            noise = 0.01 * seed
            rows.append(row(dataset, "global", seed, level + 0.05 + noise, upload_bytes_best=0, download_bytes_best=0))
            rows.append(row(dataset, "alpha", seed, level + noise))
            rows.append(row(dataset, "beta", seed, level - 0.1 + noise * 1.1))
            rows.append(row(dataset, "gamma", seed, level + (0.02 if dataset == "wiki" else -0.2) + noise * 0.8))
            if dataset == "wiki":
                rows.append(row(dataset, "delta", seed, status="skipped", error="needs features"))
            elif (dataset, seed) == ("cora", 1):
                rows.append(row(dataset, "delta", seed, error="loss is nan | round 3"))
            else:
                rows.append(row(dataset, "delta", seed, level - 0.3))
    return rows


def board(rows: Iterable[Row], suite: str = "demo", files: Iterable[dict[str, Any]] = ()) -> Board:
    """The board of these rows. files: the side file of each row; none without."""
    rows = list(rows)
    stored = {row.key: file for row, file in zip(rows, files, strict=False)}
    return Board.build(suite, frame(rows), histories=stored.get)


def ranking(rows: Iterable[Row], suite: str = "demo", files: Iterable[dict[str, Any]] = ()) -> Ranking:
    return Ranking(board(rows, suite, files))


def pages(tmp_path: Path, rows: Iterable[Row]) -> tuple[Path, dict[str, str]]:
    """Store rows without side files and write their report without figures. Returns the folder, and texts by path."""
    folder = write(tmp_path / "results", rows, curves=False)
    report = build.make(folder, None, figures=False)
    build.write(report)
    return folder, {path.relative_to(folder).as_posix(): text for path, text in report.texts.items()}
