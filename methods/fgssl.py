"""FGSSL: FedAvg with contrast of semantics and distillation of structure from the global model (FNSC and FGSD)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import dgl
import torch

from ..benchmark.engine import METHODS, Batch, ClientBatch, Forward, active_kernels, on_host, option, section
from .fedavg import FedAvg
from .parts.contrast import Strength, Views, class_contrast


@METHODS.register("fgssl")
class FGSSL(Views, FedAvg):
    """Huang, Wan, Ye, Du, IJCAI 2023 (doi 10.24963/ijcai.2023/426). Node classification, disjoint subgraphs.

    In each step the client draws two views of its graph: one for its own model (embeddings h_i, logits z_i), one for
    the received global model, which is frozen (h'_i, z'_i). It minimises the mean over its training nodes i of
    CE_i + contrast_weight FNSC_i + distil_weight FGSD_i:

    CE    on the unchanged graph.
    FNSC  -1/|P_i| sum_{p in P_i} log[ f(h_i, h'_p) / (f(h_i, h'_p) + sum_{q in Q_i} f(h_i, h'_q)) ] with
          f(a, b) = exp(cos(a, b) / temperature), P_i the training nodes of i's class (i included), Q_i the others.
    FGSD  KL(S'(i) || S(i)), S(i) the softmax over the neighbours j of z_i . z_j / distil_temperature, S' likewise from
          z'; 0 for a node without neighbours.

    Server and messages as FedAvg: theta up, theta down. With both weights 0 it is FedAvg.

    Embeddings are the last hidden layer before its activation, as in the released code (logits if a backbone has no
    hidden layer); neighbours are those in the whole client graph. `target` is the model of h': the received one (Eq.
    8); the client's own, which then gets gradients from both views; or the initial one, which never changes (in neither
    paper nor code). FGSD always uses the received one.

    Departures: Eq. 7 prints exp(cos)/tau, in which tau cancels; here tau divides the cosine. The paper maximises what
    must be minimised. The released trainer replaces the contrast by one between two local views and leaves FGSD out.
    This is the paper's method; the code's are `target="local"`, `rivals="all"`, `symmetric` and `distil_weight=0`. A
    frozen model predicts without dropout (as in the code; not in the paper). A zero embedding (of a node without
    features and edges in a view) has cosine 0 and no gradient.

    The released weight 3 is for a contrast of two local views, and multiplies the mean of both anchor directions or, in
    the second of the repository's two copies of this loss, half of the direction from the strong view: so a direction
    has 1.5 there. Here the only direction has 3. With a frozen target its gradient is 3 to 9 times that of CE, in the
    first rounds and later (Cora, 5 clients); weights from 0.1 to 1 score higher in results/sweep-fgssl.
    """

    summary = "contrast and distillation of neighbourhoods between a client's model and the received one"
    title = "FGSSL"
    venue = "IJCAI 2023"
    paper_url = "https://doi.org/10.24963/ijcai.2023/426"
    code_url = "https://github.com/wgc-research/fgssl"
    revision: ClassVar[int] = 2
    tasks = ("node",)

    contrast_weight: float = option(
        3.0,
        "weight of FNSC (released code: 3 for the mean of two directions; the paper gives none)",
        ge=0,
        tune=[0.1, 0.3, 1.0, 3.0],
    )
    distil_weight: float = option(
        1.0, "weight of FGSD, our choice: neither paper nor code gives one", ge=0, tune=[0.1, 1.0, 10.0]
    )
    temperature: float = option(0.1, "tau of FNSC (paper: 0.1)", gt=0)
    distil_temperature: float = option(5.0, "omega of FGSD (paper: 5)", gt=0)
    local_view: Strength = option("strong", "augmentation for the client's model (paper, table 3: strong)")
    global_view: Strength = option("weak", "augmentation for the global model (paper, table 3: weak)")
    rivals: Literal["negatives", "all"] = option(
        "negatives", "denominator of FNSC: the positive and the negatives (paper, Eq. 8), or all (released code)"
    )
    symmetric: bool = option(
        False, "mean of both anchor directions (released code, one of two copies); paper: local only"
    )
    target: Literal["global", "local", "initial"] = option(
        "global",
        "target model of FNSC: the received one, frozen (paper, Eq. 8); the client's own (released "
        "loss); the initial one, frozen (ours)",
        later=True,
    )
    distil_nodes: Literal["train", "all"] = option(
        "train", "nodes of the mean in FGSD; in the paper the same set for all three terms"
    )

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        loss = super().local_loss(clients)
        if not self.contrast_weight and not self.distil_weight:
            return loss
        local = clients.network.forward(clients.params, self.view(clients, self.local_view, "local"), clients.streams)
        view = self.view(clients, self.global_view, "global")
        with torch.no_grad():
            fixed = clients.network.forward(clients.received["model"], view)
        if self.contrast_weight:
            target = fixed if self.target == "global" else self.other_target(clients, view)
            loss = loss + self.contrast_weight * self.contrast(clients, local, target)
        if self.distil_weight:
            loss = loss + self.distil_weight * self.distillation(clients, local, fixed)
        return loss

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        if self.target == "initial":
            clients.state["initial"] = {name: value.clone() for name, value in clients.params.items()}

    def other_target(self, clients: ClientBatch, view: Sequence[Batch]) -> Forward:
        """Return the pass of a target model other than the received one."""
        if self.target == "local":
            return clients.network.forward(clients.params, view, clients.streams)
        with torch.no_grad():
            return clients.network.forward(clients.state["initial"], view)

    def contrast(self, clients: ClientBatch, anchors: Forward, target: Forward) -> torch.Tensor:
        """Return FNSC (K,)."""
        rows = clients.batch.rows["train"]
        label, sizes = clients.batch.label[rows], clients.batch.counts["train"]
        local, other = ((f.pre[-1] if f.pre else f.logits)[rows] for f in (anchors, target))
        loss = class_contrast(local, other, label, sizes, self.temperature, self.rivals)
        if self.symmetric:
            loss = (loss + class_contrast(other, local, label, sizes, self.temperature, self.rivals)) / 2
        return loss

    def distillation(self, clients: ClientBatch, student: Forward, teacher: Forward) -> torch.Tensor:
        """Return FGSD (K,)."""
        batch = clients.batch
        if self.distil_nodes == "all":
            rows, graph = torch.arange(len(batch.label)), batch.graph
        else:
            rows, graph = batch.rows["train"], trained_in(clients)
        divergence = neighbour_divergence(student.logits, teacher.logits, graph, self.distil_temperature)
        return clients.mean_over(divergence[rows], rows)


@METHODS.register("fgssl-fnsc")
class ContrastOnly(FGSSL):
    """FGSSL without FGSD (its ablations, tables 2 and 3): CE + contrast_weight FNSC. Messages as FedAvg."""

    summary = "FGSSL with its contrast only"
    title = "FGSSL (FNSC only)"
    venue = "IJCAI 2023"
    paper_url = "https://doi.org/10.24963/ijcai.2023/426"
    code_url = "https://github.com/wgc-research/fgssl"

    distil_weight: float = option(0.0, "off: this is FGSSL with FNSC only", ge=0, le=0)


@METHODS.register("fgssl-fgsd")
class DistillationOnly(FGSSL):
    """FGSSL without FNSC (its ablation, table 2): CE + distil_weight FGSD. Messages as FedAvg."""

    summary = "FGSSL with its distillation only"
    title = "FGSSL (FGSD only)"
    venue = "IJCAI 2023"
    paper_url = "https://doi.org/10.24963/ijcai.2023/426"
    code_url = "https://github.com/wgc-research/fgssl"

    contrast_weight: float = option(0.0, "off: this is FGSSL with FGSD only", ge=0, le=0)


def trained_in(clients: ClientBatch) -> dgl.DGLGraph:
    """Return the clients' graphs with only the edges into training nodes."""
    if "trained in" not in clients.cache:
        with on_host():
            clients.cache["trained in"] = dgl.in_subgraph(clients.batch.graph, clients.batch.rows["train"].cpu())
    graph: dgl.DGLGraph = clients.cache["trained in"]
    return graph


@section("distillation")
def neighbour_divergence(
    student: torch.Tensor, teacher: torch.Tensor, graph: dgl.DGLGraph, temperature: float
) -> torch.Tensor:
    """Return KL(S_teacher(i) || S_student(i)) (N,), S(i) the softmax over in-neighbours j of z_i . z_j / temperature.

    0 for a node without in-neighbours. student, teacher: logits (N, C); the teacher is fixed.
    """
    log_s, log_t = (_log_similarities(graph, z, temperature) for z in (student, teacher))
    return active_kernels().copy_e_sum(graph, log_t.exp() * (log_t - log_s))


def _log_similarities(graph: dgl.DGLGraph, z: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return the log-softmax (edges,) of z_u . z_v / temperature over the in-edges u -> v of each node v."""
    kernels = active_kernels()
    score = kernels.u_dot_v(graph, z, z).squeeze(1) / temperature
    score = kernels.e_sub_v(graph, score, kernels.copy_e_max(graph, score.detach()))
    total = kernels.copy_e_sum(graph, score.exp()).clamp(min=1)  # below 1 only for nodes without neighbours
    return kernels.e_sub_v(graph, score, total.log())
