"""The papers' own results, cell by cell, and what each of their tables is among our cells.

    tables.csv    1074 printed results: figures are facts, cited by paper and table; empty where a figure is not legible
    NAME.yaml     one paper: citation, the meaning of its words (`map`), its claims, its errors, our choices
                  and its readings

Readings are what a paper leaves open, each way to read it with the cells that it makes.
The suite of a table has the table's key in the YAML file (`fgssl-table1`) and is in benchmark/suites/.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import product
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = ["Claim", "Extra", "Filter", "Paper", "Place", "Printed", "Reading", "Table", "papers", "printed", "tables"]


@cache
def printed() -> tuple[Printed, ...]:
    """Every printed result, in the order of the papers' tables."""
    text = resources.files(__package__).joinpath("tables.csv").read_text(encoding="utf-8")
    return tuple(Printed.model_validate(row) for row in csv.DictReader(text.splitlines()))


@cache
def papers() -> tuple[Paper, ...]:
    files = sorted(
        (path for path in resources.files(__package__).iterdir() if path.name.endswith(".yaml")), key=lambda p: p.name
    )
    read = [Paper.model_validate(yaml.safe_load(path.read_text(encoding="utf-8"))) for path in files]
    return tuple(sorted(read, key=lambda paper: [row.paper for row in printed()].index(paper.name)))


@cache
def tables() -> dict[str, tuple[Paper, Table]]:
    """(paper, table) by the name of the table's suite."""
    return {suite: (paper, table) for paper in papers() for suite, table in paper.tables.items()}


# Which rows: a column's value, or for columns of JSON the parameters that must have these values (null: not there).
# Of mixed architectures a model's parameter is asked of all of them together.
Filter = dict[str, str | int | dict[str, Any]]
Name = Annotated[str, Field(pattern=r"([a-z0-9]+(-[a-z0-9]+)*)?")]


class Reading(BaseModel):
    """One way to read a protocol: which cells are its own, and which of their rounds is scored.

    The first of a list is the base. It, or what the figure's words mean, says by value what others change, unless that
    is a parameter that rows have only where it is not at its default. Another reading is the base with its own `where`
    for the methods that it concerns, and `shared` for all; else rows of the other methods are the base's, and
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

    def leaves(self, words: Filter) -> bool:
        """Whether the rows of a figure whose words mean `own` are the base's."""
        elsewhere = bool(self.datasets) and words.get("dataset") not in self.datasets
        return elsewhere or any(merged(words, each) == words for each in self.unless)

    def concerns(self, words: Filter) -> bool:
        """Whether its own `where` is about a figure whose words mean `own`."""
        return not self.leaves(words) and (not self.methods or words.get("method") in self.methods)

    def changes(self, base: Reading, words: Filter) -> bool:
        """Whether a figure whose words mean `own` may be another under it than under the base."""
        if self == base:
            return False
        other_rows = (bool(self.where or self.choose) and self.concerns(words)) or bool(self.shared)
        return self.round != base.round or (other_rows and not self.leaves(words))

    def options(self, words: Filter) -> list[Filter]:
        """What the rows of a figure may have: one filter, or one for each value that is to be chosen from."""
        if self.leaves(words):
            return [{}]
        if not self.concerns(words):
            return [self.shared]
        given = merged(self.shared, self.where)
        values = product(*self.choose.values())
        picked: list[Filter] = [{"method_params": dict(zip(self.choose, each, strict=True))} for each in values]
        return [merged(given, each) for each in picked] if self.choose else [given]


def merged(*filters: Mapping[str, Any]) -> Filter:
    """All that the filters ask for; of two values for one thing the later."""
    filter: Filter = {}
    for each in filters:
        for column, wanted in each.items():
            old = filter.get(column)
            filter[column] = old | wanted if isinstance(old, dict) and isinstance(wanted, dict) else wanted
    return filter


def cells(readings: Iterable[Reading], reading: Reading, words: Filter) -> list[Filter]:
    """The rows of a figure, whose words mean `own`, under one of the readings: a filter for each option."""
    base, *others = readings
    absent = [_without(option) for each in (base, *others) for option in each.options(words)]
    given = merged(*absent, base.options(words)[0], words)
    return [merged(given, option) for option in (reading.options(words) if reading in others else [{}])]


def _without(option: Filter) -> Filter:
    """The parameters that a filter names, as not there."""
    return {column: dict.fromkeys(wanted) for column, wanted in option.items() if isinstance(wanted, dict)}


AXES = ("dataset", "partition", "clients", "split", "method", "variant", "metric")
COLUMNS = {"accuracy": "score", "clustering_accuracy": "score", "f1_macro": "macro_f1"}  # a metric's column of a row

Place = tuple[str, ...]  # a value for each of a table's column axes
Value = Annotated[float | None, BeforeValidator(lambda text: None if text == "" else text)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Printed(_Frozen):
    """One figure of a table, in the paper's words; mean and std in the unit of `metric`, None where not given."""

    paper: str
    table: str
    dataset: str
    partition: str
    clients: str
    split: str
    method: str
    variant: str
    metric: str
    mean: Value
    std: Value
    notes: str

    @property
    def column(self) -> str:
        """The column of our rows that is compared, in [0, 1]."""
        return COLUMNS[self.metric.removesuffix("_%")]

    @property
    def scale(self) -> int:
        """What our figures are multiplied by: 100 for percent, 1 for fractions."""
        return 100 if self.metric.endswith("_%") else 1

    @property
    def place(self) -> dict[str, str]:
        return {axis: str(getattr(self, axis)) for axis in AXES}


class Extra(_Frozen):
    """Cells of the suite that belong to no figure of the table, shown below it under each reading."""

    name: str
    where: Filter


class Claim(_Frozen):
    """`better` beats each of `worse`, wherever the table has both (in `where`: values of the other axes)."""

    better: str
    worse: list[str]
    where: dict[str, list[str]] = {}


class Table(_Frozen):
    """A table of a paper. rows, columns: the axes that span it; the other keys: see docs/reproduction.md."""

    table: str
    shows: str
    rows: list[str] = Field(min_length=1, max_length=1)
    columns: list[str] = Field(min_length=1)
    blocks: list[list[str]] = Field([], description="values of the first column axis that stand side by side")
    everywhere: dict[str, str] = Field({}, description="a value of an axis that holds for all columns")
    map: dict[str, dict[str, Filter]] = {}
    averages: dict[str, dict[str, list[str]]] = Field({}, description="a value of an axis that is a mean over others")
    labels: dict[str, str | dict[str, str]] = {}
    readings: list[Reading] = Field([], description="of this table alone, besides the paper's")
    extra: list[Extra] = []
    claims: list[Claim] = []
    choices: list[str] = []
    errors: list[str] = []

    def line(self, figure: Printed) -> str:
        """The line of a figure."""
        return figure.place[self.rows[0]]

    def column(self, figure: Printed) -> Place:
        """The column of a figure."""
        return tuple(figure.place[axis] for axis in self.columns)


class Paper(_Frozen):
    """A paper's tables; `map`, `readings`, `averages`, `labels` and `choices` hold for all, tables add to them."""

    name: str
    citation: str
    seeds: str
    map: dict[str, dict[str, Filter]] = {}
    readings: list[Reading] = [Reading()]
    stated: Name = Field("", description="the reading that follows what the paper states; none: the first")
    averages: dict[str, dict[str, list[str]]] = {}
    labels: dict[str, str | dict[str, str]] = {}
    choices: list[str] = []
    tables: dict[str, Table]

    def where(self, table: Table, row: Printed) -> Filter:
        """The cells of the table's suite that belong to a printed figure, averages excepted.

        Raises KeyError for a word of the paper that is not in `map`.
        """
        return merged(*(self._meaning(table, axis, value) for axis, value in row.place.items()))

    def readings_of(self, table: Table) -> list[Reading]:
        """The base, then the others."""
        return [*self.readings, *table.readings]

    def cells(self, table: Table, reading: Reading, words: Filter) -> list[Filter]:
        """The cells of the table's suite whose words mean `own`, under a reading: a filter for each of its options."""
        return cells(self.readings_of(table), reading, words)

    def _meaning(self, table: Table, axis: str, value: str) -> Filter:
        for words in (table.map.get(axis, {}), self.map.get(axis, {})):
            if value in words:
                return words[value]
        if axis == "clients":
            return {"clients": int(value)}
        if axis == "metric" or not value:
            return {}
        raise KeyError(f"{self.name}, table {table.table}: {axis} {value!r} is not mapped")

    def components(self, table: Table, row: Printed) -> list[Printed]:
        """The printed places over which a figure is a mean; the figure's own place where it is none."""
        places = product(*self._averaged(table, row))
        return [row.model_copy(update=dict(zip(AXES, values, strict=True))) for values in places]

    def meanings(self, table: Table, row: Printed) -> list[Filter]:
        """What the words of a figure mean, or those of each place that it is a mean over: see `where`."""
        return [self.where(table, part) for part in self.components(table, row)]

    def is_mean(self, table: Table, row: Printed) -> bool:
        """Whether a figure is a mean over others of the table."""
        return any(len(values) > 1 for values in self._averaged(table, row))

    def _averaged(self, table: Table, row: Printed) -> list[list[str]]:
        """The values of each axis over which a figure is a mean."""
        averages = self.averages | table.averages
        return [averages.get(axis, {}).get(value, [value]) for axis, value in row.place.items()]

    def label(self, table: Table, axis: str, value: str) -> str:
        """The heading of a value of an axis."""
        for words in (table.labels.get(axis), self.labels.get(axis)):
            if isinstance(words, str):
                return words.format(value)
            if words and value in words:
                return words[value]
        return value

    def rows(self, table: Table, figures: tuple[Printed, ...]) -> Iterator[Printed]:
        """The printed figures of a table."""
        return (row for row in figures if (row.paper, row.table) == (self.name, table.table))
