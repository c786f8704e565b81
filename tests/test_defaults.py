"""Every default there is, with its bounds, pinned: what a row does not say is at its default, permanently.

`python tests/test_defaults.py` writes the table (defaults.json) anew; its diff is then what a change really changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.suites.plugins import REGISTRIES
from fglbench.methods import METHODS
from fglbench.registry import Spec, searched

TABLE = Path(__file__).with_name("defaults.json")
CLASSED = {kind: registry for kind, registry in REGISTRIES.items() if kind != "backbone"}
MODULES = ("fglbench.methods.", "fglbench.datasets.", "fglbench.benchmark.engine.")
MESSAGE = "a default has changed: no row may change its meaning; `python tests/test_defaults.py` writes the table anew"


def field_defaults(cls: type[Spec]) -> dict[str, Any]:
    """[default, bounds...] of a spec's fields by the names that rows have; "required" where there is no default."""
    fields = {}
    for name, info in cls.model_fields.items():
        default = "required" if info.is_required() else shown(info.get_default(call_default_factory=True))
        bounds = [str(each) for each in info.metadata if type(each).__module__ == "annotated_types"]
        fields[info.serialization_alias or name] = [default, *bounds]
    return fields


def flags(cls: type[Spec]) -> dict[str, Any]:
    """The class attributes other than parameters: task, reference, fingerprint, ..."""
    names = sorted(
        cls.__class_vars__
        - {"name", "about", "routes", "model_config", "family", "summary", "kind", "without_training"}
    )
    values = {name: getattr(cls, name, None) for name in names if not name.startswith("_")}
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return {name: value for name, value in values.items() if isinstance(value, str | bool | list | None)}


def shown(value: Any) -> Any:
    """A default as JSON has it."""
    return value.params() if isinstance(value, Spec) else json.loads(json.dumps(value, default=str))


def specs(base: type[Spec] = Spec) -> Iterator[type[Spec]]:
    for cls in base.__subclasses__():
        if cls.__module__.startswith(MODULES) and ":" not in cls.__name__:  # `own:NAME`, `tu:NAME`: made on demand
            yield cls
            yield from specs(cls)


def training(name: str) -> dict[str, Any]:
    """The default training after a method at its defaults, if it changes."""
    before = TrainConfig().params()
    after = METHODS.build(name).protocol(TrainConfig()).params()
    return {key: value for key, value in after.items() if value != before[key]}


def defaults() -> dict[str, dict[str, Any]]:
    """Kind -> name -> defaults; specs that no registry has, such as methods' own encoders, by class."""
    table = {
        kind: {name: field_defaults(registry.cls(name)) for name in built_in(registry)}
        for kind, registry in REGISTRIES.items()
    }
    registered = {TrainConfig} | {registry.cls(name) for registry in REGISTRIES.values() for name in registry.names()}
    table |= {
        f"flags of {kind}s": {name: flags(registry.cls(name)) for name in built_in(registry)}
        for kind, registry in CLASSED.items()
    }
    table["training"] = {"": field_defaults(TrainConfig)}
    table["training of methods"] = {name: changed for name in built_in(METHODS) if (changed := training(name))}
    table["tuned"] = {f"{kind} {name}": registry for kind, name, registry in tuned()}
    unregistered = {
        f"{cls.__module__}.{cls.__qualname__}".partition(".")[2]: cls for cls in specs() if cls not in registered
    }
    table["others"] = {name: values for name in sorted(unregistered) if (values := field_defaults(unregistered[name]))}
    return table


def tuned() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The values that `fglbench tune` tries of each spec, by field: tuned settings were chosen among these."""
    classes = [("training", "", TrainConfig)]
    classes += [
        (kind, name, registry.cls(name)) for kind, registry in REGISTRIES.items() for name in built_in(registry)
    ]
    yield from ((kind, name, shown(tried)) for kind, name, cls in classes if (tried := searched(cls)))


def built_in(registry: Any) -> list[str]:
    """Names of this package; another test of the same process may have registered its own."""
    return [name for name in registry.names() if registry.cls(name).__module__.startswith("fglbench.")]


def text(table: dict[str, dict[str, Any]]) -> str:
    """One line per spec, so that a diff names it."""
    kinds = []
    for kind, names in table.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in names.items())
        kinds.append(f" {json.dumps(kind)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(kinds) + "\n}\n"


def test_every_default_is_the_one_of_the_table() -> None:
    wanted, actual = json.loads(TABLE.read_text()), defaults()
    assert actual.keys() == wanted.keys(), MESSAGE
    for kind in wanted:
        assert actual[kind] == wanted[kind], MESSAGE
    assert text(actual) == TABLE.read_text(), MESSAGE


def test_the_table_has_every_registered_name_and_sees_a_change() -> None:
    table = defaults()
    assert table["training"][""]["lr"] == [0.01, "Gt(gt=0)"] and table["method"]["fedprox"]["mu"][0] == 0.01
    assert all(len(table[kind]) >= 3 for kind in REGISTRIES)
    assert table["tuned"]["method fedprox"]["mu"][0] == {"mu": 0.001}
    assert table["training of methods"]  # SCAFFOLD and others change the protocol


if __name__ == "__main__":
    TABLE.write_text(text(defaults()))
