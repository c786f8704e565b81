"""Methods in ordinary PyTorch: a `torch.nn.Module` and any training loop, one client at a time.

The clients of a round train one after the other, which is slower than the batched computation of the other methods.
Clients, splits, seeds, evaluation, counted bytes and counted optimiser steps are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import dgl
import torch
from pydantic import PrivateAttr
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from ...datasets.federation import GraphClient, NodeClient
from ...registry import UserError
from .backbone import Network, Params
from .batch import Batch
from .client_batch import ClientBatch, Skip
from .config import TrainConfig
from .device import here, on_host
from .method import Method, Server, average
from .module_backbone import State, client_graphs, drawing, generators_kept, seed_generators, state_of
from .optim import count_torch_step
from .payload import Download, Each, Leaf, Tree
from .rng import stream
from .sampled_batch import cut

MODEL = "model"
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass
class Client:
    """One client, as the argument of a training loop.

    graph: its DGLGraph, both directions of every edge, no self-loops; a set of graphs is one batched graph. feat:
    (nodes, d) float32, dense or sparse CSR by `TorchMethod.features`. label: int64, one per node (or graph), -1 if it
    is hidden. train_mask, val_mask, test_mask: bool, one per label. config: the training configuration;
    `config.local_epochs` is the number for this client in this round. received: the last download, without a client
    axis. state: values that the method keeps at this client between rounds. round: from 1.
    """

    id: int
    graph: dgl.DGLGraph
    feat: torch.Tensor
    label: torch.Tensor
    train_mask: torch.Tensor
    val_mask: torch.Tensor
    test_mask: torch.Tensor
    config: TrainConfig
    classes: int
    received: Tree = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    round: int = 0

    def optimiser(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """A new `torch.optim` optimiser by the training configuration: Adam, or SGD with momentum, with its learning
        rate and weight decay. Other optimisers may be used: all steps are counted. Keep it in `state` to use it in
        the next round."""
        config = self.config
        if config.optimiser == "adam":
            return torch.optim.Adam(parameters, config.lr, weight_decay=config.weight_decay, fused=True)
        return torch.optim.SGD(parameters, config.lr, config.momentum, weight_decay=config.weight_decay, fused=True)

    def batches(self) -> Iterator[tuple[dgl.DGLGraph, torch.Tensor, torch.Tensor]]:
        """Minibatches of `config.batch_size` training graphs of a set of graphs: batched graph, feat, label. The order
        is drawn by torch's generator."""
        graphs, of_nodes = dgl.unbatch(self.graph), torch.split(self.feat, self.graph.batch_num_nodes().tolist())
        train = self.train_mask.nonzero().squeeze(1)
        order = train[torch.randperm(len(train))].numpy()
        for picks in cut(order, self.config.batch_size) if len(order) else []:
            some = dgl.batch([graphs[i] for i in picks])
            yield some, torch.cat([of_nodes[i] for i in picks]), self.label[torch.from_numpy(picks)]


class TorchMethod(Method):
    """A federated method in ordinary PyTorch. Define `build` and `train`; override the rest where it differs.

    build(features, classes) makes the model, a module that is called as model(graph, feat) and returns the class scores
    of all nodes (of all graphs of a batched graph, if `tasks` says so).
    train(model, client) trains the model of one client in place and returns the upload: a dict of tensors, of dicts of
    tensors, and of modules (their state is uploaded); None uploads the model alone.
    aggregate(server, uploads) returns the download; uploads have one entry per participant, (K, ...). The default is
    FedAvg: the weighted mean of the uploaded models.
    init_server(server) returns the download before the first round.

    With `delivers = "global"` a client trains from the received "model", and the last one is scored. With "personal" it
    continues from its own last model, which is scored; `train` may use `client.received`.
    """

    features: ClassVar[Literal["dense", "sparse"]] = "dense"
    _modules: dict[Shapes, nn.Module] = PrivateAttr(default_factory=dict)  # one per shapes of parameters

    def model_post_init(self, context: Any, /) -> None:
        for hook in ("build(features, classes)", "train(model, client)"):
            name = hook.partition("(")[0]
            if getattr(type(self), name) is getattr(TorchMethod, name):
                fix = "define it (`fglbench new method NAME --torch` writes an example)"
                raise UserError(f"{type(self).__name__} has no `{hook}`: {fix}")

    # -- what a method defines --------------------------------------------------------------------------------------

    def build(self, features: int, classes: int) -> nn.Module:
        raise NotImplementedError

    def train(self, model: nn.Module, client: Client) -> Tree | None:
        raise NotImplementedError

    def aggregate(self, server: Server, uploads: Tree) -> Download:
        if MODEL not in uploads:
            raise UserError(f"{self.name} uploads no 'model': define `aggregate` to say what the server sends")
        return {MODEL: average(uploads[MODEL], server.weights)}

    def init_server(self, server: Server) -> Download:
        return {MODEL: self.initial(server)}

    @torch.no_grad()
    def scores(self, model: nn.Module, graph: dgl.DGLGraph, feat: torch.Tensor) -> torch.Tensor:
        """Return the class scores that are evaluated; model is in evaluation mode."""
        logits: torch.Tensor = model(graph, feat)
        return logits

    # -- what the engine calls --------------------------------------------------------------------------------------

    def initial(self, server: Server) -> State:
        """Return the state of the common initial model, made by `build` with the seed of the run."""
        return self._initial(server.seed, server.features, server.classes)

    def _initial(self, seed: int, features: int, classes: int) -> State:
        with drawing(stream(seed, "initialisation")):
            module = self.build(features, classes)
        if not isinstance(module, nn.Module):
            raise UserError(f"{self.name}: `build` returns {type(module).__name__}: return a module")
        state = state_of(module)
        self._modules[_shapes(state)] = module
        return state

    def prepare(self, clients: ClientBatch) -> None:
        if here().type != "cpu":
            raise Skip(f"{self.name} trains clients one by one on the CPU: leave out --device")
        first = self._initial(clients.streams.seed, clients.features, clients.classes)
        clients.params = {name: value.expand(len(clients), *value.shape).clone() for name, value in first.items()}
        with on_host():
            clients.state["clients"] = [
                _client(number, member, clients, self.features)
                for number, member in zip(clients.ids, clients.members, strict=True)
            ]

    def open(self, server: Server) -> Download:
        server.state["sent"] = self.init_server(server)
        return self._sent(server)

    def _sent(self, server: Server) -> Download:
        sent: Download = server.state["sent"]
        if not isinstance(sent, dict | Each):
            raise UserError(f"{self.name}: the download is {type(sent).__name__}: `aggregate` returns a dict")
        if self.delivers == "global" and (isinstance(sent, Each) or MODEL not in sent):
            raise UserError(
                f"{self.name} sends no 'model', which a global method is scored by: return {{'model': ...}} as the "
                "download, or set delivers = 'personal'"
            )
        return sent

    def client(self, clients: ClientBatch) -> Tree:
        model, uploads, trained = self._modules[_shapes(clients.params, 1)], [], []
        streams = clients.streams("torch")
        with generators_kept():
            for place, client in enumerate(clients.state["clients"]):
                client.received, client.round = _entry(clients.received, place), clients.round
                epochs = clients.config.local_epochs if clients.epochs is None else clients.epochs[place]
                client.config = clients.config.model_copy(update={"local_epochs": epochs})
                start = {name: value[place] for name, value in clients.params.items()}
                _load(model, start | (client.received[MODEL] if self.delivers == "global" else {}))
                seed_generators(streams[place])
                with _counting_steps(client.id, model), self._explain_sparse_errors():
                    sent = self.train(model.train(), client)
                trained.append(state_of(model))
                uploads.append({MODEL: trained[-1]} if sent is None else _plain(sent))
        clients.params = {name: torch.stack([state[name] for state in trained]) for name in trained[0]}
        return _stacked(uploads)

    @contextmanager
    def _explain_sparse_errors(self) -> Iterator[None]:
        """UserError instead of torch's error if a layer does not support sparse features."""
        try:
            yield
        except (RuntimeError, NotImplementedError) as error:
            if self.features == "sparse" and "sparse" in str(error).lower():
                raise UserError(
                    f"{self.name}: a layer takes no sparse features ({error!s:.200}); leave out features = 'sparse'"
                ) from error
            raise

    def server(self, server: Server, uploads: Tree) -> Download:
        server.state["sent"] = self.aggregate(server, uploads)
        return self._sent(server)

    def global_model(self, server: Server) -> Params | None:
        model: Params | None = server.state["sent"][MODEL] if self.delivers == "global" else None
        return model

    def personal_model(self, clients: ClientBatch) -> Params | None:
        return clients.params

    @torch.no_grad()
    def predict_own(self, params: Params, clients: ClientBatch) -> torch.Tensor:
        parts = [(client.graph, client.feat) for client in clients.state["clients"]]
        return self._scores(params, parts)

    @torch.no_grad()
    def predict(self, params: Params, network: Network, data: Sequence[Batch]) -> torch.Tensor:
        (batch,) = data
        parts = client_graphs(batch, dense=self.features == "dense")
        return self._scores(params, parts)

    def _scores(self, params: Params, parts: Sequence[tuple[dgl.DGLGraph, torch.Tensor]]) -> torch.Tensor:
        model, logits = self._modules[_shapes(params, 1)].eval(), []
        for place, (graph, feat) in enumerate(parts):
            _load(model, {name: value[place] for name, value in params.items()})
            logits.append(self.scores(model, graph, feat))
        return torch.cat(logits)


def _client(number: int, member: NodeClient | GraphClient, clients: ClientBatch, kind: str) -> Client:
    if isinstance(member, NodeClient):
        graph, feat, of = member.graph, member.feat, member.graph.ndata
        label, masks = of["label"], {part: of[f"{part}_mask"].bool() for part in ("train", "val", "test")}
    else:
        graph = dgl.batch([graph.local_var() for graph in member.graphs])
        feat, label, masks = graph.ndata["feat"].float(), member.label, member.masks
    sparse = feat.layout == torch.sparse_csr
    if kind == "dense" and sparse:
        feat = feat.to_dense()
    elif kind == "sparse" and not sparse:
        feat = feat.to_sparse_csr()
    masks = {f"{part}_mask": mask.clone() for part, mask in masks.items()}
    return Client(
        number, graph.local_var(), feat, label.clone(), **masks, config=clients.config, classes=clients.classes
    )


def _shapes(state: State, skip: int = 0) -> Shapes:
    """The names and shapes of parameters, without the first `skip` axes, in any order of the parameters."""
    return tuple((name, tuple(value.shape[skip:])) for name, value in sorted(state.items()))


def _load(module: nn.Module, state: State) -> None:
    module.load_state_dict(state, strict=False)


def _plain(sent: Tree) -> Tree:
    """The upload of a client: modules replaced by their states, tensors copied. UserError for other types."""
    sendable: Tree = {}
    if not isinstance(sent, dict):
        raise UserError(f"`train` returns {type(sent).__name__}: return a dict, or None to upload the model")
    for name, value in sent.items():
        if isinstance(value, nn.Module):
            sendable[name] = state_of(value)
        elif isinstance(value, dict):
            sendable[name] = _plain(value)
        elif isinstance(value, torch.Tensor):
            sendable[name] = value.detach().clone()
        else:
            raise UserError(
                f"`train` returns {name!r} of type {type(value).__name__}: return tensors, dicts of them or modules"
            )
    return sendable


def _entry(tree: Tree, place: int) -> Tree:
    """One client's part of the download of a client batch."""
    return {n: _entry(v, place) if isinstance(v, dict) else v[place] for n, v in tree.items()}


def _stacked(trees: Sequence[Tree]) -> Tree:
    """The clients' uploads as one tree with a client axis. UserError if they do not have the same names."""
    if len({tuple(tree) for tree in trees}) > 1:
        names = sorted({name for tree in trees for name in tree})
        raise UserError(f"clients upload different things: all must return the same names of {', '.join(names)}")

    def joined(values: list[Any]) -> Tree | Leaf:
        if isinstance(values[0], dict):
            return _stacked(values)
        same = len({tuple(value.shape) for value in values}) == 1
        return torch.stack(values) if same else values

    return {name: joined([tree[name] for tree in trees]) for name in trees[0]}


@contextmanager
def _counting_steps(client: int, model: nn.Module) -> Iterator[None]:
    """Count the steps of any torch optimiser in the block as the client's."""
    names = {id(value): name for name, value in model.named_parameters()}

    def count(optimiser: Optimizer, *_: Any) -> None:
        moved = [value for group in optimiser.param_groups for value in group["params"] if value.grad is not None]
        count_torch_step(client, [names.get(id(value), "other") for value in moved])

    hook = register_optimizer_step_post_hook(count)
    try:
        yield
    finally:
        hook.remove()
