"""Curves in columns: nothing is lost on the way into them, and they are judged as those in files of their own."""

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fglbench.benchmark.cli import main
from fglbench.benchmark.store import Store, attachments, columnfile, packing
from fglbench.benchmark.store.provenance import canonical
from fglbench.registry import UserError

from .test_altered import archive, saved
from .test_forged import FORGED

PLACE = re.compile(r"(?:history/(\w{16})\.json\.gz:|curves/[\w+-]+\.npz: (\w{16}))")
values = st.lists(st.none() | st.floats(width=32, allow_nan=False) | st.integers(-(10**17), 10**17), max_size=4)
runs = st.fixed_dictionaries(
    {},
    optional={
        "history": st.dictionaries(st.sampled_from(["round", "val", "score"]), values, max_size=3),
        "per_client": st.dictionaries(st.sampled_from(["val", "score"]), values, max_size=2),
        "label_counts": st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=3),
    },
)


def said(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    capsys.readouterr()
    main(["validate", *args])
    *problems, _ = capsys.readouterr().out.splitlines()
    return problems


def keys(folder: Path) -> list[str]:
    return [row.key for row in Store(folder).rows("tiny")]


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), runs, max_size=4))
def test_what_fits_comes_back_as_it_went_in(stored: dict[str, Any]) -> None:
    """With its types; what does not fit keeps its own file."""
    kinds = dict[str, str]()
    fitting = {key: run for key, run in stored.items() if packing._fits(run, kinds)}
    made = columnfile.parse(columnfile.packed(columnfile.arrays_of(fitting)))
    assert sorted(made.keys) == sorted(fitting)
    assert all(canonical(made.stored(key)) == canonical(run) for key, run in fitting.items())


def test_whole_numbers_stay_whole_and_real_ones_real() -> None:
    one = {"history": {"round": [1, 2], "val": [1.0, None]}, "label_counts": [[2, 0], [1, 1]]}
    kinds = dict[str, str]()
    assert packing._fits(one, kinds)
    assert kinds == {"history.round": "i", "history.val": "f", "label_counts": "i"}
    mixed, whole = {"history": {"val": [1, 0.5]}}, {"history": {"val": [1, 2]}}
    assert packing._fits(whole, {}) and not packing._fits(whole, kinds)
    ragged, long = {"label_counts": [[1], [1, 2]]}, {"history": {"round": [10**30]}}
    for odd in (mixed, ragged, long, {"history": {}}, {"more": 1}, {"history": [1]}, [1]):
        assert not packing._fits(odd, {})


def test_packing_loses_nothing(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(results)
    before = {key: store.history("tiny", key) for key in keys(results)}
    assert main(["pack", "--results", str(results)]) == 0
    assert capsys.readouterr().out == f"{results}: the curves of 8 rows put into columns\n"
    assert sorted(path.name for path in (results / "tiny" / "curves").iterdir()) == ["fedavg.npz", "local.npz"]
    assert not list((results / "tiny" / "history").iterdir())
    assert {key: store.history("tiny", key) for key in before} == before  # who has read before sees the new file
    assert {key: Store(results).history("tiny", key) for key in before} == before
    with np.load(results / "tiny" / "curves" / "local.npz", allow_pickle=False) as arrays:  # as the documentation says
        first = int(arrays["lengths"][0, arrays["columns"].tolist().index("history.score")])
        own = before[str(arrays["keys"][0])]
        assert own is not None and arrays["history.score"][:first].tolist() == own["history"]["score"]
    content = {path: path.read_bytes() for path in results.rglob("*.npz")}
    assert main(["pack", "--results", str(results)]) == 0
    assert "the curves of 0 rows" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in results.rglob("*.npz")} == content


def test_a_later_run_goes_before_and_is_taken_in(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["pack", "--results", str(results), "-s", "tiny"])
    store, key = Store(results), keys(results)[0]
    old = store.history("tiny", key)
    assert old is not None
    new = {**old, "history": {**old["history"], "seconds": [9.0 + n for n in range(8)]}}
    store.write_history("tiny", key, new)
    assert store.history("tiny", key) == Store(results).history("tiny", key) == new
    assert packing.pack(store, "tiny") == (1, 0)
    assert store.history("tiny", key) == Store(results).history("tiny", key) == new
    assert not store.history_file("tiny", key).exists()


def test_what_is_running_damaged_or_otherwise_written_keeps_its_file(results: Path) -> None:
    store, (running, damaged, spaced, *rest) = Store(results), keys(results)
    lock = Store(results).claim("tiny", running)
    store.history_file("tiny", damaged).write_bytes(b"\x1f\x8bno more")
    text = json.dumps(store.history("tiny", spaced)).encode()
    store.history_file("tiny", spaced).write_bytes(gzip.compress(text, mtime=0))
    assert packing.pack(store, "tiny") == (len(rest), 3)
    assert store.loose("tiny") == {running, damaged, spaced}
    assert lock is not None
    Store(results).unclaim(lock)
    assert packing.pack(store, "tiny") == (1, 2)


def test_a_crash_before_the_old_files_are_gone_costs_nothing(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(results)
    before = {key: store.history("tiny", key) for key in keys(results)}
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *args, **more: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            packing._add(store, "tiny", store.columns_file("tiny", "local"), keys(results)[-4:])
    assert len(store.loose("tiny")) == 8 and (results / "tiny" / "curves" / "local.npz").exists()
    assert said(capsys, str(results)) == []
    assert packing.pack(store, "tiny") == (8, 0)
    assert {key: store.history("tiny", key) for key in before} == before


@pytest.mark.parametrize("what", FORGED)
def test_forgeries_are_told_of_columns_as_of_files(
    what: str, submission: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same lines but for the place: packing neither hides nor invents anything."""
    FORGED[what][0](submission, tools)
    (submission / "submission.yaml").unlink(missing_ok=True)
    loose = said(capsys, "packed")
    main(["pack", "--results", "packed"])
    columns = said(capsys, "packed")
    one, other = (sorted(PLACE.sub(r"<\1\2>", line) for line in found) for found in (loose, columns))
    assert one == other


def altered(path: Path, change: Any) -> None:
    """The arrays of a file of columns, changed."""
    with np.load(path, allow_pickle=False) as stored:
        arrays = dict(stored.items())
    change(arrays)
    path.write_bytes(columnfile.packed(arrays))


def more(name: str) -> Any:
    return lambda arrays: arrays[name].__setitem__(0, arrays[name][0] + 1)


WRONG: dict[str, tuple[Any, str]] = {
    "a key twice": (lambda a: a["keys"].__setitem__(1, a["keys"][0]), "cannot be read: a key occurs twice"),
    "lengths that do not add up": (lambda a: a["lengths"].__setitem__((0, 0), 9), "lengths do not add up"),
    "no lengths": (lambda a: a.pop("lengths"), "no array 'lengths'"),
    "an array too many": (lambda a: a.update(secret=np.arange(9)), "other arrays than its columns"),
    "objects": (lambda a: a.update(keys=np.array(a["keys"], dtype=object)), "cannot be read: "),
    "counts that are real": (lambda a: a.update(label_counts=a["label_counts"] / 2), "array 'label_counts' is of"),
    "a key of no row": (lambda a: a["keys"].__setitem__(0, "f" * 16), f"curves of no row: {'f' * 16}"),
    "endless seconds": (lambda a: a["history.seconds"].__setitem__(0, np.inf), "something else than lists of num"),
    "another score": (more("history.score"), "score leaves [0, 1]"),
}


@pytest.mark.parametrize("what", WRONG)
def test_columns_that_were_changed_are_told(
    what: str, here: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["pack", "--results", "results"])
    change, line = WRONG[what]
    altered(results / "tiny" / "curves" / "local.npz", change)
    assert any(line in each and not each.startswith("warning") for each in said(capsys, "results"))


def test_curves_under_another_method_or_twice_are_told(
    here: Path, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["pack", "--results", "results"])
    folder = results / "tiny" / "curves"
    (folder / "zzz.npz").write_bytes((folder / "local.npz").read_bytes())
    found = said(capsys, "results")
    assert any("stands in zzz.npz too" in line for line in found)
    assert any("zzz.npz" in line and "is a row of 'local'" in line for line in found)


def test_links_are_told_and_not_followed(here: Path, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["pack", "--results", "results"])
    key, suite = keys(results)[0], results / "tiny"
    (suite / "curves" / "zero.npz").symlink_to("/dev/zero")
    (suite / "history" / f"{key}.json.gz").symlink_to("/dev/zero")
    found = said(capsys, "results")
    assert sum("a link or device, not a file" in line for line in found) == 2 == len(found)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_file_is_a_line_and_no_more(data: st.DataObject) -> None:
    run = {"history": {"round": [1, 2], "val": [0.5, None]}, "label_counts": [[2, 0], [1, 1]]}
    content = bytearray(columnfile.packed(columnfile.arrays_of({"a": run, "b": run})))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.just(len(content)) | st.integers(0, len(content)))]
    with suppress(ValueError):
        made = columnfile.parse(bytes(content))
        assert all(made.stored(key) is not None for key in made.keys)


def npy(head: str, values: bytes = b"") -> bytes:
    text = head.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + values


def rewritten(change: Any, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A file of columns of one run whose members were changed."""
    content = columnfile.packed(columnfile.arrays_of({"a": {"history": {"round": [1, 2], "val": [0.5, None]}}}))
    with zipfile.ZipFile(io.BytesIO(content)) as stored:
        members = {name: stored.read(name) for name in stored.namelist()}
    change(members)
    return archive("x", members, method)


def put(name: str, content: bytes) -> Any:
    return lambda members: members.__setitem__(f"{name}.npy", content)


DAMAGED = {
    "columns of numbers": rewritten(put("columns", saved(np.arange(2)))),
    "columns of bytes": rewritten(put("columns", saved(np.array([b"history.round", b"history.val"])))),
    "columns of two axes": rewritten(put("columns", saved(np.array([["history.round"], ["history.val"]])))),
    "real lengths": rewritten(put("lengths", saved(np.array([[2.0, 2.0]])))),
    "long doubles": rewritten(put("history.val", saved(np.zeros(2, np.longdouble)))),
    "big-endian": rewritten(put("history.val", saved(np.zeros(2, ">f8")))),
    "dates": rewritten(put("history.val", saved(np.zeros(2, "datetime64[s]")))),
    "keys that are no array": rewritten(lambda members: members.__setitem__("keys", members.pop("keys.npy"))),
    "no magic": rewritten(put("lengths", b"[[2, 2]]")),
    "a head that is cut": rewritten(put("lengths", npy("("))),
    "a head with a list for a name": rewritten(put("lengths", npy("{[]: 1}"))),
    "a head with a number for a name": rewritten(
        put("lengths", npy("{'descr': '<i8', 'fortran_order': False, 'shape': (1, 2), 3: False}", bytes(16)))
    ),
    "a head of petabytes": rewritten(
        put("lengths", npy("{'descr': '<i8', 'fortran_order': False, 'shape': (111111111111111, 2)}"))
    ),
    "a head of less than nothing": rewritten(
        put("lengths", npy("{'descr': '<i8', 'fortran_order': False, 'shape': (-1, 2)}"))
    ),
    "packed by LZMA": rewritten(lambda members: None, zipfile.ZIP_LZMA),
    "a name that is no text": rewritten(lambda members: members.__setitem__("\u00e9\u00e9.npy", b"")).replace(
        "\u00e9\u00e9".encode(), b"\xff\xff\xff\xff"
    ),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_whatever_an_archive_states_it_is_refused_in_one_line(what: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        columnfile.parse(DAMAGED[what])
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_lengths_whose_sum_runs_over_are_none() -> None:
    one = {"history": {"round": [1, 2]}}
    arrays = columnfile.arrays_of(dict.fromkeys("abcde", one))
    arrays["lengths"] = np.array([[10], *[[2**62]] * 4], np.int64)  # which add up to 10, modulo 2**64
    assert arrays["lengths"].sum() == 10
    with pytest.raises(ValueError, match="lengths do not add up"):
        columnfile.parse(columnfile.packed(arrays))


def test_runs_beyond_what_a_file_may_hold_stay_loose(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnfile, "COLUMN_BYTES", packing.HEADS + 3000)
    before = {key: Store(results).history("tiny", key) for key in keys(results)}
    done = packing.pack(Store(results), "tiny")
    assert done.moved and done.left and done.moved + done.left == len(before)
    assert packing.pack(Store(results), "tiny") == (0, done.left)
    assert {key: Store(results).history("tiny", key) for key in before} == before


def test_a_file_that_is_full_is_left_as_it_is(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three runs of four fit into the first file of each method; nothing is lost, nor told of."""
    store, curves = Store(results), results / "tiny" / "curves"
    before = {key: store.history("tiny", key) for key in keys(results)}
    most = max(columnfile.room([run]) for run in before.values() if run)
    monkeypatch.setattr(packing, "PART_BYTES", int(3.5 * most))
    assert packing.pack(store, "tiny") == (8, 0)
    assert sorted(path.name for path in curves.iterdir()) == [
        "fedavg.npz", "fedavg@2.npz", "local.npz", "local@2.npz"
    ]  # fmt: skip
    first = columnfile.parse((curves / "local.npz").read_bytes()).keys
    assert [len(columnfile.parse((curves / f"local{part}.npz").read_bytes()).keys) for part in ("", "@2")] == [3, 1]
    assert {key: Store(results).history("tiny", key) for key in before} == before
    assert said(capsys, str(results)) == []
    content = {path.name: path.read_bytes() for path in curves.iterdir()}
    new = {**(before[first[0]] or {}), "per_client": {"score": [0.25]}}
    store.write_history("tiny", first[0], new)
    assert packing.pack(store, "tiny") == (1, 0)  # where the earlier run was, though that file is full
    changed = [path.name for path in curves.iterdir() if path.read_bytes() != content.get(path.name)]
    assert changed == ["local.npz"] and Store(results).history("tiny", first[0]) == new


def test_each_run_may_have_a_file_of_columns(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PART_BYTES", 0)
    before = {key: Store(results).history("tiny", key) for key in keys(results)}
    assert packing.pack(Store(results), "tiny") == (8, 0)
    assert len(list((results / "tiny" / "curves").iterdir())) == 8
    assert {key: Store(results).history("tiny", key) for key in before} == before


@pytest.mark.parametrize("name", ["local@1", "local@02", "local@", "local@2@3", "@2"])
def test_parts_are_numbered_from_two(results: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    packing.pack(Store(results), "tiny")
    (results / "tiny" / "curves" / "local.npz").rename(results / "tiny" / "curves" / f"{name}.npz")
    assert any(f"{name}.npz: unknown file" in line for line in said(capsys, str(results)))


def test_nothing_is_added_beside_a_damaged_part(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For what it holds is not known, and would stand in two files."""
    monkeypatch.setattr(packing, "PART_BYTES", 0)
    store, key = Store(results), keys(results)[-1]
    packing.pack(store, "tiny")
    again = store.history("tiny", key)
    (results / "tiny" / "curves" / "local@2.npz").write_bytes(b"no archive")
    store.write_history("tiny", key, again or {})
    with pytest.raises(UserError, match=r"local@2\.npz: .*; take it from version control again"):
        packing.pack(Store(results), "tiny")
    assert store.history_file("tiny", key).exists()


@pytest.mark.parametrize("name", ["x" * 70_000, "\ud800", "a b"])
def test_a_name_that_no_column_has_keeps_its_run_loose(results: Path, tools: SimpleNamespace, name: str) -> None:
    path = sorted((results / "tiny" / "history").iterdir())[0]
    tools.edit_curves(path, lambda curves: curves["history"].update({name: [1.0, 2.0]}))
    packing.pack(Store(results), "tiny")
    assert [file.name for file in (results / "tiny" / "history").iterdir()] == [path.name]


def test_the_files_of_a_suite_are_bounded_together(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packing.pack(Store(results), "tiny")
    assert not Store(results).columns("tiny").damaged
    monkeypatch.setattr(attachments, "SUITE_BYTES", 100)
    assert set(Store(results).columns("tiny").damaged.values()) == {
        "the files of a suite hold more than 0 MiB unpacked"
    }


def test_one_that_unpacks_to_gigabytes_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("keys.npy", bytes(2**20))
    monkeypatch.setattr(columnfile, "COLUMN_BYTES", 2**19)
    with pytest.raises(ValueError, match="more than 0 MiB unpacked"):
        columnfile.parse(buffer.getvalue())


def test_a_submission_of_packed_rows_is_that_of_loose_ones(
    here: Path, submission: Path, mine: Path, tools: SimpleNamespace
) -> None:
    main(["pack", "--results", "mine"])
    assert not list((mine / "tiny" / "history").iterdir())
    assert main(["submit", "fedprox", "--results", "mine", "--out", "again", *tools.options]) == 0
    one, other = ({p.relative_to(f): p.read_bytes() for p in f.rglob("*.gz")} for f in (submission, here / "again"))
    assert one == other and len(one) == 4


def test_a_submission_brings_no_columns(here: Path, submission: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (submission / "tiny" / "curves").mkdir()
    (submission / "tiny" / "curves" / "fedprox.npz").write_bytes(b"")
    assert any("fedprox.npz: unknown file" in line for line in said(capsys, "packed"))


def test_nor_are_they_read(
    here: Path, submission: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (submission / "tiny" / "curves").mkdir()
    (submission / "tiny" / "curves" / "fedprox.npz").write_bytes(rewritten(lambda members: None))
    monkeypatch.setattr(columnfile, "parse", lambda content: pytest.fail("read"))
    assert len(said(capsys, "packed")) == 1


class TestAgainstABase:
    """The base is loose or packed; the change is packed."""

    @pytest.fixture
    def base(self, here: Path, results: Path) -> Path:
        import shutil

        return Path(shutil.copytree(results, here / "base"))

    def test_the_maintainers_may_pack_and_nobody_else(
        self, base: Path, results: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        main(["pack", "--results", "results"])
        found = said(capsys, "results", "--base", "base", "--maintainer")
        assert len(found) == 2 and all(line.startswith("warning: ") for line in found)
        found = said(capsys, "results", "--base", "base")
        assert [line.split(": ")[0] for line in found] == [f"results/tiny/curves/{m}.npz" for m in ("fedavg", "local")]

    @pytest.mark.parametrize("packed", [False, True])
    def test_another_figure_is_seen(
        self, packed: bool, base: Path, results: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        if packed:
            main(["pack", "--results", "base"])
        main(["pack", "--results", "results"])
        assert not [line for line in said(capsys, "results", "--base", "base", "--maintainer") if "warning" not in line]
        altered(results / "tiny" / "curves" / "local.npz", lambda a: a["history.val"].__setitem__(0, 0.125))
        found = said(capsys, "results", "--base", "base", "--maintainer")
        assert any("local.npz: changed, but its cell has no new row" in line for line in found)

    def test_a_run_that_was_taken_out_is_seen(
        self, base: Path, results: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for folder in ("base", "results"):
            main(["pack", "--results", folder])
        store, path = Store(results), results / "tiny" / "curves" / "local.npz"
        gone, *rest = columnfile.parse(path.read_bytes()).keys
        kept = {key: store.history("tiny", key) or {} for key in rest}
        path.write_bytes(columnfile.packed(columnfile.arrays_of(kept)))
        found = said(capsys, "results", "--base", "base", "--maintainer")
        assert any(f"local.npz: {gone} was removed; side files stay" in line for line in found)
        assert any(f"history/{gone}.json.gz) are missing" in line for line in found)

    def test_a_file_beside_columns_of_the_base_needs_a_new_row(
        self, base: Path, results: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Even one that says the same: a text may hold more than what is read of it."""
        for folder in ("base", "results"):
            main(["pack", "--results", folder])
        key = keys(results)[0]
        Store(results).write_history("tiny", key, Store(results).history("tiny", key) or {})
        found = said(capsys, "results", "--base", "base")
        assert any(f"{key}.json.gz: new, and no new row has it" in line for line in found)
