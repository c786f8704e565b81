"""Writers that are killed at any moment, several at a time: no acknowledged row is lost, none is stored twice.

Two of three append rows with their curves; the third moves curves into files of columns."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fglbench.benchmark.store import Store
from fglbench.benchmark.store.packing import pack
from fglbench.benchmark.submission.listing import Findings
from fglbench.benchmark.submission.read import read

# A spawned process that forks writers and kills them with SIGKILL. A row is acknowledged once `append` has returned.
STORM = """
import itertools, os, random, signal, sys, time, traceback, warnings
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.packing import pack
from fglbench.benchmark.store.schema import Row

warnings.simplefilter("ignore")
root, kills = sys.argv[1], int(sys.argv[2])
values = dict(suite="s", task="node", dataset="cora", dataset_params="{}", partition="louvain", partition_params="{}",
              clients=10, split="ratio", split_params="{}", backbone="gcn", backbone_params="{}", method_params="{}",
              method_version="0" * 12, training="{}", seed=0, status="ok", started="2026-01-01T00:00:00Z",
              environment="e", notes="n" * 3000)
acknowledged = os.open(os.path.join(os.path.dirname(root), "acknowledged"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def write(number):
    store = Store(root)
    store.prepare(["s"])  # which also mends and sweeps, while others write
    for i in itertools.count():
        row = Row(key=f"{number:08x}{i:08x}", method=("fedavg", "local")[i % 2], **values)
        claim = store.claim("s", row.key)
        store.write_history("s", row.key, {"history": {"round": list(range(500))}})
        store.append_row(row)
        os.write(acknowledged, (row.key + "\\n").encode())
        store.unclaim(claim)

def move():
    while True:
        pack(Store(root), "s")

source, living = random.Random(0), []
for number in range(kills + 2):
    pid = os.fork()
    if not pid:
        try:
            move() if number % 3 == 2 else write(number)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    living.append(pid)
    if len(living) == 3:
        time.sleep(source.uniform(0.01, 0.12))
        victim = living.pop(source.randrange(3))
        os.kill(victim, signal.SIGKILL)
        status = os.waitpid(victim, 0)[1]
        if not os.WIFSIGNALED(status):
            break  # it ended by itself, and has said why
for pid in living:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
sys.exit(number < kills + 1)
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="POSIX only")
@pytest.mark.parametrize("kills", [8, pytest.param(40, marks=pytest.mark.slow)])
def test_a_kill_storm_loses_no_row_and_leaves_nothing_behind(tmp_path: Path, kills: int) -> None:
    root = tmp_path / "results"
    root.mkdir()
    command = [sys.executable, "-c", STORM, str(root), str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    acknowledged = (tmp_path / "acknowledged").read_text().split()
    store = Store(root)
    pack(store, "s")
    (root / ".logs").mkdir(exist_ok=True)
    (root / ".logs" / "worker-999999999-1.txt").write_text("of a run that was killed")
    store.prepare(["s"])  # the next start
    keys = Counter(row.key for row in store.rows("s"))
    assert list(root.rglob("*.parquet"))
    assert len(acknowledged) > kills and set(acknowledged) <= keys.keys()
    assert set(keys.values()) == {1}
    assert len(keys) - len(acknowledged) <= kills + 2  # at most one per writer, killed before the acknowledgement
    assert all(store.history("s", key) for key in keys)
    assert not list(root.rglob(".*.tmp")) and not list((root / ".logs").iterdir())
    findings = Findings()
    read(root, "results", findings)
    assert findings.errors == []
