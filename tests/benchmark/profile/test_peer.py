"""The race against another benchmark: its protocol with a stand-in for the checkout, and the clients that it gets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.profile import peer, peer_process
from fglbench.benchmark.profile.peer import Peer, write_clients
from fglbench.methods import METHODS
from fglbench.registry import UserError
from fglbench.tests.conftest import build

CHILD = """
import json, sys
print(json.dumps({"torch": "9"}), flush=True)
for number, _ in enumerate(sys.stdin):
    if number == 2:
        raise ValueError("enough of " + sys.argv[3])
    print(json.dumps([number, number + 0.5]), flush=True)
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Peer:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    monkeypatch.setattr(peer_process, "__file__", str(script))
    return Peer(Path(sys.executable), tmp_path, str(tmp_path), "fedavg", 1, 1)


def test_a_peer_runs_a_round_a_call_and_says_what_it_took(child: Peer) -> None:
    assert child.versions == {"torch": "9"}
    assert [child(), child()] == [0.5, 1.5]
    assert [child.training(), child.training()] == [0, 1]
    child.close()
    assert child.process.returncode == 0


def test_a_peer_that_ends_says_why_in_one_line(child: Peer) -> None:
    child(), child()
    with pytest.raises(UserError, match="the peer ended: ValueError: enough of fedavg"):
        child()
    child.close()


def test_the_peer_gets_our_clients_and_splits(tmp_path: Path) -> None:
    federation = build()
    write_clients(federation, tmp_path)
    whole = np.load(tmp_path / "whole.npz")
    assert whole["x"].shape == (len(whole["y"]), federation.num_features)
    for number, client in enumerate(federation.clients):
        own = np.load(tmp_path / f"client_{number}.npz")
        assert (own["x"] == whole["x"][own["nodes"]]).all()
        assert (own["y"] == whole["y"][own["nodes"]]).all()
        ends = {tuple(pair) for pair in own["nodes"][own["edges"]].T.tolist()}
        inside = np.isin(whole["edges"], own["nodes"]).all(axis=0)
        assert ends <= {tuple(pair) for pair in whole["edges"][:, inside].T.tolist()}
        for part in ("train", "val", "test"):
            assert (own[part] == client.graph.ndata[f"{part}_mask"].numpy()).all()


@pytest.mark.parametrize("name", peer.PEERS)
def test_every_method_of_the_race_is_one_of_ours(name: str) -> None:
    for pair in peer.SAME[name]:
        assert METHODS.build(pair.method, pair.params).name == pair.method
    assert len({pair.label for pair in peer.SAME[name]}) == len(peer.SAME[name])


def test_the_script_needs_nothing_of_fglbench() -> None:
    code = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='x'); print('fglbench' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, peer_process.__file__], capture_output=True, text=True, cwd="/")
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("given", ["openfgl=/nowhere", "fedgb=/nowhere", "other=.", "openfgl", "openfgl="])
def test_a_checkout_that_is_none_is_one_line(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--peer", given]) == 2
    assert "is not openfgl=PATH or fedgb=PATH with a checkout" in capsys.readouterr().err
