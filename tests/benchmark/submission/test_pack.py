"""Packing, and zip files that are not what they seem."""

from __future__ import annotations

import io
import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.schema import RULES
from fglbench.benchmark.submission import read, submit
from fglbench.registry import UserError


def test_a_submission_holds_the_rows_and_what_belongs_to_them(submission: Path, mine: Path) -> None:
    theirs = Store(mine).rows("tiny")
    assert Store(submission).rows("tiny") == theirs
    for row in theirs:
        assert Store(submission).history("tiny", row.key) == Store(mine).history("tiny", row.key)
    files = {path.relative_to(submission).as_posix() for path in submission.rglob("*") if path.is_file()}
    assert {f.split("/")[0] for f in files} == {"tiny", "environments", "submission.yaml"}
    assert len(files) == 1 + len(theirs) + 2
    assert submit.metadata(submit.read_fields(submission / "submission.yaml")).contact == "someone@example.org"


def test_only_the_last_row_of_a_cell_is_packed(here: Path, mine: Path, tools: SimpleNamespace) -> None:
    path = mine / "tiny/fedprox.csv"
    last = path.read_bytes().splitlines(keepends=True)[-1]
    tools.edit(path, 5, status="failed", score="", error="crashed")
    path.write_bytes(path.read_bytes() + last)
    assert main(["submit", "fedprox", "--results", "mine", "--out", "packed", *tools.options]) == 0
    assert [row.status for row in Store(here / "packed").rows("tiny")] == ["ok"] * 4


@pytest.mark.parametrize("name", ["packed.zip", "a/b/packed.zip"])
def test_a_zip_file_is_the_same_submission(
    name: str, submission: Path, here: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["submit", "fedprox", "--results", "mine", "--out", name, *tools.options]) == 0
    capsys.readouterr()
    assert main(["validate", name]) == 0
    assert capsys.readouterr().out == f"{name}: submission against results: 4 rows (tiny 4): valid\n"
    with zipfile.ZipFile(name) as packed:
        content = {member: packed.read(member) for member in packed.namelist()}
    files = [path for path in submission.rglob("*") if path.is_file()]
    assert content == {path.relative_to(submission).as_posix(): path.read_bytes() for path in files}


def test_metadata_come_from_options_or_a_file_and_none_is_left_out(
    here: Path, mine: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["submit", "fedprox", "--results", "mine"]
    assert main([*command, "--paper", "unpublished", "--licence", "MIT"]) == 2
    assert capsys.readouterr().err == (
        "fglbench: the metadata lack code, hardware, contact; "
        "give --code TEXT --hardware TEXT --contact TEXT, or --meta FILE with these keys\n"
    )
    (here / "meta.json").write_text(json.dumps({**tools.meta, "licence": "GPL-3.0-only"}))
    assert main([*command, "--meta", "meta.json", "--licence", "MIT", "--out", "one"]) == 0
    about = submit.metadata(submit.read_fields(here / "one/submission.yaml"))
    assert (about.licence, about.code, about.method) == ("MIT", tools.meta["code"], "fedprox")
    (here / "meta.yaml").write_text("licens: MIT\n")
    for wrong, said in (
        (["--meta", "meta.yaml"], "unknown field of the metadata 'licens'; did you mean 'licence'?"),
        (["--meta", "absent.yaml"], "cannot read the metadata 'absent.yaml'"),
        (["--meta", "meta.json", "--code", "ftp://x"], "metadata: code: must be an https:// or http:// address"),
    ):
        capsys.readouterr()
        assert main([*command, *wrong, "--out", "two"]) == 2
        assert capsys.readouterr().err.startswith(f"fglbench: {said}")
    assert not (here / "two").exists()


def test_what_would_not_validate_is_not_written(
    here: Path, mine: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.edit(mine / "tiny/fedprox.csv", 2, git_dirty="True")
    assert main(["submit", "fedprox", "--results", "mine", "--out", "packed", *tools.options]) == 1
    said = capsys.readouterr().out
    assert "packed/tiny/fedprox.csv:2: made from a checkout with uncommitted changes" in said
    assert said.endswith("nothing was written\n")
    assert sorted(path.name for path in here.iterdir()) == ["mine"]


def test_mistakes_are_one_line(
    submission: Path, here: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, said in (
        (["fedporx", "--results", "mine"], "unknown method with rows under 'mine': 'fedporx'; did you mean 'fedprox'?"),
        (["fedprox", "--results", "absent"], "no results folder at 'absent'"),
        (
            ["fedprox", "--results", "mine", "-s", "tny"],
            "unknown suite with rows of 'fedprox' 'tny'; did you mean 'tiny'",
        ),
        (
            ["fedprox", "--results", "mine", "--out", "packed"],
            "'packed' exists already; remove it, or give another --out",
        ),
    ):
        assert main(["submit", *arguments, *tools.options]) == 2
        assert capsys.readouterr().err.startswith(f"fglbench: {said}")


def packed(*members: tuple[str, bytes, int]) -> bytes:
    """A zip file of (name, content, type of file)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, kind in members:
            member = zipfile.ZipInfo(name)
            member.external_attr = (kind | 0o644) << 16
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def lying() -> bytes:
    """A zip file whose directory says that its member has one byte, where it has two MiB."""
    data = bytearray(packed(("tiny/a.csv", bytes(2 << 20), stat.S_IFREG)))
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = data.index(mark) + offset
        data[place : place + 4] = (1).to_bytes(4, "little")
    return bytes(data)


def encrypted() -> bytes:
    data = bytearray(packed(("tiny/a.csv", b"x", stat.S_IFREG)))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + offset] |= 1
    return bytes(data)


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "a file for a folder": (
        lambda: packed(("tiny", b"x", stat.S_IFREG), ("tiny/a.csv", b"x", stat.S_IFREG)), "not a sound zip file",
    ),
    "encrypted": (encrypted, "is encrypted"),
    "cut": (lambda: packed(("tiny/a.csv", b"x" * 999, stat.S_IFREG))[:-40], "not a sound zip file"),
    "no zip": (lambda: b"suite,key\n", "not a sound zip file"),
    "bomb": (lambda: packed(("tiny/a.csv", bytes(3 << 20), stat.S_IFREG)), "MiB unpacked"),
    "lying bomb": (lying, "not a sound zip file"),
}  # fmt: skip
ELSEWHERE = {
    "up": ("../evil.csv", stat.S_IFREG),
    "up in the middle": ("tiny/../../evil.csv", stat.S_IFREG),
    "absolute": ("/tmp/evil-of-a-test.csv", stat.S_IFREG),
    "windows": ("C:\\evil.csv", stat.S_IFREG),
    "hidden": (".git/config", stat.S_IFREG),
    "link": ("tiny/a.csv", stat.S_IFLNK),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_a_zip_file_puts_plain_files_into_its_folder_and_nowhere_else(
    what: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, kind = ELSEWHERE[what]
    (here / "hostile.zip").write_bytes(packed((name, b"/etc/passwd", kind)))
    inside = here / "outer" / "inside"
    inside.mkdir(parents=True)
    read.unpack(here / "hostile.zip", inside)
    files = [path for path in here.rglob("*") if not path.is_dir() and path.name != "hostile.zip"]
    assert len(files) == 1 and files[0].is_relative_to(inside) and not files[0].is_symlink()
    assert not Path("/tmp/evil-of-a-test.csv").exists()
    assert main(["validate", "hostile.zip"]) == 1  # no submission


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_zip_file_is_refused_and_leaves_nothing(
    what: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make, said = HOSTILE[what]
    monkeypatch.setattr(read, "TOTAL_BYTES", 2 << 20)
    inside = here / "inside"
    inside.mkdir()
    (here / "hostile.zip").write_bytes(make())
    with pytest.raises(UserError, match=said) as caught:
        read.unpack(here / "hostile.zip", inside)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in here.iterdir()) == ["hostile.zip", "inside"]
    assert sum(path.stat().st_size for path in inside.rglob("*") if path.is_file()) <= 2 << 20
    assert main(["validate", "hostile.zip"]) == 2
    assert capsys.readouterr().err.startswith("fglbench: hostile.zip: ")


def test_an_archive_without_metadata_is_a_submission_that_lacks_them(
    submission: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (submission / "submission.yaml").unlink()
    submit._pack(submission, here / "packed.zip")
    assert main(["validate", "packed.zip"]) == 1
    assert "packed.zip: submission.yaml is missing; pack with `fglbench submit METHOD`" in capsys.readouterr().out


def test_limits_hold_for_what_a_board_needs() -> None:
    """Fifty datasets, ten seeds and rows of the largest size fit many times."""
    widest = sum(rule.longest for rule in RULES.values())
    assert 50 * 10 * widest < read.TOTAL_BYTES
    assert read.FILES > 50 * 10 * 2 + 10
