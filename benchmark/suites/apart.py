"""Import plug-ins in another process, so that their code cannot change this one.

The other process imports the plug-ins. For each of their methods, datasets, partitions, splits and backbones the
registry gets a stand-in: a class with the same fields and facts. It asks the process for what only the code knows:
whether parameters are valid, and the results of `protocol` and `architecture`. Questions and answers are JSON. Answers
are checked here like those of the package's methods, and plans and keys are computed here.
"""

from __future__ import annotations

import inspect
import json
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict, Field, create_model, model_validator

from ...datasets import DATASETS, DatasetSpec, PartitionSpec, SplitSpec
from ...datasets.content import Content
from ...methods import METHODS
from ...processes import GUARD, UNGUARDED, start
from ...registry import Registry, Spec, UserError, one_line
from ..engine import BACKBONES, Backbone, TrainConfig
from ..engine.method import Method, answer, asked_training
from ..store.provenance import SOURCES, source_of
from . import plugins
from .plugins import REGISTRIES, built_in, load_plugins, located


class StandIn(Spec):
    """Replaces a class of a plug-in: the other process checks parameters and fills in defaults."""

    model_config = ConfigDict(extra="allow")
    of: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _filled(cls, params: Any) -> Any:
        return _ask("build", cls.of, cls.name, params)


class MethodStandIn(StandIn, Method):
    def protocol(self, config: TrainConfig) -> TrainConfig:
        return TrainConfig(**_ask("protocol", self.name, self.params(), config.model_dump(mode="json")))

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        given = [(backbone.name, backbone.params()) for backbone in backbones]
        answered = _ask("architecture", self.name, self.params(), given)
        if not isinstance(answered, list) or len(answered) != len(backbones):
            return answered  # type: ignore[no-any-return]  # `settled` reports the error
        pairs = zip(answered, backbones, strict=True)  # None: an unregistered encoder; the cell keeps its backbone
        return [BACKBONES.build(*mine) if mine else other for mine, other in pairs]


class DatasetStandIn(StandIn, DatasetSpec):
    def content(self) -> tuple[Content, str]:
        """Let the process load the content, so that workers find it in the cache. It is not sent here."""
        _ask("content", self.name, self.params())
        return {}, ""


class PartitionStandIn(StandIn, PartitionSpec):
    pass


class SplitStandIn(StandIn, SplitSpec):
    pass


class BackboneStandIn(StandIn, Backbone):
    pass


KINDS: dict[str, type[StandIn]] = {
    "method": MethodStandIn, "dataset": DatasetStandIn, "partition": PartitionStandIn, "split": SplitStandIn,
    "backbone": BackboneStandIn,
}  # fmt: skip


@dataclass
class _State:
    names: tuple[str, ...] = ()
    process: _Process | None = None
    answers: dict[str, Any] = field(default_factory=dict)


class _Process:
    """The other process, which imports plug-ins and answers questions."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.pipe, theirs = Pipe()
        self.process = start(_serve, theirs, names)
        theirs.close()

    def receive(self) -> Any:
        """The next answer. UserError if the process reports an error, or has ended."""
        try:
            answer = json.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            problem = GUARD if code == UNGUARDED else f"the process that imports plug-ins ended with exit code {code}"
            raise UserError(problem) from None
        if "error" in answer:
            raise UserError(one_line(str(answer["error"])))
        return answer["value"]

    def ask(self, question: str) -> Any:
        with suppress(OSError):  # it has ended: `receive` reports it
            self.pipe.send_bytes(question.encode())
        return self.receive()

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


_state = _State()


def use(names: Iterable[str]) -> tuple[str, ...]:
    """Import these plug-ins in another process now, and those of installed packages when they are needed.

    Returns the names, valid in any folder. Plug-ins of an earlier call are removed. UserError as for `load_plugins`.
    """
    end()
    _state.names = located(names)
    begin()
    if _state.names:
        _process()
    return _state.names


def begin() -> None:
    """Import plug-ins of installed packages in another process, when they are needed."""
    plugins.elsewhere = _resolved


def end() -> None:
    """Remove all plug-ins of `use`, and end their process."""
    if _state.process is not None:
        _state.process.end()
    _state.names, _state.process, _state.answers = (), None, {}
    plugins.elsewhere = None
    for registry in REGISTRIES.values():
        registry.forget_stand_ins()


def _process() -> _Process:
    if _state.process is None:
        started = _Process(_state.names)
        try:
            _register(started.receive())
        except BaseException:
            started.end()
            raise
        _state.process = started
    return _state.process


def _ask(*question: Any) -> Any:
    """The answer of the process; answers are cached."""
    text = json.dumps(question)
    if text not in _state.answers:
        _state.answers[text] = _process().ask(text)
    return deepcopy(_state.answers[text])


def _resolved(registry: Registry[Any], name: str) -> type[Any]:
    _register(_process().ask(json.dumps(["resolve", registry.kind, name])))
    return registry.cls(name)


def _register(descriptions: Any) -> None:
    try:
        for one in descriptions:
            REGISTRIES[one["kind"]].stand_in(one["name"], _stand_in(**one))
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise UserError(f"the process of the plug-ins gave an invalid description: {error!r:.200}") from None


def _stand_in(
    kind: str, name: str, called: str, module: str, text: str, fields: dict[str, Any], facts: dict[str, Any],
    source: tuple[str, str],
) -> type[StandIn]:  # fmt: skip
    """The stand-in of a class. Arguments: see `_described`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about fields with the name of an attribute of a base class
        make: Any = create_model
        cls = make(
            called, __base__=KINDS[kind], __module__=module, __doc__=text,
            **{name_of_field: (Any, Field(**about)) for name_of_field, about in fields.items()},
        )  # fmt: skip
    for fact, value in facts.items():
        setattr(cls, fact, tuple(value) if isinstance(value, list) else value)
    cls.of, cls.name = kind, name
    file, folder = (Path(place) if place else None for place in source)
    SOURCES[cls] = file, folder
    stand_in: type[StandIn] = cls
    return stand_in


# -- in the other process ----------------------------------------------------------------------------------------------


def _serve(pipe: Connection, names: tuple[str, ...]) -> None:
    os.dup2(2, 1)  # what a plug-in prints is no output of the command
    _answer(pipe, _loaded, names)
    while True:
        try:
            question, *given = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        _answer(pipe, QUESTIONS[question], *given)


def _answer(pipe: Connection, function: Callable[..., Any], *given: Any) -> None:
    try:
        text = json.dumps({"value": function(*given)})
    except UserError as error:
        text = json.dumps({"error": str(error)})
    except Exception as error:
        text = json.dumps({"error": f"{type(error).__name__}: {one_line(str(error)):.300}"})
    pipe.send_bytes(text.encode())


def _loaded(names: tuple[str, ...]) -> list[dict[str, Any]]:
    load_plugins(names)
    plugged_in = ((kind, name) for kind, one in REGISTRIES.items() for name in one.names() if not built_in(kind, name))
    return [_described(kind, name) for kind, name in plugged_in]


def _resolve(kind: str, name: str) -> list[dict[str, Any]]:
    REGISTRIES[kind].cls(name)
    return _loaded(())


def _described(kind: str, name: str) -> dict[str, Any]:
    """The description of a class: fields with their defaults, facts of its kind, path of its source."""
    cls = REGISTRIES[kind].cls(name)
    base: Any = KINDS[kind].__mro__[2]
    facts = {fact: getattr(cls, fact) for fact in base.__class_vars__ if hasattr(cls, fact)}
    facts = {fact: value for fact, value in facts.items() if _plain(value)}
    return {
        "kind": kind, "name": name, "called": cls.__qualname__.rpartition(".")[2], "module": cls.__module__,
        "text": inspect.getdoc(cls) or "", "fields": {field: _field(info) for field, info in cls.model_fields.items()},
        "facts": facts, "source": [str(place or "") for place in source_of(cls)],
    }  # fmt: skip


def _plain(value: Any) -> bool:
    several = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(one, str | int | float | None) for one in several)


def _field(info: Any) -> dict[str, Any]:
    from pydantic_core import to_jsonable_python

    about = {"description": info.description, "json_schema_extra": info.json_schema_extra}
    if not info.is_required():
        about["default"] = info.get_default(call_default_factory=True)
    return {name: to_jsonable_python(value, fallback=str) for name, value in about.items() if value is not None
            or name == "default"}  # fmt: skip


def _build(kind: str, name: str, params: dict[str, Any]) -> dict[str, Any]:
    built: dict[str, Any] = REGISTRIES[kind].build(name, params).params()
    return built


def _protocol(name: str, params: dict[str, Any], training: dict[str, Any]) -> dict[str, Any]:
    return asked_training(METHODS.build(name, params), TrainConfig(**training)).model_dump(mode="json")


def _architecture(name: str, params: dict[str, Any], backbones: list[tuple[str, dict[str, Any]]]) -> Any:
    answered = answer(METHODS.build(name, params), "architecture", [BACKBONES.build(*each) for each in backbones])
    if not isinstance(answered, list | tuple) or not all(isinstance(each, Backbone) for each in answered):
        return f"{answered!r:.60}"
    return [(mine.name, mine.params()) if (mine := each.registered()) else None for each in answered]


def _content(name: str, params: dict[str, Any]) -> None:
    for part in DATASETS.build(name, params).parts:
        if not part.synthetic:
            part.content()


QUESTIONS: dict[str, Callable[..., Any]] = {
    "resolve": _resolve, "build": _build, "protocol": _protocol, "architecture": _architecture, "content": _content,
}  # fmt: skip
