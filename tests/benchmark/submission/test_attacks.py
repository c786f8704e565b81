"""More attacks on a board: what side files hide, what rows claim besides figures, what a pull request slips in."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.provenance import canonical
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.submission import checks, metadata
from fglbench.benchmark.submission.lookalikes import deceives, twin

Attack = Callable[[Path, SimpleNamespace], object]
ROWS = "tiny/fedprox.csv"
SCRIPT = "<script>alert(1)</script>"
FORM, HIDDEN = "is not as fglbench writes it", "holds control or invisible characters"
SCORES = [0.4321, 0.5678, 0.6123]


def first(folder: Path) -> Row:
    return Store(folder).rows("tiny")[0]


def row(**values: Any) -> Attack:
    return lambda f, t: t.edit(f / ROWS, 2, **values)


def rows(**values: Any) -> Attack:
    return lambda f, t: t.edit(f / ROWS, None, **values)


def side(folder: Path) -> Path:
    return Store(folder).history_file("tiny", first(folder).key)


def packed(change: Callable[[bytes], bytes]) -> Attack:
    """The bytes of the first row's curves, changed."""
    return lambda f, t: side(f).write_bytes(change(side(f).read_bytes()))


def text(change: Callable[[bytes], bytes]) -> Attack:
    """The text of the first row's curves, changed."""
    return packed(lambda data: gzip.compress(change(gzip.decompress(data)), mtime=0))


def curves(change: Callable[[dict[str, Any]], object]) -> Attack:
    return lambda f, t: t.edit_curves(side(f), change)


def machine(change: Callable[[bytes], bytes]) -> Attack:
    def apply(f: Path, t: SimpleNamespace) -> None:
        (path,) = (f / "environments").iterdir()
        path.write_bytes(change(path.read_bytes()))

    return apply


def titled(data: bytes) -> bytes:
    """With a file name in the head of the archive, which nobody shows."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename=SCRIPT, fileobj=buffer, mode="wb", mtime=0) as stream:
        stream.write(gzip.decompress(data))
    return buffer.getvalue()


def rounded(f: Path, t: SimpleNamespace) -> None:
    """A score that was made up together with its clients' scores, its matrix and its curve."""
    best, mean = first(f).best_round or 1, sum(SCORES) / len(SCORES)

    def change(c: dict[str, Any]) -> None:
        c["history"]["score"][best - 1] = mean
        c["per_client"] |= {"score": SCORES, "global_on_local": SCORES}

    curves(change)(f, t)
    row(score=mean, global_on_local=mean, score_weighted=0.55, macro_f1=0.5)(f, t)


SUBMITTED: dict[str, tuple[Attack, str]] = {
    # what a spreadsheet runs, or nobody sees
    "a formula in the notes": (row(notes="=cmd|' /C calc'!A0"), "begins as a formula does"),
    "a formula for a submitter": (rows(submitter="=1+1"), "begins as a formula does"),
    "a function for a submitter": (rows(submitter="@SUM(1)"), "begins as a formula does"),
    "a sum for a submitter": (rows(submitter="-2+3"), "begins as a formula does"),
    "a difference in the notes": (row(notes="+2-3"), "begins as a formula does"),
    "a line separator in the notes": (row(notes="a\u2028b"), HIDDEN),
    "tags in the notes": (row(notes="a\U000e0041b"), HIDDEN),
    "a submitter with no width": (rows(submitter="some\u200bone"), HIDDEN),
    "a submitter who is not to be seen": (rows(submitter="\u3164"), "letters that look like others"),
    "a submitter with an accent on a consonant": (rows(submitter="fglbench\u0301"), "looks like 'fglbench'"),
    "a submitter of wide letters": (rows(submitter="ｆｇｌｂｅｎｃｈ"), "looks like 'fglbench'"),  # noqa: RUF001
    "a source of one's own": (row(source="checked by the maintainers!"), "column 'source'"),
    "a device of one's own": (row(device="cuda:999999999999"), "column 'device'"),
    # what a row claims to be
    "a reference": (rows(reference="True"), "reference is True, which fedprox is not"),
    "settings that a study chose": (rows(tuning='{"rounds":1,"seeds":[100],"study":"x","trials":1}'), "tuning is"),
    "a method from elsewhere": (rows(origin='{"source":"x"}'), "its origin says that the method is from outside"),
    "privacy": (row(dp_epsilon="0.1", dp_delta="0.00001"), "the line is not as|dp_epsilon"),
    "no processor time": (row(cpu_seconds="0.0"), "no processor time"),
    "less memory than Python": (row(peak_memory_mb="0.001"), "a peak memory of 0.001"),
    "scores that no number of nodes gives": (rounded, "a client's score is 0.4321, which of [0-9]+ nodes no number"),
    "zero from below": (row(score="-0.0"), "score is -0.0"),
    "no number": (row(score="nan"), "column 'score'"),
    "no end": (row(score_weighted="inf"), "column 'score_weighted'"),
    "a round beyond all": (row(best_round="9" * 300), "column 'best_round'.*out of range|best round 999"),
    "a seed below zero": (row(seed="-1"), "column 'seed': -1 is out of range"),
    "clients without number": (row(clients="9" * 30), "column 'clients'"),
    "a header with a mark": (
        lambda f, t: (f / ROWS).write_bytes(b"\xef\xbb\xbf" + (f / ROWS).read_bytes()),
        "the header is not that",
    ),
    # what lies in side files besides
    "a key twice": (text(lambda b: b.replace(b'{"history"', b'{"history":{"x":[1]},"history"', 1)), FORM),
    "a hundred thousand spaces": (text(lambda b: b + b" " * 100_000), FORM),
    "another encoding": (text(lambda b: b.decode().encode("utf-16")), FORM),
    "a title in the archive": (packed(titled), FORM),
    "a second archive behind it": (packed(lambda b: b + gzip.compress(b"  ")), FORM),
    "zeros behind it": (packed(lambda b: b + bytes(5000)), FORM),
    "a page behind it": (packed(lambda b: b + b"<html>"), "cannot be read"),
    "a curve with a title": (curves(lambda c: c["history"].update({SCRIPT: [1] * 8})), "has a curve that no run has"),
    "a machine said twice": (machine(lambda b: b.replace(b"{", b'{"cpu": "other",', 1)), FORM),
    "a machine and a lot of nothing": (machine(lambda b: b + b"\n" * 20_000), FORM),
    "a pipe": (lambda f, t: os.mkfifo(f / "tiny/history/aaaaaaaaaaaaaaaa.json.gz"), "a link or device"),
    "a file of rows in capitals": (lambda f, t: shutil.copy(f / ROWS, f / "tiny/FedProx.csv"), "it belongs in tiny/"),
    "a suite in another alphabet": (lambda f, t: shutil.copytree(f / "tiny", f / "t\u0456ny"), "it belongs in tiny/"),
}


@pytest.mark.parametrize("what", SUBMITTED)
def test_no_submission_hides_or_claims_anything(
    what: str, submission: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    attack, pattern = SUBMITTED[what]
    attack(submission, tools)
    assert main(["validate", "packed"]) == 1
    problems = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("warning: ")]
    assert any(re.search(pattern, line) for line in problems), problems


def write(name: str, content: str) -> Attack:
    def apply(results: Path, tools: SimpleNamespace) -> None:
        path = results / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    return apply


def embeddings(change: Callable[[bytes], bytes], both: bool = True) -> Attack:
    """Of a standing row; both: the base has them too."""

    def apply(results: Path, tools: SimpleNamespace) -> None:
        key = first(results).key
        for folder in (results, results.parent / "base")[: 1 + both]:
            Store(folder).write_embeddings("tiny", key, {"node": np.arange(3), "note": np.array("")})
            path = Store(folder).embeddings_file("tiny", key)
            path.write_bytes(change(path.read_bytes()))

    return apply


def commented(data: bytes) -> bytes:
    buffer = io.BytesIO(data)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = SCRIPT.encode()
    return buffer.getvalue()


def linked(name: str) -> Attack:
    """A file of the folder, in the place of which stands a link to it."""

    def apply(results: Path, tools: SimpleNamespace) -> None:
        path = next(results.glob(name))
        shutil.move(path, results.parent / "elsewhere")
        path.symlink_to(results.parent / "elsewhere")

    return apply


def another_machine(results: Path, tools: SimpleNamespace) -> None:
    about = json.loads(next((results / "environments").iterdir()).read_text()) | {"cpu": "Quantum"}
    Store(results).write_environment(hashlib.sha256(canonical(about).encode()).hexdigest()[:12], about)


META = "".join(f"{name}: {value}\n" for name, value in {
    "method": "fedavg", "paper": "unpublished", "code": "https://evil.example/x", "licence": "MIT",
    "hardware": "2 cores", "contact": "me@evil.example",
}.items())  # fmt: skip
ACTS = "holds what would act"

REQUESTED: dict[str, tuple[Attack, str]] = {
    "metadata for the maintainers' method": (write("submissions/fedavg.yaml", META), "new, and no new row has it"),
    "embeddings of a standing row": (embeddings(bytes, both=False), "new, and no new row has it"),
    "a machine of no row": (another_machine, "new, and no new row has it"),
    "a page before an archive": (embeddings(lambda b: SCRIPT.encode() + b), "bytes that are no array|cannot be read"),
    "a comment on an archive": (embeddings(commented), "bytes that are no array"),
    "a link to a folder": (lambda r, t: (r / "quick").symlink_to("/etc"), "a link or device"),
    "a link to rows": (linked("tiny/fedavg.csv"), "a link or device"),
    "a link to a machine": (linked("environments/*.json"), "a link or device"),
    "orders for git": (write(".gitattributes", "* -text\n"), "unknown file"),
    "files that git does not see": (write("tiny/.gitignore", "*\n"), "unknown file"),
    "a picture from elsewhere": (write("LEADERBOARD.md", "![x](https://evil.example/x.png)\n"), ACTS),
    "a page in an address": (write("LEADERBOARD.md", "[x](data:text/html;base64,eHg=)\n"), ACTS),
    "an older script": (write("tiny/tables/csbm.md", "<a href='vbscript:x'>x</a>"), ACTS),
    "another place for all links": (write("LEADERBOARD.md", "<base href=https://evil.example>"), ACTS),
    "a page that leads on": (write("LEADERBOARD.md", "<meta http-equiv=refresh content=0>"), ACTS),
    "a formula that begins with a number": (write("tiny/tables/csbm.csv", "a\n-2+3+cmd|' /C calc'!A0\n"), ACTS),
    "a formula with a plus": (write("tiny/tables/csbm.csv", "a,b\n1,+cmd|' /C calc'!A0\n"), ACTS),
    "a formula behind a tab": (write("tiny/tables/csbm.csv", "a\n\t=cmd|' /C calc'!A0\n"), ACTS),
    "a file without rows": (write("tiny/x.csv", ""), "no rows in the file"),
    "trials out of nothing": (
        lambda r, t: shutil.copytree(r / "tiny", r / "tuning/tiny"),
        r"tuning/tiny/fedavg.csv:2: (environments/.* is missing|new rows of 'fedavg' without)",
    ),
}


@pytest.mark.parametrize("what", REQUESTED)
def test_no_pull_request_slips_anything_in(
    what: str, here: Path, results: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(results, here / "base")
    attack, pattern = REQUESTED[what]
    attack(results, tools)
    assert main(["validate", "results", "--base", "base"]) == 1
    problems = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("warning: ")]
    assert any(re.search(pattern, line) for line in problems), problems


def test_tables_may_hold_numbers_below_nothing(here: Path, results: Path, tools: SimpleNamespace) -> None:
    write("tiny/tables/csbm.csv", 'a,b,c\n-0.5,+1.25,"-3"\n')(results, tools)
    assert main(["validate", "results"]) == 0


def test_an_older_schema_leaves_nothing_out(
    submission: Path, tools: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row of schema 1 does not say what it took; at its commit there may have been none of a later one."""
    tools.as_schema_1(submission / ROWS)
    for written, code in ((None, 0), (1, 0), (4, 1)):
        monkeypatch.setattr(checks, "schema_at", lambda sha: written)  # noqa: B023
        assert main(["validate", "packed"]) == code
    assert "4 rows in result schema 1, but the code at their commit writes 4" in capsys.readouterr().out


def test_of_metadata_what_they_say_is_kept_and_nothing_else(submission: Path, results: Path) -> None:
    path = submission / metadata.FILE
    path.write_text(f"# {SCRIPT}\n{path.read_text()}# and more\n")
    assert main(["validate", "packed", "--into", "results"]) == 0
    kept = results / "submissions/fedprox.yaml"
    assert "#" not in kept.read_text() and metadata.read(kept) == metadata.read(path)


def test_names_of_people_are_names() -> None:
    for name in ("José Müller", "Łukasz Żak", "Дмитрий", "王小明", "नरेन्द्र", "Nguyễn"):
        assert not deceives(name)
    assert twin("José", ["Jose"]) is None
