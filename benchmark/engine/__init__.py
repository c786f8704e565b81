"""The federated engine: client batches, the round loop, evaluation.

Authors of methods and tasks import all they need from here.

- in ordinary PyTorch, one client at a time: `TorchMethod`, `Client`, `GraphConvolution`, `ModuleBackbone`
- methods: `METHODS`, `Method`, `GraphMethod` (sets of graphs); `Phase`, `Step`, `Server`, `Common`,
  `average`, `Arrangement`, `Facts`, `Skip`
- clients: `ClientBatch`, `GraphClientBatch`, `Network`, `Batch`, `GraphBatch`, `Features`, `TrainConfig`
- messages: `Tree`, `Download`, `Each`, `transform`, `in_parts`, `Parts`; models: `Params`, `Tensors`, `Forward`
- architectures: `BACKBONES`, `Backbone`, those of the benchmark, `affine`, `glorot`, `linear_map`, `linear_maps`,
  `Encoder` (sets of graphs); `GraphModel` and `GraphRows` (graph classification); clusters: `k_means`
- arithmetic per client: `segment_*`, `of_shape`, `dropout`, `owners`, `SparseMatrix`, `to_torch_csr`, `take_rows`
- arithmetic per edge, under DGL's names: `active_kernels()`
- devices: `as_graph`, `on_host`, `placed`; graphs and the clients' data are always on the host
- tasks: `Task`, `add_task`; `Evaluator`, `Scored`, `Models`, `Target`, `MEASURES`, `LabelledRows`,
  `SampledClientBatch`; of graphs: `LabelledClientBatch`, `GraphEvaluator`, `graph_models`
- parameters of a method: `option`; errors of the user: `UserError`; data: `Federation`, `NodeClient`, `Goal`
- draws: `Streams`, `stream`, `torch_source`, `rate`; other graphs: `collate`, `whole_client`, `union_client`;
  timing: `section`

Runs are in train.py, which methods and tasks do not need.
"""

from ...datasets.federation import Federation, Goal, NodeClient
from ...registry import UserError, option
from .backbone import Network
from .backbones import (
    BACKBONES,
    GAT,
    GCN,
    GIN,
    MLP,
    SGC,
    Backbone,
    Forward,
    GraphSAGE,
    OrthoGCN,
    Params,
    affine,
    glorot,
    linear_map,
    linear_maps,
)
from .batch import Batch, LabelledRows, as_graph, collate
from .client_batch import STATISTICS, ClientBatch, Skip, is_statistic
from .config import TrainConfig
from .device import on_host, placed, section
from .evaluate import MEASURES, Diverged, Evaluator, Models, Scored, Task, add_task
from .features import Features
from .graphs.classification import GraphEvaluator, GraphModel, LabelledClientBatch, graph_models
from .graphs.clustering import Encoder, GraphClientBatch, GraphMethod, encoder_of, k_means
from .graphs.graphsets import GraphBatch, GraphRows, Operator, neighbours, normalised
from .kernels import active_kernels
from .lazy import Parts, in_parts
from .method import METHODS, Arrangement, Common, Method, Phase, Server, Step, average
from .module_backbone import GraphConvolution, ModuleBackbone
from .optim import Tensors
from .payload import Download, Each, Leaf, Tree, transform
from .rng import Streams, rate, stream, torch_source
from .sampled_batch import SampledClientBatch
from .segment_ops import (
    SparseMatrix,
    dropout,
    of_shape,
    owners,
    segment_add,
    segment_dot,
    segment_product,
    segment_sum,
    take_rows,
    to_scipy_csr,
    to_torch_csr,
)
from .target import Target
from .torch_method import Client, TorchMethod
from .views import Facts, union_client, whole_client

__all__ = [
    "BACKBONES", "GAT", "GCN", "GIN", "MEASURES", "METHODS", "MLP", "SGC", "STATISTICS", "Arrangement", "Backbone",
    "Batch", "Client", "ClientBatch", "Common", "Diverged", "Download", "Each", "Encoder", "Evaluator", "Facts",
    "Features", "Federation", "Forward", "Goal", "GraphBatch", "GraphClientBatch", "GraphConvolution", "GraphEvaluator",
    "GraphMethod", "GraphModel", "GraphRows", "GraphSAGE", "LabelledClientBatch", "LabelledRows", "Leaf", "Method",
    "Models", "ModuleBackbone", "Network", "NodeClient", "Operator", "OrthoGCN", "Params", "Parts", "Phase",
    "SampledClientBatch", "Scored", "Server", "Skip", "SparseMatrix", "Step", "Streams", "Target", "Task", "Tensors",
    "TorchMethod", "TrainConfig", "Tree", "UserError", "active_kernels", "add_task", "affine", "as_graph", "average",
    "collate", "dropout", "encoder_of", "glorot", "graph_models", "in_parts", "is_statistic", "k_means", "linear_map",
    "linear_maps", "neighbours", "normalised", "of_shape", "on_host", "option", "owners", "placed", "rate", "section",
    "segment_add", "segment_dot", "segment_product", "segment_sum", "stream", "take_rows", "to_scipy_csr",
    "to_torch_csr", "torch_source", "transform", "union_client", "whole_client",
]  # fmt: skip
