"""Names, parameters and errors: what every registered thing of fglbench shares, and checks of arguments.

Datasets, partitions, splits, backbones and methods are all *specs*: frozen, typed parameter sets with defaults and
behaviour, looked up by name. One registry class serves them all, so that every unknown name or parameter gets the same
one-line answer with a suggestion.
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


class UserError(Exception):
    """A mistake the user can mend. The message is one line: the value, the choices, the fix. The CLI exits with 2."""

    code: ClassVar[int] = 2


def one_line(text: str) -> str:
    """Untrusted text on one line: without the sequences that steer a terminal, control and invisible characters."""
    text = re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?)", "", text)
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def listed(names: Iterable[str], most: int) -> str:
    """Names on one line, each once; of more than `most` the first, and how many more there are."""
    distinct = list(dict.fromkeys(names))
    return ", ".join(distinct[:most]) + (f" and {len(distinct) - most} more" if len(distinct) > most else "")


MOST_NAMED, NEAREST = 12, 5  # up to 12 names are all listed; of more, the nearest 5


def did_you_mean(name: str, choices: Iterable[str], kind: str) -> UserError:
    """The error for an unknown `name` of a `kind` (a noun, singular), with the nearest of the known `choices`."""
    known = sorted(choices)
    same = [each for each in known if each.casefold() == name.strip().casefold()]
    near = same or difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if len(known) <= MOST_NAMED:
        return UserError(f"unknown {kind} {name!r}{hint} (known: {', '.join(known) or 'none'})")
    nearest = difflib.get_close_matches(same[0] if same else name, known, n=NEAREST, cutoff=0.0)
    return UserError(f"unknown {kind} {name!r}{hint} (nearest of {len(known)}: {', '.join(nearest)})")


def first_error(error: ValidationError, cls: type[BaseModel], where: str) -> UserError:
    """A pydantic failure as one line. `where` names the thing that was configured, e.g. "method 'fedprox'"."""
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
    if not path:  # of several fields together
        return UserError(f"{where}: {message}")
    return UserError(f"{where}: {path}: {message}{given}")


NUMBERS = (int, float, int | None, float | None)  # annotations of fields


class Spec(BaseModel):
    """A frozen set of typed parameters with defaults. Subclasses add fields and the behaviour that they steer."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: ClassVar[str] = ""

    @field_validator("*", mode="before")
    @classmethod
    def _no_bool_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """ValueError for true and false (in YAML also yes, no) in the place of a number: they would be 1 and 0."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation in NUMBERS:
            raise ValueError("input should be a number")
        return value

    def params(self) -> dict[str, Any]:
        """All parameters with their values, JSON-ready."""
        return self.model_dump(mode="json")


SEARCH = "search"  # where a field keeps its choices
LATER: dict[str, Any] = {"later": True}
SGD_RATE = "sgd_rate"


def option(
    default: Any,
    meaning: str,
    *,
    tune: Sequence[Any] = (),
    own_rate: bool = False,
    later: bool = False,
    **bounds: Any,
) -> Any:
    """A parameter of a spec: pydantic's `Field` with what this package adds. bounds: `ge`, `gt`, `le`, `lt`, ...

    tune: the values that `fglbench tune` tries besides that of the suite. Mappings set several fields at once, as an
    optimiser and its rate. They compute nothing: a method's version does not depend on them.

    own_rate: the rate of a method's own SGD, which is tuned over the table of rates that all methods share.

    later: added after the first rows. At its default it is part of no key and of no row, so its default never changes:
    rows without it mean that value.
    """
    extra = (tunable(*tune) if tune else {}) | ({SGD_RATE: True} if own_rate else {}) | (LATER if later else {})
    return Field(default, description=meaning, json_schema_extra=extra or None, **bounds)


def identity(cls: type[Spec], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters (JSON values) that keys and rows have: all but later options at their defaults."""
    later = _later(cls)
    return {key: value for key, value in params.items() if key not in later or value != later[key]}


@cache
def _later(cls: type[Spec]) -> dict[str, Any]:
    """Return the default of each later option, as rows have it."""
    return {
        info.serialization_alias or name: to_jsonable_python(info.get_default(call_default_factory=True))
        for name, info in cls.model_fields.items()
        if isinstance(info.json_schema_extra, dict) and "later" in info.json_schema_extra
    }


def tunable(*choices: Any) -> dict[str, Any]:
    """The mark of `option(..., tune=choices)`, for a plain `Field(0.01, json_schema_extra=tunable(0.1, 1.0))`."""
    keys = {tuple(choice) if isinstance(choice, Mapping) else None for choice in choices}
    if len(keys) != 1:
        raise ValueError(f"tunable() takes values, or mappings with the same fields, got {choices}")
    return {SEARCH: list(choices)}


def searched(cls: type[Spec]) -> dict[str, list[dict[str, Any]]]:
    """What is tuned of a spec: field -> the settings to choose among, each a mapping of fields to values."""
    ranges = {}
    for field, info in cls.model_fields.items():
        extra = info.json_schema_extra
        if isinstance(extra, dict) and SEARCH in extra:
            choices: Any = extra[SEARCH]
            ranges[field] = [dict(choice) if isinstance(choice, Mapping) else {field: choice} for choice in choices]
    return ranges


def sgd_rates(cls: type[Spec]) -> list[str]:
    """The fields that are the rate of the method's own SGD."""
    extras = ((field, info.json_schema_extra) for field, info in cls.model_fields.items())
    return [field for field, extra in extras if isinstance(extra, dict) and extra.get(SGD_RATE)]


class Parameter(NamedTuple):
    """A parameter as people read it: its name, default (JSON, or 'required'), type and meaning."""

    name: str
    default: str
    type: str
    meaning: str


def parameters(cls: type[Spec]) -> list[Parameter]:
    """The parameters of a spec, in the order of their definition. What is tuned says among which values."""
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
        """Class decorator that files a spec under `name`.

        Raises ValueError when another class has the name, or files cannot (a programming mistake, not a user's).
        """
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_+][\w.+:-]{0,99}", name, re.ASCII):
            what = "a name is at most 100 of letters, digits, '.', '_', '+', ':' and '-'"
            raise ValueError(f"{self.kind} {name!r:.120}: {what}")

        def add(cls: type[S]) -> type[S]:
            if not isinstance(cls, type) or not issubclass(cls, Spec):
                raise ValueError(f"{self.kind} {name!r}: register a class of a {self.kind}, got {cls!r:.60}")
            if lacking := [each for each in self.needs if not hasattr(cls, each)]:
                raise ValueError(f"{self.kind} {name!r}: its class has no {', '.join(lacking)}")
            known = self._classes.get(name)
            if known is not None and known.__qualname__ != cls.__qualname__:
                raise ValueError(f"{self.kind} {name!r} is registered twice: {known} and {cls}")
            cls.name = name
            self._classes[name] = cls
            return cls

        return add

    def stand_in(self, name: str, cls: type[S]) -> None:
        """File what represents a class that another process has; a class of this process has precedence."""
        self._stand_ins[name] = cls

    def forget_stand_ins(self) -> None:
        self._stand_ins.clear()

    def resolver(self, function: Callable[[str], type[S] | None]) -> Callable[[str], type[S] | None]:
        """Register a function that makes a class for names outside the table (`tu:NAME`), or returns None."""
        self._resolvers.append(function)
        return function

    def settle(self) -> None:
        """What is registered by now is the package's own; what comes later is from outside."""
        self._built_in = frozenset(self._classes.values())

    def is_own(self, cls: type[S]) -> bool:
        """Whether a class is itself, and not by a name or an ancestor, one that the package registers."""
        return cls in self._built_in

    def names(self) -> list[str]:
        return sorted({*self._classes, *self._stand_ins})

    def cls(self, name: str) -> type[S]:
        """The class filed under `name`; UserError with a suggestion when there is none."""
        for known in (self._classes, self._stand_ins):
            if name in known:
                return known[name]
        for resolve in self._resolvers:
            resolved = resolve(name)
            if resolved is not None:
                return resolved
        raise did_you_mean(name, self.names(), self.kind)

    def build(self, name: str, params: Mapping[str, Any] | None = None) -> S:
        """An instance with the given parameters; UserError for an unknown name or a wrong parameter."""
        cls = self.cls(name)
        try:
            return cls(**dict(params or {}))
        except ValidationError as error:
            raise first_error(error, cls, f"{self.kind} {name!r}") from None


T = TypeVar("T")


def several(name: str, given: Iterable[Any], read: Callable[[Any], T]) -> tuple[T, ...]:
    """Return the values of a list. UserError for a single text, a mapping, an empty list, or a value of another type.

    read: `str`, or `operator.index` for whole numbers. The tuple () is an argument that is not given.
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
    """Return a text that is not empty."""
    if not _is_text(given):
        raise UserError(f"{name} is a text that is not empty, got {given!r:.60}")
    return str(given)


def whole_argument(name: str, given: Any) -> int:
    """Return a whole number, of NumPy or PyTorch too."""
    try:
        if not isinstance(given, bool):
            return operator.index(given)
    except TypeError:
        pass
    raise UserError(f"{name} is a whole number, got {given!r:.60}")


def folder_argument(name: str, given: Any) -> Path:
    """Return the path of a folder; "~" is the home folder. UserError for what is no path."""
    try:
        path = os.fspath(given)
        if isinstance(path, str) and path.strip() and "\0" not in path:
            return Path(path).expanduser()
    except TypeError:
        pass
    except RuntimeError:
        raise UserError(f"{name}: the home folder in {path!r} does not exist; give a whole path") from None
    if given == "":
        raise UserError(f"{name} is empty; give a folder, or leave it out")
    raise UserError(f"{name} is the path of a folder, got {given!r:.60}")


def _is_text(given: Any) -> bool:
    return isinstance(given, str) and bool(given.strip())


MOST_SEEDS = 10_000
SEED_BOUND = 2**31


def seed_range(first: int, last: int) -> list[int]:
    """The seeds from first to last. ValueError for more than can be run."""
    if last - first >= MOST_SEEDS:
        raise ValueError(f"more than {MOST_SEEDS} seeds")
    return list(range(first, last + 1))
