"""FedSage: federated GraphSAGE."""

from __future__ import annotations

from pydantic import Field

from ...benchmark.engine import METHODS, TrainConfig
from ..fedavg import FedAvg


@METHODS.register("fedsage")
class FedSage(FedAvg):
    """Zhang et al., NeurIPS 2021 (arXiv 2106.13430), without the generator: FedAvg of a GraphSAGE classifier.

    Client and messages as FedAvg; server: the plain mean of the models, as the released code has it. Depth, width and
    dropout are the cell's; the neighbourhood is complete where the released code samples 5 neighbours a layer. So are
    rate and rounds: the released classifier has Adam 0.001 and 20 rounds, where the boards' is 0.01.
    """

    summary = "FedAvg of a GraphSAGE classifier"
    title = "FedSage"
    venue = "NeurIPS 2021"
    paper_url = "https://arxiv.org/abs/2106.13430"
    code_url = "https://github.com/zkhku/fedsage"
    tasks = ("node",)
    fixed_backbone = "sage"

    uniform: bool = Field(True, description="mean of the models (released code), or by the configuration's `weighting`")

    def protocol(self, config: TrainConfig) -> TrainConfig:
        return config.model_copy(update={"weighting": "uniform"}) if self.uniform else config
