"""The interface of methods: the base class, phases and steps, and the knowledge of the server.

A run is a list of phases, a phase repeats a round, a round is a list of steps. A step has a client half, which runs on
a client batch and returns the upload, and a server half, which gets the uploads of all participants and returns the
download. The clients that act in the next step find it in `clients.received`. There is no other exchange.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import ValidationError

from ...datasets.federation import Federation, Goal
from ...registry import Registry, Spec, UserError, did_you_mean
from .backbone import BACKBONES, Backbone, Network, Params, initial
from .batch import Batch
from .client_batch import ClientBatch
from .config import TrainConfig
from .device import section
from .lazy import weighted_sum
from .payload import Download, Leaf, Tree, transform
from .views import Facts

METHODS: Registry[Method] = Registry("method")
WHAT = {  # the words of `Method.tasks`
    "node": "node classification", "graph": "sets of graphs", "graph-classification": "graph classification",
    "rows": "all other tasks that predict something of rows",
}  # fmt: skip


def in_words(task: Goal) -> str:
    return WHAT.get(task, task.replace("-", " "))


CHOICES = {"delivers": ("global", "personal"), "features": ("dense", "sparse")}  # the values of class attributes


@dataclass
class Server:
    """The knowledge of the server: public facts, the participants of the round, and the method's `state`."""

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
    domains: bool = False  # each client has its own features and classes, and so its own first and last layers

    @property
    def weights(self) -> torch.Tensor:
        """(participants,) aggregation weights with sum 1; equal if no participant has a weight."""
        everyone = self.participants == list(range(self.clients))  # avoids indexing, which takes longer than the rest
        sizes = self.sizes if everyone else self.sizes[self.participants]
        total = sizes.sum()
        return sizes / total if total > 0 else torch.full((len(sizes),), 1 / len(sizes))

    def initial_model(self, backbone: Backbone | None = None) -> Params:
        """The common initial parameters, without a client axis."""
        model = initial(backbone or self.backbones[0], self.seed, self.features, self.classes)
        return crossing(model) if self.domains else model


OWN_LAYERS = ("input.", "post.", "head.")  # kept at the clients if each has its own features and classes


def crossing(params: Params) -> Params:
    """The parameters that are sent if each client has its own features and classes: all but `OWN_LAYERS`."""
    return {name: value for name, value in params.items() if not name.startswith(OWN_LAYERS)}


def at_home(params: Params) -> Params:
    """The parameters of `OWN_LAYERS`."""
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
    """What every client knows of a run apart from its own data."""

    seed: int
    round: int
    features: int
    classes: int
    config: TrainConfig


@dataclass(frozen=True)
class Step:
    """One exchange: the client half, then the server half, which by default sends nothing.

    only: returns the clients that act, if not all participants of the round do (clients that do not participate are
    left out). It may depend on the round, not on uploads. In the server half, uploads, `participants` and `weights` are
    of the acting clients; uploads are {} if no client acts. Its result is sent once, to the clients that act in the
    next step; a value for later rounds must be kept in `state`.
    shared: a computation that would be the same at every client, on a download that is the same for all. It is done
    once; its result is `clients.shared` in each client half, read-only.
    """

    client: Callable[[ClientBatch], Tree]
    server: Callable[[Server, Tree], Download] = lambda server, uploads: {}
    only: Callable[[Server], Iterable[int]] | None = None
    shared: Callable[[Tree, Common], Any] | None = None


@dataclass(frozen=True)
class Phase:
    """`rounds` repetitions of `steps`. A phase that is not scored prepares another, and none of its rounds is selected.

    everyone: all clients take part, for any `participation`. rounds: a number, or a function of the server (clients
    that take turns).
    """

    steps: tuple[Step, ...]
    rounds: int | Callable[[Server], int]
    scored: bool = True
    name: str = "training"
    everyone: bool = False

    def length(self, server: Server) -> int:
        """The number of rounds of the phase."""
        return self.rounds(server) if callable(self.rounds) else self.rounds


@dataclass(frozen=True)
class Arrangement:
    """The federation that a method trains on, and the rows that are scored.

    scored: per client of the original federation, the row of each of its nodes in the only graph of the trained
    federation; None if each client is scored on its own graph.
    """

    federation: Federation
    scored: list[torch.Tensor] | None = None


class Method(Spec):
    """A federated algorithm. Fields are its hyper-parameters; the docstring gives paper, objective and messages."""

    revision: ClassVar[int] = 1  # raised if the method's numbers change: rows of earlier revisions are outdated
    family: ClassVar[str] = "other"  # a key of `FAMILIES` in benchmark/suites/catalogue.py; inherited
    summary: ClassVar[str] = ""  # what it does, in a few words
    # For tables and figures: display name, venue with year, links to the paper and to the authors' code. `summary` and
    # these four are not inherited.
    title: ClassVar[str] = ""
    venue: ClassVar[str] = ""
    paper_url: ClassVar[str] = ""
    code_url: ClassVar[str] = ""
    # The tasks that the method can do; inherited. "node" is node classification. Add "graph-classification" if the
    # method uses only rows, labels, models and losses, and no edge, feature or neighbour. Add "rows" (link prediction,
    # regression and every other task that is not in WHAT) if it also takes its loss from `ClientBatch.loss` and needs
    # no classes. A subclass that uses more sets ("node",).
    tasks: ClassVar[tuple[Goal, ...]] = ("node",)
    # Can each client have its own features and classes? Then only models may be sent, without their first and last
    # layers. Inherited.
    heterogeneous_features: ClassVar[bool] = False
    delivers: ClassVar[Literal["global", "personal"]] = "global"
    heterogeneous: ClassVar[bool] = False  # can its clients have different architectures?
    fixed_backbone: ClassVar[str | None] = None  # the architecture that the method prescribes, if any
    travels: ClassVar[bool] = True  # can a client's model be scored on another graph than its own?
    reference: ClassVar[bool] = False  # centralised or without training: shown, but not ranked
    # Does each client know the edges between its nodes and other clients' nodes (`NodeClient.outside`)? Inherited.
    edges_between_clients: ClassVar[bool] = False
    # Does `predict_own` read what a client received or keeps, and that changes between rounds? Inherited.
    predicts_by_state: ClassVar[bool] = False
    trains: ClassVar[bool] = True  # False: a reference that learns and draws nothing

    # -- where it applies -------------------------------------------------------------------------------------------

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        for name, choices in CHOICES.items():
            if isinstance(value := vars(cls).get(name), str) and value not in choices:
                raise did_you_mean(value, choices, f"{cls.__name__}.{name}")
        if isinstance(cls.tasks, str):
            raise UserError(f"{cls.__name__}.tasks is a tuple of names: write tasks = ({cls.tasks!r},)")
        for task in cls.tasks:
            if task not in WHAT:
                raise did_you_mean(str(task), WHAT, f"task of {cls.__name__}")
        _check_hooks(cls)

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            super().__setattr__(name, value)
        except ValidationError:
            keep = "keep what changes in `client.state` or `server.state`"
            raise UserError(f"{type(self).__name__}.{name} cannot be set in a run: {keep}") from None

    def skip(self, facts: Facts, backbones: Sequence[Backbone]) -> str | None:
        """Return why the method does not apply to this federated dataset or these backbones, or None."""
        if not self.is_for(facts.task):
            return self.only_for(facts.task)
        if facts.domains and not self.heterogeneous_features:
            return f"{self.name} is not defined for clients that have different features and classes"
        if self.edges_between_clients and facts.overlap:
            return f"{self.name} needs to know which client a neighbour belongs to, and here a node belongs to several"
        return self.cannot_mix(len(backbones)) or None

    @classmethod
    def is_for(cls, task: Goal) -> bool:
        """Whether the method can be run on a task."""
        return (task if task in WHAT else "rows") in cls.tasks

    @classmethod
    def only_for(cls, task: Goal) -> str:
        """Why the method cannot be run on a task that it is not for."""
        return f"{cls.name} is defined for {' and '.join(map(in_words, cls.tasks))}, not for {in_words(task)}"

    @classmethod
    def cannot_mix(cls, architectures: int) -> str:
        """Why the method cannot be run with this number of architectures; empty if it can."""
        mixes = architectures == 1 or cls.heterogeneous
        return "" if mixes else f"{cls.name} averages whole models and cannot mix architectures"

    @classmethod
    def takes_minibatches(cls) -> bool:
        """Whether a step may use a part of a client's training nodes: the loss uses rows, labels and models only."""
        return "graph-classification" in cls.tasks

    def protocol(self, config: TrainConfig) -> TrainConfig:
        """The training configuration of the method, given that of the suite. `ADJUSTABLE` fields may change."""
        return config

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        """The backbones of the method, given those of the suite: these, or `fixed_backbone` with their options; each
        one changed by `adapt`."""
        if self.fixed_backbone is not None:
            shared = set(Backbone.model_fields)
            backbones = [
                BACKBONES.build(self.fixed_backbone, {k: v for k, v in given.params().items() if k in shared})
                for given in backbones
            ]
        return [self.adapt(backbone) for backbone in backbones]

    def adapt(self, backbone: Backbone) -> Backbone:
        """Return the architecture that the method makes of a backbone."""
        return backbone

    def arrange(self, federation: Federation) -> Arrangement:
        """Return the data that the method trains on. Only the package's own references may override this."""
        return Arrangement(federation)

    # -- the exchange -----------------------------------------------------------------------------------------------

    def phases(self, config: TrainConfig) -> list[Phase]:
        return [Phase((Step(self.client, self.server),), config.rounds)]

    def prepare(self, clients: ClientBatch) -> None:
        """Initialise the clients, before any exchange. Called once per client batch."""

    def open(self, server: Server) -> Download:
        """Initialise the server, once; return what the clients receive before their first step."""
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
        """The clients' models (K, ...), or None. `clients.received` is the last download."""
        return None

    @torch.no_grad()
    def predict(self, params: Params, network: Network, data: Sequence[Batch]) -> torch.Tensor:
        """(N, C) class scores of models (K, ...) on the given data. The client axis of a shared model is expanded."""
        return network.forward(params, data).logits

    @torch.no_grad()
    def predict_own(self, params: Params, clients: ClientBatch) -> torch.Tensor:
        """(N, C) class scores on the clients' own nodes. Override it if predictions depend on a client's state."""
        return self.predict(params, clients.network, clients.data)


def _check_hooks(cls: type[Method]) -> None:
    """UserError for a misspelt hook: a public function that overrides nothing, is used nowhere in its class, and has
    nearly the name of a function of a base class."""
    own = _functions(cls)
    bases = [_functions(base) for base in cls.__mro__[1:] if issubclass(base, Method)]
    hooks = {name for base in bases for name in base if not name.startswith("_")} - own.keys()
    used = {name for function in own.values() for name in _names(function.__code__)}
    for name in own.keys() - used:
        new = not name.startswith("_") and not any(hasattr(base, name) for base in cls.__mro__[1:])
        if new and (near := difflib.get_close_matches(name, hooks, n=1, cutoff=0.8)):
            fix = "if it is a function of your own, begin its name with _"
            raise UserError(f"{cls.__name__}.{name} overrides nothing: did you mean {near[0]}? ({fix})")


def _functions(cls: type) -> dict[str, FunctionType]:
    """The functions of a class, without those of its bases; decorated ones as they were before."""
    routines = {name: value for name, value in vars(cls).items() if inspect.isroutine(value)}
    plain = {name: inspect.unwrap(getattr(value, "__func__", value)) for name, value in routines.items()}
    return {name: value for name, value in plain.items() if inspect.isfunction(value)}


def _names(code: CodeType) -> set[str]:
    """The attributes and globals that a function uses, also in functions inside it."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names, inner))


# The fields that `protocol` may change. It may also lower `local_epochs`.
ADJUSTABLE = {
    "optimiser", "lr", "weight_decay", "momentum", "keep_optimiser", "grad_clip", "batch_size", "weighting",
}  # fmt: skip
CLUSTERING = {"select_by": "last", "patience": None, "score_on": "global"}  # of every method for sets of graphs


def answer(method: Method, hook: str, given: Any) -> Any:
    """The result of the hook `protocol` or `architecture` of a method for `given`. UserError if it fails."""
    try:
        return getattr(method, hook)(given)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{method.name}: `{hook}` fails with {type(error).__name__}: {error!s:.200}") from error


def asked_training(method: Method, config: TrainConfig) -> TrainConfig:
    """The result of `protocol` for a configuration. UserError if it is no configuration."""
    answered = answer(method, "protocol", config)
    if type(answered) is not type(config):
        fix = "return the configuration, changed by model_copy(update={...})"
        raise UserError(f"{method.name}: `protocol` returns a {type(answered).__name__}; {fix}")
    changed: TrainConfig = answered
    return changed


def effective_training(method: Method, config: TrainConfig) -> TrainConfig:
    """The training configuration of a method, given that of the suite.

    UserError if `protocol` changes more than it may: rounds, more epochs, patience, conditions or the score.
    """
    asked = asked_training(method, config)
    changed = [name for name in TrainConfig.model_fields if getattr(asked, name) != getattr(config, name)]
    wrong = [name for name in changed if name not in ADJUSTABLE]
    if set(method.tasks) == {"graph"}:
        wrong = [name for name in wrong if name not in CLUSTERING or getattr(asked, name) != CLUSTERING[name]]
    if asked.local_epochs <= config.local_epochs:
        wrong = [name for name in wrong if name != "local_epochs"]
    if wrong:
        change = f"{method.name} changes {', '.join(wrong)} in `protocol`"
        raise UserError(f"{change}: the suite decides that; a method may change {', '.join(sorted(ADJUSTABLE))}")
    if asked_training(method, asked) != asked:
        raise UserError(f"{method.name}: `protocol` changes its own result again; set values there, do not scale them")
    return asked
