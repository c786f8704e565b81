"""Registries: names, parameters and errors of datasets, partitions, splits, backbones and methods.

All of these are *specs*: frozen, typed parameter sets with defaults and behaviour, found by name. They share one
registry class, so each unknown name or parameter gives the same one-line error with a suggestion. The module also
checks arguments of public functions.
"""

from __future__ import annotations

import difflib
import json
import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import to_jsonable_python

OWN = "own:"  # before the name of a user's dataset
DOMAINS = "domains:"  # before the names of the sets of a dataset that consists of several graph sets


class UserError(Exception):
    """A mistake that the user can fix. The message is one line: the value, the choices, the fix. Exit code 2."""

    code: ClassVar[int] = 2


def one_line(text: str) -> str:
    """Return untrusted text on one line, without terminal sequences, control characters and invisible characters."""
    text = re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?)", "", text)
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def listed(names: Iterable[str], most: int) -> str:
    """Return distinct names on one line: the first `most`, and the number of the others."""
    distinct = list(dict.fromkeys(names))
    return ", ".join(distinct[:most]) + (f" and {len(distinct) - most} more" if len(distinct) > most else "")


MOST_NAMED, NEAREST = 12, 5  # messages list all of up to 12 known names, or the 5 nearest ones


def did_you_mean(name: str, choices: Iterable[str], kind: str) -> UserError:
    """Return the error for an unknown `name`, with the nearest of `choices`. kind: a singular noun."""
    known = sorted(choices)
    same = [each for each in known if each.casefold() == name.strip().casefold()]
    near = same or difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if len(known) <= MOST_NAMED:
        return UserError(f"unknown {kind} {name!r}{hint} (known: {', '.join(known) or 'none'})")
    nearest = difflib.get_close_matches(same[0] if same else name, known, n=NEAREST, cutoff=0.0)
    return UserError(f"unknown {kind} {name!r}{hint} (nearest of {len(known)}: {', '.join(nearest)})")


def first_error(error: ValidationError, cls: type[BaseModel], where: str) -> UserError:
    """Return the first error of pydantic as one line. where: what was configured, e.g. "method 'fedprox'"."""
    problem = error.errors()[0]
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        model: Any = cls
        for part in problem["loc"][:-1]:  # a nested model: suggest from its own fields
            annotation = model.model_fields[part].annotation if part in getattr(model, "model_fields", {}) else None
            model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else cls
        fields = [info.alias or name for name, info in model.model_fields.items()]
        return UserError(f"{where}: {did_you_mean(str(problem['loc'][-1]), fields, 'parameter')}")
    given = f", got {problem['input']!r}" if problem["type"] != "missing" else ""
    message = problem["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if not path:  # a validator of several fields
        return UserError(f"{where}: {message}")
    return UserError(f"{where}: {path}: {message}{given}")


NUMBERS = (int, float, int | None, float | None)  # annotations of fields


class Spec(BaseModel):
    """A frozen set of typed parameters with defaults. Subclasses add fields and behaviour."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: ClassVar[str] = ""

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_bool_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        """ValueError for true or false (in YAML also yes or no) as a number: pydantic would read 1 or 0."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation in NUMBERS:
            raise ValueError("input should be a number")
        return value

    def params(self) -> dict[str, Any]:
        """Return all parameters with their values as JSON values."""
        return self.model_dump(mode="json")


SEARCH = "search"  # key of a field's tuning choices in its json_schema_extra
LATER: dict[str, Any] = {"later": True}
SGD_RATE = "sgd_rate"


def option(
    default: Any, meaning: str, *, tune: Sequence[Any] = (), own_rate: bool = False, later: bool = False, **bounds: Any
) -> Any:
    """Return a parameter of a spec: pydantic's `Field` with the options of this package. bounds: `ge`, `gt`, `le`, ...

    tune: the values that `fglbench tune` tries in addition to that of the suite. A mapping sets several fields
    together, as an optimiser and its learning rate. The version of a method does not depend on them.

    own_rate: the learning rate of a method's own SGD; it is tuned over the rates that all methods share.

    later: the parameter is newer than the first rows. Keys and rows leave it out at its default, so its default must
    never change.
    """
    extra = (tunable(*tune) if tune else {}) | ({SGD_RATE: True} if own_rate else {}) | (LATER if later else {})
    return Field(default, description=meaning, json_schema_extra=extra or None, **bounds)


def identity(cls: type[Spec], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters (JSON values) of keys and rows: all except later options at their defaults."""
    later = _later(cls)
    return {key: value for key, value in params.items() if key not in later or value != later[key]}


@cache
def _later(cls: type[Spec]) -> dict[str, Any]:
    """Return the default (JSON value) of each later option."""
    return {
        info.serialization_alias or name: to_jsonable_python(info.get_default(call_default_factory=True))
        for name, info in cls.model_fields.items()
        if isinstance(info.json_schema_extra, dict) and "later" in info.json_schema_extra
    }


def tunable(*choices: Any) -> dict[str, Any]:
    """Return the json_schema_extra of `option(..., tune=choices)`, for a plain `Field`."""
    keys = {tuple(choice) if isinstance(choice, Mapping) else None for choice in choices}
    if len(keys) != 1:
        raise ValueError(f"tunable() takes values, or mappings with the same fields, got {choices}")
    return {SEARCH: list(choices)}


def searched(cls: type[Spec]) -> dict[str, list[dict[str, Any]]]:
    """Return the tuned fields of a spec: field -> its choices, each a mapping of fields to values."""
    ranges = {}
    for field, info in cls.model_fields.items():
        extra = info.json_schema_extra
        if isinstance(extra, dict) and SEARCH in extra:
            choices: Any = extra[SEARCH]
            ranges[field] = [dict(choice) if isinstance(choice, Mapping) else {field: choice} for choice in choices]
    return ranges


def sgd_rates(cls: type[Spec]) -> list[str]:
    """Return the fields that are the learning rate of the method's own SGD."""
    extras = ((field, info.json_schema_extra) for field, info in cls.model_fields.items())
    return [field for field, extra in extras if isinstance(extra, dict) and extra.get(SGD_RATE)]


class Parameter(NamedTuple):
    """Text about a parameter: its name, default (JSON, or 'required'), type and meaning."""

    name: str
    default: str
    type: str
    meaning: str


def parameters(cls: type[Spec]) -> list[Parameter]:
    """Return the parameters of a spec in the order of their definition; `meaning` ends with the tuned values."""
    described, ranges, rates = [], searched(cls), sgd_rates(cls)
    for field, info in cls.model_fields.items():
        value = info.get_default(call_default_factory=True)
        default = "required" if info.is_required() else json.dumps(value, default=str)
        kind = info.annotation.__name__ if isinstance(info.annotation, type) else str(info.annotation)
        tried = [", ".join(map(str, choice.values())) for choice in ranges.get(field, ())]
        if field in rates:
            tried = ["the SGD rates that all methods share"]
        meaning = [info.description or "", f"tune: {' | '.join(tried)}" if tried else ""]
        described.append(
            Parameter(info.alias or field, default, kind.replace("typing.", ""), "; ".join(filter(None, meaning)))
        )
    return described


S = TypeVar("S", bound=Spec)


class Registry(Generic[S]):
    """Specs by name. kind: the singular noun used in messages. needs: class attributes that each spec must have."""

    def __init__(self, kind: str, needs: tuple[str, ...] = ()) -> None:
        self.kind, self.needs = kind, needs
        self._classes: dict[str, type[S]] = {}
        self._stand_ins: dict[str, type[S]] = {}
        self._resolvers: list[Callable[[str], type[S] | None]] = []
        self._built_in: frozenset[type[S]] = frozenset()

    def register(self, name: str) -> Callable[[type[S]], type[S]]:
        """Return a class decorator that registers a spec under `name`.

        Raises ValueError, as a mistake of the programmer, if another class has the name or if the name is not valid.
        """
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_+][\w.+:-]{0,99}", name, re.ASCII):
            rule = "a name is at most 100 of letters, digits, '.', '_', '+', ':' and '-'"
            raise ValueError(f"{self.kind} {name!r:.120}: {rule}")

        def add(cls: type[S]) -> type[S]:
            if not isinstance(cls, type) or not issubclass(cls, Spec):
                raise ValueError(f"{self.kind} {name!r}: register a class of a {self.kind}, got {cls!r:.60}")
            if lacking := [each for each in self.needs if not hasattr(cls, each)]:
                raise ValueError(f"{self.kind} {name!r}: its class has no {', '.join(lacking)}")
            known = self._classes.get(name)
            if known is not None and not self._is_again(known, cls):
                raise ValueError(f"{self.kind} {name!r} is registered twice: {known} and {cls}")
            cls.name = name
            self._classes[name] = cls
            return cls

        return add

    def _is_again(self, known: type[S], cls: type[S]) -> bool:
        """Whether a class is `known`, defined again: in a notebook, or in a script, which is `__mp_main__` in workers.

        A built-in class may be replaced for a moment: `load_plugins` restores it with a message.
        """
        modules = {each.__module__.replace("__mp_main__", "__main__") for each in (known, cls)}
        ours = any(module.partition(".")[0] == __package__ for module in modules)
        return known.__qualname__ == cls.__qualname__ and (len(modules) == 1 or ours)

    def stand_in(self, name: str, cls: type[S]) -> None:
        """Register the stand-in of a class of another process; a class of this process takes precedence."""
        self._stand_ins[name] = cls

    def forget_stand_ins(self) -> None:
        self._stand_ins.clear()

    def resolver(self, function: Callable[[str], type[S] | None]) -> Callable[[str], type[S] | None]:
        """Register a function from a name that is not registered (`tu:NAME`) to its class, or None."""
        self._resolvers.append(function)
        return function

    def settle(self) -> None:
        """Mark the classes registered until now as the package's; later ones come from plug-ins."""
        self._built_in = frozenset(self._classes.values())

    def is_own(self, cls: type[S]) -> bool:
        """Return whether this very class, not only its name or a base class, is registered by the package."""
        return cls in self._built_in

    def names(self) -> list[str]:
        return sorted({*self._classes, *self._stand_ins})

    def cls(self, name: str) -> type[S]:
        """Return the class registered under `name`. UserError with a suggestion if there is none."""
        for known in (self._classes, self._stand_ins):
            if name in known:
                return known[name]
        for resolve in self._resolvers:
            resolved = resolve(name)
            if resolved is not None:
                return resolved
        raise did_you_mean(name, self.names(), self.kind)

    def build(self, name: str, params: Mapping[str, Any] | None = None) -> S:
        """Return an instance with the given parameters. UserError for an unknown name or a wrong parameter."""
        cls = self.cls(name)
        try:
            return cls(**dict(params or {}))
        except ValidationError as error:
            raise first_error(error, cls, f"{self.kind} {name!r}") from None


T = TypeVar("T")


def several(name: str, given: Iterable[Any], read: Callable[[Any], T]) -> tuple[T, ...]:
    """Return the values of a list. UserError for a single text, a mapping, an empty list, or a value of another type.

    read: `str`, or `operator.index` for whole numbers. The empty tuple () means "not given" and is accepted.
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise UserError(f"{name} is a list of values, as in {name}=[...]; got {given!r:.60}")
    values = list(given)
    if not values and not isinstance(given, tuple):
        raise UserError(f"{name} is empty; give at least one value, or leave it out")
    wrong = [value for value in values if isinstance(value, bool) or (read is str and not _is_text(value))]
    try:
        if not wrong:
            return tuple(map(read, values))
    except TypeError:
        wrong = values
    raise UserError(f"{name} are {'texts' if read is str else 'whole numbers'}, got {wrong[0]!r:.60}")


def text_argument(name: str, given: Any) -> str:
    """Return the text. UserError if it is empty or no text."""
    if not _is_text(given):
        raise UserError(f"{name} is a text that is not empty, got {given!r:.60}")
    return str(given)


def flag_argument(name: str, given: Any) -> bool:
    """Return True or False. UserError for another value."""
    if type(given).__name__ not in ("bool", "bool_"):  # of Python or NumPy
        raise UserError(f"{name} is True or False, got {given!r:.60}")
    return bool(given)


def whole_argument(name: str, given: Any) -> int:
    """Return a whole number, also of NumPy or PyTorch. UserError for another value."""
    try:
        if not isinstance(given, bool):
            return operator.index(given)
    except TypeError:
        pass
    raise UserError(f"{name} is a whole number, got {given!r:.60}")


def path_argument(name: str, given: Any) -> Path:
    """Return the path of a file or folder; "~" is the home folder. UserError if it is no path."""
    try:
        path = os.fspath(given)
        if isinstance(path, str) and path.strip() and "\0" not in path:
            return Path(path).expanduser()
    except TypeError:
        pass
    except RuntimeError:
        raise UserError(f"{name}: the home folder in {path!r} does not exist; give a whole path") from None
    if isinstance(given, str) and not given:
        raise UserError(f"{name} is empty; give a path, or leave it out")
    raise UserError(f"{name} is a path, got {given!r:.60}")


def _is_text(given: Any) -> bool:
    return isinstance(given, str) and bool(given.strip())


MOST_SEEDS = 10_000
SEED_BOUND = 2**31


def seed_range(first: int, last: int) -> list[int]:
    """Return the seeds from first to last. ValueError for more than MOST_SEEDS."""
    if last - first >= MOST_SEEDS:
        raise ValueError(f"more than {MOST_SEEDS} seeds")
    return list(range(first, last + 1))
