"""FedStruct: a GNN per client, plus a learnt vector per node of the whole graph, mixed over many hops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from ..benchmark.engine import (
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
    Download,
    Each,
    Forward,
    Network,
    NodeClient,
    Params,
    Phase,
    Server,
    SparseMatrix,
    Step,
    Streams,
    TrainConfig,
    Tree,
    linear_maps,
    on_host,
    option,
    placed,
    torch_source,
)
from .fedavg import FedAvg
from .fedgcnhops import degrees, known_edges
from .parts.encoders import linear
from .parts.rows import listed, packed, split, unpacked

VECTORS = "vectors"  # the name of S in parameters and messages


class StructBackbone(Backbone):
    """A GNN, and an MLP c -> h -> C for the nodes' vectors: "structure.0" and "structure.1"."""

    gnn: Backbone
    width: int

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        params = self.gnn.init(generator, features, classes)
        maps = {"structure.0": (self.width, self.hidden), "structure.1": (self.hidden, classes)}
        return params | linear_maps(maps, torch_source(generator), "torch")

    def forward(self, params: Params, batch: Batch, streams: Streams | None = None) -> Forward:
        return self.gnn.forward(params, batch, streams)

    def of_vectors(
        self, params: Params, rows: torch.Tensor, sizes: tuple[int, ...], streams: Streams | None = None
    ) -> torch.Tensor:
        """Return class scores (M, C) of M vectors. sizes: vectors per client."""
        z = linear(params, "structure.0", F.layer_norm(rows, rows.shape[1:]), sizes)
        return linear(params, "structure.1", self.active(z, sizes, streams), sizes)


@METHODS.register("fedstruct")
class FedStruct(FedAvg):
    """Aliakbari, Ostman, Graell i Amat, ICLR 2025 (arXiv 2402.19163), "Decoupled Subgraph Federated Learning", Hop2Vec.

    P = D^-1 (A + I) of the whole graph, with the edges between clients; P_bar = P^L, or the mean of P, ..., P^L. Each
    node u has a learnt vector s_u (c), initially N(0, 0.05^2). The class scores of client k's node v are
    GNN_k(v) + sum_u P_bar[v, u] MLP(s_u), with layer norm before the MLP c -> h -> C.
    Once: each client gets its rows of P_bar. Row v of P^l is the mean over v and its neighbours of rows of P^(l-1), so
    in L - 1 exchanges clients send the rows of their nodes with neighbours at other clients, and the server forwards
    them.
    Rounds: E epochs on the mean cross-entropy with S fixed; theta <- sum_k w_k theta_k; G_k is the gradient for S,
    summed over the epochs and divided by E, also for stragglers; the server takes an Adam step for S on sum_k w_k G_k.
    Messages: once rows of P^l with ids, and the nodes with entries in these rows; then theta and G_k of these nodes up,
    theta and S (n c values) down. No features or embeddings are sent, but the rows reveal which nodes are neighbours.

    Departures and readings. `hops`, `powers`: the paper weights the powers by beta_l; the released code uses the last
    only. `keep`: the largest entries kept in each row after each product; the code keeps all, or with its pruning
    (FedStruct-p) the 30 n largest of the whole matrix, which clients cannot determine. The code averages
    the gradients of all parameters and takes one Adam step per round, equal at all clients; here clients take the steps
    for theta, and the server those for S. It applies the softmax twice in its loss, which makes gradients smaller; here
    once. Its GNN is decoupled too, here it is the run's backbone; its layer norm has weights that are not sent, here it
    has none. On another graph P_bar is computed from that graph. Width h, dropout, rate and epochs are the run's
    (code's last Cora settings with Hop2Vec: 256, 0.7, Adam 0.002, 1; now Cora has a spectral model there).
    """

    summary = "FedAvg with a learnt vector per node, mixed over many hops of the graph of all clients"
    title = "FedStruct"
    venue = "ICLR 2025"
    paper_url = "https://arxiv.org/abs/2402.19163"
    code_url = "https://github.com/JavadAliakbari/FedStruct"
    tasks = ("node",)
    heterogeneous_features = False
    edges_between_clients: ClassVar[bool] = True
    predicts_by_state: ClassVar[bool] = True

    width: int = option(256, "length c of a node's vector (code: 256)", ge=1)
    hops: int = option(10, "hops L (code: 1 to 20 by dataset, Cora 10)", ge=1, tune=[2, 5, 10])
    powers: Literal["last", "mean"] = option("last", "P_bar: P^L (code), or the mean of all powers (paper: beta_l)")
    keep: int = option(30, "entries kept per row; 0: all (code: all, or 30 n of the matrix by pruning)", ge=0)
    lr_vectors: float = option(
        0.005, "Adam rate of the vectors (code: that of the model, 0.001 to 0.008)", gt=0, tune=[0.001, 0.005, 0.02]
    )

    def adapt(self, backbone: Backbone) -> Backbone:
        return backbone.turned_into(StructBackbone, gnn=backbone, width=self.width)

    # -- rows of P_bar ----------------------------------------------------------------------------------------------

    def phases(self, config: TrainConfig) -> list[Phase]:
        steps = (*[Step(self.tell, self.hand_on)] * (self.hops - 1), Step(self.finish, self.start))
        return [Phase(steps, 1, scored=False, name="structure", everyone=True), *super().phases(config)]

    def open(self, server: Server) -> Download:
        return {}

    @on_host()
    def tell(self, clients: ClientBatch) -> Tree:
        """Upload the current rows of nodes with neighbours at other clients; first also the ids of these neighbours."""
        first = "rows" not in clients.state
        clients.state["rows"] = self._next_power(clients)
        uploads: list[Tree] = []
        for member, rows in zip(clients.members, clients.state["rows"], strict=True):
            border = torch.unique(member.outside[0])
            upload: Tree = {"id": member.graph.ndata["global_id"][border], "rows": packed(rows[border.numpy()])}
            uploads.append(upload | ({"wanted": torch.unique(member.outside[1])} if first else {}))
        return listed(uploads)

    @on_host()
    def hand_on(self, server: Server, uploads: Tree) -> Download:
        wanted = server.state.setdefault("wanted", uploads.get("wanted"))
        of_clients = split(uploads)
        ids = torch.cat([upload["id"] for upload in of_clients]).cpu().numpy()
        width = width_of([upload["rows"] for upload in of_clients])
        rows = sp.vstack([unpacked(upload["rows"], width) for upload in of_clients], format="csr")
        order = np.argsort(ids)
        assert wanted is not None
        places_of = [order[np.searchsorted(ids[order], client_ids.cpu().numpy())] for client_ids in wanted]
        return Each(listed([{"rows": packed(rows[places])} for places in places_of]))

    @on_host()
    def finish(self, clients: ClientBatch) -> Tree:
        reached, bars = [], []
        for rows in self._next_power(clients):
            nodes = np.unique(rows.indices)
            reached.append(torch.from_numpy(nodes.astype(np.int64)))
            bars.append((rows[:, nodes] / (self.hops if self.powers == "mean" else 1)).astype(np.float32))
        clients.state = {"bar": bars, "reached": reached}
        ids = [int(member.graph.ndata["global_id"].max()) for member in clients.members]
        return {"reached": reached, "last": torch.tensor(ids)}

    def start(self, server: Server, uploads: Tree) -> Download:
        server.state["reached"] = uploads["reached"]
        nodes = int(torch.stack([uploads["last"].max(), *[reached.max() for reached in uploads["reached"]]]).max()) + 1
        vectors = server.generator.standard_normal((nodes, self.width), dtype=np.float32) * 0.05
        server.state[VECTORS] = placed(torch.from_numpy(vectors)).requires_grad_(True)
        server.state["optimiser"] = torch.optim.Adam(
            [server.state[VECTORS]], lr=self.lr_vectors, weight_decay=server.config.weight_decay
        )
        server.state["model"] = server.initial_model()
        return self.message(server)

    def _next_power(self, clients: ClientBatch) -> list[sp.csr_matrix]:
        """Return the clients' rows of the next power of P, first of P itself."""
        if "rows" not in clients.state:
            return [self._step(member) for member in clients.members]
        known = zip(clients.members, clients.state["rows"], split(clients.received["rows"]), strict=True)
        return [self._step(*of_client) for of_client in known]

    def _step(
        self, member: NodeClient, known: sp.csr_matrix | None = None, others: Tree | None = None
    ) -> sp.csr_matrix:
        """Return P times rows, (n, ids). known: rows of the client's nodes; others: of neighbours at other clients."""
        (to, by, far), ids = known_edges(member), member.graph.ndata["global_id"]
        n, nodes = len(ids), torch.cat([ids, far]).numpy()
        step = sp.csr_matrix((1 / degrees(member)[to], (to, by)), shape=(n, len(nodes)))
        width, before = int(nodes.max()) + 1, None
        if known is not None and others is not None:
            width = max(width, known.shape[1], width_of([others]))
            known.resize(n, width)
            before = sp.vstack([known, unpacked(others, width)], format="csr")
        itself = sp.csr_matrix((np.ones(len(nodes), np.float32), (np.arange(len(nodes)), nodes)), (len(nodes), width))
        return self._times(step, before, itself)

    def _times(self, step: sp.csr_matrix, before: sp.csr_matrix | None, itself: sp.csr_matrix) -> sp.csr_matrix:
        """Return the product of P (`step`) and `before`, largest entries only. before: None at first; itself: I."""
        if before is None:
            before = itself
        elif self.powers == "mean":
            before = before + itself
        return largest((step @ before).tocsr(), self.keep)

    # -- training ---------------------------------------------------------------------------------------------------

    def message(self, server: Server) -> Download:
        return {"model": server.state["model"], VECTORS: server.state[VECTORS].detach().clone()}

    def client(self, clients: ClientBatch) -> Tree:
        clients.load(clients.received["model"])
        vectors = self.reached(clients, clients.received[VECTORS])
        total = torch.zeros_like(vectors)

        def loss(batch: ClientBatch) -> torch.Tensor:
            part = self.structure(batch.params, batch, trained[VECTORS], batch.streams)
            return batch.cross_entropy(batch.forward().logits + part)

        def collect(_: ClientBatch, grads: Params) -> Params:
            total.add_(grads[VECTORS])
            return {name: value for name, value in grads.items() if name != VECTORS}

        trained = clients.params | {VECTORS: vectors}
        clients.fit(loss, params=trained, adjust=collect)
        gradients = (total / clients.config.local_epochs).split([len(nodes) for nodes in clients.state["reached"]])
        return {"model": clients.params, "gradient_of_vectors": [part.clone() for part in gradients]}

    def server(self, server: Server, uploads: Tree) -> Download:
        server.state["model"] = self.aggregate(server, uploads["model"])
        vectors = server.state[VECTORS]
        vectors.grad = torch.zeros_like(vectors)
        for k, weight, gradient in zip(
            server.participants, server.weights, uploads["gradient_of_vectors"], strict=True
        ):
            vectors.grad.index_add_(0, placed(server.state["reached"][k]), weight * gradient)
        server.state["optimiser"].step()
        return self.message(server)

    def reached(self, clients: ClientBatch, vectors: torch.Tensor) -> torch.Tensor:
        """Return the vectors (M, c) of each client's rows of P_bar. vectors: (K, n, c), equal for all K."""
        return vectors[0].index_select(0, placed(torch.cat(clients.state["reached"])))

    def structure(
        self, params: Params, clients: ClientBatch, vectors: torch.Tensor, streams: Streams | None = None
    ) -> torch.Tensor:
        """Return the vectors' part (N, C) of the class scores. vectors: (M, c), as of `reached`."""
        if "bar" not in clients.cache:
            bars = clients.state["bar"]
            clients.cache["bar"] = SparseMatrix(sp.block_diag(bars, "csr")), tuple(bar.shape[1] for bar in bars)
        bar, sizes = clients.cache["bar"]
        backbone = clients.network.backbones[0]
        assert isinstance(backbone, StructBackbone)
        scores: torch.Tensor = bar @ backbone.of_vectors(params, vectors, sizes, streams)
        return scores

    # -- prediction -------------------------------------------------------------------------------------------------

    def global_model(self, server: Server) -> Params | None:
        return server.state["model"] | {VECTORS: server.state[VECTORS].detach()}

    @torch.no_grad()
    def predict_own(self, params: Params, clients: ClientBatch) -> torch.Tensor:
        vectors = params.get(VECTORS, clients.received.get(VECTORS))
        assert vectors is not None
        logits = clients.forward(params, training=False).logits
        return logits + self.structure(params, clients, self.reached(clients, vectors))

    @torch.no_grad()
    def predict(self, params: Params, network: Network, data: Sequence[Batch]) -> torch.Tensor:
        logits = network.forward(params, data).logits
        if VECTORS not in params:
            return logits
        (batch,), backbone = data, network.backbones[0]
        assert isinstance(backbone, StructBackbone)
        vectors = params[VECTORS][0]
        missing = max(0, int(batch.global_id.max()) + 1 - len(vectors))  # nodes of no client: zero vectors
        scores = backbone.of_vectors(params, F.pad(vectors, (0, 0, 0, missing))[batch.global_id], batch.sizes)
        return logits + self.bar_of(batch) @ scores

    def bar_of(self, batch: Batch) -> SparseMatrix:
        """Return P_bar of a graph without clients."""
        if self.name not in batch.memo:
            batch.memo[self.name] = SparseMatrix(self._bar_of(batch))
        bar: SparseMatrix = batch.memo[self.name]
        return bar

    @on_host()
    def _bar_of(self, batch: Batch) -> sp.csr_matrix:
        source, target = (ends.numpy() for ends in batch.looped.edges(order="eid"))
        weight = 1 / batch.looped.in_degrees().float().numpy()
        n = len(weight)
        step: Any = sp.csr_matrix((weight[target], (target, source)), shape=(n, n))
        rows: Any = None
        for _ in range(self.hops):
            rows = self._times(step, rows, sp.identity(n, np.float32, "csr"))
        return rows / (self.hops if self.powers == "mean" else 1)


def width_of(rows: Sequence[Tree]) -> int:
    """Return the largest column of packed rows + 1."""
    return 1 + max(
        (int(packed_rows["columns"].max()) for packed_rows in rows if len(packed_rows["columns"])), default=0
    )


def largest(rows: sp.csr_matrix, keep: int) -> sp.csr_matrix:
    """Return each row's `keep` largest entries, of equal ones those with the smallest columns; 0: all entries."""
    rows.sort_indices()
    if not keep:
        return rows
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    order = np.lexsort((rows.indices, -rows.data, row))
    place = np.arange(len(order)) - rows.indptr[row[order]]
    chosen = np.sort(order[place < keep])
    return sp.csr_matrix((rows.data[chosen], (row[chosen], rows.indices[chosen])), shape=rows.shape)
