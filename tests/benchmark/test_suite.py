"""Suites and selections: from YAML and options to cells."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.store.row_file import RESERVED
from fglbench.benchmark.suites import suite as suites
from fglbench.benchmark.suites.cell import Cell
from fglbench.benchmark.suites.select import Request, select
from fglbench.benchmark.suites.suite import load_suite, parse_suite, suite_names
from fglbench.benchmark.tune.session import Wanted, studies
from fglbench.methods import METHODS
from fglbench.registry import UserError

TEXT = """\
description: a suite
training: {rounds: 7}
cross:
  - datasets:
      - cora
      - {name: csbm, params: {nodes: 90}, training: {rounds: 5, lr: 0.2}, clients: 3}
    partitions: [louvain, uniform]
    clients: [5, 10]
    splits: {name: ratio, params: {train: 0.2, val: 0.4, test: 0.4}}
    backbones: [gcn, [gcn, sage]]
    methods:
      - local
      - {name: fedprox, params: {mu: 0.5}, backbones: mlp, training: {lr: 0.3}}
    seeds: 2
    training: {local_epochs: 2}
  - {datasets: cora, partitions: uniform, clients: 2, splits: ratio, backbones: gcn+mlp, methods: local, seeds: [9]}
"""
PATH = Path("made.yaml")


@pytest.fixture
def suite():
    return parse_suite(TEXT, PATH)


@pytest.fixture
def suite_file(tmp_path):
    path = tmp_path / "made.yaml"
    path.write_text(TEXT)
    return str(path)


def test_a_block_is_the_product_of_its_axes(suite):
    cells = suite.cells()
    # cora: 2 partitions x 2 client counts x 2 seeds x (local on 2 backbones + fedprox on its own); csbm: 1 client count
    assert len(cells) == 2 * 2 * 2 * 3 + 2 * 1 * 2 * 3 + 1
    assert len({cell.key for cell in cells}) == len(cells)
    assert {cell.clients for cell in cells if cell.dataset.name == "csbm"} == {3}
    assert {cell.backbone for cell in cells if cell.method.name == "fedprox"} == {"mlp"}
    assert {cell.backbone for cell in cells if cell.method.name == "local"} == {"gcn", "gcn+sage", "gcn+mlp"}
    assert [(c.seed, c.clients) for c in cells if c.backbone == "gcn+mlp"] == [(9, 2)]


def test_training_settings_merge_and_the_last_one_wins(suite):
    settings = {(c.dataset.name, c.method.name): c.training for c in suite.cells() if c.seed < 9}
    assert {key: (t.rounds, t.local_epochs, t.lr) for key, t in settings.items()} == {
        ("cora", "local"): (7, 2, 0.01),
        ("cora", "fedprox"): (7, 2, 0.3),
        ("csbm", "local"): (5, 2, 0.2),
        ("csbm", "fedprox"): (5, 2, 0.3),
    }


def test_consecutive_cells_have_one_federation(suite):
    keys = [cell.federation_key for cell in suite.cells()]
    changes = sum(first != second for first, second in pairwise(keys))
    assert changes == len(set(keys)) - 1


def test_keys_do_not_depend_on_spelled_defaults(suite):
    spelled = TEXT.replace("splits: ratio", f"splits: {{name: ratio, params: {ratio_defaults()}}}").replace(
        "methods: local", "methods: {name: local, params: {}}"
    )
    assert [c.key for c in parse_suite(spelled, PATH).cells()] == [c.key for c in suite.cells()]
    other = {cell.key for cell in parse_suite(TEXT.replace("mu: 0.5", "mu: 0.25"), PATH).cells()}
    unchanged = {cell.key for cell in suite.cells() if cell.method.name == "local"}
    assert other & {cell.key for cell in suite.cells()} == unchanged


def test_a_method_may_fix_its_architecture():
    text = TEXT.replace("methods: local, seeds: [9]", "methods: fedmlp, seeds: [9]")
    (cell,) = [cell for cell in parse_suite(text, PATH).cells() if cell.method.name == "fedmlp"]
    assert cell.backbone == "mlp+mlp"


@pytest.mark.parametrize("method", METHODS.names())
def test_each_method_runs_on_a_registered_architecture(method):
    text = TEXT.replace("gcn+mlp, methods: local", f"gin, methods: {method}")
    cell = parse_suite(text, PATH).cells()[-1]
    assert cell.method.name == method
    assert all(choice.build(BACKBONES).params() == choice.params for choice in cell.backbones)


def ratio_defaults():
    from fglbench.datasets import SPLITS

    return yaml.safe_dump(SPLITS.build("ratio").params(), default_flow_style=True).strip()


def test_a_key_survives_a_round_trip(suite):
    for cell in suite.cells():
        assert Cell.model_validate_json(cell.model_dump_json()).key == cell.key


def test_a_method_may_set_its_own_training():
    text = TEXT.replace("methods: local, seeds: [9]", "methods: scaffold, seeds: [9]")
    (cell,) = [cell for cell in parse_suite(text, PATH).cells() if cell.method.name == "scaffold"]
    assert (cell.training.optimiser, cell.training.lr) == ("sgd", cell.method.params["lr"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("description:", "desciption:", "made.yaml:1: unknown key 'desciption'; did you mean 'description'?"),
        ("    partitions: [", "    partitons: [", "made.yaml:7: unknown key 'partitons'; did you mean 'partit"),
        (
            "      - {name: csbm",
            "      - {\n         nme: csbm",
            "made.yaml:7: unknown key 'nme'; did you mean 'name'?",
        ),
        ("clients: 3}", "client: 3}", "made.yaml:6: unknown key 'client'; did you mean 'clients'?"),
        ("      - cora", "      - coraa", "made.yaml:5: cross.datasets: unknown dataset 'coraa'; did you mean 'cora'?"),
        (
            "nodes: 90",
            "nods: 90",
            "made.yaml:6: cross.datasets: dataset 'csbm': unknown parameter 'nods'; did you mean",
        ),
        ("mu: 0.5", "mu: much", "made.yaml:13: cross.methods: method 'fedprox': mu: input should be a valid number"),
        ("[5, 10]", "[5, 0]", "made.yaml:8: cross.clients: input should be greater than or equal to 1, got 0"),
        ("seeds: 2", "seeds: []", "made.yaml:14: cross.seeds: value should have at least 1 item"),
        ("[gcn, sage]]", "[gcn, sagee]]", "made.yaml:10: cross.backbones: unknown backbone 'sagee'; did you"),
        ("rounds: 7", "round: 7", "made.yaml:2: training: training: unknown parameter 'round'; did you mean 'rounds'?"),
        ("{rounds: 7}", "{rounds: 7", "made.yaml:3: not valid YAML"),
        ("description: a suite\n", "", "made.yaml:1: description: Field required"),
        ("description: a suite", "name: other", "made.yaml: a suite is named after its file"),
    ],
)
def test_a_typo_is_one_line_with_its_place(old, new, message):
    assert old in TEXT
    with pytest.raises(UserError) as caught:
        parse_suite(TEXT.replace(old, new, 1), PATH)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_shipped_suites_are_sound():
    assert {"quick", "leaderboard"} <= set(suite_names())
    all_cells = {name: load_suite(name).cells() for name in suite_names()}
    assert all(all_cells.values())
    cells = all_cells["leaderboard"]
    assert {(c.clients, c.partition.name, c.training.rounds, c.training.local_epochs) for c in cells} == {
        (10, "louvain", 100, 3)
    }
    architectures = {
        "fedmlp": "mlp",
        "fedsage": "sage",
        "fedsage+": "sage",
        "feddep": "sage",
        "fedlog": "sage",
        "fedomd": "ortho-gcn",
    }  # methods that fix the architecture
    assert all(c.backbone == architectures.get(c.method.name, "gcn") for c in cells)
    assert {c.backbones[0].params["hidden"] for c in cells} == {64}
    seeds: dict[str, set[int]] = {}
    for cell in cells:
        seeds.setdefault(cell.dataset.name, set()).add(cell.seed)
    largest = {"coauthor-cs", "coauthor-physics", "ogbn-arxiv"}
    assert largest < seeds.keys()
    assert all(numbers == set(range(3 if name in largest else 5)) for name, numbers in seeds.items())
    used = {str(choice): choice for cells in all_cells.values() for cell in cells for choice in cell.backbones}
    assert len(used) > 10  # a worker builds the recorded parameters again
    assert all(choice.build(BACKBONES).params() == choice.params for choice in used.values())


@pytest.mark.parametrize("name", ["natural", "natural-3", "natural-graphs", "natural-graphs-3"])
def test_clients_of_the_natural_suites_come_with_the_data(name):
    cells = list(load_suite(name).at_own_settings().cells())
    methods = {}
    for cell in cells:
        methods.setdefault((cell.dataset.name, cell.partition.name, cell.clients), set()).add(cell.method.name)
    if "graphs" in name:
        assert len(methods) == 4 and min(map(len, methods.values())) >= 12
        assert all(partition == "own" and clients == len(data.split("+")) for data, partition, clients in methods)
        assert all(cell.dataset.params["features"] == "first" for cell in cells)
    else:
        assert set(methods) == {("twitch", "source", 7), ("citation-sources", "source", 3)}
        assert min(map(len, methods.values())) >= 25
    assert {cell.seed for cell in cells} == {0, 1, 2, 3, 4}


# -- selection -------------------------------------------------------------------------------------------------------


def chosen(suite_file, **request):
    return select(Request(suites=(suite_file,), **request))


def test_names_select_cells_of_the_suite(suite_file):
    selected = chosen(suite_file, methods=("fedprox",), datasets=("cora",), clients=(5,), partitions=("louvain",))
    assert {name for name, _ in selected} == {"made"}
    assert [(c.method.params["mu"], c.clients, c.partition.name, c.seed) for _, c in selected] == [
        (0.5, 5, "louvain", 0), (0.5, 5, "louvain", 1),
    ]  # fmt: skip


def test_new_methods_and_datasets_are_added_to_a_suite(suite_file):
    selected = chosen(suite_file, methods=("fedproto",), datasets=("pubmed",), seeds=(0,))
    assert {(name, c.method.name, c.dataset.name) for name, c in selected} == {("made", "fedproto", "pubmed")}
    assert sorted({cell.training.local_epochs for _, cell in selected}) == [2, 3]  # each block keeps its training


def test_a_departure_from_the_protocol_is_custom(suite_file):
    assert {name for name, _ in chosen(suite_file, clients=(4,))} == {"custom"}
    assert {name for name, _ in chosen(suite_file, backbones=("gat",))} == {"custom"}
    assert {name for name, _ in chosen(suite_file, settings=("rounds=3",))} == {"custom"}
    assert {name for name, _ in chosen(suite_file, seeds=(7, 8))} == {"made"}


def test_an_override_of_a_dataset_gives_way_to_an_option(suite_file):
    selected = chosen(suite_file, clients=(3,))
    assert {(name, c.dataset.name) for name, c in selected} == {("made", "csbm")}
    assert {c.clients for _, c in chosen(suite_file, clients=(4,))} == {4}
    assert {name for name, _ in chosen(suite_file, datasets=("cora",), clients=(3,))} == {"custom"}


def test_settings_reach_every_part_that_has_them(suite_file):
    settings = ("training.lr=1e-3", "backbone.hidden=8", "mu=2", "nodes=70")
    changed = [cell for _, cell in chosen(suite_file, settings=settings)]
    plain = [cell for _, cell in chosen(suite_file)]
    assert len(changed) == len(plain)
    for cell, before in zip(changed, plain, strict=True):
        assert cell.training.lr == 0.001
        assert {backbone.params["hidden"] for backbone in cell.backbones} == {8}
        assert cell.method.params.get("mu", 2.0) == 2.0
        assert cell.dataset.params.get("nodes", 70) == 70
        assert cell.key != before.key


def test_former_names_of_settings_are_accepted_and_written(suite_file):
    former = {"select": "last", "model": "personal", "data": "global"}
    current = {"select_by": "last", "score_model": "personal", "score_on": "global"}
    old, new = (
        chosen(suite_file, settings=[f"training.{k}={v}" for k, v in names.items()]) for names in (former, current)
    )
    assert old == new and {cell.training.score_on for _, cell in new} == {"global"}
    for _, cell in new:
        written = cell.training.params()
        assert former.items() <= written.items() and not current.keys() & written.keys()
        assert type(cell.training)(**written) == cell.training


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"settings": ("round=3",)}, "unknown parameter of --set 'round'; did you mean 'rounds'?"),
        ({"settings": ("method.lr=3",)}, "unknown method parameter of --set 'lr'"),
        ({"settings": ("trainin.lr=3",)}, "unknown section of --set 'trainin'; did you mean 'training'?"),
        ({"settings": ("lr",)}, "--set wants key=value"),
        (
            {"settings": ("training.scoreon=global",)},
            "unknown training parameter of --set 'scoreon'; did you mean 'score_on'?",
        ),
        ({"settings": ("training.lr=fast",)}, "training: lr: input should be a valid number"),
        ({"settings": ("mu=-1",)}, "method 'fedprox': mu: input should be greater than or equal to 0"),
        ({"settings": ("seed=3",)}, None),
        ({"methods": ("fedav",)}, "unknown method 'fedav'; did you mean 'fedavg'?"),
        ({"datasets": ("coro",)}, "unknown dataset 'coro'; did you mean 'cora'?"),
        ({"backbones": ("gcn+gta",)}, "unknown backbone 'gta'; did you mean 'gat'?"),
        ({"clients": (0,)}, "clients: input should be greater than or equal to 1, got 0"),
        ({"quick": True}, "--quick is the suite 'quick'"),
        ({"quick": True, "all_suites": True}, "--quick is the suite 'quick', --all is every"),
        ({"all_suites": True}, "--all is every leaderboard suite"),
    ],
)
def test_wrong_requests_are_one_line(suite_file, request_, message):
    if message is None:  # csbm has the only parameter of that name
        assert chosen(suite_file, **request_)
        return
    with pytest.raises(UserError) as caught:
        chosen(suite_file, **request_)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_setting_that_two_sections_have_must_name_its_section(suite_file):
    with pytest.raises(UserError, match=r"--set lr: ambiguous; say training.lr or method.lr"):
        chosen(suite_file, methods=("scaffold",), settings=("lr=1",))
    with pytest.warns(UserWarning, match="training.lr has no effect on scaffold"):
        chosen(suite_file, methods=("scaffold",), datasets=("cora",), settings=("training.lr=0.3",))


def test_the_default_suite_is_the_leaderboard():
    selected = select(Request(methods=("fedavg",), datasets=("cora",)))
    assert {name for name, _ in selected} == {"leaderboard"}
    assert len(selected) == 5
    with pytest.raises(UserError, match="say what to run"):
        select(Request())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("quick.yaml", "the benchmark has a suite 'quick'; rename the file"),
        ("Leaderboard.yml", "the benchmark has a suite 'Leaderboard'; rename the file"),
        *((f"{name}.yaml", f"rows cannot be filed under {name!r}; rename") for name in sorted(RESERVED | {"custom"})),
        (".hidden.yaml", "rows cannot be filed under '.hidden'; rename"),
        ("two words.yaml", "rows cannot be filed under 'two words'; rename"),
        ("-x.yaml", "rows cannot be filed under '-x'; rename"),
        ("x" * 150 + ".yaml", "rows cannot be filed under 'xxx"),
    ],
)
def test_a_suite_file_must_not_have_a_reserved_name(tmp_path, name, message):
    text = (suites.FOLDER / "quick.yaml").read_text()
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as error:
        load_suite(str(tmp_path / name))
    assert str(error.value).startswith(f"{tmp_path / name}: {message}")
    assert load_suite(str(suites.FOLDER / "quick.yaml")) == load_suite("quick")  # the file itself


def test_a_suite_file_is_a_small_file_without_a_key_given_twice(tmp_path):
    path = tmp_path / "mine.yaml"
    with pytest.raises(UserError, match="no suite file"):
        load_suite(str(path))
    path.write_text("description: x\ndescription: y\n")
    with pytest.raises(UserError, match=r"mine\.yaml:2: not valid YAML: the key 'description' is given twice"):
        load_suite(str(path))
    path.write_text("#" * (suites.LARGEST + 1))
    with pytest.raises(UserError, match="is larger than 256 KiB"):
        load_suite(str(path))
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match=r"cannot read suite file '.*mine\.yaml': Is a directory"):
        load_suite(str(path))


def test_the_node_board_has_one_stopping_rule_and_tunes_on_ten_louvain_clients() -> None:
    suite = load_suite("node")
    cells = suite.cells()
    tasks = {(cell.dataset.name, cell.partition.name, cell.clients) for cell in cells}
    assert len(tasks) == 22 and {clients for *_, clients in tasks} == {5, 10, 20}
    assert {partition for _, partition, _ in tasks} == {"louvain", "label-dirichlet", "metis"}
    methods = [method for block in suite.cross for method in block.methods]
    assert {method.name for method in methods if not method.tuned} == {"majority"}
    studied = [study.cell for group in studies(Wanted("node", methods=("fedavg",))).values() for study in group]
    assert len({cell.dataset.name for cell in studied}) == 16
    assert {(cell.partition.name, cell.clients) for cell in studied} == {("louvain", 10)}
    assert {(cell.training.rounds, cell.training.patience) for cell in cells + studied} == {(400, 40)}
