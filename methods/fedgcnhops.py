"""FedGCN of Yao et al.: clients get sums of their neighbours' features at other clients, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
import torch

from ..benchmark.engine import (
    GCN,
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
    Download,
    Each,
    Features,
    Params,
    Phase,
    Server,
    SparseMatrix,
    Step,
    TrainConfig,
    Tree,
    affine,
    on_host,
    placed,
    segment_add,
    segment_product,
)
from ..datasets.federation import NodeClient
from ..registry import option
from .fedavg import FedAvg
from .parts.rows import listed, packed, rows_of, split, unpacked


@dataclass(frozen=True)
class SummedBatch(Batch):
    """Each client's n nodes, then the o neighbours at other clients that it has sums of: N rows in all.

    x: sums of features over neighbours. `propagation` has the entries of A whose target is an own node of a client,
    inside: those of them whose source is one too. own_nodes: (nodes,) the rows of the clients' own nodes.
    """

    inside: SparseMatrix = field(kw_only=True)
    own_nodes: torch.Tensor = field(kw_only=True)


class SummedGCN(GCN):
    """A GCN; on a `SummedBatch`, whose features are summed already, its first layer is a linear map."""

    def layer(self, params: Params, i: int, h: torch.Tensor | Features, batch: Batch) -> torch.Tensor:
        if not isinstance(batch, SummedBatch):
            return super().layer(params, i, h, batch)
        if not isinstance(h, torch.Tensor):
            return affine(params, str(i), h, batch)
        towards = batch.gcn if i == 1 else batch.inside
        return segment_add(
            towards @ segment_product(h, params[f"{i}.weight"], batch.sizes), params[f"{i}.bias"], batch.sizes
        )


@METHODS.register("fedgcn-hops")
class FedGCNHops(FedAvg):
    """Yao, Jin, Ravi, Joe-Wong, NeurIPS 2023 (arXiv 2201.12433), FedGCN: neighbours' features, summed, once.

    A = D^-1/2 (A_0 + I) D^-1/2 of the whole graph, with the edges between clients. Before training client k sends, for
    each node i that is its own or a neighbour of one, the sum of x_j / sqrt(d_j) over its own j in N(i) or j = i; the
    server adds up. One hop: k gets the sums of its own nodes, hence (A X)_i, and the first layer is that on the whole
    graph. Two hops: also the sums of its neighbours at other clients, so that the second layer is exact too; a third
    layer and more take own nodes only. No hop: the clients' own graphs, FedAvg of a GCN.
    Then FedAvg; predictions on a client's own nodes use what it got.
    Messages: once up the sums (d values a node, sparse where the features are) with node ids and, for two hops, degrees
    of own nodes; once down sums, and degrees of neighbours; models every round.

    Departures. The paper encrypts the sums (CKKS); here they are sent in the clear, and a sum of one node's features
    shows them. The released code hands clients the features of their one- or two-hop neighbours and normalises that
    subgraph, which miscounts the degrees at its border; this follows the paper. Width, depth, dropout, rate and epochs
    are the cell's (released: 16, 2, 0.5, SGD 0.5, 3).
    """

    family = "shared model"
    summary = "FedAvg of a GCN that gets neighbours' features at other clients, summed, before training"
    title = "FedGCN (Yao, 2023)"
    venue = "NeurIPS 2023"
    paper_url = "https://arxiv.org/abs/2201.12433"
    code_url = "https://github.com/yh-yao/FedGCN"
    tasks = ("node",)
    heterogeneous_features = False
    fixed_backbone = "gcn"
    edges_between_clients: ClassVar[bool] = True

    hops: Literal[0, 1, 2] = option(2, "how far a client sees beyond its own nodes (code: 2)", tune=[1, 2])

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        return [SummedGCN(**backbone.params()) for backbone in super().architecture(backbones)]

    # -- exchange ---------------------------------------------------------------------------------------------------

    def phases(self, config: TrainConfig) -> list[Phase]:
        steps = (Step(self.tell, self.add_up), Step(self.keep, self.start))
        exchange = Phase(steps, 1, scored=False, name="sums", everyone=True)
        return [exchange, *super().phases(config)] if self.hops else super().phases(config)

    def open(self, server: Server) -> Download:
        return {} if self.hops else self.start(server, {})

    def start(self, server: Server, uploads: Tree) -> Download:
        server.state["model"] = server.initial_model()
        return {"model": server.state["model"]}

    @on_host()
    def tell(self, clients: ClientBatch) -> Tree:
        told: list[Tree] = []
        for member in clients.members:
            ids, far = member.graph.ndata["global_id"], torch.unique(member.outside[1])
            degree = degrees(member)
            source, target = (ends.numpy() for ends in member.graph.edges(order="eid"))
            row, other = member.outside[0].numpy(), torch.searchsorted(far, member.outside[1]).numpy()
            n = len(ids)
            self_loops = np.arange(n)
            to, by = np.concatenate([target, self_loops, n + other]), np.concatenate([source, self_loops, row])
            share = sp.csr_matrix((degree[by] ** -0.5, (to, by)), shape=(n + len(far), n))
            one = {"id": ids, "neighbours": far, "sums": packed(share @ rows_of(member.feat))}
            told.append(one | ({"degree": torch.from_numpy(degree)} if self.hops == 2 else {}))
        return listed(told)

    @on_host()
    def add_up(self, server: Server, uploads: Tree) -> Download:
        ids = [torch.cat(pair).cpu().numpy() for pair in zip(uploads["id"], uploads["neighbours"], strict=True)]
        nodes, place = np.unique(np.concatenate(ids), return_inverse=True)
        sums = [unpacked(client_sums, server.features) for client_sums in split(uploads["sums"])]
        merge = sp.csr_matrix((np.ones(len(place), np.float32), (place, np.arange(len(place)))))
        total = merge @ (sp.vstack(sums) if sp.issparse(sums[0]) else np.concatenate(sums))
        degree = np.zeros(len(nodes), np.float32)
        for client_ids, value in zip(uploads["id"], uploads.get("degree", ()), strict=False):
            degree[np.searchsorted(nodes, client_ids.cpu().numpy())] = value.cpu().numpy()
        sent: list[Tree] = []
        for client_ids, far in zip(uploads["id"], uploads["neighbours"], strict=True):
            wanted = np.searchsorted(
                nodes, (torch.cat([client_ids, far]) if self.hops == 2 else client_ids).cpu().numpy()
            )
            one: Tree = {"sums": packed(total[wanted])}
            sent.append(
                one | ({"degree": torch.from_numpy(degree[wanted[len(client_ids) :]])} if self.hops == 2 else {})
            )
        return Each(listed(sent))

    def keep(self, clients: ClientBatch) -> Tree:
        clients.state["exchanged"] = clients.received
        return {}

    # -- training and prediction --------------------------------------------------------------------------------------

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        if not self.hops:
            return super().local_loss(clients)
        batch = self.summed(clients)
        return clients.cross_entropy(
            clients.network.forward(clients.params, (batch,), clients.streams).logits[batch.own_nodes]
        )

    @torch.no_grad()
    def predict_own(self, params: Params, clients: ClientBatch) -> torch.Tensor:
        if not self.hops:
            return super().predict_own(params, clients)
        batch = self.summed(clients)
        return clients.network.forward(params, (batch,)).logits[batch.own_nodes]

    def summed(self, clients: ClientBatch) -> SummedBatch:
        """The clients' nodes with the sums that they got."""
        if "summed" not in clients.cache:
            sums, sizes, towards, inside, own_nodes = self._summed(clients)
            batch, value = clients.batch, sums if sp.issparse(sums) else placed(torch.from_numpy(sums))
            clients.cache["summed"] = SummedBatch(
                batch.graph, Features(value, sizes), tuple(sizes), batch.label, batch.masks, batch.global_id,
                SparseMatrix(towards), inside=SparseMatrix(inside), own_nodes=placed(own_nodes),
            )  # fmt: skip
        summed: SummedBatch = clients.cache["summed"]
        return summed

    @on_host()
    def _summed(self, clients: ClientBatch) -> tuple[Any, list[int], sp.csr_matrix, sp.csr_matrix, torch.Tensor]:
        """Return what the clients' rows are made of: features, rows per client, and the rest of `SummedBatch`."""
        sizes: list[int] = []
        towards, inner, features, own_nodes = [], [], [], []
        for member, got in zip(clients.members, split(clients.state["exchanged"]), strict=True):
            n, degree = member.graph.num_nodes(), degrees(member)
            source, target = (ends.numpy() for ends in member.graph.edges(order="eid"))
            to, by = np.concatenate([target, np.arange(n)]), np.concatenate([source, np.arange(n)])
            far = 0
            if self.hops == 2:
                far_ids, other = torch.unique(member.outside[1], return_inverse=True)
                far, degree = len(far_ids), np.concatenate([degree, got["degree"].cpu().numpy()])
                to = np.concatenate([to, member.outside[0].numpy()])
                by = np.concatenate([by, n + other.numpy()])
            root = degree**-0.5
            weights = sp.csr_matrix((root[to] * root[by], (to, by)), shape=(n + far, n + far))
            towards.append(weights)
            inner.append(weights @ sp.diags((np.arange(n + far) < n).astype(np.float32)))
            features.append(sp.diags(root) @ unpacked(got["sums"], clients.features))
            own_nodes.append(sum(sizes) + torch.arange(n))
            sizes.append(n + far)
        sums = sp.vstack(features, format="csr") if sp.issparse(features[0]) else np.concatenate(features)
        return sums, sizes, sp.block_diag(towards, "csr"), sp.block_diag(inner, "csr"), torch.cat(own_nodes)


def degrees(member: NodeClient) -> np.ndarray:
    """(n,) float32, of each of a client's nodes in the whole graph, with a self-loop."""
    assert member.outside is not None
    there = torch.bincount(member.outside[0], minlength=member.graph.num_nodes())
    degree: np.ndarray = (member.graph.in_degrees() + there + 1).float().numpy()
    return degree
