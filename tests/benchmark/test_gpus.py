"""`--device`, and the assignment of GPUs to workers, on simulated numbers of GPUs."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fglbench.benchmark.cli import main
from fglbench.benchmark.runner import execute as executing, process, system
from fglbench.benchmark.runner.execute import FederationCache, execute
from fglbench.benchmark.runner.process import Options
from fglbench.benchmark.runner.system import resolved
from fglbench.benchmark.store import Store, provenance
from fglbench.benchmark.store.provenance import _driver, environment, stamped
from fglbench.benchmark.store.side_files import Parcel
from fglbench.benchmark.suites.cell import Cell
from fglbench.benchmark.suites.suite import load_suite
from fglbench.registry import UserError
from fglbench.report.provenance import describe


def machine(monkeypatch: pytest.MonkeyPatch, number: int, *, built: bool = True) -> None:
    """A machine with this number of GPUs, and a torch with CUDA or without."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: built and number > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: number)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: built)


@pytest.mark.parametrize(
    ("option", "number", "expected"),
    [
        ("cpu", 0, "cpu"), ("cpu", 4, "cpu"), ("auto", 0, "cpu"), ("auto", 2, "cuda"), ("cuda", 1, "cuda"),
        ("cuda:0", 1, "cuda:0"), ("cuda:3", 4, "cuda:3"),
    ],
)  # fmt: skip
def test_resolved_devices(monkeypatch: pytest.MonkeyPatch, option: str, number: int, expected: str) -> None:
    machine(monkeypatch, number)
    assert resolved(option) == expected


@pytest.mark.parametrize(
    ("option", "number", "built", "words"),
    [
        ("gpu", 1, True, "auto, cpu, cuda or cuda:N"),
        ("cuda:01", 1, True, "auto, cpu, cuda or cuda:N"),
        ("cuda:-1", 1, True, "auto, cpu, cuda or cuda:N"),
        ("", 1, True, "auto, cpu, cuda or cuda:N"),
        ("cuda", 0, False, "built without CUDA"),
        ("cuda", 0, True, "torch sees no GPU"),
        ("cuda:2", 2, True, "there is cuda:0, cuda:1"),
    ],
)
def test_unavailable_devices_are_one_line(
    monkeypatch: pytest.MonkeyPatch, option: str, number: int, built: bool, words: str
) -> None:
    machine(monkeypatch, number, built=built)
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        resolved(option)
    assert "\n" not in str(caught.value)


def test_on_ray_the_nodes_have_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 0, built=False)
    assert [resolved(name, "ray") for name in ("auto", "cpu", "cuda")] == ["auto", "cpu", "cuda"]
    with pytest.raises(UserError, match="that Ray gives it"):
        resolved("cuda:1", "ray")


@pytest.mark.parametrize(
    "command",
    [["run", "--quick"], ["reproduce", "fgssl-table1"], ["tune", "-s", "quick"], ["profile", "--case", "cora:10"]],
)
def test_a_mistake_is_one_line_and_loses_nothing(
    command: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(monkeypatch, 0, built=False)
    results = [] if command[0] == "profile" else ["--results", str(tmp_path / "results")]
    assert main([*command, *results, "--device", "cuda"]) == 2
    output = capsys.readouterr()
    assert "built without CUDA" in output.err.replace("\n", " ")
    assert "Traceback" not in output.err
    assert not (tmp_path / "results").exists()


class FakeWorker:
    """A worker that lives until it is stopped."""

    def __init__(self, log: Path, options: Options) -> None:
        self.device, self.alive = options.device, True
        self.process = SimpleNamespace(is_alive=lambda: self.alive)


@pytest.mark.parametrize(("jobs", "cells", "size"), [(None, 9, 3), (None, 2, 2), (1, 9, 1), (7, 9, 7)])
def test_one_worker_per_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jobs: int, cells: int, size: int) -> None:
    machine(monkeypatch, 3)
    monkeypatch.setattr(process, "WorkerProcess", FakeWorker)
    backend = process.Processes(Options(jobs=jobs, device=resolved("cuda")), Store(tmp_path))
    assert backend.size(cells) == size
    workers = [backend.start(plugins=False) for _ in range(size)]
    assert [worker.device for worker in workers] == [f"cuda:{number % 3}" for number in range(size)]


def test_a_new_worker_takes_the_place_of_the_dead_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine(monkeypatch, 3)
    monkeypatch.setattr(process, "WorkerProcess", FakeWorker)
    backend = process.Processes(Options(device="cuda"), Store(tmp_path))
    workers = [backend.start(plugins=False) for _ in range(3)]
    workers[1].alive = False
    assert backend.start(plugins=False).device == "cuda:1"


def test_one_given_gpu_has_one_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine(monkeypatch, 3)
    monkeypatch.setattr(process, "WorkerProcess", FakeWorker)
    backend = process.Processes(Options(device="cuda:2"), Store(tmp_path))
    assert (backend.size(9), backend.start(plugins=False).device) == (1, "cuda:2")


def test_one_worker_per_cpu_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(6)))
    sizes = [process.Processes(Options(threads=threads), Store(tmp_path)).size(9) for threads in (1, 2)]
    assert sizes == [6, 3]
    assert process.Processes(Options(jobs=4), Store(tmp_path)).size(3) == 3


def cell(suite: Path) -> Cell:
    return next(iter(load_suite(str(suite)).cells()))


def test_too_little_device_memory_is_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, suite: Path) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    monkeypatch.setattr(executing, "train", full)
    stamp, _ = stamped(1, "")
    row = execute(cell(suite), "tiny", Parcel(), FederationCache(), stamp)
    assert (row.status, row.device) == ("oom", "cpu")
    assert "CUDA out of memory" in row.error


def test_the_device_is_in_the_row_but_not_in_the_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, suite: Path
) -> None:
    """Also in the environment, which a submission may have."""
    about = SimpleNamespace(name="NVIDIA H100 80GB HBM3", total_memory=80 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)
    plain, (digest, machine) = environment(1), environment(1, "cuda:0")
    assert digest != plain[0]
    assert (machine["gpu"], machine["gpu_memory_gib"]) == ("NVIDIA H100 80GB HBM3", 80)
    assert 0 < machine["memory_gib"] < 2**15
    stamp, _ = stamped(1, "", "cuda:0")
    monkeypatch.setattr(executing, "peak", lambda device: 123.4)
    row = execute(cell(suite), "tiny", Parcel(), FederationCache(), stamp)
    assert (row.status, row.device, row.peak_device_memory_mb) == ("ok", "cuda:0", 123.4)
    assert row.key == cell(suite).key
    monkeypatch.undo()
    assert execute(cell(suite), "tiny", Parcel(), FederationCache(), stamped(1, "")[0]).peak_device_memory_mb is None


def test_preloaded_libraries_are_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """By file name only, because a folder may name a user. Without preloading the hash is unchanged."""
    plain = environment(1)
    monkeypatch.setenv("LD_PRELOAD", "/home/ada/libtwo.so:/opt/lib/libone.so.2")
    digest, machine = environment(1)
    assert machine == {**plain[1], "preloaded": "libone.so.2, libtwo.so"}
    assert digest != plain[0]
    assert describe(machine).endswith("preloaded: libone.so.2, libtwo.so")
    monkeypatch.setenv("LD_PRELOAD", " ")
    assert environment(1) == plain


@pytest.mark.parametrize("onednn", [False, True])
def test_the_library_that_multiplies_is_in_the_environment(monkeypatch: pytest.MonkeyPatch, onednn: bool) -> None:
    monkeypatch.setattr(provenance, "prefers_onednn", lambda: onednn)
    machine = environment(1)[1]
    assert machine.get("products") == ("oneDNN" if onednn else None)
    assert ("products by oneDNN" in describe(machine)) == onednn


def test_instructions_are_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processors of one name with and without AVX-512 sum in different orders."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    digest, machine = environment(1)
    assert ", AVX2, " in describe(machine)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert environment(1)[0] != digest


def test_the_driver_is_read(tmp_path: Path) -> None:
    file = tmp_path / "version"
    file.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC 12.2\n"
    )
    assert _driver(file) == "550.54.15"
    assert _driver(tmp_path / "none") is None


def test_a_device_that_fails_is_named() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UserError, match="cuda:0 cannot be used"):
        system.opened("cuda:0")
