"""GPUs of a Ray cluster: as Ray counts them, for this machine need not have one. What computes is the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fglbench
from fglbench.benchmark.runner.gpus import resolved
from fglbench.benchmark.runner.worker import Options
from fglbench.benchmark.store import Store
from fglbench.registry import UserError

IMAGINED = str(Path(__file__).with_name("imagined.py"))
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seen")


@pytest.fixture(scope="module")
def cluster(seen: Path) -> Iterator[Any]:
    """A node with four CPUs and two GPUs, or so it says."""
    utils = pytest.importorskip("ray.cluster_utils", reason="needs Ray: pip install fglbench[ray]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEN_FOLDER", str(seen))
        patch.setenv("SEEN_BY", "2")
        node = {"num_cpus": 4, "num_gpus": 2, "object_store_memory": 80 * 2**20}
        found = utils.Cluster(initialize_head=True, head_node_args=node)
        yield found
    found.shutdown()


@pytest.mark.parametrize(("device", "gpus", "workers"), [("cpu", False, 4), ("auto", True, 2), ("cuda", True, 2)])
def test_a_worker_for_each_gpu(cluster: Any, device: str, gpus: bool, workers: int) -> None:
    from fglbench.benchmark.runner.cluster import Cluster

    options = Options(backend="ray", address=cluster.address, device=resolved(device, "ray"))
    backend = Cluster(options)
    try:
        assert (backend.gpus, backend.size(9), backend.size(1)) == (gpus, workers, 1)
    finally:
        backend.close()


def test_more_gpus_than_there_are_is_one_line(cluster: Any) -> None:
    from fglbench.benchmark.runner.cluster import Cluster

    backend = Cluster(Options(backend="ray", address=cluster.address, device="cuda", threads=5))
    try:
        with pytest.raises(UserError, match="has 5 CPUs and a GPU for a worker"):
            backend.size(1)
    finally:
        backend.close()


def test_cells_at_the_same_time_see_a_gpu_each(cluster: Any, seen: Path, suite: str, tmp_path: Path) -> None:
    """Each worker sees one, which is its cuda:0, and no other cell that runs meanwhile sees the same."""
    chosen = {"suites": [suite], "methods": ["t-sees"], "plugins": [IMAGINED], "results": tmp_path}
    frame = fglbench.run(**chosen, backend="ray", address=cluster.address, device="cuda")
    assert list(frame["status"]) == ["ok", "ok"], list(frame["error"])
    assert sorted(path.read_text() for path in seen.iterdir()) == ["0", "1"]
    assert set(frame["device"]) == {"cuda:0"}
    assert set(frame["peak_device_memory_mb"]) == {1.0}
    environments = {row.environment for row in Store(tmp_path).rows()}
    about = [Store(tmp_path).environment(digest) for digest in environments]
    assert [own["gpu"] for own in about] == ["imagined"]
    alone = fglbench.run(**{**chosen, "results": tmp_path / "alone", "methods": ["fedavg"]}, jobs=1)
    assert list(frame["score"]) == list(alone["score"])
