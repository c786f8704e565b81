"""Altered results folders, as a pull request may bring them: nobody touches what is another's, every file is known."""

from __future__ import annotations

import gzip
import io
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.schema import Row

Alter = Callable[[Path, SimpleNamespace], object]
RIVAL, THEIRS = "tiny/fedprox.csv", "tiny/fedavg.csv"
SCRIPT = "<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
FIGURES = "score score_metric val macro_f1 score_weighted global_on_global global_on_local personal_on_global".split()  # noqa: SIM905


@pytest.fixture
def results_with_a_rival(submission: Path, results: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A results folder with someone's rows of fedprox, in which figures and an embedding lie, and its base."""
    assert main(["validate", "packed", "--into", "results"]) == 0
    row = Store(results).rows("tiny")[0]
    Store(results).write_embeddings("tiny", row.key, {"node": np.arange(3), "note": np.array("")})
    (results / "tiny" / "tables").mkdir()
    (results / "tiny" / "tables" / "csbm.csv").write_text("method,score\nfedavg,0.5\n")
    (results / "FINDINGS.md").write_text("# What was found\n")
    (results / "LEADERBOARD.md").write_text("# Leaderboard\n")
    shutil.copytree(results, results.parent / "base")
    capsys.readouterr()
    return results


def write(name: str, content: str | bytes) -> Alter:
    def apply(results: Path, tools: SimpleNamespace) -> None:
        path = results / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)

    return apply


def archive(name: str, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for member, content in members.items():
            file.writestr(member, content)
    return buffer.getvalue()


def saved(array: np.ndarray, pickled: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=pickled)
    return buffer.getvalue()


def embeddings(content: bytes) -> Alter:
    """In the place of the embeddings of a row that has some."""

    def apply(results: Path, tools: SimpleNamespace) -> None:
        (path,) = (results / "tiny" / "embeddings").iterdir()
        path.write_bytes(content)
        (results.parent / "base" / path.relative_to(results)).write_bytes(content)  # as if it had always been there

    return apply


def supersede(file: str, **values: object) -> Alter:
    """One more row for a cell that has one."""

    def apply(results: Path, tools: SimpleNamespace) -> None:
        old = next(row for row in Store(results).rows("tiny") if file.endswith(f"/{row.method}.csv"))
        Store(results).append(Row.model_validate({**old.model_dump(), **values}))
        shutil.rmtree(results / ".locks")

    return apply


def failed() -> dict[str, object]:
    return {"status": "failed", "error": "diverged", **dict.fromkeys(FIGURES), "score_metric": "", "best_round": None}


def behind(path: Path, more: bytes) -> None:
    path.write_bytes(path.read_bytes() + more)


def spaced(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b":", b": "), mtime=0))


def bomb() -> bytes:
    """Half a GiB of zeros in half a MiB."""
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (67108864,), }\n"
    array = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head
    return archive("x", {"node.npy": array + bytes(2**27)})


ALTERED: dict[str, tuple[Alter, str]] = {
    # what is another's
    "a maintainers' row is superseded": (
        supersede(THEIRS, submitter="me", peak_memory_mb=999.0),
        "supersedes the row of 'fglbench'",
    ),
    "a rival's row is superseded": (
        supersede(RIVAL, submitter="me", peak_memory_mb=999.0),
        "supersedes the row of 'someone'",
    ),
    "a rival's row is superseded in his name": (
        supersede(RIVAL, peak_memory_mb=999.0),
        "supersedes the row of 'someone'",
    ),
    "a rival's row is made to fail": (supersede(RIVAL, **failed()), "supersedes the row of 'someone'"),
    "a maintainers' row is made to fail": (supersede(THEIRS, **failed()), "supersedes the row of 'fglbench'"),
    "a rival's row is lowered a little": (
        lambda r, t: supersede(RIVAL, score=(Store(r).rows("tiny")[4].score or 0) - 0.004, submitter="me")(r, t),
        "supersedes the row of 'someone'",
    ),
    "a row in the maintainers' name": (supersede(THEIRS, peak_memory_mb=999.0), "who are the maintainers"),
    "a row in nobody's name": (supersede(THEIRS, submitter="", peak_memory_mb=99.0), "submitted by nobody"),
    "a rival's seed in one's own name": (
        lambda r, t: supersede(RIVAL, submitter="me", seed=7, key="0" * 16)(r, t),
        "rows of fedprox are those of 'someone', not of 'me'",
    ),
    "a rival's curves": (
        lambda r, t: t.edit_curves(
            sorted((r / "tiny" / "history").iterdir())[0], lambda c: c["history"]["seconds"].append(1)
        ),
        "changed, but its cell has no new row",
    ),
    "a rival's curves with something behind them": (
        lambda r, t: behind(sorted((r / "tiny" / "history").iterdir())[0], gzip.compress(b" " * 1000)),
        "changed, but its cell has no new row",
    ),
    "a rival's curves written otherwise": (
        lambda r, t: spaced(sorted((r / "tiny" / "history").iterdir())[0]),
        "changed, but its cell has no new row",
    ),
    "all trials are gone": (
        lambda r, t: shutil.copytree(r / "tiny", r.parent / "base" / "tuning" / "tiny"),
        "tuning: all trials of the tuned boards were removed",
    ),
    "a rival's curves are gone": (
        lambda r, t: sorted((r / "tiny" / "history").iterdir())[0].unlink(),
        "removed; side files",
    ),
    "a rival's metadata": (
        lambda r, t: (r / "submissions/fedprox.yaml").write_text(
            (r / "submissions/fedprox.yaml").read_text().replace("someone@", "me@")
        ),
        "submissions/fedprox.yaml: changed",
    ),
    "a rival's metadata are gone": (
        lambda r, t: (r / "submissions/fedprox.yaml").unlink(),
        "submissions/fedprox.yaml: removed",
    ),
    "metadata of a method without rows": (
        lambda r, t: write(
            "submissions/fedopt.yaml", (r / "submissions/fedprox.yaml").read_text().replace("fedprox", "fedopt")
        )(r, t),
        "about 'fedopt', of which there are no rows",
    ),
    "verdicts": (write("verified.csv", "suite,key\n"), "verified.csv: changed; take the file of the base"),
    "versions": (write("versions.csv", "method,version,commit,equals,proof\n"), "versions.csv: changed"),
    "findings": (write("FINDINGS.md", "# Mine is the best\n"), "FINDINGS.md: changed"),
    "findings are gone": (lambda r, t: (r / "FINDINGS.md").unlink(), "FINDINGS.md: changed"),
    # files that nothing makes
    "a page": (write("evil.html", "<script>alert(1)</script>"), "evil.html: unknown file"),
    "a page in the place of the report's": (
        write("leaderboard.html", "<script>alert(1)</script>"),
        "no part of the results",
    ),
    "a picture with a script": (write("tiny/figures/tsne.svg", SCRIPT), "tsne.svg: unknown file"),
    "a script called a picture": (write("tiny/figures/tsne.png", SCRIPT), "tsne.png: no picture"),
    "a picture that the report does not draw": (
        write("tiny/figures/me.png", b"\x89PNG\r\n\x1a\n"),
        "me.png: unknown file",
    ),
    "a page of text": (write("tiny/README.md", "hello"), "README.md: unknown file"),
    "a leaderboard with a script": (write("LEADERBOARD.md", "<script>alert(1)</script>"), "holds what would act"),
    "a table with a formula": (write("tiny/tables/csbm.csv", "method\n=cmd|' /C calc'!A0\n"), "holds what would act"),
    "a table of nothing": (write("tiny/tables/x.csv", "a,b\n"), "a table of a dataset without rows"),
    "a table of a suite without rows": (write("mine/tables/cora.md", "hello"), "there are no rows of suite 'mine'"),
    "digests of other figures": (write("tiny/figures/manifest.json", '{"x.png": "<b>"}'), "not the digests of figures"),
    "digests nested forever": (write("tiny/figures/manifest.json", "[" * 50_000), "not the digests of figures"),
    "a file among the locks": (write(".locks/payload", "x" * 100), r"\.locks/payload: 100 bytes; at most 0"),
    "a folder among the locks": (write(".locks/a/b", ""), r"\.locks/a/b: unknown file"),
    "a program among the logs": (write(".logs/run.sh", "x"), r"\.logs/run\.sh: unknown file"),
    "rows that a crash left": (write("tiny/mine.csv.damaged", "x"), "is no part of the results"),
    "a file that was never finished": (write("tiny/.x.csv.a1b2c3d4.tmp", "x"), "a file that was never finished"),
    "an archive": (write("tiny/rows.zip", "PK"), "rows.zip: unknown file"),
    # arrays
    "embeddings of no row": (write("tiny/embeddings/0123456789abcdef.npz", archive("x", {})), "embeddings of no row"),
    "arrays of no one": (
        write("tiny/stray.npz", archive("x", {"node.npy": saved(np.arange(3))})),
        "stray.npz: unknown",
    ),
    "embeddings that are no archive": (embeddings(b"\x80\x04."), "cannot be read"),
    "embeddings with objects in them": (
        embeddings(archive("x", {"node.npy": saved(np.array([{}]), True)})),
        "an array of .*not of numbers",
    ),
    "embeddings with something else": (embeddings(archive("x", {"run.py": b"1"})), "something else than embeddings"),
    "embeddings out of the folder": (embeddings(archive("x", {"../node.npy": b"1"})), "something else than embedd"),
    "embeddings that fill the memory": (embeddings(bomb()), "more than 32 MiB unpacked"),
    "an array larger than its bytes": (
        embeddings(archive("x", {"node.npy": saved(np.arange(9))[:-8]})),
        r"an array of shape \(9,\) in",
    ),
    "an array whose head is cut": (
        embeddings(archive("x", {"node.npy": b"\x93NUMPY\x01\x00\x02\x00(\n"})),
        "cannot be read: not the head of an array",
    ),
    "an array whose head has a list for a name": (
        embeddings(archive("x", {"node.npy": b"\x93NUMPY\x01\x00\x08\x00{[]: 1}\n"})),
        "cannot be read",
    ),
    "an array without a head": (embeddings(archive("x", {"node.npy": b"numbers"})), "cannot be read"),
}


def test_the_folder_is_sound_as_it_stands(results_with_a_rival: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "results", "--base", "base"]) == 0
    assert capsys.readouterr().out == "results: results folder against base: 12 rows, 0 new: valid\n"


@pytest.mark.parametrize("what", ALTERED)
def test_an_altered_folder_is_refused_or_pointed_out(
    what: str, results_with_a_rival: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    alter, pattern = ALTERED[what]
    alter(results_with_a_rival, tools)
    code = main(["validate", "results", "--base", "base"])
    *problems, _ = capsys.readouterr().out.splitlines()
    assert any(re.search(pattern, line) for line in problems), problems
    assert code == 1 or what == "a file that was never finished"


@pytest.mark.parametrize(
    "what", ["a row in the maintainers' name", "a rival's row is superseded in his name", "versions", "findings"]
)
def test_what_the_maintainers_do_is_told_and_counts(
    what: str, results_with_a_rival: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    alter, pattern = ALTERED[what]
    alter(results_with_a_rival, tools)
    assert main(["validate", "results", "--base", "base", "--maintainer"]) == 0
    *problems, _ = capsys.readouterr().out.splitlines()
    assert any(re.search(pattern, line) and line.startswith("warning: ") for line in problems)


def test_what_a_running_benchmark_leaves_is_no_problem(results_with_a_rival: Path, tools: SimpleNamespace) -> None:
    for name in (".locks/tiny.fedavg.csv.lock", ".logs/0123456789abcdef.txt", "tiny/.fedavg.csv.a1b2c3d4.tmp"):
        write(name, "" if "lock" in name else "Traceback")(results_with_a_rival, tools)
    assert main(["validate", "results"]) == 0
