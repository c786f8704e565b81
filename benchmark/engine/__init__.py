"""The federated engine: cohorts, backbones, the exchange, evaluation."""

from .config import TrainConfig
from .evaluate import Diverged
from .method import METHODS, Arrangement, Method, Phase, Server, Skip, Step, average
from .outcome import Outcome
from .train import train

__all__ = [
    "METHODS",
    "Arrangement",
    "Diverged",
    "Method",
    "Outcome",
    "Phase",
    "Server",
    "Skip",
    "Step",
    "TrainConfig",
    "average",
    "train",
]
