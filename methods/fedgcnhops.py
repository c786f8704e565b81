"""FedGCN of Yao et al.: before training, clients get sums of features of neighbours at other clients."""

from __future__ import annotations

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
    NodeClient,
    Params,
    Phase,
    Server,
    SparseMatrix,
    Step,
    TrainConfig,
    Tree,
    affine,
    on_host,
    option,
    placed,
    segment_add,
    segment_product,
)
from .fedavg import FedAvg
from .parts.rows import listed, packed, rows_of, split, unpacked


@dataclass(frozen=True)
class SummedBatch(Batch):
    """Per client its n nodes, then its neighbours at other clients of which it has sums: N rows in all.

    x: sums of features over neighbours. propagation: the entries of A whose target is a node of the client; inside:
    those whose source is also its node. own_nodes: (nodes,) the rows of the clients' nodes.
    """

    inside: SparseMatrix = field(kw_only=True)
    own_nodes: torch.Tensor = field(kw_only=True)


class SummedGCN(GCN):
    """A GCN whose first layer is a linear map on a `SummedBatch`, because its features are already summed."""

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
    """Yao, Jin, Ravi, Joe-Wong, NeurIPS 2023 (arXiv 2201.12433), FedGCN: one exchange of sums of neighbours' features.

    A = D^-1/2 (A_0 + I) D^-1/2 of the whole graph, with the edges between clients. Before training client k sends, for
    each of its nodes and of their neighbours i, the sum of x_j / sqrt(d_j) over its nodes j in N(i) or j = i; the
    server adds these sums. One hop: k gets the sums of its nodes, which give (A X)_i, so its first layer equals that on
    the whole graph. Two hops: k also gets the sums of its neighbours at other clients, so the second layer is exact
    too; further layers use the client's nodes only. No hop: FedAvg of a GCN on the clients' graphs.
    Then FedAvg; predictions on a client's nodes use the received sums.
    Messages: once up the sums (d values per node, sparse if the features are) with node ids and, for two hops, degrees
    of the client's nodes; once down sums, and degrees of neighbours; models every round.

    Departures. The paper encrypts the sums (CKKS); here they are not encrypted, and a sum over one node shows its
    features. The released code sends clients the features of their one- or two-hop neighbours and normalises that
    subgraph, with wrong degrees at its border; here the paper's sums are used. Its server takes the uniform mean of the
    models, here weighted by the run's `weighting`. Width, depth, dropout, rate and epochs are the run's (released: 16,
    2, 0.5, SGD 0.5, 3).
    """

    summary = "FedAvg of a GCN that gets sums of neighbours' features at other clients before training"
    title = "FedGCN (Yao, 2023)"
    venue = "NeurIPS 2023"
    paper_url = "https://arxiv.org/abs/2201.12433"
    code_url = "https://github.com/yh-yao/FedGCN"
    tasks = ("node",)
    heterogeneous_features = False
    fixed_backbone = "gcn"
    edges_between_clients: ClassVar[bool] = True

    hops: Literal[0, 1, 2] = option(2, "hops for which clients get the sums of features (code: 2)", tune=[1, 2])

    def adapt(self, backbone: Backbone) -> Backbone:
        return SummedGCN(**backbone.params())

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
        uploads: list[Tree] = []
        for member in clients.members:
            ids, degree = member.graph.ndata["global_id"], degrees(member)
            n, (to, by, far) = len(ids), known_edges(member)
            to, by = np.where(by < n, to, by), np.where(by < n, by, to)  # sums for the other clients' nodes
            share = sp.csr_matrix((degree[by] ** -0.5, (to, by)), shape=(n + len(far), n))
            upload = {"id": ids, "neighbours": far, "sums": packed(share @ rows_of(member.feat))}
            uploads.append(upload | ({"degree": torch.from_numpy(degree)} if self.hops == 2 else {}))
        return listed(uploads)

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
        downloads: list[Tree] = []
        for client_ids, far in zip(uploads["id"], uploads["neighbours"], strict=True):
            wanted_ids = torch.cat([client_ids, far]) if self.hops == 2 else client_ids
            wanted = np.searchsorted(nodes, wanted_ids.cpu().numpy())
            download: Tree = {"sums": packed(total[wanted])}
            if self.hops == 2:
                download["degree"] = torch.from_numpy(degree[wanted[len(client_ids) :]])
            downloads.append(download)
        return Each(listed(downloads))

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
        """Return the clients' nodes with the received sums."""
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
        """Return (sums, rows per client, propagation, inside, own_nodes) of `SummedBatch`."""
        sizes: list[int] = []
        towards, inner, features, own_nodes = [], [], [], []
        for member, received in zip(clients.members, split(clients.state["exchanged"]), strict=True):
            n, degree = member.graph.num_nodes(), degrees(member)
            to, by, far_ids = known_edges(member)
            if self.hops == 2:
                far, degree = len(far_ids), np.concatenate([degree, received["degree"].cpu().numpy()])
            else:
                far, to, by = 0, to[by < n], by[by < n]
            root = degree**-0.5
            weights = sp.csr_matrix((root[to] * root[by], (to, by)), shape=(n + far, n + far))
            towards.append(weights)
            inner.append(weights @ sp.diags((np.arange(n + far) < n).astype(np.float32)))
            features.append(sp.diags(root) @ unpacked(received["sums"], clients.features))
            own_nodes.append(sum(sizes) + torch.arange(n))
            sizes.append(n + far)
        sums = sp.vstack(features, format="csr") if sp.issparse(features[0]) else np.concatenate(features)
        return sums, sizes, sp.block_diag(towards, "csr"), sp.block_diag(inner, "csr"), torch.cat(own_nodes)


def degrees(member: NodeClient) -> np.ndarray:
    """Return the degree, float32 (n,), of each node of a client in the whole graph, with a self-loop."""
    assert member.outside is not None
    outside = torch.bincount(member.outside[0], minlength=member.graph.num_nodes())
    degree: np.ndarray = (member.graph.in_degrees() + outside + 1).float().numpy()
    return degree


def known_edges(member: NodeClient) -> tuple[np.ndarray, np.ndarray, torch.Tensor]:
    """Return the edges that end at a client's n nodes, with self-loops, as rows (to, by), and the ids of the nodes'
    neighbours at other clients, which have the rows n, n + 1, ..."""
    assert member.outside is not None
    far, other = torch.unique(member.outside[1], return_inverse=True)
    source, target = (ends.numpy() for ends in member.graph.edges(order="eid"))
    own = np.arange(member.graph.num_nodes())
    to = np.concatenate([target, own, member.outside[0].numpy()])
    return to, np.concatenate([source, own, len(own) + other.numpy()]), far
