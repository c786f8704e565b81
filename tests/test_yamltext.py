"""Untrusted YAML: plain data of a bounded size, or one line with place and reason."""

from __future__ import annotations

import pytest

from fglbench import yamltext
from fglbench.registry import UserError


def bomb(link: str) -> str:
    """Ten levels, each of ten of the level below."""
    levels = ["a0: &a0 {x: 1}"]
    levels += [f"a{i}: &a{i} {link.replace('*', ', '.join([f'*a{i - 1}'] * 10))}" for i in range(1, 11)]
    return "\n".join(levels)


def test_plain_data_aliases_and_merges_are_read_as_they_are_meant() -> None:
    text = "a: &one {x: 1, y: [2, 0x10, 1.5, null, true]}\nb:\n  <<: *one\n  x: 3\nc: *one"
    tree, values = yamltext.parse(text, "file")
    assert values == {"a": {"x": 1, "y": [2, 16, 1.5, None, True]}, "b": {"x": 3, "y": [2, 16, 1.5, None, True]}} | {
        "c": {"x": 1, "y": [2, 16, 1.5, None, True]}
    }
    assert tree is not None and tree.start_mark.line == 0
    assert yamltext.parse("# nothing", "file") == (None, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "file:3: not valid YAML: the key 'a' is given twice"),
        ("- {b: 1, b: 2}", "file:1: not valid YAML: the key 'b' is given twice"),
        ("[" * 40 + "]" * 40, "file:1: not valid YAML: nested deeper than 30 levels"),
        ("- " * 300_000 + "x", "file:1: not valid YAML: "),
        ("&a [*a]", "file:1: not valid YAML: an alias within its own value"),
        (bomb("[*]"), "file:6: not valid YAML: more than 100000 values"),
        (bomb("{<<: [*]}"), "file:6: not valid YAML: more than 100000 values"),
        ("\n" + "9" * 5000, "file:2: not valid YAML: a number of more than 18 digits"),
        ("0x" + "f" * 5000, "file:1: not valid YAML: a number of more than 18 digits"),
        ("2020-13-45", "file: not valid YAML: a value is not of its type: month must be in 1..12"),
        ('!!bool "x"', "file: not valid YAML: a value is not of its type"),
        ("!!python/object/apply:os.system [ls]", "file:1: not valid YAML: could not determine a constructor"),
        ("--- a\n--- b", "file:2: not valid YAML"),
        ("a: [b}", "file:1: not valid YAML"),
        ("a\0b", "file: not valid YAML: unacceptable character"),
    ],
)
def test_other_yaml_is_one_short_line(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        yamltext.parse(text, "file")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300
