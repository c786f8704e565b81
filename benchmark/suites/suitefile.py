"""Suite files: YAML text to a `Suite`, with the line of each error."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ValidationError

from ... import yamltext
from ...registry import UserError, did_you_mean
from ..store.places import NAME, RESERVED
from .cell import Choice
from .suite import Block, DatasetEntry, MethodEntry, Suite

FOLDER = Path(__file__).parent
CUSTOM = "custom"  # the suite of rows with changed settings
LARGEST, LONGEST = 2**18, 100  # limits: bytes of a file, characters of the name of a suite


def suite_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def leaderboard_suites() -> list[Suite]:
    return [suite for suite in map(load_suite, suite_names()) if suite.leaderboard]


def load_suite(name: str) -> Suite:
    """The suite of the package with this name, or of the YAML file with this path.

    Raises UserError with file and line for a wrong key, name, parameter or value.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
    try:
        if path.stat().st_size > LARGEST:
            raise UserError(f"{name!r} is larger than {LARGEST >> 10} KiB, which no suite is")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if path.parent == FOLDER:
            raise did_you_mean(name, suite_names(), "suite") from None
        raise UserError(f"no suite file {name!r}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read suite file {name!r:.200}: {reason}") from None
    if path.resolve().parent != FOLDER.resolve():
        _check_name(path)
        suite = parse_suite(text, path)  # its tuned settings are next to the file, not in the package
        return suite if suite.tuned else suite.model_copy(update={"tuned": str(path.with_suffix(".tuned.yaml"))})
    return parse_suite(text, path)


def _check_name(path: Path) -> None:
    """Raise UserError if the file name, which is the name of the suite and of the folder of its rows, is not free."""
    name = path.stem.casefold()
    if name in suite_names():
        raise UserError(f"{path}: the benchmark has a suite {path.stem!r}; rename the file")
    if name in {*RESERVED, CUSTOM} or not re.fullmatch(NAME, path.stem) or len(name) > LONGEST:
        raise UserError(f"{path}: rows cannot be filed under {path.stem!r:.80}; rename the file, as in my-suite.yaml")


@cache
def parse_suite(text: str, path: Path) -> Suite:
    """A suite from YAML text. path: for its name and for messages."""
    tree, values = yamltext.parse(text, str(path))
    if not isinstance(values, dict):
        raise UserError(f"{path}: a suite is a mapping with `description` and `cross`")
    if "name" in values:
        raise UserError(f"{path}: a suite is named after its file; remove `name`")
    try:
        return Suite.model_validate({**values, "name": path.stem})
    except ValidationError as error:
        raise _located(error, tree, path) from None


def _located(error: ValidationError, tree: yaml.Node | None, path: Path) -> UserError:
    """The first problem of a suite file with its line and keys; for a wrong key also the most similar valid key."""
    problem = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")  # its correct form is missing too
    line, keys = 1, [""]
    model: type[BaseModel] = Suite
    for part in problem["loc"]:
        if isinstance(part, str):
            model = _MODELS.get(keys[-1], model)
            keys.append(part)
        mark, tree = _child(tree, part)
        line = mark.start_mark.line + 1 if mark else line
    if problem["type"] == "extra_forbidden":
        known = model.model_fields.keys() - ({"name"} if model is Suite else set())  # a suite is named after its file
        return UserError(f"{path}:{line}: {did_you_mean(keys[-1], known, 'key')}")
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] not in ("missing", "value_error"):
        message = f"{message[:1].lower()}{message[1:]}, got {problem['input']!r}"
    return UserError(f"{path}:{line}: {'.'.join(keys[1:])}: {message}")


_MODELS: dict[str, type[BaseModel]] = {  # key -> model of its value
    "cross": Block,
    "datasets": DatasetEntry,
    "methods": MethodEntry,
    "partitions": Choice,
    "splits": Choice,
    "backbones": Choice,
}


def _child(node: yaml.Node | None, part: str | int) -> tuple[yaml.Node | None, yaml.Node | None]:
    """(node with the line, child node) below `node` at a key or index; a single value is a list of one."""
    if isinstance(part, int) and isinstance(node, yaml.SequenceNode):
        child = node.value[part] if part < len(node.value) else None
        return child, child
    if isinstance(part, str) and isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == part), (None, None))
    return (None, node) if part == 0 else (None, None)
