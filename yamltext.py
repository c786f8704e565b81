"""Read YAML that a person wrote: limited in size and depth, and no key twice."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor

from .registry import UserError

DEEPEST = 30  # levels of nesting; suites need 12
LARGEST = 100_000  # values; those of an alias count at every use
DIGITS = 18  # of a whole number, so that it fits into 64 bits


class _Bounded(Composer, SafeConstructor):
    """Loads plain data only. Raises yaml.MarkedYAMLError for anything else, before it takes time or memory."""

    peek_event: Callable[[], Any]  # a method of the loader's parser

    def __init__(self) -> None:
        Composer.__init__(self)
        self.depth, self.sizes = 0, dict[int, int]()

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        place: Any = self.peek_event()
        if self.depth == DEEPEST:
            self.refuse(f"nested deeper than {DEEPEST} levels", place)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        if isinstance(place, yaml.AliasEvent):
            if id(node) not in self.sizes:
                self.refuse("an alias within its own value", place)
        elif node is not None:
            self.sizes[id(node)] = 1 + sum(self.sizes[id(child)] for child in _children(node))
            if self.sizes[id(node)] > LARGEST:
                self.refuse(f"more than {LARGEST} values", place)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                self.refuse(f"the key {key.value!r:.60} is given twice", key)
            seen.add((key.tag, key.value) if isinstance(key, yaml.ScalarNode) else id(key))
        return super().construct_mapping(node, deep)

    def whole_number(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > DIGITS:
            self.refuse(f"a number of more than {DIGITS} digits", node)
        return int(self.construct_yaml_int(node))

    def characters(self, node: yaml.ScalarNode) -> str:
        text = str(self.construct_yaml_str(node))
        if any(unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t" for c in text):
            self.refuse("a control character, or half of one", node)
        return text

    @staticmethod
    def refuse(problem: str, place: yaml.Node | yaml.Event) -> None:
        mark: Any = place.start_mark
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


class _Loader(_Bounded, yaml.SafeLoader):
    """The loader of PyYAML, in Python."""

    def __init__(self, text: str) -> None:
        yaml.SafeLoader.__init__(self, text)
        _Bounded.__init__(self)


LOADERS: list[Any] = [_Loader]  # in the order in which they are tried
if yaml.__with_libyaml__:

    class _Fast(_Bounded, yaml.CSafeLoader):
        """The loader of libyaml, several times as fast."""

        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            _Bounded.__init__(self)

    LOADERS.insert(0, _Fast)

for each in LOADERS:
    each.add_constructor("tag:yaml.org,2002:int", _Bounded.whole_number)
    each.add_constructor("tag:yaml.org,2002:str", _Bounded.characters)

# Errors of PyYAML for a value that does not fit its tag.
UNFIT = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def parse(text: str, source: str) -> tuple[yaml.Node | None, Any]:
    """Return the node tree, with line numbers, and the values of a YAML text. source: its name in messages.

    UserError (source, line, problem) for everything except one document of plain data within the limits above.
    """
    for loader in LOADERS[:-1]:
        with suppress(yaml.YAMLError, *UNFIT):  # the last loader reports the error: the same message on all machines
            return _read(loader, text)
    try:
        return _read(LOADERS[-1], text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{source}:{mark.line + 1}" if mark else source
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(f"{place}: not valid YAML: {reason:.200}") from None
    except UNFIT as error:  # for example a date that does not exist
        raise UserError(f"{source}: not valid YAML: a value is not of its type: {error!s:.200}") from None


def _read(make: Any, text: str) -> tuple[yaml.Node | None, Any]:
    loader = make(text)
    try:
        tree = loader.get_single_node()
        return tree, None if tree is None else loader.construct_document(tree)
    finally:
        loader.dispose()


def child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node | None, yaml.Node | None]:
    """(node with the line, child node) below `node` at a key or index; a single value is a list of one."""
    if isinstance(part, int) and isinstance(node, yaml.SequenceNode):
        child = node.value[part] if part < len(node.value) else None
        return child, child
    if isinstance(part, str) and isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == part), (None, None))
    return (None, node) if part == 0 else (None, None)
