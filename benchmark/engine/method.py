"""The method interface: what a paper's algorithm fills in, and what the engine does for it.

A run is a list of phases, a phase repeats a round, a round is a list of steps. A step has a client half, which runs on
a client batch and returns the upload, and a server half, which gets the uploads of all participants and returns what is
sent down; those who act in the next step find it in `clients.received`. Nothing else crosses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from ...datasets.federation import Federation, Goal
from ...registry import Registry, Spec, UserError
from .backbone import BACKBONES, Backbone, Params
from .batch import Batch
from .client_batch import ClientBatch
from .config import TrainConfig
from .device import section
from .lazy import weighted_sum
from .network import Network, initial
from .payload import Download, Leaf, Tree, transform
from .views import Facts

METHODS: Registry[Method] = Registry("method")
WHAT = {  # the words of `Method.tasks`
    "node": "node classification", "graph": "sets of graphs", "graph-classification": "graph classification",
    "rows": "all other tasks that predict something of rows",
}  # fmt: skip


def in_words(task: Goal) -> str:
    return WHAT.get(task, task.replace("-", " "))


RENAMED = {  # class attributes that methods had before, and what to write now
    "task": 'tasks = ("node",)',
    "graphwise": 'tasks = ("node", "graph-classification")',
    "domainwise": "heterogeneous_features = True",
}


@dataclass
class Server:
    """What the server knows: public facts, who takes part in this round, and what the method keeps in `state`."""

    backbones: Sequence[Backbone]
    features: int
    classes: int
    clients: int
    config: TrainConfig
    seed: int
    generator: np.random.Generator
    sizes: torch.Tensor = field(repr=False)  # (clients,) aggregation weights before normalisation
    participants: list[int] = field(default_factory=list)
    round: int = 0  # 1-based, within the phase
    state: dict[str, Any] = field(default_factory=dict)
    domains: bool = False  # clients have features and classes of their own, and so the layers that meet these

    @property
    def weights(self) -> torch.Tensor:
        """(participants,) aggregation weights, summing to 1; equal ones where no client has a weight."""
        everyone = self.participants == list(range(self.clients))  # spares a gather, which takes longer than the rest
        sizes = self.sizes if everyone else self.sizes[self.participants]
        total = sizes.sum()
        return sizes / total if total > 0 else torch.full((len(sizes),), 1 / len(sizes))

    def initial_model(self, backbone: Backbone | None = None) -> Params:
        """The common initial parameters, without a client axis."""
        model = initial(backbone or self.backbones[0], self.seed, self.features, self.classes)
        return crossing(model) if self.domains else model


OWN_LAYERS = ("input.", "post.", "head.")  # where clients have features and classes of their own, these stay at home


def crossing(params: Params) -> Params:
    """The parameters but those of layers that clients of their own domains keep."""
    return {name: value for name, value in params.items() if not name.startswith(OWN_LAYERS)}


def at_home(params: Params) -> Params:
    """The others."""
    return {name: value for name, value in params.items() if name.startswith(OWN_LAYERS)}


@section("aggregation")
def average(values: Tree, weights: torch.Tensor) -> Tree:
    """Weighted sum over the client axis of every (K, ...) leaf."""

    def mean(leaf: Leaf) -> torch.Tensor:
        if isinstance(leaf, list):
            raise TypeError("values of different shapes cannot be averaged")
        return weighted_sum(leaf, weights)

    return transform(values, mean)


@dataclass(frozen=True)
class Common:
    """What every client knows of a run besides its own data."""

    seed: int
    round: int
    features: int
    classes: int
    config: TrainConfig


@dataclass(frozen=True)
class Step:
    """One exchange: the clients' half, then the server's.

    only: the clients that act, where not all participants of the round do (others that it names are left out); given by
    the round, not by what was uploaded. The server half is about them alone: uploads, `participants`, `weights`; where
    no client acts it gets {}. What it returns goes to those who act in the next step, once, and is not kept for others:
    what is meant for later it holds back in `state`.
    shared: what every client would compute alike from a download that is the same for everyone. Computed once, it is
    `clients.shared` in each client half, to be read only. It sees nothing but what all clients know.
    """

    client: Callable[[ClientBatch], Tree]
    server: Callable[[Server, Tree], Download]
    only: Callable[[Server], Iterable[int]] | None = None
    shared: Callable[[Tree, Common], Any] | None = None


@dataclass(frozen=True)
class Phase:
    """`rounds` repetitions of `steps`. A phase that is not scored prepares another and takes no part in selection.

    everyone: all clients take part, at any participation of the training rounds. rounds: a number, or what gives
    it for a federation (clients that take turns).
    """

    steps: tuple[Step, ...]
    rounds: int | Callable[[Server], int]
    scored: bool = True
    name: str = "training"
    everyone: bool = False

    def length(self, server: Server) -> int:
        """How many rounds the phase has with this server's federation."""
        return self.rounds(server) if callable(self.rounds) else self.rounds


@dataclass(frozen=True)
class Arrangement:
    """The federation a method trains on, and whose rows are scored.

    scored: for each client of the original federation, the row in the trained federation's only graph of each of its
    nodes; None where every client is scored on its own graph.
    """

    federation: Federation
    scored: list[torch.Tensor] | None = None


class Method(Spec):
    """A federated algorithm. Fields are its hyper-parameters; the docstring gives paper, objective and messages."""

    revision: ClassVar[int] = 1  # raised when the method's numbers change: rows of earlier ones are outdated
    family: ClassVar[str] = "other"  # a key of `FAMILIES` in benchmark/suites/catalogue.py; inherited
    summary: ClassVar[str] = ""  # what it does, in a few words
    # What tables and figures show of it: display name, venue with year, links to the paper and to the authors' code.
    # None of these five is inherited.
    title: ClassVar[str] = ""
    venue: ClassVar[str] = ""
    paper_url: ClassVar[str] = ""
    code_url: ClassVar[str] = ""
    # Which federations it is for. A method for nodes is for "graph-classification" too if it only uses rows, labels,
    # models and losses, and no edge, feature or neighbour. If it takes its loss from `ClientBatch.loss` and needs no
    # classes, it is for "rows" too: link prediction, regression and every other task that is not in WHAT.
    # Inherited: a subclass that adds such a thing says ("node",).
    tasks: ClassVar[tuple[Goal, ...]] = ("node",)
    # Can each client have its own features and classes? Then only models may cross, whose first and last layers stay
    # at the clients. Inherited too.
    heterogeneous_features: ClassVar[bool] = False
    delivers: ClassVar[Literal["global", "personal"]] = "global"
    heterogeneous: ClassVar[bool] = False  # can its clients have different architectures?
    fixed_backbone: ClassVar[str | None] = None  # the architecture that the method prescribes, if any
    travels: ClassVar[bool] = True  # can a client's model be scored on another graph than its own?
    reference: ClassVar[bool] = False  # centralised, or without training: no competitor, so shown and never ranked
    # Does each client know the edges between its nodes and other clients' nodes (`NodeClient.outside`)? Inherited.
    edges_between_clients: ClassVar[bool] = False
    trains: ClassVar[bool] = True  # False: nothing is learnt or drawn, a reference that the others must beat
    task: ClassVar[Any]  # these three are in RENAMED
    graphwise: ClassVar[Any]
    domainwise: ClassVar[Any]

    # -- where it applies -------------------------------------------------------------------------------------------

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for name, instead in RENAMED.items():
            if name in vars(cls):
                raise UserError(f"{cls.__name__}.{name} is no longer read: write {instead} (CONTRIBUTING.md)")

    def skip(self, facts: Facts, backbones: Sequence[Backbone]) -> str | None:
        """Return why the method does not apply to this federated dataset or these backbones, or None."""
        if not self.is_for(facts.task):
            defined = " and ".join(WHAT[task] for task in self.tasks)
            return f"{self.name} is defined for {defined}, not for {in_words(facts.task)}"
        if facts.domains and not self.heterogeneous_features:
            return f"{self.name} exchanges more than encoders, and the clients' features and classes are their own"
        if self.edges_between_clients and facts.overlap:
            return f"{self.name} needs to know which client a neighbour belongs to, and here a node belongs to several"
        if len(backbones) > 1 and not self.heterogeneous:
            return f"{self.name} averages whole models and cannot mix architectures"
        return None

    @classmethod
    def is_for(cls, task: Goal) -> bool:
        """Whether the method can be run on a task."""
        return (task if task in WHAT else "rows") in cls.tasks

    @classmethod
    def takes_minibatches(cls) -> bool:
        """Whether a step may see some of a client's training nodes: the loss is about rows, labels and models alone."""
        return "graph-classification" in cls.tasks

    def protocol(self, config: TrainConfig) -> TrainConfig:
        """The training configuration the method runs with, where it needs another than the cell's: see `ADJUSTABLE`."""
        return config

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        """The backbones the method runs with: the cell's, or `fixed_backbone` with the cell's width, depth, dropout."""
        if self.fixed_backbone is None:
            return backbones
        shared = set(Backbone.model_fields)
        return [
            BACKBONES.build(self.fixed_backbone, {k: v for k, v in given.params().items() if k in shared})
            for given in backbones
        ]

    def arrange(self, federation: Federation) -> Arrangement:
        """Return the data that the method trains on. Only the package's own references may override this."""
        return Arrangement(federation)

    # -- the exchange -----------------------------------------------------------------------------------------------

    def phases(self, config: TrainConfig) -> list[Phase]:
        return [Phase((Step(self.client, self.server),), config.rounds)]

    def prepare(self, clients: ClientBatch) -> None:
        """Client side, once, before any exchange. Called on the client batch of all clients (or its chunks)."""

    def open(self, server: Server) -> Download:
        """Server side, once: what the clients receive before their first step."""
        return {}

    def client(self, clients: ClientBatch) -> Tree:
        raise NotImplementedError

    def server(self, server: Server, uploads: Tree) -> Download:
        raise NotImplementedError

    # -- what it delivers -------------------------------------------------------------------------------------------

    def global_model(self, server: Server) -> Params | None:
        """The server's model, without a client axis, or None."""
        return None

    def personal_model(self, clients: ClientBatch) -> Params | None:
        """The clients' own models (K, ...), or None. `clients.received` is then the download that awaits them."""
        return None

    @torch.no_grad()
    def predict(self, params: Params, network: Network, data: Sequence[Batch]) -> torch.Tensor:
        """(N, C) class scores of models (K, ...) on the given data; a model shared by all has an expanded axis."""
        return network.forward(params, data).logits

    @torch.no_grad()
    def predict_own(self, params: Params, clients: ClientBatch) -> torch.Tensor:
        """(N, C) class scores on the clients' own nodes, where more of the client's than its data counts."""
        return self.predict(params, clients.network, clients.data)


# What `protocol` may change: how a client descends, and the weights of the average. `local_epochs` may become fewer.
ADJUSTABLE = {
    "optimiser", "lr", "weight_decay", "momentum", "keep_optimiser", "grad_clip", "batch_size", "weighting",
}  # fmt: skip
CLUSTERING = {"select_by": "last", "patience": None, "score_on": "global"}  # of every method for sets of graphs


def answer(method: Method, hook: str, given: Any) -> Any:
    """What `protocol` or `architecture` of a method makes of what is given. UserError where it fails."""
    try:
        return getattr(method, hook)(given)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{method.name}: `{hook}` fails with {type(error).__name__}: {error!s:.200}") from error


def asked_training(method: Method, config: TrainConfig) -> TrainConfig:
    """What `protocol` makes of a configuration. UserError where it is no configuration."""
    answered = answer(method, "protocol", config)
    if type(answered) is not type(config):
        fix = "return the configuration, changed by model_copy(update={...})"
        raise UserError(f"{method.name}: `protocol` returns a {type(answered).__name__}; {fix}")
    changed: TrainConfig = answered
    return changed


def effective_training(method: Method, config: TrainConfig) -> TrainConfig:
    """The training configuration that the method makes of `config`. UserError if `protocol` changes anything else.

    Rounds, epochs, patience, conditions and the score are those of the suite: a method cannot give itself more.
    """
    asked = asked_training(method, config)
    changed = [name for name in TrainConfig.model_fields if getattr(asked, name) != getattr(config, name)]
    wrong = [name for name in changed if name not in ADJUSTABLE]
    if set(method.tasks) == {"graph"}:
        wrong = [name for name in wrong if name not in CLUSTERING or getattr(asked, name) != CLUSTERING[name]]
    if asked.local_epochs <= config.local_epochs:
        wrong = [name for name in wrong if name != "local_epochs"]
    if wrong:
        told = f"{method.name} changes {', '.join(wrong)} in `protocol`"
        raise UserError(f"{told}: the suite decides that; a method may change {', '.join(sorted(ADJUSTABLE))}")
    if asked_training(method, asked) != asked:
        raise UserError(f"{method.name}: `protocol` changes its own result again; set values there, do not scale them")
    return asked
