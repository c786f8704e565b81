"""Read YAML that a person wrote: plain data, limited in size and depth, and no key twice."""

from __future__ import annotations

from typing import Any

import yaml

from .registry import UserError

DEEPEST = 30  # levels of nesting; suites need 12
LARGEST = 100_000  # values; those of an alias count at every use
DIGITS = 18  # of a whole number, so that it fits into 64 bits
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # that of libyaml is several times as fast

# Errors of PyYAML for a value that does not fit its tag.
UNFIT = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError)


def parse(text: str, source: str) -> tuple[yaml.Node | None, Any]:
    """Return the node tree, with line numbers, and the values of a YAML text. source: its name in messages.

    UserError (source, line, problem) for everything except one document of plain data within the limits above.
    """
    try:
        loader = LOADER(text)
        try:
            tree = loader.get_single_node()
            _count(tree, {}, 1)
            return tree, None if tree is None else loader.construct_document(tree)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{source}:{mark.line + 1}" if mark else source
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(f"{place}: not valid YAML: {reason:.200}") from None
    except UNFIT as error:  # for example a date that does not exist
        raise UserError(f"{source}: not valid YAML: a value is not of its type: {error!s:.200}") from None


def _count(node: yaml.Node | None, counts: dict[int, int], depth: int) -> int:
    """Return the number of values in a node. counts: of known nodes by id, 0 while a node is counted.

    Raises yaml.MarkedYAMLError for a key that is given twice, and above the limits, before it takes time or memory.
    """
    if node is None or counts.get(id(node)):
        return counts.get(id(node), 0)
    if id(node) in counts:
        _refuse("an alias within its own value", node)
    if depth > DEEPEST:
        _refuse(f"nested deeper than {DEEPEST} levels", node)
    if node.tag == "tag:yaml.org,2002:int" and len(node.value) > DIGITS:
        _refuse(f"a number of more than {DIGITS} digits", node)
    counts[id(node)] = 0
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    seen = set()
    for key, _ in pairs:
        if isinstance(key, yaml.ScalarNode):
            if (key.tag, key.value) in seen:
                _refuse(f"the key {key.value!r:.60} is given twice", key)
            seen.add((key.tag, key.value))
    children = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in pairs for part in pair]
    counts[id(node)] = count = 1 + sum(_count(child, counts, depth + 1) for child in children)
    if count > LARGEST:
        _refuse(f"more than {LARGEST} values", node)
    return count


def _refuse(problem: str, place: yaml.Node) -> None:
    raise yaml.MarkedYAMLError(problem=problem, problem_mark=place.start_mark)


def child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node | None, yaml.Node | None]:
    """(node with the line, child node) below `node` at a key or index; a single value is a list of one."""
    if isinstance(part, int) and isinstance(node, yaml.SequenceNode):
        child = node.value[part] if part < len(node.value) else None
        return child, child
    if isinstance(part, str) and isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == part), (None, None))
    return (None, node) if part == 0 else (None, None)
