"""FedALA: every client learns how much of the global model it takes, weight by weight."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..benchmark.engine import METHODS, ClientBatch, Params, Tensors, Tree
from ..registry import option
from .fedavg import FedAvg
from .parts.personal import last_layers


@METHODS.register("fedala")
class FedALA(FedAvg):
    """Zhang et al., AAAI 2023 (arXiv 2212.01197): adaptive local aggregation before local training.

    Client k, with its last model theta_k and the received theta: the lower layers start from theta, the last `layers`
    ones from theta_k + (theta - theta_k) * W_k, with weights W_k in [0, 1] for every entry (at first 1). W_k descends
    the client's loss on a random `share` of its training nodes with all else fixed, W_k <- clip(W_k - eta dL/dW_k):
    once a round, and in its first such round until the losses of ten steps in a row have a standard deviation below
    `threshold`. Then E epochs as FedAvg. In the first round theta_k is theta and there is nothing to learn.
    Server and messages as FedAvg. Scored: theta_k after training. layers = 0 or eta = 0 is FedAvg's training.

    Departures: the released code scores the model after the aggregation, before training; learns W in minibatches of
    images; has no bound on the first learning, which is `first_steps` here. W is learnt without dropout.
    """

    family = "personal"
    summary = "FedAvg whose clients learn how much of each last-layer weight they take from the global model"
    title = "FedALA"
    venue = "AAAI 2023"
    paper_url = "https://arxiv.org/abs/2212.01197"
    code_url = "https://github.com/TsingZ0/FedALA"
    tasks = ("node",)
    delivers = "personal"
    heterogeneous_features = False

    layers: int = option(1, "p, last layers with weights of their own (paper: 1)", ge=0, tune=[1, 2])
    share: float = option(0.8, "s, share of the training nodes that W is learnt on (paper: 0.8)", gt=0, le=1)
    eta: float = option(1.0, "learning rate of W (paper: 1)", ge=0, tune=[0.1, 1.0, 10.0])
    threshold: float = option(0.1, "deviation of ten losses that ends the first learning (code: 0.1)", ge=0)
    first_steps: int = option(50, "most steps of the first learning; our bound", ge=1)

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        names = last_layers(clients.params, self.layers)
        clients.state["share"] = {name: torch.ones_like(clients.params[name]) for name in names}
        clients.state["trained"] = torch.zeros(len(clients))  # rounds in which it took part

    def client(self, clients: ClientBatch) -> Tree:
        received, last = clients.received["model"], clients.params
        names = list(clients.state["share"])
        apart: Tensors = {name: (received[name] - last[name]).detach() for name in names}
        start = {name: last[name].detach().clone() for name in names}
        clients.load(received)
        if names and bool(clients.state["trained"].any()):
            clients.state["share"] = self._learnt(clients, start, apart)
            mixed = self._mixed(start, apart, clients.state["share"])
            was = clients.state["trained"] > 0
            clients.load({n: torch.where(_over(was, v), v, received[n]) for n, v in mixed.items()})
        clients.state["trained"] = clients.state["trained"] + 1
        clients.fit(self.local_loss)
        return {"model": clients.params}

    @staticmethod
    def _mixed(start: Tensors, apart: Tensors, share: Tensors) -> Tensors:
        return {name: start[name] + apart[name] * share[name] for name in start}

    def _learnt(self, clients: ClientBatch, start: Tensors, apart: Tensors) -> Tensors:
        """The clients' new W. A client learns until its losses have settled if this is its first time, else once; who
        has never trained keeps its W."""
        rows = self._sample(clients)
        share, losses = clients.state["share"], list[torch.Tensor]()
        learns = clients.state["trained"] > 0
        for step in range(self.first_steps):
            loss, grads = self._gradient(clients, self._mixed(start, apart, share), rows)
            losses.append(loss)
            share = {
                name: torch.where(
                    _over(learns, value), (value - self.eta * grads[name] * apart[name]).clamp(0, 1), value
                )
                for name, value in share.items()
            }
            learns = learns & (clients.state["trained"] == 1)
            if step >= STEADY:
                learns = learns & ~(torch.stack(losses[-STEADY:]).std(0, unbiased=False) < self.threshold)
            if not bool(learns.any()):
                break
        return share

    def _sample(self, clients: ClientBatch) -> torch.Tensor:
        """Random training rows: `share` of each client's, at least one where it has one."""
        rows, sample = clients.batch.rows["train"], []
        owner = clients.batch.owner[rows]
        for place, source in enumerate(clients.streams("aggregation sample")):
            client_rows = rows[owner == place]
            count = max(1, round(self.share * len(client_rows))) if len(client_rows) else 0
            sample.append(client_rows[torch.from_numpy(source.permutation(len(client_rows))[:count])])
        return torch.cat(sample)

    @staticmethod
    def _gradient(clients: ClientBatch, mixed: Tensors, rows: torch.Tensor) -> tuple[torch.Tensor, Tensors]:
        """(K,) the clients' losses on some rows, and their gradients by the mixed parameters."""
        leaf = {name: value.requires_grad_(True) for name, value in mixed.items()}
        params: Params = clients.params | leaf
        logits = clients.forward(params, training=False).logits
        label = clients.batch.label[rows]
        losses = clients.mean_over(F.cross_entropy(logits[rows], label, reduction="none"), rows)
        grads = torch.autograd.grad(losses.sum(), list(leaf.values()))
        return losses.detach(), dict(zip(leaf, grads, strict=True))

    def personal_model(self, clients: ClientBatch) -> Params | None:
        return clients.params


STEADY = 10  # losses that are looked at


def _over(clients: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """(K,) as a condition on (K, ...)."""
    return clients.view(-1, *[1] * (value.dim() - 1))
