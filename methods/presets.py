"""General methods on a fixed architecture, under the names of the FedOMD paper."""

from __future__ import annotations

from ..benchmark.engine import METHODS
from .fedavg import FedAvg, Local
from .fedprox import FedProx
from .scaffold import Scaffold


@METHODS.register("fedmlp")
class FedMLP(FedAvg):
    """FedAvg of an MLP that ignores edges (FedOMD's FedMLP: 2 layers, h = 64). Messages as FedAvg."""

    summary = "FedAvg of a network that ignores edges"
    title = "FedAvg of an MLP"
    venue = "ICPP Workshops 2024"
    paper_url = "https://doi.org/10.1145/3677333.3678159"
    tasks = ("node",)
    fixed_backbone = "mlp"


@METHODS.register("fedprox-mlp")
class FedProxMLP(FedProx):
    """FedProx of an MLP (the FedProx row of FedOMD, whose base model is FedMLP). Messages as FedAvg."""

    summary = "FedProx of a network that ignores edges"
    title = "FedProx of an MLP"
    venue = "ICPP Workshops 2024"
    paper_url = "https://doi.org/10.1145/3677333.3678159"
    tasks = ("node",)
    fixed_backbone = "mlp"


@METHODS.register("scaffold-mlp")
class ScaffoldMLP(Scaffold):
    """SCAFFOLD of an MLP (the SCAFFOLD row of FedOMD, whose base model is FedMLP). Messages as SCAFFOLD."""

    summary = "SCAFFOLD of a network that ignores edges"
    title = "SCAFFOLD of an MLP"
    venue = "ICPP Workshops 2024"
    paper_url = "https://doi.org/10.1145/3677333.3678159"
    tasks = ("node",)
    fixed_backbone = "mlp"


@METHODS.register("locgcn")
class LocGCN(Local):
    """Local training of a GCN (FedOMD's LocGCN). Messages: none."""

    summary = "local training with a GCN, as in FedOMD"
    title = "Local GCN"
    venue = "ICPP Workshops 2024"
    paper_url = "https://doi.org/10.1145/3677333.3678159"
    tasks = ("node",)
    fixed_backbone = "gcn"


@METHODS.register("fedgcn")
class FedGCN(FedAvg):
    """FedAvg of a GCN (FedOMD's FedGCN; not the cross-client method of arXiv 2201.12433). Messages as FedAvg."""

    summary = "FedAvg of a GCN, FedOMD's FedGCN"
    title = "FedAvg of a GCN"
    venue = "ICPP Workshops 2024"
    paper_url = "https://doi.org/10.1145/3677333.3678159"
    tasks = ("node",)
    fixed_backbone = "gcn"
