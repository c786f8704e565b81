"""Speed as ratios: rounds of a client batch, of single clients and of centralised training, measured in alternation."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from ...datasets import DATASETS, PARTITIONS, SPLITS, Federation, build_federation
from ...methods import METHODS
from ..engine import BACKBONES, Backbone, Facts, Method, SparseMatrix, TrainConfig, collate, to_torch_csr, whole_client
from ..engine.device import measure, settle
from ..engine.placing import on
from ..engine.train import set_up
from ..runner.system import opened, peak_memory, reset_peak_memory
from ..suites.plugins import load_plugins

Line = dict[str, Any]  # a line of a table: heading -> value


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one kind of round: median, quartiles and mean."""

    median: float
    low: float
    high: float
    mean: float

    def __str__(self) -> str:
        return f"{self.median:.1f} [{self.low:.1f}, {self.high:.1f}]"


class Conditions(NamedTuple):
    """The common conditions of all rounds of a table."""

    federation: Federation
    backbones: list[Backbone]
    config: TrainConfig


def conditions(dataset: str, clients: int, threads: int, epochs: int) -> Conditions:
    """GCN-64 with the partition and split of the leaderboard: Louvain, 20/40/40 per client, raw features for Cora,
    CiteSeer and PubMed.

    Sets the number of threads of this process.
    """
    torch.set_num_threads(threads)
    data = DATASETS.build(dataset, {"features": "raw"} if dataset in ("cora", "citeseer", "pubmed") else {}).load()
    split = SPLITS.build("ratio", {"train": 0.2, "val": 0.4, "test": 0.4})
    federation = build_federation(data, PARTITIONS.build("louvain"), split, clients, 0)
    return Conditions(federation, [BACKBONES.build("gcn")], TrainConfig(local_epochs=epochs))


def alternate(
    cases: Mapping[str, Callable[[], object]],
    rounds: int,
    warmup: int = 3,
    clock: Callable[[], float] = time.perf_counter,
    in_a_row: int = 1,
) -> dict[str, Timing]:
    """Time all cases in alternation, `rounds` turns after `warmup` turns, so that changes of the machine affect all.

    in_a_row: calls of a case per turn; their mean is one time. If a case returns a float, this is its time in seconds
    (for a case that works in another process).
    """
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    gc.collect()
    gc.disable()  # a collection would count for the case during which it happens
    try:
        for turn in range(warmup + rounds):
            for name, work in cases.items():
                start = clock()
                results = [work() for _ in range(in_a_row)]
                elapsed = clock() - start
                if turn >= warmup:
                    returned = [result for result in results if isinstance(result, float)]
                    seconds[name].append((sum(returned) if returned else elapsed) / in_a_row)
    finally:
        gc.enable()
    return {name: _timing(values) for name, values in seconds.items()}


def _timing(seconds: Sequence[float]) -> Timing:
    low, median, high = 1e3 * np.quantile(seconds, (0.25, 0.5, 0.75), method="weibull")
    return Timing(median, low, high, 1e3 * float(np.mean(seconds)))


class RoundOf:
    """A call runs one round of a method's last phase, with the evaluation of the protocol.

    before: for each earlier phase its name, rounds, milliseconds per round, and seconds of each part. Earlier phases
    run in full first, because the last one needs their results. rounds: of the last phase in a whole run.
    """

    def __init__(
        self, conditions: Conditions, method: Method, *, clients_per_batch: int | None = None, evaluate: bool = True
    ) -> None:
        """Raises the errors of training."""
        federation, backbones, config = conditions
        self.simulation, self.evaluator = set_up(federation, method, backbones, config, 0, clients_per_batch)
        config = self.simulation.config
        *earlier, self.phase = method.phases(config)
        self.before: list[tuple[str, int, Timing, dict[str, float]]] = []
        for phase in earlier:
            seconds = []
            with measure() as table:
                for number in range(1, phase.length(self.simulation.server) + 1):
                    start = self.simulation.seconds
                    self.simulation.round(phase, number)
                    seconds.append(self.simulation.seconds - start)
            self.before.append((phase.name, len(seconds), _timing(seconds), _with_other(table, sum(seconds))))
        self.rounds = self.phase.length(self.simulation.server)
        self.evaluates = evaluate and self.phase.scored
        self.data, self.number = config.score_on, 0

    def __call__(self) -> None:
        self.number += 1
        self.simulation.round(self.phase, self.number)
        if self.evaluates:
            models = self.simulation.models()
            self.evaluator.score(models, "personal" if models.server is None else "global", self.data)


def centralised(
    federation: Federation, config: TrainConfig, hidden: int = 64, dropout: float = 0.5
) -> Callable[[], None]:
    """A function that trains a two-layer GCN on the whole graph for E epochs in plain PyTorch: the reference for speed.

    CSR features, CSR adjacency, torch's dropout, torch.optim.Adam, no evaluation. Only the constant matrices are the
    engine's.
    """
    batch = collate([whole_client(federation)])
    (a, a_transposed), rows, label = both_ways(batch.gcn), batch.rows["train"], batch.label
    x, x_transposed = both_ways(batch.x.matrix) if batch.x.sparse else (batch.x.dense(), batch.x.dense().T)

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, dense: torch.Tensor, matrix: torch.Tensor, transposed: torch.Tensor) -> torch.Tensor:
            ctx.transposed = transposed
            return matrix @ dense

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
            return ctx.transposed @ grad, None, None

    first = torch.nn.Linear(x.shape[1], hidden)
    second = torch.nn.Linear(hidden, federation.num_classes)
    weights = [*first.parameters(), *second.parameters()]
    optimiser = torch.optim.Adam(weights, config.lr, weight_decay=config.weight_decay)

    def epochs() -> None:
        for _ in range(config.local_epochs):
            optimiser.zero_grad()
            z = Product.apply(Product.apply(first.weight.T, x, x_transposed), a, a_transposed)
            h = F.dropout(torch.relu(z + first.bias), dropout)
            z = Product.apply(h @ second.weight.T, a, a_transposed) + second.bias
            F.cross_entropy(z[rows], label[rows]).backward()
            optimiser.step()
        settle()

    return epochs


def both_ways(matrix: SparseMatrix) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix and its transpose as torch CSR tensors."""
    return to_torch_csr(matrix.scipy()), to_torch_csr(matrix.scipy().T.tocsr())


def shares(work: RoundOf, rounds: int) -> dict[str, float]:
    """Milliseconds per round of each section; "other" is the rest."""
    work()
    start = time.perf_counter()
    with measure() as table:
        for _ in range(rounds):
            work()
    total = (time.perf_counter() - start) * 1e3 / rounds
    return _with_other({name: seconds * 1e3 / rounds for name, seconds in table.items()}, total)


def _with_other(parts: dict[str, float], total: float) -> dict[str, float]:
    return {**parts, "other": total - sum(parts.values())}


def measure_case(
    dataset: str, clients: int, rounds: int, threads: int, epochs: int, device: str = "cpu"
) -> tuple[Line, Line, Line]:
    """FedAvg with GCN-64 on one federation, as lines of three tables: the round, its parts, its memory.

    Call it in a new process: peak memory is that of the process after three rounds.
    """
    given, method = conditions(dataset, clients, threads, epochs), METHODS.build("fedavg")
    with on(opened(device)):
        reset_peak_memory()
        stacked = RoundOf(given, method)
        for _ in range(3):
            stacked()
        peak = peak_memory()
        cases: dict[str, Callable[[], None]] = {"together": stacked}
        cases["centralised"] = centralised(given.federation, given.config)
        cases["ones"] = RoundOf(given, method, clients_per_batch=1)
        sizes = [len(c) for c in stacked.simulation.client_batches]
        if len(sizes) > 1:
            cases["uncut"] = RoundOf(given, method, clients_per_batch=clients)
        cases["global"] = RoundOf(given, METHODS.build("global"), evaluate=False)
        timings = alternate(cases, rounds)
        parts = shares(stacked, rounds)
    total = sum(parts.values())
    percent = {name: f"{ms:.2f} ({ms / total:.0%})" for name, ms in parts.items()}
    about, memory = {"dataset": dataset, "clients": clients}, "" if peak is None else f"{peak:.0f}"
    return about | _round(timings, sizes), about | percent, about | {"peak, MiB": memory}


def _round(timings: dict[str, Timing], sizes: list[int]) -> Line:
    """One line with the milliseconds of every kind of round. sizes: clients in each client batch."""
    whole, ones, base = (timings[name] for name in ("together", "ones", "centralised"))
    return {
        "batches": "1 batch" if len(sizes) == 1 else f"{len(sizes)} batches of {max(sizes)}",
        "round, ms": whole,
        "centralised E epochs, ms": base,
        "round / centralised": f"{whole.median / base.median:.2f}x",
        "one at a time, ms": ones,
        "one by one / batch": f"{ones.median / whole.median:.1f}x",
        "uncut, ms": timings.get("uncut", ""),
        "centralised in our engine, ms": timings["global"],
    }


def _phase(method: str, fedavg: Timing, name: str, rounds: int, timing: Timing, parts: dict[str, float]) -> Line:
    """A line of the table of methods. The total uses the mean, so that a slow first round counts."""
    total = sum(parts.values())
    top = sorted(parts.items(), key=lambda item: -item[1])[:3]
    return {
        "method": method,
        "phase": name,
        "rounds": rounds,
        "total, s": f"{rounds * timing.mean / 1e3:.1f}",
        "ms a round": f"{timing.median:.1f}",
        "relative to FedAvg": f"{timing.median / fedavg.median:.2f}x",
        "largest parts": ", ".join(f"{part} {value / total:.0%}" for part, value in top),
    }


def measure_methods(
    dataset: str, clients: int, rounds: int, threads: int, epochs: int, device: str = "cpu",
    names: Sequence[str] = (), plugins: Sequence[str] = (),
) -> list[Line]:  # fmt: skip
    """Time these methods, or all that apply, phase by phase, in alternation with FedAvg.

    Only the last phase is timed in alternation. plugins: files or modules to load first.
    """
    load_plugins(plugins)
    given = conditions(dataset, clients, threads, epochs)
    lines = list[Line]()
    with on(opened(device)):
        for method in map(METHODS.build, names or METHODS.names()):
            if method.skip(Facts.of(given.federation), method.architecture(given.backbones)):
                continue
            measured, fedavg = RoundOf(given, method), RoundOf(given, METHODS.build("fedavg"))
            timings = alternate({"own": measured, "fedavg": fedavg}, rounds, warmup=2)
            last = measured.phase.name, measured.rounds, timings["own"], shares(measured, 5)
            lines += [_phase(method.name, timings["fedavg"], *phase) for phase in [*measured.before, last]]
    return lines
