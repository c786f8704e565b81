# %% [markdown]
# # A graph of your own
#
# A dataset is a class that returns edges, labels and features. This one reads them from an npz file. Like a method, it
# lies in a file of its own, because runs start new processes, which import it.

# %%
import os
from pathlib import Path

import networkx as nx
import numpy as np

import fglbench

ROUNDS = os.environ.get("ROUNDS", "30")
DATASET = '''
"""A graph from an npz file beside this one."""

from pathlib import Path

import numpy as np

from fglbench.datasets import DATASETS
from fglbench.datasets.content import node_content
from fglbench.datasets.spec import About, NodeSpec


@DATASETS.register("my-graph")
class MyGraph(NodeSpec):
    """Three communities of forty people; the features are noisy."""

    about = About("unpublished", "mine", "", "made by examples/own_graph.py")

    def content(self):
        file = np.load(Path(__file__).with_name("my_graph.npz"))
        return node_content(file["edges"], file["label"], file["features"]), "my_graph.npz"
'''

# %% [markdown]
# The file holds the undirected edges (E, 2), a label for each node (N,), and the features (N, d).

# %%
if __name__ == "__main__":
    graph = nx.planted_partition_graph(3, 40, 0.15, 0.02, seed=0)
    label = np.repeat([0, 1, 2], 40)
    features = np.random.default_rng(0).random((120, 12), dtype=np.float32) + np.eye(12, dtype=np.float32)[label]
    np.savez("my_graph.npz", edges=np.array(graph.edges), label=label, features=features)
    Path("my_graph.py").write_text(DATASET)

# %% [markdown]
# `fglbench data partition my-graph --clients 3 --plugin my_graph.py` shows what each client would hold.

# %%
if __name__ == "__main__":
    rows = fglbench.run(
        quick=True,
        methods=["local", "fedavg", "global"],
        datasets=["my-graph"],
        clients=[3],
        settings=[f"training.rounds={ROUNDS}"],
        seeds=range(2),
        results="runs/own",
        plugins=["my_graph.py"],
    )
    print(rows.groupby("method")["score"].agg(["mean", "std"]))

# %% [markdown]
# Predictions that were made elsewhere are scored on the same clients and test nodes by `evaluate`. Here each node gets
# the commonest label of its neighbours that are for training.

# %%
if __name__ == "__main__":
    cut = fglbench.federation("my-graph", suite="quick", clients=3)
    votes = np.zeros((120, 3), dtype=int)
    for u, v in graph.edges:
        for node, neighbour in ((u, v), (v, u)):
            votes[node, label[neighbour]] += bool(cut.masks["train"][neighbour])
    print(fglbench.evaluate(votes.argmax(1), cut))
