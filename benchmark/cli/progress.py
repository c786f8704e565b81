"""The display while cells run: a line for each finished cell and, on a terminal, a bar with the remaining time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column

from ..runner.backend import Observer
from ..runner.plan import Item
from ..store.schema import Row


class Display(Observer):
    """The unit of the bar is a round, so that it moves during long cells. figure: the value shown for a cell."""

    def __init__(self, console: Console, figure: Literal["score", "val"] = "score") -> None:
        self.console, self.figure = console, figure
        self.cells, self.count = 0, Counter[str]()
        self.rounds: dict[tuple[str, str], int] = {}
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12, table_column=Column(min_width=12)),
            TextColumn("{task.percentage:>3.0f}%", table_column=Column(min_width=4)),
            TimeElapsedColumn(table_column=Column(min_width=7)),
            TextColumn("ETA"),
            TimeRemainingColumn(table_column=Column(min_width=7)),
            TextColumn("{task.fields[now]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
            console=console,
            expand=True,
            disable=not console.is_terminal,
        )

    def begun(self, items: Sequence[Item]) -> None:
        self.cells, total = len(items), sum(item.cell.training.rounds for item in items)
        self.bar = self.progress.add_task(self._description(), total=total, now="starting workers")
        self.progress.start()

    def ended(self) -> None:
        self.progress.stop()

    def started(self, item: Item) -> None:
        self.progress.update(self.bar, now=str(item.cell))

    def round(self, item: Item, number: int, figures: dict[str, Any]) -> None:
        value = figures.get(self.figure)
        shown = f" {value:.3f}" if isinstance(value, float) and value == value else ""
        self._advance(item, number, now=f"{item.cell}{shown}")

    def finished(self, item: Item, row: Row, *, elsewhere: bool) -> None:
        self.count[row.status] += 1
        self._advance(item, item.cell.training.rounds, description=self._description())
        figure: float | None = getattr(row, self.figure)
        what = f"{figure:.4f}" if row.status == "ok" and figure is not None else f"{row.status}: {row.error}"
        seconds = "elsewhere" if elsewhere else f"{row.total_seconds:.1f} s" if row.total_seconds is not None else ""
        line = f"[{sum(self.count.values())}/{self.cells}] {item.cell}  {what}  {seconds}"
        self.console.print(line.rstrip(), soft_wrap=True)

    def _advance(self, item: Item, number: int, **shown: Any) -> None:
        self.rounds[item.suite, item.cell.key] = min(number, item.cell.training.rounds)
        self.progress.update(self.bar, completed=sum(self.rounds.values()), **shown)

    def _description(self) -> str:
        bad = sum(count for status, count in self.count.items() if status not in ("ok", "skipped"))
        return f"{sum(self.count.values())}/{self.cells} runs" + (f", {bad} failed" if bad else "")
