"""GPUs of a Ray cluster, as counted by Ray: the machine needs none, the CPU computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fglbench
from fglbench.benchmark.cli import main
from fglbench.benchmark.runner.process import Options
from fglbench.benchmark.runner.system import resolved
from fglbench.benchmark.store import Store, verified
from fglbench.registry import UserError

IMAGINED = str(Path(__file__).with_name("imagined.py"))
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seen")


@pytest.fixture(scope="module")
def cluster(seen: Path) -> Iterator[Any]:
    """A node that reports four CPUs and two GPUs."""
    utils = pytest.importorskip("ray.cluster_utils", reason="needs Ray: pip install fglbench[ray]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEEN_FOLDER", str(seen))
        patch.setenv("SEEN_BY", "2")
        node = {"num_cpus": 4, "num_gpus": 2, "object_store_memory": 80 * 2**20}
        nodes = utils.Cluster(initialize_head=True, head_node_args=node)
        yield nodes
    nodes.shutdown()


@pytest.mark.parametrize(("device", "gpus", "workers"), [("cpu", False, 4), ("auto", True, 2), ("cuda", True, 2)])
def test_a_worker_for_each_gpu(cluster: Any, device: str, gpus: bool, workers: int) -> None:
    from fglbench.benchmark.runner.ray_backend import Cluster

    options = Options(backend="ray", address=cluster.address, device=resolved(device, "ray"))
    backend = Cluster(options)
    try:
        assert (backend.gpus, backend.size(9), backend.size(1)) == (gpus, workers, 1)
    finally:
        backend.close()


def test_more_gpus_than_there_are_is_one_line(cluster: Any) -> None:
    from fglbench.benchmark.runner.ray_backend import Cluster

    backend = Cluster(Options(backend="ray", address=cluster.address, device="cuda", threads=5))
    try:
        with pytest.raises(UserError, match="has 5 CPUs and a GPU for a worker"):
            backend.size(1)
    finally:
        backend.close()


def check_verdicts(results: Path, cluster: Any, environments: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdicts of rows that are repeated on the cluster name the GPU."""
    monkeypatch.setattr("fglbench.benchmark.store.provenance.git_state", lambda: ("b" * 40, False))
    chosen = ["--backend", "ray", "--address", cluster.address, "--device", "cuda", "--plugin", IMAGINED]
    assert main(["verify", str(results), "--no-contract", "--record", str(results), "--by", "me", *chosen]) == 0
    verdicts = verified.read(results)
    assert [each.verdict for each in verdicts] == ["passed", "passed"]
    assert {each.environment for each in verdicts} == environments


def test_cells_at_the_same_time_see_a_gpu_each(
    cluster: Any, seen: Path, suite: str, clean: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each worker sees one GPU, as cuda:0, and no other cell at the same time sees the same."""
    chosen = {"suites": [suite], "methods": ["t-sees"], "plugins": [IMAGINED], "results": tmp_path}
    frame = fglbench.run(**chosen, backend="ray", address=cluster.address, device="cuda")
    assert list(frame["status"]) == ["ok", "ok"], list(frame["error"])
    assert sorted(path.read_text() for path in seen.iterdir()) == ["0", "1"]
    assert set(frame["device"]) == {"cuda:0"}
    assert set(frame["peak_device_memory_mb"]) == {1.0}
    environments = {row.environment for row in Store(tmp_path).rows()}
    about = [Store(tmp_path).environment(digest) for digest in environments]
    assert [environment["gpu"] for environment in about] == ["imagined"]
    check_verdicts(clean(tmp_path), cluster, environments, monkeypatch)
    alone = fglbench.run(**{**chosen, "results": tmp_path / "alone", "methods": ["fedavg"]}, jobs=1)
    assert list(frame["score"]) == list(alone["score"])
