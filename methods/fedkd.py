"""FedKD: mutual distillation of a private teacher and a shared student, whose updates are compressed by SVD."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..benchmark.engine import (
    METHODS,
    ClientBatch,
    Download,
    Each,
    Params,
    Server,
    TrainConfig,
    Tree,
    average,
    option,
    section,
    segment_product,
    transform,
)
from .parts.dual import DualModel, Nodes, as_shared, kl, rows_of, shared_part
from .parts.personal import CommonWidth
from .parts.rows import listed

MATCH = "match.weight"  # name of W_h in the clients' parameters


@METHODS.register("fedkd")
class FedKD(CommonWidth, DualModel):
    """Wu et al., Nature Communications 13:2032, 2022 (arXiv 2108.13323).

    Client k trains a private teacher t of any architecture and a student s (GCN-2, as in FedGKC) in one pass, with
    D = CE_t + CE_s and embeddings r of width h:
    L_t = CE_t + KL(p_s || p_t) / D + |r_t - W_h r_s|^2 / (h D),   L_s = CE_s + KL(p_t || p_s) / D + the same last term,
    W_h (h, h) private. The paper also matches hidden states and attention; a GNN has the embedding only.
    Up: the student's update U = theta_s - theta_g; a matrix is reduced to the smallest number r of singular values with
    the share T of its energy, T = start + (end - start) t / R in round t. Server: the mean of the restored updates,
    compressed in the same way; server and clients add it to theta_g. Messages up and down: min(r (m + n + 1), m n)
    scalars per m x n matrix, vectors uncompressed; the whole theta_g in a client's first round and after a missed
    update.

    Departures: both released implementations keep rank 0, a zero matrix, if the last singular value has 1 - T of the
    energy; here r is at least 1 and at most full. Teaching predictions, and D, get no gradient (our choice), because D
    is a weight and not an objective. Means are over nodes, not over nodes x classes. HtFLlib compresses parameters, and
    clips gradients at 10, which the training configuration also offers.
    """

    family = "distillation"
    summary = "clients send a small student; it and the client's private teacher distil each other"
    title = "FedKD"
    venue = "Nature Communications 2022"
    paper_url = "https://arxiv.org/abs/2108.13323"
    code_url = "https://github.com/wuch15/FedKD"

    start: float = option(
        0.95,
        "energy kept at the start (paper)",
        gt=0,
        le=1,
        tune=[{"start": 0.5, "end": 0.9}, {"start": 0.95, "end": 0.98}, {"start": 1.0, "end": 1.0}],
    )
    end: float = option(0.98, "energy kept at the last round (paper)", gt=0, le=1)
    nodes: Nodes = option("train", "nodes of the distillation terms: training nodes (our choice), or all")
    uniform: bool = option(True, "mean of the updates (HtFLlib), or by the configuration's `weighting`")

    def protocol(self, config: TrainConfig) -> TrainConfig:
        return config.model_copy(update={"weighting": "uniform"}) if self.uniform else config

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        h = clients.network.backbones[0].hidden
        drawn = [torch.from_numpy(g.uniform(-(h**-0.5), h**-0.5, (h, h))).float() for g in clients.streams("match")]
        clients.params[MATCH] = torch.stack(drawn)  # PyTorch's default initialisation of a linear layer

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        (teacher, student), rows = self.pair(clients), rows_of(clients, self.nodes)
        task = clients.cross_entropy(teacher.logits) + clients.cross_entropy(student.logits)
        log_t, log_s = teacher.logits[rows].log_softmax(1), student.logits[rows].log_softmax(1)
        mapped = segment_product(student.embedding, clients.params[MATCH], clients.batch.sizes)
        # The same squared distance is in both losses, and each model gets its gradient.
        distance = (teacher.embedding - mapped)[rows].square().mean(1)
        shared = clients.mean_over(kl(log_s, log_t) + kl(log_t, log_s) + distance, rows)
        # A client without training nodes has D = 0 and distils nothing.
        scale = torch.where(task > 0, 1 / task.clamp(min=torch.finfo(task.dtype).tiny), 0.0).detach()
        return task + scale * shared

    def energy(self, number: int, rounds: int) -> float:
        return self.start + (self.end - self.start) * number / rounds

    def client(self, clients: ClientBatch) -> Tree:
        members = range(len(clients))
        before = clients.state["student"] = stack([self._student(clients, k) for k in members])
        clients.load(as_shared(before))
        clients.fit(self.local_loss)
        update = {name: value - before[name] for name, value in shared_part(clients.params).items()}
        energy = self.energy(clients.round, clients.config.rounds)
        return {"update": listed([compress(row(update, k), energy) for k in members])}

    @staticmethod
    def _student(clients: ClientBatch, k: int) -> Params:
        """Return the global student at client k: the received one, or its current one plus the received update."""
        whole = row(clients.received.get("model", {}), k)
        if any(value.numel() for value in whole.values()):
            return whole
        current, update = row(clients.state["student"], k), restore(row(clients.received["update"], k))
        return {name: value + update[name] for name, value in current.items()}

    def server(self, server: Server, uploads: Tree) -> Download:
        updates = stack([restore(row(uploads["update"], k)) for k in range(len(server.participants))])
        update = compress(average(updates, server.weights), self.energy(server.round, server.config.rounds))
        step = restore(update)
        model = server.state["model"] = {name: value + step[name] for name, value in server.state["model"].items()}
        if len(server.participants) == server.clients:
            return {"update": update}
        # A client that missed this round cannot add the update to its model; it gets the new model instead.
        nothing = transform({"update": update, "model": model}, lambda _: torch.empty(0))
        current, late = nothing | {"update": update}, nothing | {"model": model}
        each = [current if client in server.participants else late for client in range(server.clients)]
        return Each(listed(each), range(server.clients))


# -- compression of matrices to their leading singular values -------------------------------------------------------


def rank(values: torch.Tensor, energy: float) -> int:
    """Return the smallest number of leading singular values (descending) with the share `energy` of all squares."""
    reached = values.double().square().cumsum(0)
    return min(int((reached < energy * reached[-1]).sum()) + 1, len(values))


def factor(matrix: torch.Tensor, energy: float) -> Tree:
    """Return a matrix (m, n) as left (m, r), values (r,), right (r, n); in `left` alone if that is not larger."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    r = rank(values, energy)
    if r * (matrix.shape[0] + matrix.shape[1] + 1) >= matrix.numel():
        return {"left": matrix, "values": matrix.new_empty(0), "right": matrix.new_empty(0)}
    return {"left": left[:, :r].contiguous(), "values": values[:r].clone(), "right": right[:r].contiguous()}


def product(parts: Tree) -> torch.Tensor:
    """Return the matrix from the parts of `factor`."""
    left: torch.Tensor = parts["left"]
    return (left * parts["values"]) @ parts["right"] if len(parts["values"]) else left


@section("compression")
def compress(model: Params, energy: float) -> Tree:
    """Return one model, without client axis, with factored matrices; vectors are unchanged."""
    return {name: factor(value, energy) if value.dim() == 2 else value for name, value in model.items()}


@section("compression")
def restore(tree: Tree) -> Params:
    """Return the model from the output of `compress`."""
    return {name: product(value) if isinstance(value, dict) else value for name, value in tree.items()}


def row(tree: Tree, client: int) -> Tree:
    """Return one client's part of a tree whose leaves have one entry per client."""
    part: Tree = transform(tree, lambda leaf: leaf[client])
    return part


def stack(models: Sequence[Params]) -> Params:
    """Stack one model per client: (K, ...)."""
    return {name: torch.stack([model[name] for model in models]) for name in models[0]}
