"""Which method for which data at which cost: the boards' answer in a few sentences, each with where its evidence is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .regimes import ALONE
from .standings import Standings
from .text import data_size, number, plain, points, slug

AVERAGE = "fedavg"
CHEAP = 0.1  # of FedAvg's traffic


class Sentence(NamedTuple):
    """A sentence, the id of the table that it comes from, and the title of that table's board."""

    text: str
    table: str
    board: str


def answers(boards: Sequence[Standings]) -> list[Sentence]:
    """The extremes of the regimes, then traffic, each from the first board whose rows can answer."""
    regimes = next((found for each in boards if (found := _regimes(each))), [])
    return regimes + next((found for each in boards if (found := _traffic(each))), [])


def _regimes(standings: Standings) -> list[Sentence]:
    suite, regimes = slug(standings.board.suite), standings.regimes
    names = [name for name, datasets in regimes.regimes.items() if regimes.gain(datasets)]
    title = standings.board.title
    return [
        Sentence(regimes.brief(name), f"regimes:{suite}", title) for name in dict.fromkeys([*names[:1], *names[-1:]])
    ]


def _traffic(standings: Standings) -> list[Sentence]:
    told, suite = _thrifty(standings), slug(standings.board.suite)
    return [Sentence(told, f"overall:{suite}", standings.board.title)] if told else []


def _thrifty(standings: Standings) -> str:
    """The first of the methods that send a tenth of FedAvg's bytes or less, but something."""
    table, against = standings.table if standings.board.ranked else None, standings.contest.against
    if table is None or AVERAGE not in against or standings.contest.unit == "none":
        return ""
    traffic = {str(name): float(value) for name, value in table["traffic"].items()}
    usual = traffic[AVERAGE]
    cheap = table[(table["traffic"] > 0) & (table["traffic"] <= CHEAP * usual)]
    told = []
    for name in [*cheap.index[:1], *(own for own in (ALONE,) if own in against[AVERAGE])]:
        own, sent = against[AVERAGE][name], traffic[name]
        share = f"{data_size(sent)}, {number(100 * sent / usual, 1)}%" if sent else "nothing"
        gap = f"{points(own.mean)} points ({points(own.low)} to {points(own.high)})"
        told.append(f"{plain(name)} sends {share} of FedAvg's {data_size(usual)} and lies {gap} from FedAvg")
    return f"When traffic counts: {'; '.join(told)}." if told else ""
