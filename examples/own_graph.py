# %% [markdown]
# # A graph of your own
#
# Your graph is a folder with two tables: a line for each node in `nodes.csv` and a line for each edge in `edges.csv`
# (`docs/own-data.md` has the columns). This example makes such a folder: villages in three valleys. Most edges are
# inside a valley, and the crops of a village are a weak sign of its valley.

# %%
import os
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd

import fglbench

ROUNDS = os.environ.get("ROUNDS", "30")
VALLEYS = ["north", "east", "south"]

if __name__ == "__main__":
    graph = nx.planted_partition_graph(3, 40, 0.15, 0.02, seed=0)
    valley = np.repeat(VALLEYS, 40)
    crops = np.random.default_rng(0).random((120, 6)) + 0.5 * np.repeat(np.eye(3), 40, axis=0).repeat(2, axis=1)
    nodes = pd.DataFrame(crops.round(3), columns=["barley", "beans", "flax", "oats", "peas", "rye"])
    nodes.insert(0, "label", valley)
    nodes.insert(0, "node", [f"village-{i}" for i in range(120)])
    edges = pd.DataFrame([(f"village-{u}", f"village-{v}") for u, v in graph.edges], columns=["source", "target"])
    Path("villages").mkdir(exist_ok=True)
    nodes.to_csv("villages/nodes.csv", index=False)
    edges.to_csv("villages/edges.csv", index=False)
    print(nodes.head(), edges.head(), sep="\n")

# %% [markdown]
# `data` names the folder. Its nodes are divided among three clients, and the methods run on them. In a shell this is
# `fglbench run --quick --data villages -m local,fedavg,global -p uniform -k 3 --seeds 2 --results runs/own`. If
# `nodes.csv` has a column `client`, these are the clients.

# %%
if __name__ == "__main__":
    rows = fglbench.run(
        quick=True,
        data="villages",
        methods=["local", "fedavg", "global"],
        partitions=["uniform"],
        clients=[3],
        settings=[f"training.rounds={ROUNDS}"],
        seeds=range(2),
        results="runs/own",
    )
    print(rows.groupby("method")["score"].agg(["mean", "std"]))

# %% [markdown]
# `evaluate` scores predictions of other code on the same clients and test nodes. After the run, the graph is the
# dataset `own:villages`. Here the prediction for a node is the most common label of its training neighbours.

# %%
if __name__ == "__main__":
    cut = fglbench.federation("own:villages", suite="quick", clients=3)
    label = cut.whole.label.numpy()
    votes = np.zeros((120, 3), dtype=int)
    for u, v in graph.edges:
        for node, neighbour in ((u, v), (v, u)):
            votes[node, label[neighbour]] += bool(cut.masks["train"][neighbour])
    print(fglbench.evaluate(votes.argmax(1), cut))
