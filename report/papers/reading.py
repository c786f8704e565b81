"""Readings: what a paper leaves open, each way to read it with the cells that it makes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

# Which rows: a column's value, or for columns of JSON the parameters that must have these values (null: not there).
# Of mixed architectures a model's parameter is asked of all of them together.
Filter = dict[str, str | int | dict[str, Any]]
Name = Annotated[str, Field(pattern=r"([a-z0-9]+(-[a-z0-9]+)*)?")]


class Reading(BaseModel):
    """One way to read a protocol: which cells are its own, and which of their rounds is scored.

    The first of a list is the base. It, or what the figure's words mean, says by value what others change, unless that
    is a parameter that rows have only where it is not at its default. Another reading is the base with its own `where`
    for the methods that it concerns, and `shared` for all; but for that, rows of the other methods are the base's, and
    so are those of all figures whose rows it leaves alone (other `datasets`, `unless`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Name = Field("", description="short; heads its column on the page and in the CSV")
    meaning: str = Field("", description="one sentence")
    source: str = Field("", description="where the paper or its code says so, or whose choice it is")
    methods: list[str] = Field([], description="our names of the methods that it concerns; none: all")
    datasets: list[str] = Field([], description="our names of the datasets that it is about; none: all")
    unless: list[Filter] = Field([], description="figures whose words mean all of one of these have the base's rows")
    where: Filter = Field({}, description="what their rows have")
    shared: Filter = Field({}, description="what the rows of all methods have, where `methods` names some")
    choose: dict[str, list[Any]] = Field(
        {}, description="parameters of the method, of whose values the best on validation is taken, a figure at a time"
    )
    round: Literal["best", "last"] | Annotated[int, Field(ge=1)] = Field(
        "best", description="the round whose score is compared, of all methods: the row's own, or one of its history"
    )

    def leaves(self, own: Filter) -> bool:
        """Whether the rows of a figure whose words mean `own` are the base's."""
        elsewhere = bool(self.datasets) and own.get("dataset") not in self.datasets
        return elsewhere or any(merged(own, each) == own for each in self.unless)

    def concerns(self, own: Filter) -> bool:
        """Whether its own `where` is about a figure whose words mean `own`."""
        return not self.leaves(own) and (not self.methods or own.get("method") in self.methods)

    def changes(self, base: Reading, own: Filter) -> bool:
        """Whether a figure whose words mean `own` may be another under it than under the base."""
        if self == base:
            return False
        other_rows = (bool(self.where or self.choose) and self.concerns(own)) or bool(self.shared)
        return self.round != base.round or (other_rows and not self.leaves(own))

    def options(self, own: Filter) -> list[Filter]:
        """What the rows of a figure may have: one filter, or one for each value that is to be chosen from."""
        if self.leaves(own):
            return [{}]
        if not self.concerns(own):
            return [self.shared]
        given = merged(self.shared, self.where)
        values = product(*self.choose.values())
        picked: list[Filter] = [{"method_params": dict(zip(self.choose, each, strict=True))} for each in values]
        return [merged(given, each) for each in picked] if self.choose else [given]


def merged(*filters: Mapping[str, Any]) -> Filter:
    """All that the filters ask for; of two values for one thing the later."""
    found: Filter = {}
    for each in filters:
        for column, wanted in each.items():
            old = found.get(column)
            found[column] = old | wanted if isinstance(old, dict) and isinstance(wanted, dict) else wanted
    return found


def cells(readings: Iterable[Reading], reading: Reading, own: Filter) -> list[Filter]:
    """The rows of a figure, whose words mean `own`, under one of the readings: a filter for each option."""
    base, *others = readings
    absent = [_without(option) for each in (base, *others) for option in each.options(own)]
    given = merged(*absent, base.options(own)[0], own)
    return [merged(given, option) for option in (reading.options(own) if reading in others else [{}])]


def _without(option: Filter) -> Filter:
    """The parameters that a filter names, as not there."""
    return {column: dict.fromkeys(wanted) for column, wanted in option.items() if isinstance(wanted, dict)}
