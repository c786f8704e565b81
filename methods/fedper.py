"""FedPer: shared base layers, and personal last layers per client."""

from __future__ import annotations

from ..benchmark.engine import METHODS, Params, option
from .fedavg import SharedPart
from .parts.personal import last_layers


@METHODS.register("fedper")
class FedPer(SharedPart):
    """Arivazhagan et al., 2019 (arXiv 1912.00818).

    A model has base layers W_B and its last `own_layers` layers W_P. Client: W_B <- the received ones, E epochs on its
    mean cross-entropy over (W_B, W_P). Server: W_B <- sum_k w_k W_B,k, with w_k by the training configuration's
    `weighting`. Messages: W_B up and down; W_P is not sent. Scored: the received W_B with the client's W_P.
    own_layers = 0 is FedAvg, all layers is local training.

    Departures: the paper draws each W_P at random; here all clients start from the common initial model. The paper
    fine-tunes a pretrained image network; graphs have no pretrained network.
    """

    family = "personal"
    summary = "FedAvg of all layers except the last, which is personal"
    title = "FedPer"
    venue = "arXiv 2019"
    paper_url = "https://arxiv.org/abs/1912.00818"
    tasks = ("node", "graph-classification", "rows")

    own_layers: int = option(1, "number of last layers that are not sent (paper: 1 to 4)", ge=0, tune=[1, 2])

    def shared(self, params: Params) -> Params:
        personal = last_layers(params, self.own_layers)
        return {name: value for name, value in params.items() if name not in personal}
