"""The printed results of the papers, and the cells of our suites that correspond to them.

    tables.csv    1074 printed results, cited by paper and table; empty if a figure is not legible
    NAME.yaml     one paper: citation, the meaning of its words (`map`), its claims, its errors, our choices
                  and its readings

A reading is one interpretation of what a paper does not specify, with the cells that follow from it. The suite of a
table has the key of the table in the YAML file (`fgssl-table1`) and is in benchmark/suites/.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from itertools import product
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


@cache
def printed() -> tuple[Printed, ...]:
    """All printed results, in the order of the papers' tables."""
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


# A condition on rows: a column's value, or for a column of JSON the values of parameters (null: absent parameter). For
# mixed architectures, a parameter of a model is compared over all of them together.
Filter = dict[str, str | int | dict[str, Any]]
Name = Annotated[str, Field(pattern=r"([a-z0-9]+(-[a-z0-9]+)*)?")]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Reading(_Frozen):
    """One reading of a protocol: the rows of each figure, and the round that is scored.

    The first reading of a paper is the base. It, or the words of a figure, gives a value for all that other readings
    change, except for a parameter that rows have only if it is not at its default. Another reading adds `where` to the
    base for its methods, and `shared` for all methods. Figures of other `datasets`, and those in `unless`, have the
    rows of the base. In the methods below, `words` is the filter that the words of a figure mean.
    """

    id: Name = Field("", description="short; heading of its column on the page and in the CSV")
    meaning: str = Field("", description="one sentence")
    source: str = Field("", description="the passage of the paper or its code, or who made the choice")
    methods: list[str] = Field([], description="our names of the methods that it concerns; none: all")
    datasets: list[str] = Field([], description="our names of the datasets that it concerns; none: all")
    unless: list[Filter] = Field([], description="figures that match one of these have the rows of the base")
    where: Filter = Field({}, description="filter of the rows of `methods`")
    shared: Filter = Field({}, description="filter of the rows of all methods, if `methods` is given")
    choose: dict[str, list[Any]] = Field(
        {}, description="parameters of the method and their values; validation chooses among them for each figure"
    )
    round: Literal["best", "last"] | Annotated[int, Field(ge=1)] = Field(
        "best", description="the round whose score is compared for all methods: the best round, or one of the history"
    )

    def leaves(self, words: Filter) -> bool:
        """Whether a figure has the rows of the base."""
        other_dataset = bool(self.datasets) and words.get("dataset") not in self.datasets
        return other_dataset or any(merged(words, each) == words for each in self.unless)

    def concerns(self, words: Filter) -> bool:
        """Whether `where` applies to a figure."""
        return not self.leaves(words) and (not self.methods or words.get("method") in self.methods)

    def changes(self, base: Reading, words: Filter) -> bool:
        """Whether our value of a figure may differ from that under the base."""
        if self == base:
            return False
        other_rows = (bool(self.where or self.choose) and self.concerns(words)) or bool(self.shared)
        return self.round != base.round or (other_rows and not self.leaves(words))

    def options(self, words: Filter) -> list[Filter]:
        """The filters that a reading adds for a figure: one, or one for each value in `choose`."""
        if self.leaves(words):
            return [{}]
        if not self.concerns(words):
            return [self.shared]
        given = merged(self.shared, self.where)
        values = product(*self.choose.values())
        picked: list[Filter] = [{"method_params": dict(zip(self.choose, each, strict=True))} for each in values]
        return [merged(given, each) for each in picked] if self.choose else [given]


def merged(*filters: Mapping[str, Any]) -> Filter:
    """One filter with all conditions; of two values for one column or parameter the later counts."""
    filter: Filter = {}
    for each in filters:
        for column, wanted in each.items():
            old = filter.get(column)
            filter[column] = old | wanted if isinstance(old, dict) and isinstance(wanted, dict) else wanted
    return filter


def cells(readings: Iterable[Reading], reading: Reading, words: Filter) -> list[Filter]:
    """The filters of the rows of a figure under one of the readings, one for each option. words: see `Reading`."""
    base, *others = readings
    asked = [pair for each in (base, *others) for option in each.options(words) for pair in option.items()]
    absent = [{column: dict.fromkeys(wanted)} for column, wanted in asked if isinstance(wanted, dict)]
    given = merged(*absent, base.options(words)[0], words)
    return [merged(given, option) for option in (reading.options(words) if reading in others else [{}])]


AXES = ("dataset", "partition", "clients", "split", "method", "variant", "metric")
COLUMNS = {"accuracy": "score", "clustering_accuracy": "score", "f1_macro": "macro_f1"}  # metric -> column of a row

Place = tuple[str, ...]  # a value for each of a table's column axes
Value = Annotated[float | None, BeforeValidator(lambda text: None if text == "" else text)]


class Printed(_Frozen):
    """One figure of a table, in the words of the paper; mean and std in the unit of `metric`, or None."""

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
        """The column of our rows to compare, in [0, 1]."""
        return COLUMNS[self.metric.removesuffix("_%")]

    @property
    def scale(self) -> int:
        """The factor from our fractions to the unit of the table: 100 for percent, else 1."""
        return 100 if self.metric.endswith("_%") else 1

    @property
    def place(self) -> dict[str, str]:
        return {axis: str(getattr(self, axis)) for axis in AXES}


class Extra(_Frozen):
    """Cells of the suite without a figure in the table; shown below it under each reading."""

    name: str
    where: Filter


class Claim(_Frozen):
    """`better` beats each of `worse` in every column with both. where: axis -> the values of these columns."""

    better: str
    worse: list[str]
    where: dict[str, list[str]] = {}


class Table(_Frozen):
    """A table of a paper. rows, columns: its axes; for the other keys see docs/reproduction.md."""

    table: str
    shows: str
    rows: list[str] = Field(min_length=1, max_length=1)
    columns: list[str] = Field(min_length=1)
    blocks: list[list[str]] = Field([], description="values of the first column axis that are shown side by side")
    everywhere: dict[str, str] = Field({}, description="a value of an axis that applies to all columns")
    map: dict[str, dict[str, Filter]] = {}
    averages: dict[str, dict[str, list[str]]] = Field({}, description="a value of an axis that is a mean over others")
    labels: dict[str, str | dict[str, str]] = {}
    readings: list[Reading] = Field([], description="of this table only, added to those of the paper")
    extra: list[Extra] = []
    claims: list[Claim] = []
    choices: list[str] = []
    errors: list[str] = []

    def line(self, figure: Printed) -> str:
        return figure.place[self.rows[0]]

    def column(self, figure: Printed) -> Place:
        return tuple(figure.place[axis] for axis in self.columns)


class Paper(_Frozen):
    """A paper. `map`, `readings`, `averages`, `labels` and `choices` apply to all tables, which add to them."""

    name: str
    citation: str
    seeds: str
    map: dict[str, dict[str, Filter]] = {}
    readings: list[Reading] = [Reading()]
    stated: Name = Field("", description="the reading that the paper states; none: the first")
    averages: dict[str, dict[str, list[str]]] = {}
    labels: dict[str, str | dict[str, str]] = {}
    choices: list[str] = []
    tables: dict[str, Table]

    def where(self, table: Table, row: Printed) -> Filter:
        """The filter of the cells of a printed figure that is no average.

        Raises KeyError for a word of the paper that is not in `map`.
        """
        return merged(*(self._meaning(table, axis, value) for axis, value in row.place.items()))

    def readings_of(self, table: Table) -> list[Reading]:
        """The readings of a table, the base first."""
        return [*self.readings, *table.readings]

    def cells(self, table: Table, reading: Reading, words: Filter) -> list[Filter]:
        """The filters of the rows of a figure under a reading, one for each option. words: see `Reading`."""
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
        """The printed places over which a figure is a mean; of other figures the place itself."""
        places = product(*self._averaged(table, row))
        return [row.model_copy(update=dict(zip(AXES, values, strict=True))) for values in places]

    def meanings(self, table: Table, row: Printed) -> list[Filter]:
        """`where` of each of the components of a figure."""
        return [self.where(table, part) for part in self.components(table, row)]

    def is_mean(self, table: Table, row: Printed) -> bool:
        """Whether a figure is a mean over others of the table."""
        return any(len(values) > 1 for values in self._averaged(table, row))

    def _averaged(self, table: Table, row: Printed) -> list[list[str]]:
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

    def figures(self, table: Table) -> list[Printed]:
        """The printed figures of a table."""
        return [row for row in printed() if (row.paper, row.table) == (self.name, table.table)]
