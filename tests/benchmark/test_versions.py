"""Versions of methods: what changes them, what does not, and which of the stored ones stand for today's."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from fglbench.benchmark.store import Store, versions
from fglbench.benchmark.store.closure import reader, source_hash
from fglbench.benchmark.store.versions import OWN, Equal, Versions, source_version
from fglbench.methods import METHODS
from fglbench.registry import UserError

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"

Edit = Callable[[str, str], str]  # module, text -> text


def ours() -> list[str]:
    """The package's own methods; another test of the same process may have registered others."""
    return [name for name in METHODS.names() if METHODS.is_own(METHODS.cls(name))]


def hashes(edit: Edit = lambda module, text: text) -> dict[str, str | None]:
    """The version of every method, with the sources changed on their way."""

    def source(module: str) -> tuple[str, bool] | None:
        found = versions._text(module) if module.startswith(OWN) else None
        return None if found is None else (edit(module, found[0]), found[1])

    read = reader(source)
    classes = {name: METHODS.cls(name) for name in ours()}
    return {name: source_hash(read, cls.__module__, cls.__qualname__) for name, cls in classes.items()}


@pytest.fixture(scope="module")
def plain() -> dict[str, str | None]:
    return hashes()


def changed(plain: dict[str, str | None], edit: Edit) -> set[str]:
    return {name for name, version in hashes(edit).items() if version != plain[name]}


def replaced(end: str, old: str, new: str) -> Edit:
    """An edit of the module whose name ends so; the old text must be there."""

    def edit(module: str, text: str) -> str:
        if not module.endswith(end):
            return text
        assert old in text
        return text.replace(old, new)

    return edit


def test_every_method_has_a_version_of_its_own(plain: dict[str, str | None]) -> None:
    assert plain == {name: source_version(METHODS.cls(name)) for name in ours()}
    assert None not in plain.values()
    assert len(set(plain.values())) == len(plain)


def test_a_changed_helper_changes_exactly_its_users(plain: dict[str, str | None]) -> None:
    """By hand: MOON's contrast is a function that MOON alone calls, FedOMD's moments serve FedOMD and its ablations."""
    contrast = replaced("parts.contrast", "def model_contrast(", "def model_contrast(unused=0, *, ")
    assert changed(plain, contrast) == {"moon"}
    moments = replaced("methods.fedomd.moments", "span ** -torch", "span ** -2 * torch")
    assert changed(plain, moments) == {"fedomd", "fedomd-cmd", "fedomd-ortho"} - {
        name for name in ("fedomd-cmd", "fedomd-ortho") if "fedomd" not in METHODS.cls(name).__module__
    }


def test_a_changed_ancestor_changes_all_who_inherit(plain: dict[str, str | None]) -> None:
    fedavg = replaced("methods.fedavg", "cohort.load(cohort.received", "cohort.load(1 * cohort.received")
    cls = METHODS.cls("fedavg")
    heirs = {name for name in ours() if issubclass(METHODS.cls(name), cls)}
    assert changed(plain, fedavg) == heirs


def test_an_encoder_belongs_to_the_papers_that_use_it(plain: dict[str, str | None]) -> None:
    encoders = replaced("encoders", "class GINEncoder(Encoder):", "class GINEncoder(Encoder):\n    more = 1\n")
    assert changed(plain, encoders) == {
        "infograph-fedavg", "infograph-fedprox", "fclg", "fclg-h", "intra-fedavg", "intra-kl", "intra-mse",
    }  # fmt: skip


def reworded(module: str, text: str) -> str:
    """Other docstrings, comments, descriptions and import lines."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            parent = [n for n in ast.walk(tree) if isinstance(n, ast.Expr) and n.value is node]
            if parent:
                node.value = "Another text."
        if isinstance(node, ast.keyword) and node.arg == "description":
            node.value = ast.Constant("Another text.")
    return "import os as nobody_needs_this\n# a comment\n" + ast.unparse(tree)


def test_wording_changes_nothing(plain: dict[str, str | None]) -> None:
    assert changed(plain, reworded) == set()


def test_moving_a_definition_changes_nothing() -> None:
    one = {
        "p.a": "from .b import half\nSCALE = 2\n\nclass M:\n    def f(self, x: int) -> int:\n"
        "        return half(x) * SCALE\n",
        "p.b": "def half(x):\n    return x / 2\n",
    }
    other = {
        "p.a": "from .c import M\n",
        "p.c": "from .d import half\nfrom .b import SCALE\n\nclass M:\n    'Says something.'\n    def f(self, x):\n"
        "        return half(x) * SCALE\n",
        "p.b": "SCALE = 2\n",
        "p.d": "def half(x: float):\n    with section('timed'):\n        return x / 2\n",
    }

    def version(files: dict[str, str]) -> str | None:
        return source_hash(reader(lambda m: (files[m], False) if m in files else None), "p.a", "M")

    assert version(one) == version(other) is not None
    assert version(one) != version({**one, "p.b": "def half(x):\n    return x / 3\n"})
    assert version(one) != version({**one, "p.a": one["p.a"].replace("SCALE = 2", "SCALE = 3")})
    assert source_hash(reader(lambda m: (one[m], False) if m in one else None), "p.a", "Nobody") is None


def test_a_module_that_nobody_imported_is_read_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "lies_there.py").write_text("raise SystemExit\n")
    assert versions._text("lies_there") == ("raise SystemExit\n", False)
    assert versions._text("lies_nowhere") is None


def test_saying_what_a_class_is_for_changes_no_version() -> None:
    head = "class M:\n    graphwise = True\n    rate = 2\n\n"
    text = head + "    def f(self):\n        graphwise = 1\n        return graphwise\n"

    def version(own: str) -> str | None:
        return source_hash(reader(lambda m: (own, False) if m == "p.a" else None), "p.a", "M")

    assert version(text) == version(text.replace("    graphwise = True\n", "", 1)) is not None
    assert version(text) != version(text.replace("rate = 2", "rate = 3"))
    assert version(text) != version(text.replace("graphwise = 1", "graphwise = 2"))


def test_the_table_is_followed_to_its_end_and_by_commit_first() -> None:
    known = Versions(
        [Equal("m", "a", "", "b", ""), Equal("m", "b", "", "c", ""), Equal("m", "a", "sha", "z", ""),
         Equal("x", "c", "", "d", "")]
    )  # fmt: skip
    assert known.of("m", "a", "") == known.of("m", "a", "another") == "c"
    assert known.of("m", "a", "sha") == "z"
    assert known.of("n", "a", "") == "a"
    circle = Versions([Equal("m", "a", "", "b", ""), Equal("m", "b", "", "a", "")])
    assert circle.of("m", "a", "") in ("a", "b")


def test_a_line_that_is_none_is_an_error_with_its_place(tmp_path: Path) -> None:
    assert versions.read(tmp_path).of("m", "a", "") == "a"
    (tmp_path / "versions.csv").write_text("method,version,commit,equals,proof\nm,a\n")
    with pytest.raises(UserError, match=r"versions.csv:2: not method, version, commit, equals, proof"):
        versions.read(tmp_path)


def test_trials_are_told_by_the_table_of_their_results_folder(tmp_path: Path) -> None:
    (tmp_path / "versions.csv").write_text("method,version,commit,equals,proof\nm,a,,b,read\n")
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuned").mkdir()
    assert [versions.read(tmp_path / name).of("m", "a", "") for name in ("tuning", "tuned")] == ["b", "a"]
    assert Store(RESULTS / "tuning").versions().of("moon", "1c75892960b3", "") == "538697765c99"


def test_stored_rows_are_of_today_but_for_those_that_are_known_to_differ() -> None:
    store = Store(RESULTS)
    known, stale = store.versions(), set()
    for own in store.rows(latest_only=True):
        if own.status == "ok" and known.stale(own, METHODS.cls(own.method)):
            stale.add((own.suite, own.method))
    # FedSage+: made before its answers were added up in one pass, which sums in another order.
    assert stale <= {(suite, "fedsage+") for suite in ("leaderboard", "fedomd-table4", "fgssl-table1")}
