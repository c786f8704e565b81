"""Optional side files of a run's best round: embeddings for t-SNE and CKA, models as a safetensors file."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from ...registry import UserError
from ..engine import Batch, Evaluator, Forward, Models, Network, Params, Streams, stream
from ..engine.graphs.clustering import ClusteringEvaluator

# Side files are published with the rows: with these bounds one has less than about 1 MB at width 64.
NODES = 800  # nodes (or graphs) that the global model embeds; t-SNE of more takes long and is not clearer
SHARED = 500  # of these, the first that every client's model embeds
CLIENTS = 20  # the first clients, whose models embed

Embed = Callable[[Params, Network], torch.Tensor | None]  # one model (1, ...) -> embeddings of all nodes or graphs


def collect(evaluator: Evaluator, models: Models, seed: int) -> dict[str, np.ndarray]:
    """The embeddings by `models` on the whole graph: the input of a backbone's last layer, without dropout.

    "node": (n,) int64, test nodes of the whole graph drawn by `seed`; for a set of graphs, any of them. "label": (n,)
    int64. "global": (n, h), by the server's model, or the only model of a centralised run. "client_000", ...: (m, h_k),
    by each client's model on the first m of these nodes. Embeddings are float16 with a largest magnitude of 1 (t-SNE
    and CKA do not depend on the scale). "note": the reason if something is missing, else "".
    """
    if evaluator.original.domains:
        none = np.empty(0, np.int64)
        return {"node": none, "label": none, "note": np.array("clients have features and classes of their own")}
    source = _graphs if isinstance(evaluator, ClusteringEvaluator) else _nodes
    label, candidates, embed = source(evaluator)
    node = stream(seed, "embeddings").permutation(candidates)[:NODES]
    sample: dict[str, np.ndarray] = {"node": node, "label": label[node]}
    notes = []
    centralised = sum(map(len, evaluator.client_batches)) == 1
    if models.server is not None:
        shared = {name: value.unsqueeze(0) for name, value in models.server.items()}
        whole = embed(shared, evaluator.client_batches[0].network.select([0]))
        notes += _add(sample, "global", whole, node)
    elif not centralised:
        notes.append("there is no global model")
    if models.personal is None:
        notes.append("clients have no models of their own")
    elif not evaluator.method.travels:
        notes.append("clients' models are bound to their own graphs")
    else:
        for client, model in enumerate(islice(evaluator.one_by_one(models, "personal"), CLIENTS)):
            rows = embed(*model)
            name = "global" if centralised and "global" not in sample else f"client_{client:03d}"
            notes += _add(sample, name, rows, node if name == "global" else node[:SHARED])
    sample["note"] = np.array("; ".join(dict.fromkeys(notes)))
    return sample


def _add(sample: dict[str, np.ndarray], name: str, rows: torch.Tensor | None, node: np.ndarray) -> list[str]:
    """Add the embeddings of the given nodes as `name`; return the reasons if there are none."""
    if rows is None:
        return ["the method's prediction does not pass through a backbone"]
    values = rows[torch.from_numpy(node)].numpy()
    sample[name] = (values / max(float(np.abs(values).max(initial=0.0)), 1e-30)).astype(np.float16)
    return []


class _WatchedNetwork(Network):
    """A network that keeps the result of its last pass, to get the embeddings of a method's `predict`."""

    seen: Forward | None = None

    def forward(self, params: Params, data: Sequence[Batch], streams: Streams | None = None) -> Forward:
        self.seen = super().forward(params, data, streams)
        return self.seen


def _nodes(evaluator: Evaluator) -> tuple[np.ndarray, np.ndarray, Embed]:
    """All labels, the test nodes (or graphs to classify), and the function that embeds all nodes by one model, (N, h).

    The function returns None if the method's `predict` does not use the network.
    """
    federation = evaluator.original
    batch, _ = evaluator.beyond("global")

    @torch.no_grad()
    def embed(params: Params, network: Network) -> torch.Tensor | None:
        watched = _WatchedNetwork(network.backbones, network.clients)
        evaluator.method.predict(params, watched, (batch,))
        return None if watched.seen is None else watched.seen.embedding

    return federation.whole.label.numpy(), federation.masks["test"].nonzero().squeeze(1).numpy(), embed


def _graphs(evaluator: Evaluator) -> tuple[np.ndarray, np.ndarray, Embed]:
    """The same for a set of graphs that is clustered: all graphs, and embeddings (graphs, c) before clustering."""
    assert isinstance(evaluator, ClusteringEvaluator)
    label = evaluator.original.whole.label.numpy()
    return label, np.arange(len(label)), evaluator.embeddings


SERVER, PERSONAL = "server", "personal"
MISSING = "saved models need safetensors: pip install 'fglbench[models]'"


def check_safetensors() -> None:
    """UserError if the library is not installed."""
    if importlib.util.find_spec("safetensors") is None:
        raise UserError(MISSING)


def packed_models(models: Models) -> bytes:
    """Return a safetensors file: `server.NAME` of the server's model; `personal.BATCH.NAME` (K, ...) of the clients'
    models, with the clients of a batch on the first axis, in the order of the run."""
    check_safetensors()
    from safetensors.torch import save

    tensors = {f"{SERVER}.{name}": value for name, value in (models.server or {}).items()}
    for batch, params in enumerate(models.personal or ()):
        tensors |= {f"{PERSONAL}.{batch}.{name}": value for name, value in params.items()}
    return save({name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()})


def unpacked_models(path: Path) -> Models:
    """Read a file of `packed_models`. UserError if it does not exist or is not such a file."""
    check_safetensors()
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise UserError(
            f"no saved model at {str(path)!r}: run it with --save-models (save_models=True), or name its folder: "
            "load_model(row, results=...)"
        )
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"cannot read {str(path)!r}: {error}; run it again with --save-models") from None
    server: dict[str, torch.Tensor] = {}
    personal: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith(f"{SERVER}."):
            server[name.removeprefix(f"{SERVER}.")] = value
        elif match := re.fullmatch(rf"{PERSONAL}\.(\d+)\.(.+)", name):
            personal.setdefault(int(match[1]), {})[match[2]] = value
    return Models(server or None, [personal[batch] for batch in sorted(personal)] or None)
