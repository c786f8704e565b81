"""Escaping and formats."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given, strategies as some

from fglbench.benchmark.suites.catalogue import catalogue
from fglbench.report import text
from fglbench.report.figures.style import COLOUR_OF, CROWD, MARKERS, class_looks, looks


@given(some.text(max_size=60))
def test_markdown_shows_the_plain_text_and_nothing_acts(value: str) -> None:
    shown = text.md(value)
    bare = re.sub(r"\\[\\`*_{}\[\]|~#!$]", "", shown)  # without escaped characters nothing special is left
    assert not re.search(r"[`*_{}\[\]|~!$<>@\n\r]", bare.replace("&#", ""))
    assert html.unescape(re.sub(r"\\([\\`*_{}\[\]|~#!$])", r"\1", shown)) == text.plain(value)


def test_plain_is_one_short_line() -> None:
    assert text.plain("a\n\tb\u202ec \x00 d\ue000") == "a bc d"
    assert text.plain("x" * 300) == "x" * 199 + "…"


@given(some.text(max_size=120))
def test_slugs_are_safe_file_names(label: str) -> None:
    assert re.fullmatch(r"[a-z0-9_-][a-z0-9._-]*", text.slug(label))


def test_slugs_stay_distinct() -> None:
    assert text.slug("amazon-photo") == "amazon-photo"
    assert len({text.slug(name) for name in ("a b", "a/b", "A-B", "a-b", "..", "", "é", "è")}) == 8


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (950, "950 B"), (1234, "1.2 kB"), (99_960, "100 kB"), (999_600, "1.0 MB"), (3.4e13, "34000 GB")],
)
def test_data_size(count: float, shown: str) -> None:
    assert text.data_size(count) == shown


def test_spans() -> None:
    assert text.spans([5, 0, 2, 1, 7, 8]) == "0\N{EN DASH}2, 5, 7, 8"


def test_spreadsheet_formulas_are_quoted() -> None:
    assert [text.csv_text(value) for value in ("=1", "+1", "-1", "@a", "a=1")] == ["'=1", "'+1", "'-1", "'@a", "a=1"]


def test_a_method_has_one_colour_and_no_other_of_its_boards_has_it() -> None:
    for suite, known in catalogue()["suite"].items():
        shown = [COLOUR_OF[name] for name in known["facts"]["methods"].split(", ") if name in COLOUR_OF]
        assert len(shown) == len(set(shown)) <= 5 or not known["leaderboard"], suite
    names = [f"m{i}" for i in range(len(MARKERS) - 2)]
    first, second = looks(["fedavg", *names, "local"]), looks([*reversed(names), "local (epochs=3)", "fedavg"])
    assert first["fedavg"]["color"] == second["fedavg"]["color"] == COLOUR_OF["fedavg"]
    assert first["local"]["color"] == second["local (epochs=3)"]["color"] == COLOUR_OF["local"]
    assert {first[name]["color"] for name in names} == {CROWD}
    assert len({(look["marker"], look["linestyle"]) for look in first.values()}) == len(first)


def test_every_class_of_a_dataset_looks_different() -> None:
    names = [str(i) for i in range(40)]
    assert len({(look["color"], look["marker"]) for look in class_looks(names).values()}) == len(names)
