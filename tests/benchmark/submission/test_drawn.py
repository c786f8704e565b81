"""What `validate` accepts, `report` draws: extreme rows and curves, made of real ones, in every table and figure."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st

from fglbench.benchmark.store import rowfile
from fglbench.benchmark.store.attachments import history_text
from fglbench.benchmark.submission import checks
from fglbench.metrics import METRICS
from fglbench.report import build

FRACTIONS = [
    name for name, column in METRICS.items() if column.measure in ("score", "val", "macro_f1", "score_weighted")
]
FRACTIONS += ["global_on_global", "global_on_local", "personal_on_global", "personal_on_local"]
SECONDS, TRAFFIC = (
    ["train_seconds", "total_seconds"],
    [name for name in METRICS if name.endswith(("bytes", "bytes_best"))],
)
Figures = dict[str, Any]
EXTREME = st.fixed_dictionaries(
    {
        "score": st.sampled_from([0.0, 1.0, 5e-324, 1 - 2**-53, 0.5]),
        "seconds": st.sampled_from([0.05, 3.0, 2e6]),
        "bytes": st.sampled_from([0, 1, 10**14]),
        "peak_memory_mb": st.sampled_from(["", 200.0, 1e5]),
        "notes": st.sampled_from(["", "n" * 3999, "<b>$x_1$ | [a](b) \\ `c`", "é 🙂"]),
        "status": st.sampled_from(["ok", "ok", "ok", "failed", "skipped"]),
        "curves": st.sampled_from(["same", "none", "null"]),
    }
)


def rewrite(results: Path, line: int, path: Path, what: Figures) -> None:
    """Give a row such figures, and its curves with it."""
    rows = list(csv.reader(path.open(newline="")))
    own = dict(zip(rowfile.COLUMNS, rows[line], strict=False))
    share = 1 + int(own["key"], 16) / 2**64 / 9
    what = what | {"seconds": what["seconds"] * share}  # no two rows took as long
    own |= {name: repr(what["score"]) for name in FRACTIONS if own[name]}
    own |= {name: repr(what["seconds"]) for name in SECONDS} | {
        name: str(what["bytes"]) for name in TRAFFIC if own[name]
    }
    own |= {"best_round": "1"}  # of curves that never change
    own |= {"notes": what["notes"], "peak_memory_mb": str(what["peak_memory_mb"])}
    curves = path.parent / "history" / f"{own['key']}.json.gz"
    if what["status"] != "ok":
        own |= dict.fromkeys([*METRICS, "notes", "peak_memory_mb"], "") | {"status": what["status"], "error": "x" * 999}
        curves.unlink()
    else:
        told = json.loads(gzip.decompress(curves.read_bytes()))
        told["history"] = {name: curve(name, values, what) for name, values in told["history"].items()}
        told["per_client"] = {name: [what["score"]] * len(own_) for name, own_ in told["per_client"].items()}
        curves.write_bytes(gzip.compress(history_text(told), mtime=0))
    rows[line] = [own[name] for name in rowfile.COLUMNS[: len(rows[line])]]
    with path.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)


def curve(name: str, values: list[Any], what: Figures) -> list[Any]:
    if name == "round":
        return values
    if name.endswith("bytes"):
        return [what["bytes"]] * len(values)
    if "seconds" in name:
        return [what["seconds"]] * len(values)
    return [what["score"] if what["curves"] != "null" or name in ("score", "val") else None] * len(values)


@settings(
    derandomize=True, deadline=None, database=None, max_examples=8,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(chosen=st.lists(EXTREME, min_size=8, max_size=8), first=EXTREME)
def test_a_valid_row_never_breaks_the_report(
    ran: SimpleNamespace, suites: Path, chosen: list[Figures], first: Figures
) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        results = Path(shutil.copytree(ran.results, Path(folder) / "results"))
        every = [(path, line) for path in sorted((results / "tiny").glob("*.csv")) for line in (1, 2, 3, 4)]
        for (path, line), what in zip(every, chosen, strict=True):
            rewrite(results, line, path, first if what["status"] == "ok" and what["curves"] == "same" else what)
        found = checks.validate(results, "results", None)
        JUDGED.append("" if found.ok else "; ".join(sorted({error.what[:60] for error in found.findings.errors})))
        made = build.make(results, None)
        build.write(made)
        assert build.stale(made) == []
        build.write_page(made, results / "leaderboard.html", {})


JUDGED: list[str] = []  # what was wrong with each, or nothing


def test_most_of_these_rows_were_valid() -> None:
    """Else the test above would say nothing of valid rows."""
    assert 2 * JUDGED.count("") >= len(JUDGED), JUDGED
