"""FedLUAR: FedAvg in which some layers are not uploaded; the server repeats their last updates."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..benchmark.engine import METHODS, ClientBatch, Download, Server, Tree, average, option
from .fedavg import FedAvg

SMALLEST = 1e-12  # least score of a layer, whose inverse is a probability


@METHODS.register("fedluar")
class FedLUAR(FedAvg):
    """Kim, Kang, Lee, NeurIPS 2025 (arXiv 2503.11146): layer-wise update recycling.

    Client: as FedAvg, but it uploads no weights of the layers in R. Server: for the uploaded parameters
    x' = sum_k w_k x_k, U = x' - x; for the layers in R x' = x + U with the last U. Score of an uploaded layer:
    s_l = ||U_l|| / (||x_l|| + 1e-6); a layer in R keeps its score. For the next round R is drawn again: `recycled` of
    the L layers without replacement, with probabilities proportional to 1 / s_l, so that mostly layers that hardly
    change are left out. R is empty in the first round.
    Messages: theta without the weights in R up; theta and the numbers of the layers in R (int64) down. recycled = 0 is
    FedAvg.

    A layer is a weight matrix, as in the released code; biases are always sent. Departures: at least one layer is
    uploaded, so a network of one layer is FedAvg. The paper's networks have 20 and more layers, the benchmark's few.
    """

    summary = "FedAvg that uploads some layers only and repeats the last updates of the others"
    title = "FedLUAR"
    venue = "NeurIPS 2025"
    paper_url = "https://arxiv.org/abs/2503.11146"
    code_url = "https://github.com/swblaster/FedLUAR"

    recycled: int = option(
        1, "delta, layers whose update is repeated (code: 12 of CIFAR-10's; FedGB: 30%)", ge=0, tune=[1, 2]
    )

    def open(self, server: Server) -> Download:
        model = server.initial_model()
        server.state["model"], server.state["update"], server.state["score"] = model, {}, {}
        return {"model": model, "recycled": torch.zeros(0, dtype=torch.int64)}

    def client(self, clients: ClientBatch) -> Tree:
        received = clients.received["model"]
        names = layers(clients.shareable(received), 3)
        left_out = {names[place] for place in clients.received["recycled"][0].tolist()}
        clients.load(received)
        clients.fit(self.local_loss)
        return {"model": {name: value for name, value in clients.params.items() if name not in left_out}}

    def server(self, server: Server, uploads: Tree) -> Download:
        x = server.state["model"]
        mean = average(uploads["model"], server.weights)
        server.state["update"] |= {name: value - x[name] for name, value in mean.items()}
        update, names = server.state["update"], layers(x, 2)
        server.state["score"] |= {
            name: float(update[name].norm() / (x[name].norm() + 1e-6)) for name in names if name in mean
        }
        server.state["model"] = {
            name: mean[name] if name in mean else value + update[name] for name, value in x.items()
        }
        chosen = torch.tensor(self.draw(server, [server.state["score"][name] for name in names]), dtype=torch.int64)
        return {"model": server.state["model"], "recycled": chosen}

    def draw(self, server: Server, scores: list[float]) -> list[int]:
        """Return the numbers of the layers that are recycled in the next round, in order."""
        count = min(self.recycled, len(scores) - 1)
        if count <= 0:
            return []
        inverse = [1 / max(score, SMALLEST) for score in scores]
        share = [value / sum(inverse) for value in inverse]
        chosen: list[int] = server.generator.choice(len(scores), count, replace=False, p=share).tolist()
        return sorted(chosen)


def layers(model: Mapping[str, torch.Tensor], dimensions: int) -> list[str]:
    """Return the names of the weight matrices, in order. dimensions: 2, or 3 if the values have a client axis."""
    return [name for name, value in model.items() if value.dim() >= dimensions]
