"""The federated engine: cohorts, backbones, the exchange, evaluation."""

from .backbones import Params
from .cohort import Cohort
from .config import TrainConfig
from .evaluate import Diverged
from .method import METHODS, Arrangement, Method, Phase, Server, Skip, Step, average
from .outcome import Outcome
from .train import train

__all__ = [
    "METHODS",
    "Arrangement",
    "Cohort",
    "Diverged",
    "Method",
    "Outcome",
    "Params",
    "Phase",
    "Server",
    "Skip",
    "Step",
    "TrainConfig",
    "average",
    "train",
]
