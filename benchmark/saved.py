"""Models that a run saved: loaded again, they predict."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..datasets.federation import Federation, NodeClient
from ..methods import METHODS
from ..registry import UserError
from .engine.backbones import BACKBONES
from .engine.evaluate import Evaluator, Models
from .engine.train import set_up
from .runner.best_round import unpacked_models
from .runner.execute import FederationCache
from .store import Store
from .store.places import WRITTEN
from .store.schema import Row
from .suites.cell import Cell

_FEDERATIONS = FederationCache()


@dataclass(frozen=True)
class SavedModel:
    """The models of a row's best round. federation: the clients that the run had. models: `server`, tensors by name, or
    None; `personal`, for each batch of clients tensors (K, ...) by name, or None. scored: "global" or "personal", the
    model of the row's score."""

    federation: Federation
    models: Models
    scored: str
    _evaluator: Evaluator

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The server's model by name. UserError where the method has none."""
        if self.models.server is None:
            raise UserError("the method keeps a model at every client and none at the server: see .models.personal")
        return dict(self.models.server)

    @torch.no_grad()
    def predict(self, model: str | None = None) -> list[torch.Tensor]:
        """Class scores of each client's own nodes, (nodes, classes) float32, in the order of `federation.clients`.

        model: "global" (the server's) or "personal"; by default the one of the row's score. The class is the `argmax`.
        UserError where there is no such model.
        """
        kind = model or self.scored
        if kind not in ("global", "personal"):
            raise UserError(f'model is "global" or "personal", got {kind!r:.40}')
        if (self.models.server if kind == "global" else self.models.personal) is None:
            raise UserError(f"the method has no {kind} model")
        method, scores = self._evaluator.method, []
        for place, batch in enumerate(self._evaluator.client_batches):
            models = self.models.expanded(len(batch)) if kind == "global" else (self.models.personal or [])[place]
            held = [self.federation.clients[client] for client in batch.network.clients]
            nodes = [client.graph.num_nodes() for client in held if isinstance(client, NodeClient)]
            scores += list(torch.split(method.predict_own(models, batch), nodes))
        return scores


def load_model(row: Mapping[str, Any] | Any, results: str | os.PathLike[str] = WRITTEN) -> SavedModel:
    """Load the models that `run(save_models=True)` or `fglbench run --save-models` saved for a row.

    row: a line of the data frame of `run` or `load_results` (`rows.iloc[0]`), not expanded. results: its folder.
    UserError where nothing was saved, for unavailable data, and for methods that train on other graphs than the
    clients' own or predict by what they exchanged before training, and on sets of graphs.
    """
    try:
        known = {name: value for name, value in dict(row).items() if name in Row.model_fields and value == value}
        cell = Cell.of(Row.model_validate(known))
    except (ValueError, TypeError) as error:
        raise UserError(f"this is no row of `run` or `load_results`: {str(error).splitlines()[0]}") from None
    models = unpacked_models(Store(results).model_file(str(known["suite"]), str(known["key"])))
    federation = _FEDERATIONS.get(cell)
    method, backbones = cell.method.build(METHODS), [choice.build(BACKBONES) for choice in cell.backbones]
    simulation, evaluator = set_up(federation, method, backbones, cell.training, cell.seed)
    if cell.task != "node" or evaluator.arrangement.scored is not None or method.edges_between_clients:
        raise UserError(f"{cell.method.name} on {cell.dataset.name}: predictions of each client's own nodes only")
    personal = known["score_metric"] == evaluator.describe("personal", simulation.config.score_on)
    return SavedModel(federation, models, "personal" if personal else "global", evaluator)
