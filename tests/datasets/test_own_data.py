"""A user's graph: the example of docs/own-data.md, and one line per mistake."""

from __future__ import annotations

import csv
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fglbench.benchmark.cli import main
from fglbench.benchmark.cli.tune import _next as next_command
from fglbench.benchmark.runner.job import Options
from fglbench.benchmark.suites.select import CUSTOM, Request, select
from fglbench.benchmark.tune.session import Tuner, Wanted
from fglbench.datasets import DATASETS, PARTITIONS, SPLITS, build_federation, own_data
from fglbench.datasets.own_data import VARIABLE, announce, content_of, read
from fglbench.datasets.own_files import SHOWN
from fglbench.registry import UserError

DOC = Path(__file__).parents[2] / "docs" / "own-data.md"


def blocks() -> list[str]:
    """The indented blocks of the page."""
    matches = re.findall(r"(?:^    .*\n)+", DOC.read_text(), re.MULTILINE)
    return [textwrap.dedent(block) for block in matches]


@pytest.fixture
def villages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the page in the current folder."""
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setattr("fglbench.datasets.own_data._folders", {})
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "villages"
    folder.mkdir()
    nodes, edges = blocks()[:2]
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    return folder


def commands() -> list[list[str]]:
    return [block.split()[1:] for block in blocks() if block.startswith("fglbench run")]


def rows(folder: Path) -> list[dict[str, str]]:
    return [row for path in sorted(folder.glob("*/*.csv")) for row in csv.DictReader(path.open())]


@pytest.mark.usefixtures("in_process")
def test_the_worked_example_runs_as_it_is_printed(villages: Path, cli) -> None:
    with_own, registered = commands()
    cli(with_own)
    results = villages.parent / "runs" / "villages"
    stored = rows(results)
    assert len(stored) == 4
    assert {row["dataset"] for row in stored} == {"own:villages"}
    assert {row["suite"] for row in stored} == {CUSTOM}
    assert {(row["partition"], row["clients"], row["split"], row["source"]) for row in stored} == {
        ("own", "2", "fixed", "own")
    }
    assert all(row["dataset_fingerprint"][:16] in row["dataset_params"] for row in stored)
    assert str(villages) not in str(stored)  # the path is private
    cli(registered)
    assert [row["suite"] for row in rows(results)] == [CUSTOM] * 5
    assert "own:villages is the user's data, no registered dataset" in cli(f"validate {results}", 1)
    meta = [
        part for name in ("paper", "code", "licence", "hardware", "contact") for part in (f"--{name}", "https://a.b")
    ]
    assert main(["submit", "fedavg", "-s", CUSTOM, "--results", str(results), "--out", "packed", *meta]) != 0
    assert not Path("packed").exists()


def test_a_suite_of_another_task_keeps_its_split(villages: Path) -> None:
    name = announce(villages, print)
    for suite, task in (("links", "link-prediction"), ("leaderboard", "node")):
        cells = [cell for _, cell in select(Request(suites=(suite,), methods=("fedavg",), own_dataset=name))]
        assert {(cell.task, cell.partition.name) for cell in cells} == {(task, "own")}
    tuner = Tuner(Path("runs"), Path("chosen.yaml"), Options())
    assert next_command(Wanted("links", own_dataset=name), tuner).startswith("fglbench run -s links --data ")
    with pytest.raises(UserError, match="`fglbench tune -s node-3 -m fedavg --data FOLDER` makes them"):
        select(Request(suites=("node-3",), methods=("fedavg",), own_dataset=name))


def test_other_commands_find_the_folder_by_the_variable(villages: Path, monkeypatch: pytest.MonkeyPatch, cli) -> None:
    assignment, _, *command = blocks()[-1].split()
    monkeypatch.setenv(*assignment.split("=", 1))
    assert "own:villages passes the contract" in cli(command)


def test_documented_mistakes_are_those_reported(villages: Path) -> None:
    expected = next(block for block in blocks() if block.startswith("nodes.csv:")).splitlines()
    for path, before, after in (("nodes.csv", "fay,farmer,west,train,0.7,1.7", "fay,farmer,west,train,0.7,much"),
                                ("edges.csv", "bob,dot", "zoe,dot")):  # fmt: skip
        text = (villages / path).read_text()
        assert before in text
        (villages / path).write_text(text.replace(before, after))
    assert sorted(read(villages)[1]) == sorted(expected)


def test_clients_split_labels_and_edges_are_those_of_the_tables(villages: Path) -> None:
    data = DATASETS.build(announce(villages)).load()
    federation = build_federation(data, PARTITIONS.build("own"), SPLITS.build("fixed"), 2, 7)
    held = [client.graph.ndata["global_id"].tolist() for client in federation.clients]
    assert held == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert data.label.tolist() == [0, 1, 0, 1, 0, 0, 1, 1, 0, 1]  # farmer, fisher
    assert federation.masks["train"].nonzero().flatten().tolist() == [0, 1, 5, 6]
    assert federation.masks["val"].nonzero().flatten().tolist() == [2, 7]
    assert data.graph.num_edges() == 2 * 10
    assert [client.graph.num_edges() for client in federation.clients] == [2 * 4, 2 * 4]  # eve-fay and hal-bob are lost


def test_words_for_missing_values_can_be_names_and_labels(villages: Path) -> None:
    for path, swaps in (("nodes.csv", {"ann,": "NA,", "farmer": "null"}), ("edges.csv", {"ann": "NA"})):
        text = (villages / path).read_text()
        for before, after in swaps.items():
            assert before in text
            text = text.replace(before, after)
        (villages / path).write_text(text)
    data = DATASETS.build(announce(villages)).load()
    assert data.label.tolist() == [1, 0, 1, 0, 1, 1, 0, 0, 1, 0]  # fisher, null
    assert data.graph.num_edges() == 2 * 10


def test_a_label_of_more_digits_than_python_converts_is_a_mistake(villages: Path) -> None:
    nodes = villages / "nodes.csv"
    nodes.write_text(nodes.read_text().replace("farmer", "9" * 5000).replace("fisher", "10"))
    _, mistakes = read(villages)
    assert mistakes[0].startswith("nodes.csv:2: label '999") and mistakes[0].endswith("9 is no class; round it to one")
    assert len(mistakes[0]) < 120


def test_archive_and_tables_give_equal_content(villages: Path) -> None:
    tables, none = read(villages)
    assert none == []
    feat = tables["feat"]
    arrays = {"edges": tables["edges"][:, ::-1], "labels": tables["label"], "clients": tables["client"]}
    for part in ("train", "val", "test"):
        arrays[part] = np.isin(np.arange(10), tables[f"split_{part}"])
    for features in (feat, sp.csr_matrix(feat)):
        stored = {"features": features}
        if sp.issparse(features):
            stored = {f"features_{part}": getattr(features, part) for part in ("data", "indices", "indptr", "shape")}
        np.savez(villages / "graph.npz", **arrays, **stored)
        content, mistakes = read(villages)
        assert mistakes == []
        for name in ("edges", "label", "client", "split_train", "split_val", "split_test"):
            assert np.array_equal(content[name], tables[name]), name


@pytest.mark.parametrize(
    ("path", "before", "after", "line"),
    [
        ("nodes.csv", "node,label", "name,label", "nodes.csv:1: no column node"),
        ("nodes.csv", "bob,fisher", "ann,fisher", "nodes.csv:3: node 'ann' a second time"),
        ("nodes.csv", "dot,fisher,east,test", "dot,fisher,east,exam", "nodes.csv:5: split 'exam'"),
        ("nodes.csv", "cid,farmer,east", "cid,farmer,", "nodes.csv:4: a node without a client"),
        ("nodes.csv", "cid,farmer", "cid,", "nodes.csv:4: a node of the split without a label"),
        ("nodes.csv", "0.8,0.1", "0.8,inf", "nodes.csv:11: feature 'land' is 'inf'"),
        ("nodes.csv", "0.8,0.1", "0.8,0.1,9", "nodes.csv:11: 7 fields, the header has 6"),
        ("nodes.csv", "fisher", "farmer", "nodes.csv:2: all labels are 'farmer'; give at least 2 classes"),
        ("nodes.csv", ",train,", ",val,", "nodes.csv:2: the split has no training or no test node"),
        ("edges.csv", "gus,jon", "gus,joe", "edges.csv:9: node 'joe' is not in nodes.csv"),
        ("edges.csv", "source,target", "from,target", "edges.csv:1: no column source"),
        ("edges.csv", "ann,cid", "ann,cid,1", "edges.csv:2: 3 fields, the header has 2"),
        ("nodes.csv", "node,label", ",label", "nodes.csv:1: column 1 has no name"),
        ("nodes.csv", ",age,", ",Unnamed: 0,", "nodes.csv:1: column 5 has no name ('Unnamed: 0')"),
        ("nodes.csv", ",age,", ",land,", "nodes.csv:1: two columns 'land'"),
        ("nodes.csv", ",client,", ",Clients,", "nodes.csv:1: column 'Clients': is it 'client'"),
        ("nodes.csv", ",age,", ",train,", "nodes.csv:1: column 'train': write the parts into one column 'split'"),
        ("nodes.csv", ",age,", ",val_mask,", "nodes.csv:1: column 'val_mask': write the parts into one column 'split'"),
        ("nodes.csv", ",age,", ",labels,", "nodes.csv:1: column 'labels': is it 'label'?"),
        ("nodes.csv", ",age,", ",Label,", "nodes.csv:1: column 'Label': is it 'label'?"),
        ("nodes.csv", "cid,farmer,east", "cid,farmer,-1", "nodes.csv:4: a node without a client"),
        ("nodes.csv", "cid,farmer", "cid,unknown", "nodes.csv:4: a node of the split without a label"),
    ],
)
def test_each_mistake_is_one_line_with_place_value_and_fix(
    villages: Path, path: str, before: str, after: str, line: str
) -> None:
    text = (villages / path).read_text()
    assert before in text
    (villages / path).write_text(text.replace(before, after))
    content, mistakes = read(villages)
    assert content is None
    assert any(mistake.startswith(line) for mistake in mistakes), mistakes
    assert all("\n" not in mistake and "; " in mistake for mistake in mistakes)


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("edges", [[0, 1], [0, 4]], "graph.npz: edges[1]: [0, 4] for 4 nodes"),
        ("edges", [0, 1], "graph.npz: edges is int64 (2,) for N = 4"),
        ("features", [[1.0], [2.0]], "graph.npz: features is float64 (2, 1) for N = 4"),
        ("features", [[1.0], [2.0], [np.nan], [0.0]], "graph.npz: features[2]: a feature is not finite"),
        ("labels", [1.5, 1, 0, 0], "graph.npz: labels is float64"),
        ("clients", [0, 0, 1], "graph.npz: clients is int64 (3,)"),
        ("clients", [0, 0, 1, -1], "graph.npz: clients[3]: a node without a client"),
        ("test", [True, True, False, False], "graph.npz: test[0]: also in train"),
        ("test", [0, 1], "graph.npz: test is int64 (2,) for N = 4 labels; give true or false for each node (N,)"),
        (
            "test",
            [0, 0, 1, 1],
            "graph.npz: test is int64 (4,) for N = 4 labels; give true or false for each node (N,): test.astype(bool)",
        ),
        ("labels", [3, 3, 3, -1], "graph.npz: labels[0]: all labels are '3' (a negative number means no label)"),
        ("labels", None, "graph.npz: no array 'labels'"),
        ("features", None, "graph.npz: no array 'features'; "),
        (
            "edges",
            [[0, 1, 2], [1, 2, 3]],
            "graph.npz: edges is int64 (2, 3) for N = 4 labels; give whole numbers (M, 2): tr",
        ),
        ("clients", [{}, {}, {}, {}], "graph.npz: array 'clients' has Python objects"),
        ("train", "train_mask", "graph.npz: array 'train_mask': is it 'train'? rename it"),
        ("clients", "client", "graph.npz: array 'client': is it 'clients'? rename it"),
        ("edges", "edge_index", "graph.npz: array 'edge_index': is it 'edges'? rename it"),
        ("labels", "y", "graph.npz: array 'y': is it 'labels'? rename it"),
    ],
)
def test_each_mistake_of_an_archive_is_one_line(tmp_path: Path, name: str, value: object, line: str) -> None:
    """value: the array; None: no array; a text: the array's name instead."""
    arrays = {
        "edges": [[0, 1], [2, 3]], "features": [[1.0], [2.0], [3.0], [0.0]], "labels": [0, 1, 0, 1],
        "clients": [0, 0, 1, 1], "train": [True, False, True, False], "test": [False, True, False, True],
    }  # fmt: skip
    arrays |= {value: arrays.pop(name)} if isinstance(value, str) else {name: value}
    np.savez(tmp_path / "graph.npz", **{key: np.array(array) for key, array in arrays.items() if array is not None})
    content, mistakes = read(tmp_path)
    assert content is None
    assert mistakes[0].startswith(line), mistakes


def test_many_mistakes_of_a_kind_are_counted(villages: Path) -> None:
    with (villages / "edges.csv").open("a") as file:
        file.writelines(f"ann,nobody{i}\n" for i in range(SHOWN + 30))
    mistakes = read(villages)[1]
    assert len(mistakes) == SHOWN
    assert mistakes[-1].endswith("(and 30 more of the kind)")
    with pytest.raises(UserError, match=f": {SHOWN + 30} mistakes in the files"):
        announce(villages)


def test_content_error_has_the_first_mistake_and_the_count(villages: Path) -> None:
    (villages / "edges.csv").write_text("source,target\nann,zoe\n")
    with pytest.raises(UserError, match=r"edges\.csv:2: node 'zoe' is not in nodes\.csv; [^(]*$"):
        content_of(villages)
    (villages / "edges.csv").write_text("source,target\nann,zoe\nyan,ann\nann,xia\n")
    with pytest.raises(UserError, match=r"\(and 2 more mistakes\)$"):
        content_of(villages)


def test_run_lists_all_mistakes_and_runs_nothing(villages: Path, cli) -> None:
    (villages / "edges.csv").write_text("source,target\nann,zoe\nyan,ann\n")
    lines = cli("run --data villages -m fedavg", 2).splitlines()
    assert [line.split("; ")[0] for line in lines] == [
        "fglbench: edges.csv:2: node 'zoe' is not in nodes.csv",
        "fglbench: edges.csv:3: node 'yan' is not in nodes.csv",
        "fglbench: villages: 2 mistakes in the files",
    ]  # fmt: skip
    assert not Path("results").exists()


def test_unknown_folders_and_names_are_reported(villages: Path, cli) -> None:
    (villages.parent / "empty").mkdir()
    (villages.parent / "a b").mkdir()
    for folder, message in (
        ("nowhere", "no folder 'nowhere'"),
        ("a b", "cannot name a dataset"),
        ("empty", "neither nodes"),
    ):
        assert message in cli(["run", "--data", folder, "-m", "fedavg"], 2)
    announce(villages)
    with pytest.raises(UserError, match="unknown dataset 'own:village'; did you mean 'own:villages'"):
        DATASETS.build("own:village")


def test_an_edited_folder_is_another_cell(villages: Path) -> None:
    name = announce(villages)
    before = DATASETS.build(name)
    cells = [cell for _, cell in select(Request(datasets=(name,), methods=("fedavg",), seeds=(0,)))]
    (villages / "edges.csv").write_text("source,target\nann,bob\n")
    os.utime(villages / "edges.csv", (1, 1))
    after = [cell for _, cell in select(Request(datasets=(name,), methods=("fedavg",), seeds=(0,)))]
    assert {cell.key for cell in cells}.isdisjoint(cell.key for cell in after)
    with pytest.raises(UserError, match="has changed"):
        before.load()


def test_own_data_are_not_part_of_a_board(villages: Path) -> None:
    cells = select(Request(suites=("leaderboard",), datasets=("cora", announce(villages)), methods=("fedavg",)))
    filed = {(suite, cell.dataset.name) for suite, cell in cells}
    assert ("leaderboard", "own:villages") not in filed
    assert ("custom", "own:villages") in filed


def test_data_without_clients_refuse_the_partition(villages: Path) -> None:
    nodes = [line.split(",") for line in (villages / "nodes.csv").read_text().splitlines()]
    (villages / "nodes.csv").write_text("\n".join(",".join(line[:2] + line[3:]) for line in nodes))
    data = DATASETS.build(announce(villages)).load()
    with pytest.raises(UserError, match="comes without clients"):
        PARTITIONS.build("own")(data, 2, 0)


def test_an_array_or_column_that_is_not_used_is_named(villages: Path) -> None:
    text = (villages / "edges.csv").read_text()
    (villages / "edges.csv").write_text("\n".join(f"{line},weight" for line in text.splitlines()))
    content, mistakes = read(villages)
    assert content is not None
    assert [note for note in mistakes.notes if "weight" in note and "not used" in note]
    np.savez(villages / "graph.npz", edges=[[0, 1]], features=np.eye(2), labels=[0, 1], info=np.array([{}]))
    content, mistakes = read(villages)
    assert content is not None
    assert "nodes.csv not used" in mistakes.notes[0]
    assert "'info' not used" in mistakes.notes[1]


def test_a_row_number_is_no_feature(villages: Path) -> None:
    text = (villages / "nodes.csv").read_text().splitlines()
    numbered = ["index," + text[0], *(f"{i},{line}" for i, line in enumerate(text[1:]))]
    (villages / "nodes.csv").write_text("\n".join(numbered))
    assert read(villages)[1] == ["nodes.csv:1: column 'index' is the row number, not a feature; remove it"]
    shuffled = ["index," + text[0], *(f"{i * 7 % 10},{line}" for i, line in enumerate(text[1:]))]
    (villages / "nodes.csv").write_text("\n".join(shuffled))
    content = read(villages)[0]
    assert content["feat"].shape == (10, 3)


@pytest.mark.parametrize("word", ["", "-1", "-1.0", "nan", "NaN", "unknown", "Unknown"])
def test_each_word_for_no_label_makes_no_class(villages: Path, word: str) -> None:
    nodes = [line.split(",") for line in (villages / "nodes.csv").read_text().splitlines()]
    lines = [[*line[:1], word if line[0] in ("eve", "jon") else line[1], *line[4:]] for line in nodes]
    (villages / "nodes.csv").write_text("\n".join(map(",".join, lines)))
    data = DATASETS.build(announce(villages)).load()
    assert data.num_classes == 2
    assert data.label.tolist() == [0, 1, 0, 1, -1, 0, 1, 1, 0, -1]


@pytest.mark.parametrize("word", ["NA", "N/A", "<NA>", "none", "Null", "?", "-", "unlabeled"])
def test_words_for_missing_labels_depend_on_the_other_labels(villages: Path, word: str) -> None:
    text = (villages / "nodes.csv").read_text()
    text = text.replace("ida,farmer,west,test", f"ida,{word},west,")
    (villages / "nodes.csv").write_text(text)
    content, mistakes = read(villages)
    assert set(content["label"].tolist()) == {0, 1, 2}
    assert f"nodes.csv:10: label {word!r} is a class; leave it empty where a node has no label" in mistakes.notes
    numbers = text.replace("farmer", "3").replace("fisher", "+7")
    (villages / "nodes.csv").write_text(numbers)
    content, mistakes = read(villages)
    assert content["label"].tolist() == [0, 1, 0, 1, 0, 0, 1, 1, -1, 1]
    assert [note for note in mistakes.notes if "1 node without a label" in note]


def test_a_feature_that_counts_the_lines_is_noted(villages: Path) -> None:
    text = (villages / "nodes.csv").read_text().splitlines()
    lines = [f"id,{text[0]}", *(f"{i},{each}" for i, each in enumerate(text[1:]))]
    (villages / "nodes.csv").write_text("\n".join(lines))
    content, mistakes = read(villages)
    assert content is not None
    assert mistakes.notes == ["nodes.csv:1: feature 'id' counts the lines; remove it if it is a row number"]


def test_a_class_for_almost_every_node_is_noted(villages: Path) -> None:
    nodes = [f"{i},{i % 12},0.5" for i in range(20)]
    (villages / "nodes.csv").write_text("\n".join(["node,label,land", *nodes]) + "\n")
    (villages / "edges.csv").write_text("source,target\n0,1\n")
    assert [note for note in read(villages)[1].notes if "12 classes for 20 nodes" in note]
    (villages / "nodes.csv").write_text(
        (villages / "nodes.csv").read_text() + "\n".join(f"{i},1,0.5" for i in range(20, 24))
    )
    assert not [note for note in read(villages)[1].notes if "classes for" in note]  # half as many classes


def test_tables_may_have_no_edge(villages: Path) -> None:
    (villages / "edges.csv").write_text("source,target\n")
    content, mistakes = read(villages)
    assert mistakes == []
    assert content["edges"].shape == (0, 2)
    (villages / "edges.csv").write_text("")
    assert read(villages)[1] == ["edges.csv: no line and not even the header; write one line per edge"]


def test_features_are_given_once(tmp_path: Path) -> None:
    parts = {
        f"features_{part}": getattr(sp.eye(2, format="csr"), part) for part in ("data", "indices", "indptr", "shape")
    }
    np.savez(tmp_path / "graph.npz", edges=[[0, 1]], labels=[0, 1], features=np.eye(2), **parts)
    assert read(tmp_path)[1] == ["graph.npz: features as one array and as features_data, ...; keep one of both"]


def test_whole_numbers_of_an_archive_are_labels_of_any_type(tmp_path: Path) -> None:
    for labels in ([0, 1, -1, 1], [0.0, 1.0, np.nan, 1.0], ["0", "1", "unknown", "1"]):
        np.savez(tmp_path / "graph.npz", edges=[[0, 1]], features=np.eye(4), labels=np.array(labels))
        content = content_of(tmp_path)
        assert content["label"].tolist() == [0, 1, -1, 1]


@pytest.mark.parametrize(
    ("part", "change", "line"),
    [
        ("indices", lambda a: a + 1, "features_indices has 3 for 3 columns"),
        ("indices", lambda a: a - 1, "features_indices has -1 for 3 columns"),
        ("indices", lambda a: np.where(a == 2, 10**6, a), "features_indices has 1000000 for 3 columns"),
        ("indices", lambda a: a + 0.7, "features_indices is float64 (4,)"),
        ("indptr", lambda a: np.where(a == 2, 50, a), "features_indptr must go from 0 to 4 and never fall"),
        ("indptr", lambda a: a[:-1], "features_indptr has 4 numbers for 4 rows"),
        ("data", lambda a: a[:-1], "features_indices has 4 numbers and features_data 3"),
        ("shape", lambda a: a[:1], "features_shape is [4]"),
        ("shape", lambda a: np.array([4, 2**31]), "features_shape has 2147483648 columns; fewer than 2147483648 can"),
    ],
)
def test_parts_that_are_no_csr_matrix_are_named(tmp_path: Path, part: str, change: object, line: str) -> None:
    matrix = sp.csr_matrix(np.array([[1.0, 0, 0], [0, 0, 2], [0, 3, 0], [0, 0, 4]]))
    parts = {name: np.array(getattr(matrix, name)) for name in ("data", "indices", "indptr", "shape")}
    arrays = {"edges": np.array([[0, 1]]), "labels": np.array([0, 1, 0, 1])}
    np.savez(tmp_path / "graph.npz", **arrays, **{f"features_{name}": value for name, value in parts.items()})
    assert content_of(tmp_path)["feat_indices"].tolist() == [0, 2, 1, 2]
    parts[part] = change(parts[part])
    np.savez(tmp_path / "graph.npz", **arrays, **{f"features_{name}": value for name, value in parts.items()})
    content, mistakes = read(tmp_path)
    assert content is None
    assert line in mistakes[0], mistakes


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_another_encoding_is_named_with_its_fix(villages: Path, encoding: str) -> None:
    path = villages / "nodes.csv"
    path.write_bytes(path.read_text().replace("ann", "änn").encode(encoding))
    assert len(read(villages)[1]) == 1
    assert re.fullmatch(r"nodes\.csv: byte 0x.. at \d+ is not UTF-8; save .*UTF-8", read(villages)[1][0])


def test_empty_lines_are_ignored(villages: Path) -> None:
    before = content_of(villages)
    for path in (villages / "nodes.csv", villages / "edges.csv"):
        path.write_text(path.read_text().replace("\n", "\n\n") + "\n  \n,,\n")
    after = content_of(villages)
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.usefixtures("in_process")
def test_a_path_may_have_a_colon_or_a_tilde(villages: Path, monkeypatch: pytest.MonkeyPatch, cli) -> None:
    folder = villages.parent / "run_12:00:00"
    folder.mkdir()
    villages = villages.rename(folder / "villages")
    monkeypatch.setenv("HOME", str(folder))
    command = ["run", "--data", str(villages), "-m", "fedavg", "--seeds", "1", "--set", "training.rounds=1"]
    cli([*command, "--results", "~/rows"])
    assert len(rows(folder / "rows")) == 1
    monkeypatch.setattr(own_data, "_folders", {})
    for value in (str(villages), "~/villages"):
        monkeypatch.setenv(VARIABLE, value)
        assert DATASETS.build("own:villages").load().num_classes == 2
    monkeypatch.setenv(VARIABLE, str(folder / "gone"))
    with pytest.raises(UserError, match=r"there is no folder '.*gone'"):
        DATASETS.build("own:gone")


def test_content_travels_to_a_machine_without_the_folder(villages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = announce(villages)
    here = DATASETS.build(name)
    package = own_data.packed(name)
    assert package is not None
    assert own_data.packed("csbm") is None
    monkeypatch.setattr(own_data, "_folders", {})
    monkeypatch.setattr(own_data, "_received", {})
    with pytest.raises(UserError, match="unknown dataset"):
        DATASETS.build(name)
    own_data.keep(*package)
    there = DATASETS.build(name, {"sha256": here.sha256})
    assert there.load().fingerprint == here.load().fingerprint
    with pytest.raises(UserError, match="has changed"):
        DATASETS.build(name, {"sha256": "0" * 16}).load()


def test_louvain_needs_edges(villages: Path) -> None:
    (villages / "edges.csv").write_text("source,target\nann,ann\n")
    data = DATASETS.build(announce(villages)).load()
    with pytest.raises(UserError, match="'own:villages' has no edges, so no communities; choose uniform"):
        PARTITIONS.build("louvain")(data, 2, 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [("farmer", "Farmer"), ("farmer", "farmer\u200b"), ("b\u00fc", "bu\u0308"), ("1", "01"), ("1", "1e0"), ("0", "-0")],
)
def test_almost_equal_class_names_are_noted(villages: Path, one: str, other: str) -> None:
    text = (villages / "nodes.csv").read_text().replace("fisher", "2" if one.isdigit() else "fisher")
    text = text.replace("farmer", one).replace(f"ida,{one}", f"ida,{other}")
    (villages / "nodes.csv").write_text(text)
    content, mistakes = read(villages)
    assert content is not None and content["label"].max() == 2  # as it is written
    notes = [note for note in mistakes.notes if "are different classes; write them alike if they are one" in note]
    assert len(notes) == 1 and ascii(one) in notes[0] and ascii(other) in notes[0]


@pytest.mark.parametrize("what", ["label", "split"])
def test_features_that_leak_label_or_split_are_noted(villages: Path, what: str) -> None:
    path = villages / "nodes.csv"
    assert not [note for note in read(villages)[1].notes if "follows from" in note]
    header, *lines = path.read_text().splitlines()
    column = header.split(",").index(what)
    codes = {"farmer": 7, "fisher": 3, "train": 0, "val": 1, "test": 1}
    table = [f"{header},outcome", *(f"{line},{codes[line.split(',')[column]]}" for line in lines)]
    path.write_text("\n".join(table))
    notes = [note for note in read(villages)[1].notes if "follows from" in note]
    fix = f"remove it if it was made from the {what}"
    assert notes == [f"nodes.csv: feature 'outcome' follows from the {what} at every node that has one; {fix}"]
    path.write_text("\n".join([*table[:-1], table[-1][:-1] + "9"]))  # one node departs
    assert not [note for note in read(villages)[1].notes if "follows from" in note]


@pytest.mark.parametrize(
    ("start", "kind"), [(b"PK\x03\x04\x91", "spreadsheet or zip archive"), (b"\x1f\x8b\x08", "gzip archive")]
)
def test_a_file_that_is_no_text_is_named(villages: Path, start: bytes, kind: str) -> None:
    (villages / "nodes.csv").write_bytes(start)
    assert read(villages)[1] == [f"nodes.csv: a {kind}, not a table; write it as comma-separated text in UTF-8"]


def test_a_metric_beside_links_is_refused_in_the_plan(villages: Path, cli) -> None:
    error = cli(f"run --data {villages} --split links -m fedavg --metric macro-f1 --dry-run", 2)
    assert "split 'links' has its own measure, not macro-f1: leave out --metric" in error


def test_files_of_other_names_and_links_to_nothing(villages: Path) -> None:
    (villages / ".#nodes.csv").symlink_to("user@host.123")  # lock file of an editor
    assert announce(villages) == "own:villages"
    (villages / "nodes.csv").rename(villages / "Nodes.csv")
    assert "but .#nodes.csv, Nodes.csv, edges.csv; put either" in read(villages)[1][0]
    (villages / "nodes.csv").symlink_to("nodes.csv")
    with pytest.raises(UserError, match="1 mistake in the files"):
        announce(villages)


@pytest.mark.parametrize("setting", ["training.lrr=1", "trainin.lr=1", "lr"])
def test_a_mistyped_setting_is_refused_before_own_data_is_read(
    setting: str, monkeypatch: pytest.MonkeyPatch, cli, tmp_path: Path
) -> None:
    monkeypatch.setattr(own_data, "announce", lambda *_: pytest.fail("the data were read"))
    assert "--set" in cli(["run", "--data", str(tmp_path), "-m", "fedavg", "--set", setting], 2)
