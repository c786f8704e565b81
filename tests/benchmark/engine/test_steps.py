"""Messages, their bytes by hand, detected writes; steps with some of the clients; measured sections."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterable

import pytest
import torch

from fglbench.benchmark.engine import (
    BACKBONES,
    METHODS,
    ClientBatch,
    Common,
    Download,
    Each,
    Method,
    Phase,
    Server,
    Step,
    TrainConfig,
    Tree,
    device,
    section,
)
from fglbench.benchmark.engine.backbone import Network
from fglbench.benchmark.engine.payload import ABSENT, Own, Seal, deliver, merge, tree_bytes, walk
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.datasets.federation import Federation


def test_bytes_are_counted_per_value() -> None:
    tree = {
        "model": {"w": torch.zeros(2, 3, 4), "b": torch.zeros(2, 4, dtype=torch.float64)},
        "ids": [torch.zeros(5, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)],
        "flag": torch.zeros(2, dtype=torch.bool),
    }
    assert tree_bytes(tree, 2) == [3 * 4 * 4 + 4 * 8 + 5 * 8 + 1, 3 * 4 * 4 + 4 * 8 + 1]
    shared = deliver({"w": torch.zeros(7)}, [3, 4, 5], [0])
    assert tree_bytes(shared, 3) == [28, 28, 28]


def test_a_leaf_without_one_value_per_client_is_refused() -> None:
    with pytest.raises(ValueError, match="each of 3 clients, this one holds 2"):
        tree_bytes({"w": torch.zeros(2, 5)}, 3)
    with pytest.raises(TypeError, match="not float"):
        tree_bytes({"w": 0.5}, 1)


def test_personal_downloads_reach_their_clients() -> None:
    message = Each({"w": torch.arange(4.0), "l": [torch.tensor(k) for k in range(4)]}, clients=[2, 5, 7, 9])
    got = deliver(message, [9, 5], [0])
    assert got["w"].tolist() == [3.0, 1.0] and [int(v) for v in got["l"]] == [3, 1]
    with pytest.raises(RuntimeError, match=r"no download for clients \[3\]"):
        deliver(message, [3, 5], [0])
    assert deliver(message, [3, 5], [0], partial=True) == {}
    assert deliver(Each({"w": torch.arange(2.0)}), [4, 6], [4, 6])["w"].tolist() == [0.0, 1.0]


def test_merge_keeps_client_order() -> None:
    one = {"w": torch.tensor([1.0, 2.0]), "l": [torch.zeros(1), torch.zeros(2)], "d": {"x": torch.zeros(2, 1)}}
    two = {"w": torch.tensor([3.0]), "l": [torch.zeros(3)], "d": {"x": torch.ones(1, 1)}}
    both = merge([one, two])
    assert both["w"].tolist() == [1, 2, 3] and [len(v) for v in both["l"]] == [1, 2, 3]
    assert both["d"]["x"].flatten().tolist() == [0, 0, 1]


def test_seal_sees_a_write() -> None:
    value, view = torch.zeros(3), torch.zeros(2)
    seal = Seal()
    seal.close({"v": value}, "an upload")
    seal.close(Each({"l": [view]}), "a download")
    seal.check()
    seal.close(deliver({"v": value}, [0, 1], [0]), "a download")
    value.add_(1)
    with pytest.raises(RuntimeError, match="a download was written to"):
        seal.check()


def test_walk_visits_leaves_of_only_one_tree() -> None:
    seen = []

    def note(kind: int | None, *leaves: object) -> object:
        seen.append((kind, *leaves))
        return ABSENT if leaves[0] == "drop" else leaves[0]

    one = {"a": 1, Own(3, "w"): {"x": "drop", "y": 2}, "d": {}}
    two = {"a": 4, Own(3, "w"): {"y": 5}, "new": {"z": 6}}
    assert walk(note, one, two) == {"a": 1, Own(3, "w"): {"y": 2}, "d": {}, "new": {}}
    assert seen == [(None, 1, 4), (3, "drop", ABSENT), (3, 2, 5), (None, ABSENT, 6)]


def test_a_key_of_one_architecture_survives_copies() -> None:
    key = Own(2, "0.weight")
    for again in (copy.deepcopy(key), pickle.loads(pickle.dumps(key))):
        assert (again, again.kind, again.name) == (key, 2, "0.weight")
    assert Own(1, "0.weight") != key and not key.startswith("shared.")


def test_rows_of_some_clients_are_taken_and_put_back_group_by_group() -> None:
    kinds = [BACKBONES.build(name, {"hidden": 4}) for name in ("gcn", "mlp")]
    network = Network(kinds, [3, 4, 5, 6])  # architectures 1, 0, 1, 0
    odd, even = Own(1, "w"), Own(0, "w")
    tree = {"all": torch.arange(4), odd: torch.tensor([3, 5]), even: torch.tensor([4, 6]), "list": [3, 4, 5, 6]}
    part = network.take(tree, [0, 2])
    assert part["all"].tolist() == [0, 2] and part["list"] == [3, 5]
    assert part[odd].tolist() == [3, 5] and even not in part
    part = {name: value * 10 for name, value in part.items() if name != "list"} | {"new": [torch.zeros(1)] * 2}
    back = network.put(tree, [0, 2], part)
    assert back["all"].tolist() == [0, 1, 20, 3] and back["list"] == [3, 4, 5, 6]
    assert back[odd].tolist() == [30, 50] and back[even] is tree[even]
    assert [entry is None for entry in back["new"]] == [False, True, False, True]
    assert list(back) == ["all", odd, even, "list", "new"] and tree["all"].tolist() == [0, 1, 2, 3]
    assert list(network.select([0, 2]).init(0, 5, 3)) == [key for key in network.init(0, 5, 3) if key.kind == 1]


Make = Callable[..., Federation]
SIZES = (13, 7, 10, 9)
EPOCHS = 2


class Turns(Method):
    """Every client shows 3 floats in each of two rounds; the others answer with one each; it gets the answers' sum."""

    def prepare(self, clients: ClientBatch) -> None:
        clients.state["log"] = [torch.zeros(0) for _ in clients.ids]

    def open(self, server: Server) -> Download:
        return {"start": torch.tensor([7.0])}

    def phases(self, config: TrainConfig) -> list[Phase]:
        turn = (
            Step(self.show, self.relay, only=self.owner),
            Step(self.answer, self.total, only=self.other_clients, shared=self.square),
        )
        return [Phase((Step(self.begin, lambda *_: {}),), 1), Phase(turn, lambda server: server.clients * EPOCHS)]

    @staticmethod
    def owner(server: Server) -> list[int]:
        return [(server.round - 1) // EPOCHS]

    @classmethod
    def other_clients(cls, server: Server) -> Iterable[int]:
        return set(range(server.clients)) - set(cls.owner(server))

    @staticmethod
    def note(clients: ClientBatch, name: str) -> None:
        received = clients.received.get(name)
        for k in range(len(clients)):
            message = torch.zeros(0) if received is None else received[k]
            clients.state["log"][k] = torch.cat([clients.state["log"][k], message])

    def begin(self, clients: ClientBatch) -> Tree:
        self.note(clients, "start")
        return {}

    def show(self, clients: ClientBatch) -> Tree:
        assert len(clients) == 1
        assert set(clients.received) <= {"sum"}
        self.note(clients, "sum")
        return {"word": torch.full((1, 3), float(10 * clients.round))}

    def relay(self, server: Server, uploads: Tree) -> Download:
        assert server.participants == self.owner(server) and server.weights.tolist() == [1.0]
        return {"word": uploads["word"][0]}

    @staticmethod
    def square(message: Tree, common: Common) -> torch.Tensor:
        CALLS.append(common.round)
        return message["word"].square().sum() + common.classes

    def answer(self, clients: ClientBatch) -> Tree:
        self.note(clients, "word")
        return {"answer": torch.stack([clients.shared + client for client in clients.ids])}

    def total(self, server: Server, uploads: Tree) -> Download:
        assert server.participants == sorted(self.other_clients(server))
        return {"sum": uploads["answer"].sum().view(1)} if server.round % EPOCHS else {}


CALLS: list[int] = []


def exchange_of(method: Method, federation: Federation, size: int, participation: float = 1.0) -> Simulation:
    CALLS.clear()
    config = TrainConfig(participation=participation)
    return Simulation(method, method.arrange(federation), [BACKBONES.build("gcn", {"hidden": 4})], config, 0, size)


def logs(simulation: Simulation) -> list[list[float]]:
    return [entry.tolist() for clients in simulation.client_batches for entry in clients.state["log"]]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_messages_of_turns_reach_their_clients(size: int, federation: Make) -> None:
    method = Turns()
    simulation = exchange_of(method, federation(SIZES), size)
    begin, turns = method.phases(simulation.config)
    simulation.round(begin, 1)
    assert (simulation.upload_bytes, simulation.download_bytes) == ([0] * 4, [4] * 4)  # the start, once, to everyone
    for number in range(1, turns.length(simulation.server) + 1):
        simulation.round(turns, number)
    expected = []
    for client in range(4):
        log = [7.0]
        for number in range(1, 9):
            if (number - 1) // EPOCHS != client:
                log += [10.0 * number] * 3
            elif number % EPOCHS == 0:  # the sum of the round before: 3 answers of 3 (10 r)^2 + classes + their id
                word = 3 * (10 * (number - 1)) ** 2 + simulation.server.classes
                log.append(3.0 * word + 6 - client)
        expected.append(log)
    assert logs(simulation) == expected
    assert list(range(1, 9)) == CALLS  # once per step, for any number of client batches
    # Up: two words of 12 bytes as owner, six answers of 4. Down: the start, six words, one sum.
    assert simulation.upload_bytes == [2 * 12 + 6 * 4] * 4
    assert simulation.download_bytes == [4 + 6 * 12 + 4] * 4
    assert all(clients.shared is None for clients in simulation.client_batches)


class Addressed(Turns):
    """A separate message for each client of `whom` after the first step, in which only client 1 acts."""

    whom: tuple[int, ...] | None = None
    then: tuple[int, ...] = (0, 2)

    def phases(self, config: TrainConfig) -> list[Phase]:
        return [
            Phase(
                (
                    Step(lambda _: {}, self.personal, only=lambda _: [1]),
                    Step(self.read, lambda *_: {}, only=lambda _: self.then),
                    Step(self.read, lambda *_: {}),
                ),
                1,
            )
        ]

    def personal(self, server: Server, uploads: Tree) -> Download:
        whom = server.participants if self.whom is None else self.whom
        return Each({"word": [torch.full((k + 1,), float(k)) for k in whom]}, self.whom)

    def read(self, clients: ClientBatch) -> Tree:
        self.note(clients, "word")
        return {}


@pytest.mark.parametrize("size", [1, 3, 4])
def test_a_personal_download_is_delivered_once_to_the_next_active_clients(size: int, federation: Make) -> None:
    method = Addressed(whom=(0, 1, 2, 3))
    simulation = exchange_of(method, federation(SIZES), size)
    simulation.round(method.phases(simulation.config)[0], 1)
    assert logs(simulation) == [[0.0], [], [2.0, 2.0, 2.0], []]
    assert simulation.download_bytes == [4, 4, 12, 0]  # client 1: the start; 1 and 3 did not act


def test_a_client_without_a_download_cannot_act(federation: Make) -> None:
    for method, missing in ((Addressed(whom=(0, 1)), r"\[2\]"), (Addressed(), r"\[0, 2\]")):
        simulation = exchange_of(method, federation(SIZES), 4)
        with pytest.raises(RuntimeError, match=f"no download for clients {missing}"):
            simulation.round(method.phases(simulation.config)[0], 1)
    again = Addressed(then=(1,))  # the default addresses the active clients
    simulation = exchange_of(again, federation(SIZES), 2)
    simulation.round(again.phases(simulation.config)[0], 1)
    assert logs(simulation) == [[], [1.0, 1.0], [], []]


def test_only_narrows_the_participants_of_the_round(federation: Make) -> None:
    acted: list[list[int]] = []

    def server(server: Server, uploads: Tree) -> Download:
        acted.append(list(server.participants))
        assert (uploads == {}) == (not server.participants)
        return {}

    def client(clients: ClientBatch) -> Tree:
        return {"id": torch.tensor(clients.ids)}

    chosen: list[list[int]] = []

    def only(server: Server) -> list[int]:
        chosen.append(list(server.participants))
        return [3, 0, 99]

    method = Turns()
    simulation = exchange_of(method, federation(SIZES), 2, participation=0.5)
    phase = Phase((Step(client, server, only=only), Step(client, server)), 1)
    for number in range(1, 9):
        simulation.round(phase, number)
    assert acted[::2] == [[c for c in participants if c in (0, 3)] for participants in chosen] and acted[1::2] == chosen
    assert [] in acted and all(len(participants) == 2 for participants in chosen)


def test_shared_needs_one_download_for_all_clients(federation: Make) -> None:
    method = Addressed(whom=(0, 1, 2, 3))
    simulation = exchange_of(method, federation(SIZES), 4)
    first, second, _ = method.phases(simulation.config)[0].steps
    steps = (first, Step(second.client, second.server, shared=Turns.square))
    with pytest.raises(RuntimeError, match="the same for everyone"):
        simulation.round(Phase(steps, 1), 1)


def test_nested_sections_share_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(device.time, "perf_counter", lambda: now[0])

    @section("outer")
    def work(depth: int) -> int:
        """Docs."""
        now[0] += 1
        with section("inner"):
            now[0] += 10
        return work(depth - 1) + 1 if depth else 0

    assert work(1) == 1 and (work.__name__, work.__doc__) == ("work", "Docs.")  # not measured
    with device.measure() as table:
        assert work(2) == 2
    assert table == {"outer": 3, "inner": 30}
    work(0)
    assert table == {"outer": 3, "inner": 30}


def test_the_engine_times_a_methods_halves_and_objective(federation) -> None:
    world = federation((13, 7, 10, 9))
    method, config = METHODS.build("fedprox"), TrainConfig()
    simulation = Simulation(method, method.arrange(world), [BACKBONES.build("gcn")], config, 0)
    with device.measure() as table:
        simulation.round(method.phases(config)[0], 1)
    assert {"client half", "server half", "objective", "loss", "backward", "aggregation"} <= set(table)
