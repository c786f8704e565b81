"""What rows that differ in their seed alone have in common, worked out once for all of them."""

from __future__ import annotations

from functools import cached_property
from operator import attrgetter

from ...methods import METHODS
from ...registry import UserError
from ..engine.config import TrainConfig
from ..store.schema import Row
from ..suites.cell import NAMING, Cell, Choice, settled


class Kin:
    """Of a row and all that name the same cell but for the seed. Names are looked up as they are known now."""

    def __init__(self, row: Row, choices: dict[tuple[str, str], Choice] | None = None) -> None:
        self._row, self._choices = row, choices
        self._seeds: dict[int, Cell] = {}

    def at(self, seed: int) -> Cell:
        """The cell with this seed. ValueError as `cell`."""
        if seed not in self._seeds:
            self._seeds[seed] = self.cell.at(seed)
        return self._seeds[seed]

    @cached_property
    def cell(self) -> Cell:
        """The cell of one of the seeds. ValueError where the columns name none."""
        return Cell.of(self._row, self._choices)

    @cached_property
    def settled(self) -> Cell:
        """That cell as this version fills it in. ValueError as `cell`, UserError as `suites.cell.settled`."""
        return settled(self.cell)

    @cached_property
    def effective(self) -> TrainConfig:
        """The training that the method makes of what it is given. UserError where the method is unknown."""
        return self.cell.method.build(METHODS).protocol(self.cell.training)

    @cached_property
    def given(self) -> str:
        """The training of the cell as rows have it."""
        return self.cell.training_json

    @cached_property
    def ran(self) -> str:
        """The training that the method makes of it. UserError as `effective`."""
        return self.cell.model_copy(update={"training": self.effective}).training_json

    @cached_property
    def scheduled(self) -> int | None:
        """How many rounds of the method are scored if none is cut short; None where unknown or the data decide."""
        try:
            phases = self.cell.method.build(METHODS).phases(self.effective)
        except UserError:
            return None
        lengths = [phase.rounds for phase in phases if phase.scored]
        return None if any(map(callable, lengths)) else sum(lengths)


class Kindred:
    """Rows read together: each asks for its `Kin`."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Kin] = {}
        self._choices: dict[tuple[str, str], Choice] = {}

    def of(self, row: Row) -> Kin:
        columns = _columns(row)
        if columns not in self._known:
            self._known[columns] = Kin(row, self._choices)
        return self._known[columns]


_columns = attrgetter(*NAMING)
