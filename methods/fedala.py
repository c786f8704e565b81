"""FedALA: each client learns, per weight, how to mix the global model into its last layers."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..benchmark.engine import METHODS, ClientBatch, Params, Tensors, Tree, of_shape, option
from .fedavg import FedAvg
from .parts.personal import last_layers


@METHODS.register("fedala")
class FedALA(FedAvg):
    """Zhang et al., AAAI 2023 (arXiv 2212.01197): adaptive local aggregation before local training.

    Client k has its last model theta_k and receives theta. The lower layers start from theta, the last `layers` from
    theta_k + (theta - theta_k) * W_k, with one weight of W_k in [0, 1] per entry (initially 1). W_k is trained on the
    client's loss on a random `share` of its training nodes, all else fixed: W_k <- clip(W_k - eta dL/dW_k), one step
    per round; in its first such round until the losses of ten consecutive steps have a standard deviation below
    `threshold`. Then E epochs as FedAvg. In the first round theta_k is theta, so W_k is not trained.
    Server: as FedAvg. Messages: theta up and down, as FedAvg. Scored: theta_k after training. layers = 0 or eta = 0 is
    FedAvg's training.

    Departures: the released code scores the model after aggregation and before training, trains W on minibatches of
    images, and does not limit the steps of the first round (`first_steps` here). W is trained without dropout. Its
    steps are not counted in `optimiser_steps`.
    """

    family = "personal"
    summary = "FedAvg whose clients learn the global model's share in each weight of their last layers"
    title = "FedALA"
    venue = "AAAI 2023"
    paper_url = "https://arxiv.org/abs/2212.01197"
    code_url = "https://github.com/TsingZ0/FedALA"
    tasks = ("node",)
    delivers = "personal"
    heterogeneous_features = False

    layers: int = option(1, "p, number of last layers with weights W (paper: 1)", ge=0, tune=[1, 2])
    share: float = option(0.8, "s, share of the training nodes on which W is trained (paper: 0.8)", gt=0, le=1)
    eta: float = option(1.0, "learning rate of W (paper: 1)", ge=0, tune=[0.1, 1.0, 10.0])
    threshold: float = option(0.1, "standard deviation of ten losses that ends W's first training (code: 0.1)", ge=0)
    first_steps: int = option(50, "maximal steps of W's first training; our bound", ge=1)

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        names = last_layers(clients.params, self.layers)
        clients.state["share"] = {name: torch.ones_like(clients.params[name]) for name in names}
        clients.state["trained"] = torch.zeros(len(clients))  # number of past rounds of each client

    def client(self, clients: ClientBatch) -> Tree:
        received, last = clients.received["model"], clients.params
        names = list(clients.state["share"])
        gap: Tensors = {name: (received[name] - last[name]).detach() for name in names}
        start = {name: last[name].detach().clone() for name in names}
        clients.load(received)
        if names and bool(clients.state["trained"].any()):
            clients.state["share"] = self._train_share(clients, start, gap)
            mixed = self._mix(start, gap, clients.state["share"])
            trained = clients.state["trained"] > 0
            clients.load({n: torch.where(of_shape(trained, v), v, received[n]) for n, v in mixed.items()})
        clients.state["trained"] = clients.state["trained"] + 1
        clients.fit(self.local_loss)
        return {"model": clients.params}

    @staticmethod
    def _mix(start: Tensors, gap: Tensors, share: Tensors) -> Tensors:
        return {name: start[name] + gap[name] * share[name] for name in start}

    def _train_share(self, clients: ClientBatch, start: Tensors, gap: Tensors) -> Tensors:
        """Return the new W: steps until the losses are stable if a client trained once before, else one step; W stays
        for a client that never trained."""
        rows = self._sample(clients)
        share, losses = clients.state["share"], list[torch.Tensor]()
        learns = clients.state["trained"] > 0
        for step in range(self.first_steps):
            loss, grads = self._gradient(clients, self._mix(start, gap, share), rows)
            losses.append(loss)
            share = {
                name: torch.where(
                    of_shape(learns, value), (value - self.eta * grads[name] * gap[name]).clamp(0, 1), value
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
        """Return random training rows: `share` of each client's, at least one if it has any."""
        rows, sample = clients.batch.rows["train"], []
        owner = clients.batch.owner[rows]
        for place, source in enumerate(clients.streams("aggregation sample")):
            client_rows = rows[owner == place]
            count = max(1, round(self.share * len(client_rows))) if len(client_rows) else 0
            sample.append(client_rows[torch.from_numpy(source.permutation(len(client_rows))[:count])])
        return torch.cat(sample)

    @staticmethod
    def _gradient(clients: ClientBatch, mixed: Tensors, rows: torch.Tensor) -> tuple[torch.Tensor, Tensors]:
        """Return the clients' losses (K,) on some rows, and the gradients with respect to the mixed parameters."""
        leaf = {name: value.requires_grad_(True) for name, value in mixed.items()}
        params: Params = clients.params | leaf
        logits = clients.forward(params, training=False).logits
        label = clients.batch.label[rows]
        losses = clients.mean_over(F.cross_entropy(logits[rows], label, reduction="none"), rows)
        grads = torch.autograd.grad(losses.sum(), list(leaf.values()))
        return losses.detach(), dict(zip(leaf, grads, strict=True))


STEADY = 10  # number of last losses whose deviation is compared with the threshold
