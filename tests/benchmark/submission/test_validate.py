"""A valid submission passes; a changed one is refused, and the message gives place and reason."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from fglbench.benchmark.store import Store, side_files as stores
from fglbench.benchmark.submission import validate

from .conftest import META, edit, edit_curves

RESULTS = Path(__file__).resolve().parents[3] / "results"
ROWS = "tiny/fedprox.csv"
Tamper = Callable[[Path], object]


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def curves(folder: Path) -> Path:
    """The curves of the first row."""
    return Store(folder).history_file("tiny", Store(folder).rows("tiny")[0].key)


def write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def test_the_rows_of_the_repository_are_valid(cli) -> None:
    cli(f"validate {RESULTS}")
    assert validate._registered("cora") and validate._registered("ogbn-arxiv-structure-features") is None


def test_a_sound_submission_validates(submission: Path, cli) -> None:
    output = cli("validate packed").splitlines()
    assert output == ["packed: submission against results: 4 rows (tiny 4): valid"]


# The change of the submission, and the patterns of all lines of the output.
TAMPERED: dict[str, tuple[Tamper, list[str]]] = {
    "a better score": (
        lambda f: edit(f / ROWS, 2, score="0.99"),
        [r"packed/tiny/history/\w+\.json\.gz: score is 0\.99 in the row and 0\.\d+ in its curves; rows are ",
         "score is 0.99, but global_on_local", "the mean of its clients"],
    ),
    "an impossible score": (
        lambda f: edit(f / ROWS, 3, score="1.5"),
        [r"fedprox\.csv:3: column 'score': Input should be less than or equal to 1, got '1\.5'", "curves of no row",
         "missing: "],
    ),
    "not a number": (
        lambda f: edit(f / ROWS, 2, train_seconds="nan"),
        [r"fedprox\.csv:2: column 'train_seconds': nan is out of range", "nan seconds", "train_seconds is nan"],
    ),
    "another key": (
        lambda f: edit(f / ROWS, 2, key="0" * 16),
        [r"fedprox\.csv:2: key 0{16} is not that of its experiment, which is \w{16}", "are missing", "curves of no"],
    ),
    "another protocol": (
        lambda f: edit(
            f / ROWS, None, rekey=True,
            training=Store(f).rows("tiny")[0].training.replace('"lr":0.01', '"lr":0.02'),
        ),
        [r"fedprox\.csv:[2-5]: not an experiment of suite 'tiny': .*lr is 0.02, the suite has 0.01", "are missing",
         "curves of no row"],
    ),
    "a dataset that the board lacks": (
        lambda f: edit(f / ROWS, 2, rekey=True, dataset="cora", dataset_params='{"features":"raw"}'),
        [r"fedprox\.csv:2: not an experiment of suite 'tiny': it has no dataset 'cora'", "synthetic is True", "missing",
         "curves of no row", "data fingerprint", "partition hashes of cora"],
    ),
    "a seed that is left out": (
        lambda f: (write(f / ROWS, b"".join(lines(f / ROWS)[:3] + lines(f / ROWS)[4:])),),
        [r"fedprox\.csv:\d: suite 'tiny' has more seeds of fedprox on csbm; missing: [01]; run them: fglbench run -s "
         r"tiny -m fedprox -d csbm", "curves of no row"],
    ),
    "a seed too many": (
        lambda f: edit(f / ROWS, 2, rekey=True, seed="7"),
        [r"fedprox\.csv:2: seed 7 of csbm, fedprox is not a seed of suite 'tiny'", "missing", "curves of no row",
         "partition hash"],
    ),
    "a row twice": (
        lambda f: write(f / ROWS, (f / ROWS).read_bytes() + lines(f / ROWS)[1]),
        [r"fedprox\.csv:6: the same row as in line 2; remove one of them"],
    ),
    "two results for a cell": (
        lambda f: (
            write(f / ROWS, (f / ROWS).read_bytes() + lines(f / ROWS)[1]),
            edit(f / ROWS, 6, peak_memory_mb="999.0"),
        ),
        [r"fedprox\.csv:6: a second result for the experiment of line 2"],
    ),
    "a method that is unknown": (
        lambda f: (
            edit(f / ROWS, None, rekey=True, method="os.system", method_params="{}"),
            (f / ROWS).rename(f / "tiny/os.system.csv"),
        ),
        [r"os\.system\.csv:[2-5]: method 'os\.system' is unknown", "curves of no row", "are missing",
         "but there are"],
    ),
    "a suite that is unknown": (
        lambda f: (edit(f / ROWS, None, suite="huge"), (f / "tiny").rename(f / "huge")),
        [r"huge/fedprox\.csv:[2-5]: unknown suite 'huge' \(known: tiny\)"],
    ),
    "changed settings": (
        lambda f: (edit(f / ROWS, None, suite="custom"), (f / "tiny").rename(f / "custom")),
        [r"custom/fedprox\.csv:[2-5]: a row with changed settings \(suite 'custom'\) is on no board"],
    ),
    "uncommitted code": (
        lambda f: edit(f / ROWS, 2, git_dirty="True"),
        [r"fedprox\.csv:2: made from a checkout with uncommitted changes \(git_dirty\); commit the code, then run"],
    ),
    "no commit": (
        lambda f: edit(f / ROWS, 2, git_sha="main; rm -rf /"),
        [r"fedprox\.csv:2: column 'git_sha': 'main; rm -rf /' is not of the form \(\[0-9a-f\]\{40\}\)\?; commit"],
    ),
    "a column too few": (
        lambda f: write(f / ROWS, (f / ROWS).read_bytes().replace(b",score,", b",", 1)),
        [r"fedprox\.csv:1: the header is not that of result schema [0-9]+ \(missing 'score'\)", "curves of no row",
         "environment of no row"],
    ),
    "a torn line": (
        lambda f: write(f / ROWS, (f / ROWS).read_bytes()[:-30]),
        [r"fedprox\.csv:5: not a complete row: the end of the line is missing; remove the line",
         "curves of no row: .*; mend the rows above", "missing: "],
    ),
    "a byte of another encoding": (
        lambda f: write(f / ROWS, lines(f / ROWS)[0] + b"".join(lines(f / ROWS)[1:]).replace(b"csbm", b"csb\xfc", 1)),
        [r"fedprox\.csv:2: not a row: byte \d+ of the line \(0xfc\) is not UTF-8", "curves of no row", "missing: "],
    ),
    "a field too many": (
        lambda f: write(f / ROWS, b"".join([*lines(f / ROWS)[:4], lines(f / ROWS)[4].replace(b",", b",,", 1)])),
        [r"fedprox\.csv:5: not a row: \d+ fields instead of \d+", "curves of no row", "missing: "],
    ),
    "a method as a reference": (
        lambda f: edit(f / ROWS, 2, reference="True"),
        [r"fedprox\.csv:2: reference is True, of fedprox it is False"],
    ),
    "a revision that does not exist": (
        lambda f: edit(f / ROWS, 2, method_version="99"),
        [r"fedprox\.csv:2: method_version is 99, of fedprox it is \d+"],
    ),
    "parameters in another form": (
        lambda f: edit(f / ROWS, 2, method_params='{"mu": 0.01}'),
        [r"fedprox\.csv:2: column 'method_params' is not canonical JSON"],
    ),
    "a long text": (
        lambda f: edit(f / ROWS, 2, notes="x" * 5000),
        [r"fedprox\.csv:2: column 'notes' has 5000 characters; at most 4000 are read"],
    ),
    "curves left out": (
        lambda f: curves(f).unlink(),
        [r"fedprox\.csv:2: its curves \(tiny/history/\w+\.json\.gz\) are missing"],
    ),
    "curves of another length": (
        lambda f: edit_curves(curves(f), lambda c: c["history"]["val"].append(1.0)),
        [r"\.json\.gz: does not have one value of .* for each of 8 rounds"],
    ),
    "a curve with a number of 4001 digits": (
        lambda f: edit_curves(curves(f), lambda c: c["history"]["upload_bytes"].__setitem__(0, 10**4000)),
        [r"\.json\.gz: has content other than lists of numbers"],
    ),
    "curves that fill the memory": (
        lambda f: write(curves(f), gzip.compress(b"[" + b"1," * (stores.HISTORY_BYTES // 2) + b"1]")),
        [r"\.json\.gz: cannot be read: more than 8 MiB unpacked"],
    ),
    "another machine": (
        lambda f: write(next((f / "environments").iterdir()), '{\n  "cpu": "faster"\n}\n'),
        [r"environments/[0-9a-f]{12}\.json: its name is not the hash of its content"],
    ),
    "no machine": (
        lambda f: next((f / "environments").iterdir()).unlink(),
        [r"fedprox\.csv:[2-5]: environments/[0-9a-f]{12}\.json is missing"],
    ),
    "an unknown file": (
        lambda f: write(f / "tiny/run.sh", "echo"),
        [r"packed/tiny/run\.sh: unknown file; remove it"],
    ),
    "a link": (
        lambda f: os.symlink("/etc/passwd", f / "tiny/local.csv"),
        [r"packed/tiny/local\.csv: a link or device, not a file"],
    ),
    "a row in the wrong file": (
        lambda f: edit(f / ROWS, 2, method="local"),
        [r"fedprox\.csv:2: a row of suite 'tiny' and method 'local'; it belongs in tiny/local\.csv", "missing",
         "curves of no row"],
    ),
    "metadata without a licence": (
        lambda f: write(f / "submission.yaml", "method: fedprox\npaper: none yet"),
        [r"packed/submission\.yaml: the metadata lack code, licence, hardware, contact; correct the file"],
    ),
    "metadata of another method": (
        lambda f: write(f / "submission.yaml", json.dumps({**META, "method": "fedavg"})),
        [r"packed/submission\.yaml: about 'fedavg', but there are rows of fedprox"],
    ),
    "metadata that run code": (
        lambda f: write(f / "submission.yaml", "!!python/object/apply:os.system ['touch ran']"),
        [r"packed/submission\.yaml:1: not valid YAML"],
    ),
    "a script address": (
        lambda f: write(
            f / "submission.yaml", json.dumps({**META, "method": "fedprox", "code": "javascript:alert(1)"})
        ),
        [r"packed/submission\.yaml: metadata: code: must be an https:// or http:// address in ASCII, got 'javascript"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ["dataset_fingerprint", "partition_hash"])
def test_data_and_clients_are_the_registered_ones(
    what: str, submission: Path, monkeypatch: pytest.MonkeyPatch, cli
) -> None:
    rows = Store(submission).rows("tiny")
    hashes = {row.key: row.partition_hash[:16] for row in rows}
    monkeypatch.setattr(validate, "_registered", lambda dataset: what[0] == "d" and rows[0].dataset_fingerprint)
    monkeypatch.setattr(validate, "registered_hash", lambda cell: hashes[cell.key])
    output = cli("validate packed", int(what[0] == "d"))  # its other rows are of csbm with other parameters
    assert "csv:2" not in output
    edit(submission / ROWS, 2, **{what: "0" * 64})
    output = cli("validate packed", 1)
    label = what.replace("dataset_fingerprint", "data fingerprint").replace("_", " ")
    assert f"fedprox.csv:2: {label} {'0' * 16}… of csbm, seed 0; it must be " in output


@pytest.mark.parametrize("change", TAMPERED)
def test_a_tampered_submission_is_refused_with_the_reason(change: str, submission: Path, cli) -> None:
    import re

    tamper, patterns = TAMPERED[change]
    tamper(submission)
    *problems, summary = cli("validate packed", 1).splitlines()
    assert "NOT valid" in summary
    assert re.search(patterns[0], problems[0]) or any(re.search(patterns[0], line) for line in problems)
    for line in problems:  # every line is explained by the change
        assert any(re.search(pattern, line) for pattern in patterns), line
        assert re.match(r"(warning: )?packed(/[^:]+(:\d+)?)?: .*; .+", line), line
    assert not (submission.parent / "ran").exists()


class Payload:
    """Unpickling it leaves a file behind."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, ("unpickled",)


@pytest.mark.parametrize(("seed", "valid"), [("1", True), ("0", False)])
def test_suites_off_the_boards_need_only_the_first_seeds(
    seed: str, valid: bool, submission: Path, suites: Path, cli
) -> None:
    suite = suites / "tiny.yaml"
    suite.write_text(suite.read_text().replace("leaderboard: true", "leaderboard: false"))
    left_out = [row for row in Store(submission).rows("tiny") if row.seed == int(seed)]
    for row in left_out:
        Store(submission).history_file("tiny", row.key).unlink()
    keys = [row.key.encode() for row in left_out]
    kept = [line for line in lines(submission / ROWS) if not any(key in line for key in keys)]
    write(submission / ROWS, b"".join(kept))
    assert len(kept) == 3
    output = cli("validate packed", 0 if valid else 1)
    missing = [line for line in output.splitlines() if "has more seeds of fedprox on csbm" in line]
    assert missing
    assert all(f"missing: {seed}; run them" in line for line in missing)
    assert all(line.startswith("warning: ") == valid for line in missing)


def test_nothing_of_a_submission_is_executed_or_unpickled(submission: Path, workdir: Path, cli) -> None:
    pickled = pickle.dumps(Payload())
    curves(submission).write_bytes(gzip.compress(pickled))
    write(submission / "tiny/embeddings/0123456789abcdef.npz", pickled)
    for place in ("fedprox.py", "tiny/__init__.py", "conftest.py", "sitecustomize.py"):
        write(submission / place, "import os; os.mkdir('imported')")
    edit(submission / ROWS, 2, method="packed.fedprox", source="__import__('os').mkdir('evaluated')")
    cli("validate packed", 1)
    assert "do not count here" in cli("verify packed -m packed.fedprox", 2)
    assert sorted(path.name for path in workdir.iterdir()) == ["mine", "packed", "results"]


def test_all_problems_of_a_folder_are_listed(submission: Path, cli) -> None:
    edit(submission / ROWS, 2, git_dirty="True")
    edit(submission / ROWS, 3, notes="\x07")
    write(submission / "x.bin", "x")
    assert cli("validate packed", 1).count("\n") == 4


def test_hostile_names_are_escaped(submission: Path, cli) -> None:
    for name in ("::error::x", "a\nb", "\x1b[31mred", "a\u202eb"):
        write(submission / name, "x")
    output = cli("validate packed", 1)
    assert "\x1b" not in output
    assert "\u202e" not in output
    assert all(line.startswith("packed") for line in output.splitlines())


def test_a_missing_or_empty_folder_is_one_line(workdir: Path, cli) -> None:
    (workdir / "empty").mkdir()
    assert cli("validate absent", 2).startswith("fglbench: no folder at 'absent'; give a results folder")
    assert cli("validate empty", 1).startswith("empty: no result rows; give a results folder")
    (workdir / "empty" / "thesis.txt").write_text("important")
    assert "thesis" not in cli("validate empty", 1)  # no advice to remove files of another folder


def test_an_unknown_per_client_figure_is_an_error(submission: Path, cli) -> None:
    """Also one with the name of a text column."""
    path = sorted((submission / "tiny" / "history").iterdir())[0]
    edit_curves(path, lambda curves: curves["per_client"].update(method=curves["per_client"]["score"]))
    assert "values per client that rows do not have: 'method'" in cli("validate packed", 1)
